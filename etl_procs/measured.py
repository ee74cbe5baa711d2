"""Measured: what an engine says about its cores, in files that other processes read, and as the
status shows it.

Each partition has its file, which says when it was written, and for which engine: what one that is
gone has left behind is told from what a living one says.
"""

import json
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from etl_procs.metrics import Metrics
from headrace.clock import Clock

RATE_S = 10.0
"""Rates are over about so long: long enough to be steady, short enough to be now."""
STALE_S = 10.0
"""An engine writes every second. One that has not for so long is stuck, or gone."""
COUNTED = ("batches", "tuples")
"""What has a rate beside commits and units: batches by dataflow, tuples by dataflow.stream."""

log = logging.getLogger(__name__)

T = TypeVar("T", int, float)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was in the file."""

    at: datetime
    pid: int
    figures: Mapping[str, Any]

    def is_of(self, pid: int | None, now: datetime) -> bool:
        """Whether these are figures of the engine that runs now as `pid`, and recent."""
        return self.pid == pid and (now - self.at).total_seconds() < STALE_S


class Scribe:
    """Writes the file of one partition; each time, it is replaced whole."""

    def __init__(self, path: Path, clock: Clock, pid: int) -> None:
        self._path = path
        self._pid = pid
        self._clock = clock
        self._samples: deque[tuple[float, dict[str, dict[str, int]]]] = deque()
        """When it was looked, and what had been counted by then."""
        self._queues: Mapping[str, Any] = {}
        self._fails = False

    def write(self, metrics: Metrics, queues: Mapping[str, Any] | None) -> None:
        """Write what is so now; the queues, if they are not known now, as they were.

        That it cannot be written harms nobody: the disk may be full.
        """
        self._queues = self._queues if queues is None else queues
        found = metrics.as_dict()
        document = {
            "at": self._clock.now().isoformat(),
            "pid": self._pid,
            **found,
            "rates": self._rates(found),
            "queues": self._queues,
        }
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(document), encoding="utf-8")
            new.replace(self._path)
        except OSError as error:
            if not self._fails:
                log.warning("what is measured cannot be written to %s: %s", self._path, error)
            self._fails = True
        else:
            self._fails = False

    def _rates(self, found: Mapping[str, Any]) -> dict[str, Any] | None:
        """Tell how many in a second, over the last while; None before there are two looks."""
        counts = {name: found[name] for name in COUNTED}
        counts["units"] = {name: of["count"] for name, of in found["units"].items()}
        counts["commits"] = {"": found["commits"]}
        samples, now = self._samples, self._clock.monotonic()
        samples.append((now, counts))
        while len(samples) > 2 and samples[1][0] <= now - RATE_S:
            samples.popleft()
        since, before = samples[0]
        over_s = now - since
        if over_s <= 0:
            return None
        rates: dict[str, Any] = {
            kind: {name: (n - before[kind].get(name, 0)) / over_s for name, n in of.items()}
            for kind, of in counts.items()
        }
        return {"over_s": over_s, **rates, "commits": rates["commits"][""]}


def read(path: Path) -> Measured | None:
    """Read the file; None if there is none, or none of ours."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        at = datetime.fromisoformat(document.pop("at"))
        return Measured(at, int(document.pop("pid")), document)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class FlowView:
    """One dataflow: the first two are the core's, the others a living engine's."""

    batch: int
    dead_letters: int
    batches_per_s: float | None = None
    tuples_per_s: float | None = None
    aborts: int | None = None
    dead_batches: int | None = None
    repeats: int | None = None
    waiting_tuples: int | None = None
    oldest_s: float | None = None
    watermark: int | None = None
    lookup_hits: float | None = None
    """The share of keys looked up that an index answered; None before the first."""
    parked_rows: int | None = None
    """Rows in its tables that park."""


def view(name: str, batch: int, letters: int, figures: Mapping[str, Any] | None) -> FlowView:
    """See a dataflow with these dead letters at its last batch; figures are of a living engine."""
    return FlowView(batch, letters, **({} if figures is None else _measures(name, figures)))


def _measures(name: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    queues = [q for stream, q in figures["queues"].items() if stream.partition(".")[0] == name]
    rates = figures["rates"]
    return {
        "batches_per_s": rates["batches"].get(name, 0.0) if rates else None,
        "tuples_per_s": _of(name, rates["tuples"]) if rates else None,
        "aborts": _of(name, figures["aborts"]),
        "dead_batches": _of(name, figures["dead_batches"]),
        "repeats": sum(queue["repeats"] for queue in queues),
        "waiting_tuples": sum(queue["tuples"] for queue in queues),
        "oldest_s": max((queue["oldest_s"] for queue in queues), default=0.0),
        "watermark": figures["epochs"].get(name),
        "lookup_hits": _share(
            of for lookup, of in figures["lookups"].items() if lookup.partition(".")[0] == name
        ),
        "parked_rows": _of(name, figures["parked"]),
    }


def _of(name: str, by_unit: Mapping[str, T]) -> T | int:
    return sum(count for unit, count in by_unit.items() if unit.partition(".")[0] == name)


def _share(lookups: Iterable[Mapping[str, int]]) -> float | None:
    looked = [(of["hits"], of["hits"] + of["misses"]) for of in lookups]
    asked = sum(count for _, count in looked)
    return sum(hits for hits, _ in looked) / asked if asked else None
