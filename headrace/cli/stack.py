"""`headrace up | down | status | logs`: the local stack from the command line."""

import argparse
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from headrace.cli import parts
from headrace.cli.command import JSON, Command, Context, argument, count
from headrace.cli.status import look, print_status
from headrace.clock import SystemClock
from headrace.config import Config
from headrace.errors import Exit, HeadraceError, NotRunning, Refused
from headrace.local import lock, logs, postgres, state
from headrace.local.home import Home
from headrace.local.state import State
from headrace.local.supervisor import Supervisor, not_stopped

LOCK_WAIT_S = 1.0  # `status` looks whether the lock is free by taking it for a moment
FORMER_GONE_S = 60.0
DOWN_TIMEOUT_S = 120.0  # more than all parts' own limits together
POLL_S = 0.1
TELL_EVERY_S = 5.0
LEAVING = (State.STOPPING, State.STOPPED, State.FAILED)
READY_MARK = b"\0"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

CLOCK = SystemClock()


# up


def up(context: Context) -> int:
    """Start the stack, here or in the background."""
    # Probes are refused until the broker is up. Why is still heard where errors are told.
    kafka = logging.getLogger("kafka")
    kafka.addHandler(logging.NullHandler())
    kafka.propagate = False
    home = Home(context.config.home)
    if lock.is_held(home.supervisor_lock):
        return _already_up(context.config)
    if context.arguments.detach:
        return _detach(context.config)
    return _supervise(context.config, lambda: print("Ctrl-C stops it.", flush=True))


def _already_up(config: Config) -> int:
    """Say how the stack of another command is; while it is being started, wait for that."""
    home = Home(config.home)
    deadline = CLOCK.monotonic() + config.supervisor.ready_timeout_s
    while CLOCK.monotonic() < deadline:
        found = state.running(home)
        if found is not None and found.state is not State.STARTING:
            break
        if lock.wait_until_free(home.supervisor_lock, POLL_S, CLOCK):
            break
    view = look(config, CLOCK)
    print(
        "Headrace is up already, as it was started (flows and settings of this command are not "
        "looked at; `headrace down` first to change them):\n"
        if view.is_ready
        else "Headrace was started by another command, and it is not ready:\n"
    )
    print("\n".join(view.lines()))
    return Exit.OK if view.is_ready else Exit.NOT_RUNNING


def _supervise(config: Config, on_ready: Callable[[], None]) -> int:
    """Be the supervisor until the stack is stopped."""
    machine = parts.check_machine(config)
    home = Home(config.home)
    home.create()
    own = lock.take_within(home.supervisor_lock, LOCK_WAIT_S, CLOCK)
    if own is None:
        return _already_up(config)
    lock.sign_for(own, os.getpid())
    wait_for_former(home)
    wired = parts.wire(config, machine)

    def report(text: str) -> None:
        logs.append(home.log(logs.SUPERVISOR), CLOCK.now(), text)
        with contextlib.suppress(OSError):  # the terminal may be gone
            print(text, flush=True)

    def ready() -> None:
        report("Headrace is up.")
        with contextlib.suppress(OSError):
            print("\n".join(_where(config, wired)), flush=True)
            on_ready()

    supervisor = Supervisor(
        home=home,
        parts=wired.parts,
        external=wired.external,
        limits=config.supervisor,
        clock=CLOCK,
        report=report,
        on_ready=ready,
        pid=os.getpid(),
    )
    _stop_on_signals(supervisor)
    try:
        supervisor.run()
    except HeadraceError as error:
        if not _is_open_as(2, home.log(logs.SUPERVISOR)):  # or it would be there twice
            logs.append(home.log(logs.SUPERVISOR), CLOCK.now(), error.what)
        raise
    report("Headrace is stopped.")
    return Exit.OK


def _stop_on_signals(supervisor: Supervisor) -> None:
    for number in STOP_SIGNALS:
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup: it shall outlive its terminal
        signal.signal(number, lambda *_: supervisor.ask_to_stop())


def wait_for_former(home: Home) -> None:
    """Let the children of a supervisor that was just killed go down first."""
    for name in parts.NAMES:
        path = home.part_lock(name)
        if not lock.wait_until_free(path, FORMER_GONE_S, CLOCK):
            raise Refused(
                f"a {name} of a former run still lives (pid {lock.holder(path)})",
                hint="End that process, and run `headrace up` again.",
            )


def _where(config: Config, wired: parts.Wired) -> list[str]:
    """Say where clients find the parts, and where the secrets lie."""
    home = Home(config.home)
    lines = []
    for part in wired.parts:
        if part.name == parts.POSTGRES:
            url = f"postgresql://{postgres.USER}@{part.address}/{postgres.DATABASE}"
            lines.append(f"  PostgreSQL  {url}  (password: {home.postgres_password})")
        elif part.name == parts.API:
            key = "api.key" if config.api.key else str(home.api_key)
            lines.append(f"  API         http://{part.address}  (key: {key})")
        elif part.name == parts.BROKER:
            lines.append(f"  broker      {part.address}")
    lines += [f"  {name:<11} {there.address}" for name, there in wired.external.items()]
    return [*lines, "`headrace status` shows how it is, `headrace down` stops it."]


def _detach(config: Config) -> int:
    """Be the supervisor in a session of its own; here, show its progress until all is ready."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)  # none may come before we know the child
    pid = os.fork()  # no thread was started yet
    if pid:
        os.close(writing)
        return _follow_start(Home(config.home), pid, reading)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    os.setsid()
    os.close(reading)
    _redirect(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(writing, 1)
    _redirect(writing, 2)
    return _supervise(config, lambda: _let_go(Home(config.home)))


def _let_go(home: Home) -> None:
    """Tell the waiting command that all is ready, and write no more to its terminal."""
    with contextlib.suppress(OSError):  # it may have been killed
        os.write(1, READY_MARK)
    _redirect(os.open(os.devnull, os.O_WRONLY), 1)  # progress is in the supervisor's log already
    log = home.log(logs.SUPERVISOR)
    _redirect(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)


def _is_open_as(descriptor: int, path: Path) -> bool:
    return path.exists() and os.path.samestat(os.fstat(descriptor), path.stat())


def _redirect(source: int, target: int) -> None:
    os.dup2(source, target)
    os.close(source)


def _follow_start(home: Home, pid: int, reading: int) -> int:
    """Copy the supervisor's progress to the terminal; a wish to stop is passed on to it."""
    interrupted = False

    def pass_on(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        _signal(pid, signal.SIGTERM)

    for number in STOP_SIGNALS:
        signal.signal(number, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    while told := os.read(reading, 4096):
        sys.stdout.write(told.replace(READY_MARK, b"").decode(errors="replace"))
        sys.stdout.flush()
        if READY_MARK in told and not interrupted:
            return Exit.OK
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if interrupted:
        return Exit.INTERRUPTED
    if code == Exit.OK:  # it was stopped before it was ready, or another one is up already
        found = state.running(home)
        return Exit.OK if found is not None and found.state is State.READY else Exit.FAILED
    return code if code > 0 else Exit.FAILED


# down


def down(context: Context) -> int:
    """Stop the stack in order and wait until it is gone."""
    home = Home(context.config.home)
    pid = lock.holder(home.supervisor_lock)
    if pid is None:
        print(f"Headrace is not running in {home.root}.")
        return Exit.OK
    found = state.running(home)
    if found is None or found.state is not State.STOPPING:
        _signal(pid, signal.SIGTERM)
    running = [name for name, part in found.parts.items() if part.pid] if found else []
    if not _watch_stopping(home, running):
        print(f"the supervisor (pid {pid}) does not end: it is killed, and its parts with it")
        _signal(pid, signal.SIGKILL)
        wait_for_former(home)
    print("Headrace is stopped; its data stays.")
    return Exit.OK


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
        os.kill(pid, number)


def _watch_stopping(home: Home, running: list[str]) -> bool:
    """Say which part is waited for, until the supervisor is gone or its time is over."""
    began = since = told = CLOCK.monotonic()
    name, gone = logs.SUPERVISOR, False
    while not gone and CLOCK.monotonic() < began + DOWN_TIMEOUT_S:
        gone = lock.wait_until_free(home.supervisor_lock, POLL_S, CLOCK)
        found, now = state.read(home), CLOCK.monotonic()
        # What was stopped since the last look is said too.
        while found and running and found.parts[running[-1]].state in LEAVING:
            name, since, told = running.pop(), now, now
            print(f"{name:<9} stopping", flush=True)
        if not gone and now >= told + TELL_EVERY_S:
            told = now
            print(not_stopped(name, now - since), flush=True)
    return gone


# logs


def show_logs(context: Context) -> int:
    """Print the last lines of one part's log, or of all."""
    home = Home(context.config.home)
    asked = context.arguments.part
    names = [asked] if asked else [*parts.NAMES, logs.SUPERVISOR]
    if not any(home.log(name).exists() for name in names):
        raise NotRunning(f"there is no log in {home.logs}", hint="`headrace up` starts the stack.")
    follow = context.arguments.follow
    paths = [str(home.log(name)) for name in names if follow or home.log(name).exists()]
    lines = ["-n", str(context.arguments.lines)]
    sys.stdout.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and tail would complain
    os.execvp("tail", ["tail", *lines, *(["-F"] if follow else []), *paths])  # noqa: S606


# commands


def _logs_arguments(parser: argparse.ArgumentParser) -> None:
    names = (*parts.NAMES, logs.SUPERVISOR)
    parser.add_argument(
        "part", nargs="?", metavar="PART", choices=names, help=f"one of {', '.join(names)}"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what is added")
    parser.add_argument(
        "-n", "--lines", type=count, default=20, metavar="N", help="last lines to show (20)"
    )


COMMANDS = [
    Command(
        name="up",
        summary="start broker, PostgreSQL, engine and API under one supervisor",
        description="Start the local stack and look after it: a part that dies is started again; "
        "one that keeps dying stops the stack. Parts that the configuration gives "
        "(broker.bootstrap, warehouse.url) are used as they are. Ctrl-C or `headrace down` stops "
        "it; data stays.",
        examples=(
            "headrace up --flow examples/leaderboard.py",
            "headrace up --detach --set api.port=8080",
        ),
        run=up,
        arguments=(
            argument(
                "--detach",
                action="store_true",
                help="return when all is ready, and leave it running",
            ),
        ),
    ),
    Command(
        name="down",
        summary="stop the stack in order; data stays",
        description="Stop API, engine, PostgreSQL and broker in this order, and wait until they "
        "are gone.",
        examples=("headrace down", "headrace down --home /srv/headrace"),
        run=down,
    ),
    Command(
        name="status",
        summary="show each part: state, pid, address, lag, age, restarts",
        description="Show every part as it is at the moment of asking: each is probed.\n"
        "Exit code 0: all are ready; 3: not running, or not all are ready.",
        examples=("headrace status", "headrace status --json | jq .parts.engine.state"),
        run=print_status,
        arguments=(JSON,),
    ),
    Command(
        name="logs",
        summary="show the parts' logs",
        description="Show the last lines of one part's log, or of all parts' and the supervisor's.",
        examples=("headrace logs engine -n 100", "headrace logs -f"),
        run=show_logs,
        arguments=(_logs_arguments,),
    ),
]
