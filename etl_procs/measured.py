"""Measured: what an engine says about its cores, in files that other processes read.

Each partition has its file, which says when it was written, and for which engine: what one that is
gone has left behind is told from what a living one says.
"""

import json
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from etl_procs.metrics import Metrics
from headrace.clock import Clock

RATE_S = 10.0
"""Rates are over about so long: long enough to be steady, short enough to be now."""
STALE_S = 10.0
"""An engine writes every second. One that has not for so long is stuck, or gone."""
COUNTED = ("batches", "tuples")
"""What has a rate beside commits and units: batches by dataflow, tuples by dataflow.stream."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Measured:
    """What was in the file."""

    at: datetime
    pid: int
    figures: Mapping[str, Any]

    def is_of(self, pid: int | None, now: datetime) -> bool:
        """Whether these are figures of the engine that runs now as `pid`, and recent."""
        return self.pid == pid and (now - self.at).total_seconds() < STALE_S


@dataclass(frozen=True, slots=True)
class _Sample:
    moment: float
    commits: int
    counts: Mapping[str, Mapping[str, int]]


class Scribe:
    """Writes the file of one partition; each time, it is replaced whole."""

    def __init__(self, path: Path, clock: Clock, pid: int) -> None:
        self._path = path
        self._pid = pid
        self._clock = clock
        self._samples: deque[_Sample] = deque()
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
        now = _Sample(self._clock.monotonic(), found["commits"], counts)
        samples = self._samples
        samples.append(now)
        while len(samples) > 2 and samples[1].moment <= now.moment - RATE_S:
            samples.popleft()
        first = samples[0]
        over_s = now.moment - first.moment
        if over_s <= 0:
            return None
        rates = {
            kind: {
                name: (count - first.counts[kind].get(name, 0)) / over_s
                for name, count in counts[kind].items()
            }
            for kind in counts
        }
        return {"over_s": over_s, "commits": (now.commits - first.commits) / over_s, **rates}


def read(path: Path) -> Measured | None:
    """Read the file; None if there is none, or none of ours."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        at = datetime.fromisoformat(document.pop("at"))
        return Measured(at, int(document.pop("pid")), document)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
