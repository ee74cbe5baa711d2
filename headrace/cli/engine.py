"""`headrace engine`: the engine alone, and whether it is ready."""

import os
import signal

from headrace import telemetry
from headrace.cli.command import Command, Context, argument
from headrace.clock import SystemClock
from headrace.errors import ConfigError, Exit, NotRunning, Refused
from headrace.local import lock
from headrace.local.home import Home

LOCK_WAIT_S = 1.0  # whoever looks whether it is free takes it for a moment


def run_engine(context: Context) -> int:
    """Run the engine until it is told to stop."""
    if context.arguments.check:
        return check_engine(context)
    config = context.config
    for key, value in [
        ("broker.bootstrap", config.broker.bootstrap),
        ("warehouse.url", config.warehouse.url),
    ]:
        if not value:
            raise ConfigError(
                f"the engine needs {key}",
                hint=f"Give it (--set {key}=...), or let `headrace up` start all parts together.",
            )
    # Here, because every other command would pay for importing Spark.
    from etl_procs import loader
    from headrace.cli.assembly import Engine
    from ingest import security

    security.check(config.broker)
    telemetry.start_logging("engine")
    home = Home(config.home)
    home.create()
    held = _be_the_only_one(home)
    engine = Engine(config, loader.load(config.flows), SystemClock())

    def stop_on_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: engine.stop())

    def ready() -> None:
        stop_on_signals()  # PySpark has taken SIGINT for itself
        lock.sign_for(held, os.getpid())

    stop_on_signals()
    engine.run(when_ready=ready)
    return Exit.OK


def _be_the_only_one(home: Home) -> int:
    """Take the writer's lock: a second engine would only lose every batch to the first."""
    held = lock.take_within(home.writer_lock, LOCK_WAIT_S, SystemClock())
    if held is None:
        raise Refused(
            f"another engine runs in {home.root} (pid {ready_pid(home) or 'not known yet'})",
            hint="Stop it first: `headrace down`, or end that process.",
        )
    return held


def ready_pid(home: Home) -> int | None:
    """Tell the pid of the engine of a data folder, if one is ready."""
    return lock.holder(home.writer_lock)


def check_engine(context: Context) -> int:
    """Say whether the engine of this data folder is ready."""
    pid = ready_pid(Home(context.config.home))
    if pid is None:
        raise NotRunning(
            f"no engine is ready in {context.config.home}",
            hint="Start it with `headrace up`, or `headrace engine` alone.",
        )
    print(f"ready, pid {pid}")
    return Exit.OK


COMMANDS = [
    Command(
        name="engine",
        summary="run the engine alone, against a given broker and warehouse",
        description="Run the engine - Spark's driver, the core's writer and the pusher - in this "
        "process. `headrace up` starts it beside the other parts; alone it needs broker.bootstrap "
        "and warehouse.url. SIGTERM ends it after the batch at hand.",
        examples=(
            "headrace engine --flow my_flow.py --set broker.bootstrap=kafka:9092 "
            "--set warehouse.url=postgresql://me@warehouse/db",
            "headrace engine --check",
        ),
        run=run_engine,
        arguments=(
            argument(
                "--check",
                action="store_true",
                help="only say whether the engine of this folder is ready",
            ),
        ),
    )
]
