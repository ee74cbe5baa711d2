"""`headrace status`: every part as it is at the moment of asking."""

import json
import os
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from headrace.cli import parts
from headrace.cli.command import Context
from headrace.clock import Clock, SystemClock
from headrace.config import Config
from headrace.errors import Exit
from headrace.local import lock, state
from headrace.local.home import Home
from headrace.local.part import Probe
from headrace.local.state import PartState, StackState, State

PROBES_TIMEOUT_S = 4.0
LAG_UNITS = {parts.ENGINE: "tuples", parts.POSTGRES: "rows"}
HEADER = ("part", "state", "pid", "address", "lag", "age", "restarts")


@dataclass(frozen=True, slots=True)
class PartView:
    """One part, as shown."""

    state: State
    pid: int | None = None
    address: str = "-"
    lag: int | None = None
    age_s: int | None = None
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class SupervisorView:
    """The supervisor, as shown."""

    state: State
    pid: int | None = None
    age_s: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """The whole stack, as shown."""

    supervisor: SupervisorView
    parts: dict[str, PartView]
    home: Path

    @property
    def is_ready(self) -> bool:
        """Whether all is ready."""
        return self.supervisor.state is State.READY

    def json(self) -> str:
        """Write it as JSON."""
        return json.dumps(asdict(self), default=str, indent=2)

    def lines(self) -> list[str]:
        """Write it as a table for people."""
        rows = [HEADER, _row("supervisor", _as_part(self.supervisor))]
        rows += [_row(name, part) for name, part in self.parts.items()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        why = ["", self.supervisor.why] if self.supervisor.why else []
        return [*table, "", f"data folder: {self.home}", *why]


def print_status(context: Context) -> int:
    """Print the state of every part; the exit code tells whether all are ready."""
    view = look(context.config, SystemClock())
    print(view.json() if context.arguments.json else "\n".join(view.lines()))
    return Exit.OK if view.is_ready else Exit.NOT_RUNNING


def look(config: Config, clock: Clock) -> View:
    """See how the stack is now."""
    home = Home(config.home)
    running = state.running(home)
    if running is not None:
        return _living(config, home, running, clock.now())
    return _gone(home)


def _gone(home: Home) -> View:
    found = state.read(home)
    stopped = {name: PartView(State.STOPPED) for name in parts.NAMES}
    pid = lock.holder(home.supervisor_lock)
    if pid is not None:  # it has not written yet
        return View(SupervisorView(State.STARTING, pid), stopped, home.root)
    if found is None:
        return View(SupervisorView(State.STOPPED), stopped, home.root)
    if found.state in (State.STOPPED, State.FAILED):
        failed = {n: PartView(State.FAILED) for n, p in found.parts.items() if p.state == "failed"}
        supervisor = SupervisorView(found.state, why=found.why)
        return View(supervisor, stopped | failed, home.root)
    why = f"The supervisor (pid {found.pid}) ended without stopping its parts: they ended with it."
    return View(SupervisorView(State.STOPPED, why=why), stopped, home.root)


def _living(config: Config, home: Home, stack: StackState, now: datetime) -> View:
    answers = _answers(parts.probes(config, stack), stack.parts)
    lags = parts.lags(config, stack, answers)
    seen = {
        name: PartView(
            state=_state_now(part, answers.get(name, False)),
            pid=part.pid,
            address=part.address,
            lag=lags.get(name),
            age_s=_age_s(part.started, now),
            restarts=part.restarts,
        )
        for name, part in stack.parts.items()
    }
    own = all(part.state in (State.READY, State.EXTERNAL) for part in seen.values())
    overall = State.HEALING if stack.state is State.READY and not own else stack.state
    supervisor = SupervisorView(overall, stack.pid, _age_s(stack.started, now), stack.why)
    return View(supervisor, seen, home.root)


def _state_now(part: PartState, answered: bool) -> State:
    if part.state is not State.READY:
        return part.state
    if part.pid is None or not is_alive(part.pid):
        return State.DEAD
    return State.READY if answered else State.SILENT


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not yet waited for does not."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:
        return False
    except OSError:  # no /proc here
        return True
    return status.rpartition(")")[2].split()[0] not in "ZX"


def _answers(probes: Mapping[str, Probe], stack: Mapping[str, PartState]) -> dict[str, bool]:
    """Probe all parts that should be ready, side by side, for a bounded time."""
    came: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
    asked = [(n, p.pid) for n, p in stack.items() if p.state is State.READY and p.pid is not None]
    for name, pid in asked:
        ask = _asking(name, probes[name], pid, came.put)
        threading.Thread(target=ask, daemon=True).start()
    answers: dict[str, bool] = {}
    try:
        while len(answers) < len(asked):
            name, answered = came.get(timeout=PROBES_TIMEOUT_S)
            answers[name] = answered
    except queue.Empty:
        pass  # who has not answered by now counts as silent
    return answers


def _asking(
    name: str, probe: Probe, pid: int, tell: Callable[[tuple[str, bool]], None]
) -> Callable[[], None]:
    def ask() -> None:
        try:
            probe(pid)
        except Exception:  # noqa: BLE001 - whatever it is, it is no answer
            tell((name, False))
        else:
            tell((name, True))

    return ask


def _as_part(supervisor: SupervisorView) -> PartView:
    return PartView(supervisor.state, supervisor.pid, age_s=supervisor.age_s)


def _row(name: str, part: PartView) -> tuple[str, ...]:
    return (
        name,
        part.state,
        str(part.pid or "-"),
        part.address,
        "-" if part.lag is None else f"{part.lag:,} {LAG_UNITS[name]}",
        "-" if part.age_s is None else _age(part.age_s),
        "-" if name == "supervisor" else str(part.restarts),
    )


def _age_s(since: datetime | None, now: datetime) -> int | None:
    return None if since is None else max(0, int((now - since).total_seconds()))


def _age(seconds: int) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
