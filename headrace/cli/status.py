"""`headrace status`: every part as it is at the moment of asking."""

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from headrace.cli import parts
from headrace.cli.command import Context
from headrace.cli.table import laid_out
from headrace.clock import Clock, SystemClock
from headrace.config import Config
from headrace.errors import Exit, HeadraceError
from headrace.local import lock, state
from headrace.local.home import Home
from headrace.local.part import Probe
from headrace.local.state import PartState, StackState, State

if TYPE_CHECKING:
    from headrace.cli.figures import CoreView
    from migrations.pushing import Pushing
    from migrations.warehouse import Warehouse

LAG_UNITS = {parts.ENGINE: "records", parts.POSTGRES: "rows"}
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
    cores: "tuple[CoreView, ...]" = ()
    """What each partition's core holds and measures; none before there is one."""
    pushers: "Mapping[str, Pushing]" = field(default_factory=dict)
    """What the engine's do, by warehouse."""

    away: Mapping[str, str] = field(default_factory=dict)
    """The warehouses that a running stack has not started and cannot use just now, and why."""

    @property
    def is_ready(self) -> bool:
        """Whether all is ready, and each warehouse is there and fed."""
        is_fed = not any(pusher.is_trouble for pusher in self.pushers.values())
        return self.supervisor.state is State.READY and is_fed and not self.away

    def json(self) -> str:
        """Write it as JSON."""
        cores = [core.document() for core in self.cores]
        return json.dumps(
            {**asdict(replace(self, cores=())), "cores": cores}, default=str, indent=2
        )

    def lines(self) -> list[str]:
        """Write it as a table for people."""
        own = self.supervisor
        first = ("supervisor", own.state, own.pid or "-", "-", "-", _age(own.age_s), "-")
        rows = [first, *(_row(name, part) for name, part in self.parts.items())]
        why = ["", own.why] if own.why else []
        for name, reason in self.away.items():
            why += ["", f"the warehouse {name} cannot be used: {reason}"]
        for name, pusher in self.pushers.items():
            why += ["", *pusher.lines(name)] if pusher.is_trouble else []
        cores = ["", *_figures().lines(self.cores)] if self.cores else []
        return [*laid_out(HEADER, rows), *cores, "", f"data folder: {self.home}", *why]


def print_status(context: Context) -> int:
    """Print the state of every part; the exit code tells whether all are ready."""
    view = look(context.config, SystemClock())
    print(view.json() if context.arguments.json else "\n".join(view.lines()))
    return Exit.OK if view.is_ready else Exit.NOT_RUNNING


def look(config: Config, clock: Clock) -> View:
    """See how the stack is now."""
    home = Home(config.home)
    running = state.running(home)
    view = _gone(home) if running is None else _living(config, home, running, clock.now())
    if running is not None:
        view = replace(view, away=_away(config))
    figures = _figures()
    return replace(
        view, cores=tuple(figures.look(home, clock.now())), pushers=figures.pushing(config.home)
    )


def _away(config: Config) -> dict[str, str]:
    """Connect to each warehouse that is somebody else's, side by side."""
    # Here, because every other command would pay for importing PostgreSQL's library.
    from migrations import warehouse

    others = [place for place in warehouse.warehouses(config) if place.url]

    def reason(place: "Warehouse") -> str:
        try:
            place.connect(application="headrace status").close()
        except HeadraceError as error:
            return error.what
        return ""

    with ThreadPoolExecutor() as pool:
        told = zip(others, pool.map(reason, others), strict=True)
        return {place.name: why for place, why in told if why}


def _figures() -> ModuleType:
    # Here, because every other command would pay for importing Arrow.
    from headrace.cli import figures

    return figures


def _gone(home: Home) -> View:
    found = state.read(home)
    stopped = {name: PartView(State.STOPPED) for name in parts.NAMES}
    pid = lock.holder(home.supervisor_lock)
    if pid is not None:  # it has not written yet
        return View(SupervisorView(State.STARTING, pid), stopped, home.root)
    if found is None:
        why = "Nothing runs here yet: start it with `headrace up`."
        return View(SupervisorView(State.STOPPED, why=why), stopped, home.root)
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
    return State.SILENT if part.state is State.READY and not answered else part.state


def _answers(probes: Mapping[str, Probe], stack: Mapping[str, PartState]) -> dict[str, bool]:
    """Probe all parts that should be ready, side by side; each probe has a limit of its own."""
    asked = {n: p.pid for n, p in stack.items() if p.state is State.READY and p.pid is not None}

    def answered(name: str) -> bool:
        try:
            probes[name](asked[name])
        except Exception:  # noqa: BLE001 - whatever it is, it is no answer
            return False
        return True

    with ThreadPoolExecutor() as pool:
        return dict(zip(asked, pool.map(answered, asked), strict=True))


def _row(name: str, part: PartView) -> tuple[object, ...]:
    return (
        name,
        part.state,
        part.pid or "-",
        part.address,
        "-" if part.lag is None else f"{part.lag:,} {LAG_UNITS[name]}",
        _age(part.age_s),
        part.restarts,
    )


def _age_s(since: str | None, now: datetime) -> int | None:
    if since is None:
        return None
    return max(0, int((now - datetime.fromisoformat(since)).total_seconds()))


def _age(seconds: int | None) -> str:
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
