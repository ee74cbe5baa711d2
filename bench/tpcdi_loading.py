"""A program that loads a directory as `headrace tpcdi load` does, audits it, and tells the times.

It is a process of its own, so that its memory and its CPU seconds are those of a loader.
"""

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.usage import own_peak_mb
from etl_procs.model import Stream
from headrace import config
from headrace.cli.tpcdi_parts import Stack
from headrace.clock import SystemClock
from tpcdi import audit
from tpcdi.dataflow.phases import BEGINS
from tpcdi.dataflow.sources import marks, observed
from tpcdi.load import Load

STAGES = ("dimensions", "facts", "arrival", "validation", "end")
"""Of a phase, one after the other: what its seconds are made of."""


@dataclass(frozen=True, slots=True)
class Phase:
    """When a phase began, what the loader had computed until then, and how long its streams took.

    That is, until the broker had the tuples of each, and after it until the core had taken them.
    """

    began: float
    cpu_s: float
    sent_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    taken_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class Timed(Stack):
    """The parts of a stack, and how long they took for what the loader asked of them."""

    def __init__(self, of: config.Config) -> None:
        super().__init__(of)
        self.phases: list[Phase] = []
        self.moments: list[tuple[str, float]] = []

    def send(self, stream: Stream, files: Sequence[Path]) -> int:
        """Send the tuples of files."""
        began = time.perf_counter()
        rows = super().send(stream, files)
        self.phases[-1].sent_s[stream.name] += time.perf_counter() - began
        return rows

    def post(self, stream: Stream, source: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Post rows."""
        if source.endswith(f": {BEGINS}"):
            self._note("begin")
            self.phases.append(Phase(time.perf_counter(), time.process_time()))
        super().post(stream, source, rows)

    def taken(self, stream: Stream) -> None:
        """Return when the core has taken what is in a stream."""
        began = time.perf_counter()
        super().taken(stream)
        if stream not in (marks, observed):
            self.phases[-1].taken_s[stream.name] += time.perf_counter() - began
        if stream is marks:
            self._note("marks")

    def arrived(self) -> None:
        """Return when the warehouse has all that the core has committed."""
        super().arrived()
        self._note("arrived")

    def _note(self, what: str) -> None:
        # Another thread looks at the warehouse all the while, and waits for it too.
        if threading.current_thread() is threading.main_thread():
            self.moments.append((what, time.perf_counter()))


def stages(moments: Sequence[tuple[str, float]]) -> list[dict[str, float]]:
    """Divide each phase by what the loader waited for.

    That is: what begins a phase, the marks of dimensions and of facts, and the arrival of these, of
    what was counted, and of the end.
    """
    begins = [at for at, (what, _) in enumerate(moments) if what == "begin"]
    found = []
    for first, after in pairwise([*begins, len(moments)]):
        times = moments[first:after]
        marked = [at for what, at in times if what == "marks"]
        arrived = [at for what, at in times if what == "arrived"]
        dimensions, facts, _ = marked
        data, reported, ended = arrived[:3]  # more is the last look
        bounds = (times[0][1], dimensions, facts, data, reported, ended)
        found.append({name: b - a for name, (a, b) in zip(STAGES, pairwise(bounds), strict=True)})
    return found


def main(directory: Path) -> dict[str, Any]:
    """Load, and audit."""
    parts = Timed(config.load().config)
    done = Load(directory, parts, SystemClock(), lambda text: print(text, file=sys.stderr)).run()
    peak_mb = own_peak_mb()
    with parts.warehouse() as warehouse:
        began = time.perf_counter()
        verdicts = audit.run(warehouse)
        audit_s = time.perf_counter() - began
    historical, then, *_ = parts.phases
    return {
        "phases": [{"rows": sum(p.rows.values()), "seconds": p.seconds} for p in done],
        "stages": stages(parts.moments),
        "historical": (historical.began, then.began),
        "sent": historical.sent_s,
        "taken": historical.taken_s,
        "cpu_s": then.cpu_s - historical.cpu_s,
        "audit_s": audit_s,
        "wrong": {v.name: v.wrong for v in verdicts if not v.ok},
        "peak_mb": peak_mb,
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
