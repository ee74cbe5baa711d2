"""Tiny parts for tests of the supervisor: a few lines of Python each, in place of a broker."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import waiting

from headrace import config
from headrace.clock import SystemClock
from headrace.local import state
from headrace.local.home import Home
from headrace.local.part import Part
from headrace.local.supervisor import Supervisor

PATIENCE_S = 30.0

SERVE = """
import pathlib, signal, sys
ready, stopped, name = sys.argv[1:]
def end(*_):
    with open(stopped, "a") as order:
        order.write(name + "\\n")
    pathlib.Path(ready).unlink()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
pathlib.Path(ready).write_text(str(__import__("os").getpid()))
print(name, "serves", flush=True)
while True:
    signal.pause()
"""


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a generous time until a condition holds."""
    waiting.until(condition, PATIENCE_S, lambda: what)


def part(home: Home, name: str, code: str, **more: object) -> Part:
    """A part that runs `code`, and is ready when it has written its pid into run/<name>.ready."""
    ready = home.run / f"{name}.ready"

    def probe(pid: int) -> None:
        assert ready.read_text() == str(pid)

    arguments = (str(ready), str(home.root / "stopped"), name)
    return Part(
        name=name,
        argv=(sys.executable, "-c", code, *arguments),
        environment=dict(os.environ),
        address="nowhere",
        probe=probe,
        **more,  # type: ignore[arg-type]
    )


def server(home: Home, name: str, **more: object) -> Part:
    """A part that gets ready and serves until it is told to end."""
    return part(home, name, SERVE, **more)


class Run:
    """A supervisor of some parts on a thread of the test."""

    def __init__(self, home: Home, *parts: Part, **limits: int) -> None:
        self.said: list[str] = []
        self.was_ready = threading.Event()
        self.error: Exception | None = None
        self.home = home
        self.supervisor = Supervisor(
            home=home,
            parts=parts,
            limits=config.Supervisor(**limits),
            clock=SystemClock(),
            report=self.said.append,
            on_ready=self.was_ready.set,
            pid=os.getpid(),
        )
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.supervisor.run()
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.error = error

    def __enter__(self) -> "Run":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.supervisor.ask_to_stop()
        self.finish()

    def finish(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def seen(self, name: str) -> state.PartState:
        found = state.read(self.home)
        assert found is not None
        return found.parts[name]

    def kill(self, name: str) -> int:
        pid = self.seen(name).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        return pid


def is_gone(pid: int) -> bool:
    """Whether no process has this pid, or only its remains."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True
