"""The days after the batches of files: what each brings, and how a day that was cut off is known.

Before anything of a day is sent, the generator's state before it is kept, with the number of its
facts. So the same rows can be made again, under the same numbers: what of them has come is known.
"""

import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import NamedTuple

from etl_procs.model import Stream
from headrace.errors import Refused
from tpcdi.dataflow.sources import SOURCES, dates
from tpcdi.generate.columns import lines
from tpcdi.generate.directory import STATE
from tpcdi.generate.files import delimiter
from tpcdi.generate.increments import Increment, increment
from tpcdi.generate.reference import LAST_DATE
from tpcdi.generate.reference import dates as calendar
from tpcdi.generate.state import State

FIRST_FACT = [source.files for source in SOURCES].index("Trade.txt")
STREAMS = {source.files: source.then for source in SOURCES if source.then is not None}
FACTS = [source.files for source in SOURCES[FIRST_FACT:] if source.files in STREAMS]
PLAN = "facts.json"


class Rows(NamedTuple):
    """Lines for a stream: `source` is what they are known by when they come again."""

    stream: Stream
    source: str
    lines: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Day:
    """What a day brings."""

    batch: int
    today: date
    dimensions: Sequence[Rows]
    facts: Sequence[Rows]
    planned: int
    """About so many facts it was to have."""
    is_again: bool
    """Whether it was begun before, and some of it may have come."""


class Days:
    """The days that follow a directory's batches, one after the other.

    The state is kept in a folder of the data folder, as `day-N`: before day N, which is at hand or
    the last that has ended.
    """

    def __init__(self, directory: Path, kept: Path, ended: Collection[int]) -> None:
        self._kept = kept
        self._again: int | None = None
        last = max(ended, default=0)
        found = sorted(kept.glob("day-*"), key=_number)
        folder = found[-1] if found else directory / STATE
        if not (folder / "state.json").is_file():
            raise Refused(
                f"{directory} has no {STATE}: nothing can go on from there",
                hint="Name a directory that `headrace tpcdi generate` has made.",
            )
        kept.mkdir(parents=True, exist_ok=True)
        self._state = State.load(folder, kept)
        if found:
            self._check_origin(directory)
            self._again = json.loads((folder / PLAN).read_text())
            if last > self._state.batch:  # that day is over
                increment(self._state, self._again)
                self._again = None
        if last != self._state.batch:
            raise Refused(
                f"batch {last} is the last that was loaded, and the stream would go on after "
                f"{self._state.batch}"
                if last
                else f"no batch was loaded whole, and the stream goes on after {self._state.batch}",
                hint=f"Load the directory first: `headrace tpcdi load {directory}`."
                if last < self._state.batch
                else "Begin with another data folder, or `headrace reset` this one.",
            )

    def next(self, facts: int) -> Day:
        """Give the day that was cut off, as it was begun; or the next, with about so many facts."""
        again, self._again = self._again, None
        planned = facts if again is None else again
        if again is None:
            self._keep(planned)
        return _day(increment(self._state, planned), planned, is_again=again is not None)

    def _keep(self, facts: int) -> None:
        """Keep the state whole, or not at all."""
        new, name = self._kept / "new", f"day-{self._state.batch + 1}"
        shutil.rmtree(new, ignore_errors=True)
        self._state.save(new)
        (new / PLAN).write_text(json.dumps(facts))
        new.rename(self._kept / name)
        for former in self._kept.glob("day-*"):
            if former.name != name:
                shutil.rmtree(former)

    def _check_origin(self, directory: Path) -> None:
        first = directory / STATE / "state.json"
        of = json.loads(first.read_text()) if first.is_file() else {}
        if (of.get("seed"), of.get("scale")) != (self._state.seed, self._state.scale):
            raise Refused(
                f"the stream did not begin with {directory}: that has another scale or seed",
                hint="Name the directory that was loaded into this data folder.",
            )


def _day(made: Increment, planned: int, *, is_again: bool) -> Day:
    rows = {
        file: Rows(
            STREAMS[file],
            f"phase {made.batch}: {file}",
            lines(table, delimiter(file)),
        )
        for file, table in made.tables.items()
    }
    facts = [rows.pop(file) for file in FACTS]
    dimensions = [*_calendar(made), *rows.values()]
    return Day(made.batch, made.today, dimensions, facts, planned, is_again)


def _calendar(made: Increment) -> list[Rows]:
    """On the first day of a year that Date.txt does not have, bring its days."""
    today = made.today
    if today <= LAST_DATE or (today.month, today.day) != (1, 1):
        return []
    days = calendar(today, date(today.year, 12, 31))
    return [Rows(dates, f"phase {made.batch}: Date.txt", [day.encode() for day in days])]


def _number(folder: Path) -> int:
    return int(folder.name.partition("-")[2])
