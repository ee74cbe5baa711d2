"""The stream: day after day, each a phase, its facts sent evenly.

A day begins with its mark and its dimensions, and their ends; when the core has done with them its
facts are sent; then come their ends, and that of the phase. Marks and rows have names and numbers:
a day that was cut off is sent again whole, and what of it had come has no further effect.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import inf
from typing import Any, Protocol

from etl_procs.model import Stream
from headrace.clock import Clock
from tpcdi.dataflow.phases import BEGINS, ENDS
from tpcdi.dataflow.sources import SOURCES, marks
from tpcdi.days import FACTS, FIRST_FACT, Day, Days, Rows
from tpcdi.freshness import Freshness, Sent

DAY_S = 10.0
"""So long a day's facts are sent."""
TICK_S = 0.075
"""So often some are: at 1,000 rows/s, 75 at once."""
LEAST_PAUSE_S = 0.001
SHOW_EVERY_S = 5.0

Pause = Callable[[float], object]


class Parts(Protocol):
    """What a stream works on."""

    def post(self, stream: Stream, source: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Post rows, which are known again by the name of their source."""

    def write(self, rows: Rows, first: int) -> int:
        """Post lines, of which the first has this number; tell the offset of the last record."""

    def taken(self, stream: Stream) -> None:
        """Return when the core has taken what is in a stream."""

    def arrived(self) -> None:
        """Return when the warehouse has all that the core has committed."""


@dataclass(slots=True)
class Progress:
    """How much was sent: rows of facts, in how many seconds; how many days are complete, and how
    many seconds their dimensions and ends took, in which no facts were sent.
    """

    days: int = 0
    rows: int = 0
    seconds: float = 0.0
    other_seconds: float = 0.0

    @property
    def rows_per_s(self) -> float:
        """Tell how many rows were sent a second, while facts were."""
        return self.rows / max(self.seconds, 0.001)


@dataclass(slots=True)
class Live:
    """Sends days."""

    days: Days
    parts: Parts
    freshness: Freshness
    clock: Clock
    pause: Pause
    tell: Callable[[str], None]
    progress: Progress = field(default_factory=Progress)

    def run(self, rate: int, seconds: float = inf) -> None:
        """Send facts at so many rows/s, for so many seconds, and complete the last day."""
        with self.freshness, ThreadPoolExecutor(len(FACTS)) as pool:
            while (planned := round(rate * min(seconds, DAY_S))) > 0:
                day = self.days.next(planned)
                seconds -= day.planned / rate
                self._day(pool, day, rate)
            self.parts.arrived()

    def _day(self, pool: ThreadPoolExecutor, day: Day, rate: int) -> None:
        began, sending = self.clock.monotonic(), self.progress.seconds
        self._mark(day, "begins", [BEGINS])
        for rows in day.dimensions:
            self.parts.write(rows, 1)
        for rows in day.dimensions:
            self.parts.taken(rows.stream)
        self._mark(day, "dimensions", [source.name for source in SOURCES[:FIRST_FACT]])
        self.parts.taken(marks)
        self._send(pool, day, rate)
        for rows in day.facts:
            self.parts.taken(rows.stream)
        self._mark(day, "facts", [*(source.name for source in SOURCES[FIRST_FACT:]), ENDS])
        self.parts.taken(marks)
        self.progress.days += 1
        sending = self.progress.seconds - sending
        self.progress.other_seconds += self.clock.monotonic() - began - sending

    def _mark(self, day: Day, what: str, names: Sequence[str]) -> None:
        on = str(day.today)
        rows = [
            {"batch": day.batch, "source": name, "day": on if name == BEGINS else None}
            for name in names
        ]
        self.parts.post(marks, f"phase {day.batch} {what}", rows)

    def _send(self, pool: ThreadPoolExecutor, day: Day, rate: int) -> None:
        """Send facts, of each source the same share at a time, until all are sent."""
        sent, before = [0] * len(day.facts), self.progress.seconds
        count = sum(len(rows.lines) for rows in day.facts)
        lasts_s = count / rate
        began = shown = self.clock.monotonic()
        while sum(sent) < count:
            left_s = began + lasts_s - self.clock.monotonic()
            self.pause(min(TICK_S, max(left_s, LEAST_PAUSE_S)))
            now = self.clock.monotonic()
            until = [due(len(rows.lines), now - began, lasts_s) for rows in day.facts]
            jobs = [
                pool.submit(self._write, rows, first, last, None if day.is_again else now)
                for rows, first, last in zip(day.facts, sent, until, strict=True)
                if last > first
            ]
            self.progress.rows += sum(job.result() for job in jobs)
            sent = until
            self.progress.seconds = before + self.clock.monotonic() - began
            if now - shown >= SHOW_EVERY_S:
                shown = now
                self.tell(
                    f"day {day.batch}: {self.progress.rows:,} rows sent, "
                    f"{self.progress.rows_per_s:,.0f} rows/s; {self.freshness.recent()}"
                )

    def _write(self, rows: Rows, first: int, last: int, at: float | None) -> int:
        """Send some lines; of those that may have come before, no freshness is measured."""
        some = rows._replace(lines=rows.lines[first:last])
        offset = self.parts.write(some, first + 1)
        if at is not None:
            self.freshness.sent(rows.stream.name, Sent(offset, at, last - first))
        return last - first


def due(rows: int, elapsed_s: float, lasts_s: float) -> int:
    """Tell how many of a day's rows are to be sent by then."""
    return rows if elapsed_s >= lasts_s else int(rows * elapsed_s / lasts_s)
