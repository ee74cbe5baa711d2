"""A coordinator in a process of its own, which is killed or stopped amid what it does.

All of them are forked off one process that has imported everything, and begin within 50 ms.
"""

import atexit
import os
import signal
import sys
from importlib import import_module
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import Any

from waiting import until

from etl_procs.core import core_path
from etl_procs.dataflow import Dataflow
from etl_procs.origin import Origin
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints, Point
from headrace.errors import HeadraceError
from migrations import layout, warehouse
from migrations.errors import Gap
from migrations.job import Place
from migrations.jobs import Jobs
from migrations.merge import Merging
from migrations.push import Push
from migrations.rebuild import Filling, Rebuild
from migrations.registry import Asked, Kind, Registry, State
from migrations.warehouse import Connection, Warehouse

CONTEXT: Any = get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["migrations.jobs", "pyarrow.compute", "api.worker", "etl_procs.core", "pytest"]
)

# It would end by itself, a moment after the tests: nothing of theirs is to be left by then.
atexit.register(forkserver._forkserver._stop)  # type: ignore[attr-defined]

REFUSED = 3
"""The exit code of one that could not do it, and says why."""
PATIENCE_S = 60.0
ZOMBIE = "headrace zombie"
"""What its sessions are called."""


class Stopping(CrashPoints):
    """Stops the process at a point, with SIGSTOP, rather than kill it."""

    def __init__(self, at: str) -> None:
        super().__init__()
        name, _, times = at.partition(":")
        self._at, self._to_go = Point(name), int(times or "1")

    def reached(self, point: Point) -> None:
        if point is self._at:
            self._to_go -= 1
            if self._to_go == 0:
                os.kill(os.getpid(), signal.SIGSTOP)


class Coordinator:
    """A process that does one thing to the first of some warehouses; the others are beside it.

    What it does is one of: push, merge, rebuild, add (as the engine fills and feeds a new
    warehouse), forget, pull (as the API runs a migration, whose id is then given too).
    """

    def __init__(
        self, what: str, module: str, home: Path, *places: Warehouse, at: str = "", stop: bool
    ) -> None:
        arguments = (what, module, home, places, at, stop)
        self._process = CONTEXT.Process(target=_act, args=arguments, daemon=True)
        self._process.start()

    def wait(self) -> int:
        """Return its exit code when it has ended."""
        self._process.join(PATIENCE_S)
        code = self._process.exitcode
        assert code is not None, "it does not end"
        return int(code)

    def wait_until_stopped(self) -> None:
        """Return when it has stopped at its point."""
        until(lambda: self._state() in "TXZ", PATIENCE_S, lambda: f"its state is {self._state()}")
        assert self._state() == "T", f"it ended with {self.wait()}"

    def go_on(self) -> int:
        """Wake it; return its exit code."""
        os.kill(self._process.pid, signal.SIGCONT)
        return self.wait()

    def end(self) -> None:
        """Have no more of it."""
        self._process.kill()
        self._process.join()

    def _state(self) -> str:
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text()
        except FileNotFoundError:
            return "X"
        return stat.rpartition(")")[2].split()[0]


def run(what: str, module: str, home: Path, *places: Warehouse, at: str = "") -> int:
    """Have a coordinator do something, maybe to be killed at a point; give its exit code."""
    return Coordinator(what, module, home, *places, at=at, stop=False).wait()


def _act(
    what: str, module: str, home: Path, places: tuple[Warehouse, ...], at: str, stop: bool
) -> None:
    flow: Dataflow = import_module(module).flow
    crash = Stopping(at) if stop and at else CrashPoints(at)
    try:
        if what.startswith("pull"):
            _pull(what, flow, home, places, crash)
        else:
            with warehouse.connect(places[0].url, application=ZOMBIE) as connection:
                _do(what, flow, core_path(home), connection, places, crash)
    except HeadraceError as error:
        print(error)
        sys.exit(REFUSED)


def _do(
    what: str,
    flow: Dataflow,
    path: Path,
    connection: Connection,
    places: tuple[Warehouse, ...],
    crash: CrashPoints,
) -> None:
    here, *others = places
    origin = Origin(path, config.Core(), crash)
    push = Push(0, here, origin, crash, batches_max=1_000)
    match what:
        case "push":
            push.run(connection, flow)
        case "merge":
            Merging(here, crash).run(connection, flow)
        case "rebuild":
            Rebuild(here, others[0], [origin], crash).run(connection, flow)
        case "forget":
            origin.forget(flow.name)
        case "add":
            layout.prepare(connection, here, flow)
            try:
                push.run(connection, flow)
            except Gap:
                Filling(here, others, flow, [origin]).begin(connection, 0, crash)
                push.run(connection, flow)
        case _:
            raise AssertionError(what)


def _pull(
    id_: str, flow: Dataflow, home: Path, places: tuple[Warehouse, ...], crash: CrashPoints
) -> None:
    """Run a migration as an API does that is started anew: it is asked for again, and is one."""
    registry = Registry(home / "migrations.db", SystemClock())
    place = Place(
        config.Config(), {flow.name: flow}, places, [core_path(home)], SystemClock(), crash
    )
    jobs = Jobs(registry, place)
    jobs.resume()
    jobs.put(id_, Asked(Kind.PULL, places[0].name))
    until(
        lambda: registry.find(id_).ended_at is not None, PATIENCE_S, lambda: str(registry.find(id_))
    )
    jobs.close()
    assert registry.find(id_).state is State.SUCCEEDED, registry.find(id_)
