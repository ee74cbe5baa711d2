"""`headrace engine`: the engine alone, and whether it is ready."""

import argparse
import json
import os
import signal
from pathlib import Path

from headrace import telemetry
from headrace.cli.command import Command, Context
from headrace.clock import SystemClock
from headrace.errors import ConfigError, Exit, NotRunning
from headrace.local.home import Home


def ready_file(home: Path) -> Path:
    """Name the file that a ready engine leaves in the data folder, with its pid."""
    return Home(home).run / "engine.json"


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

    telemetry.start_logging("engine")
    Home(config.home).create()
    engine = Engine(config, loader.load(config.flows), SystemClock())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: engine.stop())
    ready = ready_file(config.home)
    try:
        engine.run(when_ready=lambda: _say_ready(ready))
    finally:
        ready.unlink(missing_ok=True)
    return Exit.OK


def _say_ready(ready: Path) -> None:
    written = ready.with_suffix(".new")
    now = SystemClock().now().isoformat()
    written.write_text(json.dumps({"pid": os.getpid(), "ready_at": now}), encoding="utf-8")
    written.replace(ready)


def ready_pid(home: Path) -> int | None:
    """Tell the pid of the engine of a data folder, if one is ready."""
    try:
        pid = int(json.loads(ready_file(home).read_text(encoding="utf-8"))["pid"])
        os.kill(pid, 0)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return pid


def check_engine(context: Context) -> int:
    """Say whether the engine of this data folder is ready."""
    pid = ready_pid(context.config.home)
    if pid is None:
        raise NotRunning(
            f"no engine is ready in {context.config.home}",
            hint="Start it with `headrace up`, or `headrace engine` alone.",
        )
    print(f"ready, pid {pid}")
    return Exit.OK


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--check", action="store_true", help="only say whether the engine of this folder is ready"
    )


COMMANDS = [
    Command(
        name="engine",
        summary="run the engine alone, against a given broker and warehouse",
        description="Run the engine - Spark's driver, the core's writer and the pusher - in this "
        "process.\n`headrace up` starts it beside the other parts; alone it needs "
        "broker.bootstrap and\nwarehouse.url. SIGTERM ends it after the batch at hand.",
        examples=(
            "headrace engine --flow my_flow.py --set broker.bootstrap=kafka:9092 "
            "--set warehouse.url=postgresql://me@warehouse/db",
            "headrace engine --check",
        ),
        run=run_engine,
        arguments=_arguments,
    )
]
