"""The engine's figures: what it measures, if it lives, beside what the core holds in any case."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from etl_procs import measured
from etl_procs.core import core_paths
from etl_procs.measured import FlowView, Measured
from etl_procs.reader import Reader
from headrace.cli.table import laid_out
from headrace.clock import SystemClock
from headrace.errors import HeadraceError
from headrace.local import lock
from headrace.local.home import Home
from migrations import pushing as of_pushers
from migrations.pushing import Pushing

COLUMNS = (
    ("batch", "batch", "{:,}"),
    ("batches/s", "batches_per_s", "{:,.1f}"),
    ("aborts", "aborts", "{:,}"),
    ("dead batches", "dead_batches", "{:,}"),
    ("repeats", "repeats", "{:,}"),
    ("waiting", "waiting_tuples", "{:,}"),
    ("oldest", "oldest_s", "{:.1f} s"),
    ("watermark", "watermark", "{}"),
    ("index hits", "lookup_hits", "{:.1%}"),
    ("parked", "parked_rows", "{:,}"),
    ("dead letters", "dead_letters", "{:,}"),
)
"""The table for people: its head, the field of FlowView, and how that is written."""


@dataclass(frozen=True, slots=True)
class CoreView:
    """The core of one partition, as shown."""

    living: bool
    dataflows: dict[str, FlowView]
    found: Measured | None = None
    """What the engine wrote last, living or not."""

    @property
    def figures(self) -> Mapping[str, Any]:
        """A living engine's figures, all of them."""
        return self.found.figures if self.living and self.found is not None else {}

    def document(self) -> dict[str, Any]:
        """Give all of it, ready for JSON."""
        return {
            "living": self.living,
            "measured_at": self.found and self.found.at.isoformat(),
            "pid": self.found and self.found.pid,
            "dataflows": {name: asdict(flow) for name, flow in self.dataflows.items()},
            "figures": dict(self.figures) or None,
        }

    def of_when(self) -> str:
        """Say how fast it is, or of when its figures are."""
        if self.found is None:
            return "no engine measures"
        at = self.found.at.isoformat(timespec="seconds")
        if not self.living:
            return (
                f"no engine measures now; the last one that did (pid {self.found.pid}) "
                f"stopped at {at}"
            )
        rates = self.figures["rates"]
        rate = (
            f"{rates['commits']:,.1f} commits/s over the last {rates['over_s']:.0f} s"
            if rates
            else "rates are known in a second"
        )
        return f"{rate}, {self.figures['rollbacks']:,} rolled back since the engine started"


def lines(cores: Sequence[CoreView]) -> list[str]:
    """Write them as a table for people, and a line for each that says of when it is."""
    head = ("dataflow", *(title for title, _, _ in COLUMNS))
    rows = [_row(name, asdict(flow)) for core in cores for name, flow in core.dataflows.items()]
    table = laid_out(head, rows, right=range(1, len(head))) if rows else []
    names = ["core"] if len(cores) == 1 else [f"core {number}" for number in range(len(cores))]
    return [*table, *(f"{name}: {core.of_when()}" for name, core in zip(names, cores, strict=True))]


def living(root: Path, partitions: int = 1) -> list[Measured | None]:
    """Give the figures of each partition of the engine that runs in a data folder; None where none
    runs, or it is stuck. (Its dataflows say how many: the cores of former ones lie there, too.)
    """
    home, now = Home(root), SystemClock().now()
    found = [measured.read(home.metrics(p)) for p in range(partitions)]
    return [figures if _lives(home, figures, now) else None for figures in found]


def pushing(root: Path) -> dict[str, Pushing]:
    """Tell what each pusher of the engine does that runs in a data folder; none where none runs."""
    home = Home(root)
    return of_pushers.read(home.pushers, lock.holder(home.writer_lock))


def look(home: Home, now: datetime) -> list[CoreView]:
    """See what each partition's core holds and measures; nothing before there is one."""
    try:
        with ExitStack() as opened:
            cores = [opened.enter_context(Reader(p).snapshot()) for p in core_paths(home.root)]
            held = [(core.batches(), core.dead_letters.counts()) for core in cores]
    except HeadraceError:
        return []  # the states of the parts tell why
    divided = Counter(name for batches, _ in held for name in batches)
    views = []
    for partition, (batches, letters) in enumerate(held):
        found = measured.read(home.metrics(partition))
        lives = _lives(home, found, now)
        flows = {}
        for name, batch in batches.items():
            figures = found.figures if lives and found is not None else None
            place = name if divided[name] == 1 else f"{name}[{partition}]"
            flows[place] = measured.view(name, batch, letters.get(name, (0, 0))[0], figures)
        views.append(CoreView(lives, flows, found))
    return views


def _lives(home: Home, found: Measured | None, now: datetime) -> bool:
    return found is not None and found.is_of(lock.holder(home.writer_lock), now)


def _row(name: str, flow: Mapping[str, Any]) -> tuple[str, ...]:
    found = [(flow[field], form) for _, field, form in COLUMNS]
    return (name, *("-" if value is None else form.format(value) for value, form in found))
