"""An intake at the bench: logs written as words, and what is cut of them; at will, any log."""

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from flows import in_chunks
from hypothesis import given, settings
from hypothesis import strategies as st

from etl_procs.batch import ARRIVAL, FINISHED, NOTHING, Arrived, Round, Run
from etl_procs.columns import parse_tuple
from etl_procs.dataflow import Dataflow
from etl_procs.intake import Intake
from etl_procs.model import Stream
from etl_procs.routing import routed
from etl_procs.rules import ByInterval, OnTimeout, Rule, by_count, by_interval, by_punctuation
from etl_procs.sources import Seen

CLOSE = OnTimeout.CLOSE

CORRECTED = Stream("", "", parse_tuple("at INTEGER", ""))
"""Stands for the stream of what is late, which each bench makes anew."""


class HeldClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.time


@dataclass(frozen=True)
class Record:
    """`5` is a tuple of event time 5, `?` does not decode, `|3` is a punctuation, `.` finishes.

    `5@a7` is one with number 7 of source a; `-` an empty entry of a frame.
    """

    partition: int
    offset: int
    text: str

    @property
    def word(self) -> str:
        return self.text.partition("@")[0]

    @property
    def name(self) -> str:
        return f"{self.partition}:{self.offset}"

    def row(self) -> dict[str, object]:
        row = {"_partition": self.partition, "_place": self.offset, "_value": self.name.encode()}
        if source := self.text.partition("@")[2]:
            row |= {"_source": source[0], "_seq": int(source[1:])}
        if self.word == "?":
            return row | {"_reason": "no number"}
        if self.word in MARKS:
            return row | {"_mark": MARKS[self.word]}
        if self.word[0] == "|":
            return row | {"_mark": int(self.word[1:])}
        return row | {"at": int(self.word), "name": self.name}


MARKS = {".": FINISHED, "-": NOTHING}

Log = Mapping[int, Sequence[Record]]
"""The records of each partition of a topic."""


def log_of(*lines: str) -> Log:
    """Make a partition of each line; `_` is an offset that no record has."""
    return {
        p: [Record(p, offset, word) for offset, word in enumerate(line.split()) if word != "_"]
        for p, line in enumerate(lines)
    }


class Bench:
    """A dataflow with a border stream for each rule, and the intake of one of its partitions.

    `partitions` are its topics'.
    """

    def __init__(
        self,
        *rules: Rule,
        partitions: int = 1,
        after: Sequence["Cut"] = (),
        rows_max: int = 999,
        me: int = 0,
        of: int = 1,
        order: str = "",
        finished: Collection[int] = (),
    ) -> None:
        self.clock = HeldClock()
        self.me, self.flow = me, Dataflow("shop", partitions=of)
        columns, known = "at INTEGER NOT NULL, name TEXT NOT NULL", seen_in(after)
        self.flow.stream("late", columns)
        for name, rule in zip("abc", rules, strict=False):
            if isinstance(rule, ByInterval) and rule.late is CORRECTED:
                rule = replace(rule, late=self.flow.streams["late"])
            self.flow.stream(name, columns, batches=rule, key="name", order=order)
        names = [stream.name for stream in self.flow.borders]
        self.intake = Intake(
            self.flow,
            batch=after[-1].id if after else 0,
            epoch=after[-1].epoch if after else None,
            positions=dict(zip(names, moved(after), strict=False)),
            finished=dict.fromkeys(names, finished),
            partitions=dict.fromkeys(names, range(partitions)[::-1]),
            clock=self.clock,
            rows_max=rows_max,
            known=lambda _, *source: deepcopy(known.get(source, Seen())),
            me=me,
        )

    def of_each(self, what: str) -> dict[str, Any]:
        """Give a figure of each stream's backlog."""
        return {name: getattr(each, what) for name, each in self.intake.backlogs.items()}

    def add(
        self,
        log: Log | str,
        stream: str = "a",
        *,
        first: int = 0,
        through: Mapping[int, int] | None = None,
    ) -> "Bench":
        """Add records; a string is one of partition 0, and its offsets go from `first` on."""
        if isinstance(log, str):
            log = log_of("_ " * first + log)
        to = self.flow.streams[stream]
        schema = pa.schema([*ARRIVAL, *(f.with_nullable(True) for f in to.columns.arrow)])
        rows = [record.row() for records in log.values() for record in records]
        tuples = in_chunks(pa.Table.from_pylist(rows, schema))
        arrived = Arrived(to, tuples, through or {})
        self.intake.add(routed(arrived, self.flow.partitions)[self.me])
        return self

    def wait(self, seconds: float) -> "Bench":
        self.clock.time += seconds
        return self

    def cuts(self) -> "list[Cut]":
        """Cut all that can be cut now."""
        made = []
        while (cut := self.intake.next()) is not None:
            made.append(read_back(cut))
        return made

    def names(self) -> list[str]:
        """Cut all that can be cut now, and name the records of each batch of each stream."""
        return [" / ".join(cut.text) for cut in self.cuts()]


@dataclass(frozen=True)
class Cut:
    id: int
    epoch: int | None
    text: list[str]
    positions: list[dict[int, int]]
    numbers: list[Run]
    late: list[str]
    firsts: list[dict[int, int]]

    @property
    def names(self) -> list[str]:
        return self.text[0].replace("?", "").split()


def read_back(cut: Round) -> Cut:
    text, late = [], []
    numbers: list[Run] = []
    for of in cut.inputs:
        numbers += of.numbers
        late += [] if of.late is None else [str(name) for _, name in of.late.tuples]
        assert of.batch.id == cut.id
        bad = [] if of.undecoded is None else of.undecoded.select(ARRIVAL.names).to_pylist()
        names = [str(name) for _, name in of.batch.tuples]
        text.append(" ".join([*names, *(f"?{row['_partition']}:{row['_place']}" for row in bad)]))
    positions = [dict(of.positions) for of in cut.inputs]
    firsts = [dict(of.firsts) for of in cut.inputs]
    return Cut(cut.id, cut.epoch, text, positions, numbers, late, firsts)


def seen_in(cuts: Sequence["Cut"]) -> dict[tuple[int, str], Seen]:
    """Tell what the ledger has of each source after these rounds of one stream."""
    found: dict[tuple[int, str], Seen] = {}
    for partition, source, first, last in (run for cut in cuts for run in cut.numbers):
        found.setdefault((partition, source), Seen()).add(first, last)
    return found


def moved(cuts: Sequence[Cut]) -> list[dict[int, int]]:
    """Tell the positions of each stream after these rounds."""
    at: list[dict[int, int]] = [{} for _ in (cuts[0].positions if cuts else [])]
    for cut in cuts:
        for stream, positions in zip(at, cut.positions, strict=True):
            assert all(next_ > stream.get(p, 0) for p, next_ in positions.items())
            stream |= positions
    return at


# By count.


# For any log, read in any way.

COUNT, INTERVAL, PUNCTUATION = by_count(3), by_interval("at", 10), by_punctuation()
TIMED = by_interval("at", 10, timeout_s=5, on_timeout=CLOSE)
MARKED = by_punctuation(timeout_s=5, on_timeout=CLOSE)
DETERMINISTIC = pytest.mark.parametrize(
    ("rule", "partitions"), [(COUNT, 1), (INTERVAL, 1), (INTERVAL, 3), (PUNCTUATION, 3)]
)


def for_any(test: Callable[..., None]) -> Callable[..., None]:
    return settings(deadline=None)(given(data=st.data())(test))  # the machine may be busy


def logs(partitions: int) -> st.SearchStrategy[Log]:
    words = ["-21", "-20", "-1", "5", "10", "13", "27", "39", *"09??_", "|1", "|2", "|3", "|6"]
    line = st.lists(st.sampled_from(words), max_size=14).map(" ".join)
    return st.lists(line, min_size=partitions, max_size=partitions).map(lambda ls: log_of(*ls))


Way = Sequence[tuple[Sequence[int], int, bool, int]]
"""A way to read a log: how many records of each partition, how many again, whether to cut, and
how long to wait before."""


def ways(partitions: int) -> st.SearchStrategy[Way]:
    each = st.lists(st.integers(0, 6), min_size=partitions, max_size=partitions)
    step = st.tuples(each, st.integers(0, 3), st.booleans(), st.integers(0, 7))
    return st.lists(step, max_size=5)


def feed(bench: Bench, log: Log, way: Way) -> list[Cut]:
    """Add what the way leads to, piece by piece, and cut now and then."""
    cuts: list[Cut] = []
    at = dict.fromkeys(log, 0)
    for counts, again, cutting, seconds in way:
        till = {p: at[p] + count for p, count in zip(log, counts, strict=True)}
        bench.add({p: log[p][max(0, at[p] - again) : till[p]] for p in log}).wait(seconds)
        at = till
        if cutting:
            cuts += bench.cuts()
    return cuts


def at_once(rule: Rule, log: Log, after: Sequence[Cut] = ()) -> list[Cut]:
    return Bench(rule, partitions=len(log), after=after).add(log).cuts()


def tuples_of(log: Log) -> list[Record]:
    return [record for records in log.values() for record in records if record.word[0] != "|"]


def check_whole(log: Log, cuts: Sequence[Cut]) -> None:
    """Every record before the positions is in exactly one round; none after them is in any."""
    found: list[str] = []
    for count, cut in enumerate(cuts, start=1):
        assert cut.id == count
        found += cut.names
        at = moved(cuts[:count])[0]
        done = [r.name for r in tuples_of(log) if r.offset < at.get(r.partition, 0)]
        assert sorted(found) == sorted(done)
