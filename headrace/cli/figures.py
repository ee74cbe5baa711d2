"""The engine's figures: what it measures, if it lives, beside what the core holds in any case."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from etl_procs import measured
from etl_procs.core import core_path
from etl_procs.measured import Measured
from etl_procs.reader import Reader
from headrace.cli.table import laid_out
from headrace.clock import SystemClock
from headrace.errors import HeadraceError
from headrace.local import lock
from headrace.local.home import Home

COLUMNS = (
    ("batch", "batch", "{:,}"),
    ("batches/s", "batches_per_s", "{:,.1f}"),
    ("aborts", "aborts", "{:,}"),
    ("dead batches", "dead_batches", "{:,}"),
    ("waiting", "waiting_tuples", "{:,}"),
    ("oldest", "oldest_s", "{:.1f} s"),
    ("watermark", "watermark", "{}"),
    ("dead letters", "dead_letters", "{:,}"),
)
"""The table for people: its head, the field of FlowView, and how that is written."""


@dataclass(frozen=True, slots=True)
class FlowView:
    """One dataflow: the first two are the core's, the others a living engine's."""

    batch: int
    dead_letters: int
    batches_per_s: float | None = None
    aborts: int | None = None
    dead_batches: int | None = None
    waiting_tuples: int | None = None
    oldest_s: float | None = None
    watermark: int | None = None


@dataclass(frozen=True, slots=True)
class CoreView:
    """The core, as shown."""

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

    def lines(self) -> list[str]:
        """Write it as a table for people, and a line that says of when it is."""
        head = ("dataflow", *(title for title, _, _ in COLUMNS))
        rows = [_row(name, asdict(flow)) for name, flow in self.dataflows.items()]
        table = laid_out(head, rows, right=range(1, len(head))) if rows else []
        return [*table, self._of_when()]

    def _of_when(self) -> str:
        if self.found is None:
            return "core: no engine measures"
        at = self.found.at.isoformat(timespec="seconds")
        if not self.living:
            return (
                f"core: no engine measures now; the last one that did (pid {self.found.pid}) "
                f"stopped at {at}"
            )
        rates = self.figures["rates"]
        rate = (
            f"{rates['commits']:,.1f} commits/s over the last {rates['over_s']:.0f} s"
            if rates
            else "rates are known in a second"
        )
        return f"core: {rate}, {self.figures['rollbacks']:,} rolled back since the engine started"


def living(root: Path) -> Measured | None:
    """Give the figures of the engine that runs in a data folder; None if none runs, or is stuck."""
    home = Home(root)
    found = measured.read(home.metrics)
    return found if _lives(home, found, SystemClock().now()) else None


def look(home: Home, now: datetime) -> CoreView | None:
    """See what the core holds and its engine measures; None before there is a core."""
    try:
        with Reader(core_path(home.root)).snapshot() as snapshot:
            batches, letters = snapshot.batches(), snapshot.dead_letters.counts()
    except HeadraceError:
        return None  # the states of the parts tell why
    found = measured.read(home.metrics)
    lives = _lives(home, found, now)
    flows = {}
    for name, batch in batches.items():
        measures = _measures(name, found.figures) if lives and found is not None else {}
        flows[name] = FlowView(batch, letters.get(name, (0, 0))[0], **measures)
    return CoreView(lives, flows, found)


def _lives(home: Home, found: Measured | None, now: datetime) -> bool:
    return found is not None and found.is_of(lock.holder(home.writer_lock), now)


def _measures(name: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a living engine measures of a dataflow."""
    queues = [q for stream, q in figures["queues"].items() if stream.partition(".")[0] == name]
    rates = figures["rates"]
    return {
        "batches_per_s": rates["batches"].get(name, 0.0) if rates else None,
        "aborts": _of(name, figures["aborts"]),
        "dead_batches": _of(name, figures["dead_batches"]),
        "waiting_tuples": sum(queue["tuples"] for queue in queues),
        "oldest_s": max((queue["oldest_s"] for queue in queues), default=0.0),
        "watermark": figures["epochs"].get(name),
    }


def _of(name: str, by_unit: Mapping[str, int]) -> int:
    return sum(count for unit, count in by_unit.items() if unit.partition(".")[0] == name)


def _row(name: str, flow: Mapping[str, Any]) -> tuple[str, ...]:
    found = [(flow[field], form) for _, field, form in COLUMNS]
    return (name, *("-" if value is None else form.format(value) for value, form in found))
