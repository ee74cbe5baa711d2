"""Sources: which of their numbers were seen, so that what a producer sends again changes nothing.

Kept for each source in each partition of a topic, in the commit of the tuples themselves, as ranges
of numbers. A source without gaps is one range for ever, and all that comes out of order is told
exactly, as long as there are no more than RANGES_MAX of them.
"""

import logging
import sqlite3
from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import MARK, NOTHING, PARTITION, SEQ, SOURCE, Run
from etl_procs.chunk import RUN, numbers_of

log = logging.getLogger(__name__)

RANGES_MAX = 1024
"""What a source has of 16 bytes each. One more, and the gap between the lowest two is closed."""

KEPT_MAX = 10_000
"""So many sources are kept in mind before those are let go that are in the ledger as they are."""

SAID_MAX = 100
"""So many sources of a stream are named in the log; those after them are only counted."""

SEEN = """\
SELECT bounds, told_from FROM headrace_sources
WHERE dataflow = ? AND stream = ? AND partition = ? AND source = ?"""

SEE = """\
INSERT INTO headrace_sources VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET bounds = excluded.bounds, told_from = excluded.told_from"""


@dataclass(slots=True)
class Seen:
    """Which numbers of a source were seen."""

    bounds: "array[int]" = field(default_factory=lambda: array("Q"))
    """Of each range, in rising order: its first number, and the one after its last."""
    told_from: int = 0
    """Before it gaps were closed: a number there counts as seen, and may never have come."""

    def add(self, first: int, last: int) -> None:
        """Add consecutive numbers."""
        bounds, after = self.bounds, last + 1
        begin, end = bisect_left(bounds, first), bisect_right(bounds, after)
        # At an odd place it lies in a range, or at its edge, and is no bound.
        new = [first] * (begin % 2 == 0) + [after] * (end % 2 == 0)
        bounds[begin:end] = array("Q", new)
        if len(bounds) > 2 * RANGES_MAX:
            self.told_from = max(self.told_from, bounds[2])
            del bounds[1:3]

    def among(self, first: int, last: int) -> list[tuple[int, int]]:
        """Give those of consecutive numbers that were seen, as ranges: the first, and the last."""
        bounds, after = self.bounds, last + 1
        begin, end = bisect_right(bounds, first), bisect_left(bounds, after)
        cuts = [first] * (begin % 2) + bounds[begin:end].tolist() + [after] * (end % 2)
        return [(a, b - 1) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]


class Sources:
    """What was seen of the sources of one stream: all that was read, committed or not."""

    def __init__(self, stream: str, known: Callable[[int, str], Seen]) -> None:
        self._stream = stream
        self._known = known
        self._seen: dict[tuple[int, str], Seen] = {}
        self._full = KEPT_MAX
        self._said: set[tuple[int, str, bool]] = set()
        self.repeats = 0
        """Tuples that were passed over."""

    def fresh(self, records: pa.Table) -> pa.Table:
        """Leave out what was seen before, and take note of the rest; its runs are marked."""
        if records[SEQ].null_count == len(records):
            return records
        records = _with_runs(records)
        marks, is_fresh = records[MARK].combine_chunks(), bytearray(b"\1") * len(records)
        noted: dict[tuple[int, str, bool], list[tuple[int, int, int]]] = defaultdict(list)
        for row, _, run in numbers_of(records):
            for first, last, is_told in self._again(run):
                start, rows = row + first - run.first, last - first + 1
                is_fresh[start : start + rows] = bytes(rows)
                if tuples := marks.slice(start, rows).null_count:
                    noted[run.partition, run.source, is_told].append((first, last, tuples))
        if 0 not in is_fresh:
            return records
        self._note(noted)
        flags = pa.Array.from_buffers(pa.uint8(), len(records), [None, pa.py_buffer(is_fresh)])
        return records.filter(flags.cast(pa.bool_()))

    def _again(self, run: Run) -> Iterator[tuple[int, int, bool]]:
        """Add a run; give what was seen of it before, and whether that is told one by one."""
        key = run.partition, run.source
        seen = self._seen.get(key)
        if seen is None:
            self._let_go()
            seen = self._seen[key] = self._known(*key)
        found, told_from = seen.among(run.first, run.last), seen.told_from
        seen.add(run.first, run.last)
        for first, last in found:
            if first < told_from:
                yield first, min(last, told_from - 1), False
            if last >= told_from:
                yield max(first, told_from), last, True

    def _note(self, noted: dict[tuple[int, str, bool], list[tuple[int, int, int]]]) -> None:
        """Count what is passed over, and say it once of each source."""
        for key, ranges in noted.items():
            firsts, lasts, counts = zip(*ranges, strict=True)
            self.repeats += sum(counts)
            if key in self._said or len(self._said) >= SAID_MAX:
                continue
            self._said.add(key)
            partition, source, is_told = key
            of = (self._stream, source, min(firsts), max(lasts), partition, sum(counts))
            if is_told:
                text = (
                    "stream %s: source %s sends numbers %d to %d again in partition %d: %d tuples"
                )
                log.info(f"{text} are passed over", *of)
            else:
                text = "stream %s: source %s sends numbers %d to %d in partition %d: %d tuples"
                why = "the source has more than %d gaps, and whether they came cannot be told"
                log.warning(f"{text} are passed over as repeats, for {why}", *of, RANGES_MAX)

    def _let_go(self) -> None:
        if len(self._seen) >= self._full:
            self._seen = {key: s for key, s in self._seen.items() if self._known(*key) != s}
            # Or those that are not committed yet would be looked up again for each new one.
            self._full = max(KEPT_MAX, 2 * len(self._seen))


def _with_runs(records: pa.Table) -> pa.Table:
    """Number the runs of consecutive numbers; of what is no tuple, empty entries belong to them."""
    partitions, seqs, marks = (records[name].combine_chunks() for name in (PARTITION, SEQ, MARK))
    sources = records[SOURCE].combine_chunks()
    numbers = pc.if_else(pc.coalesce(pc.equal(marks, NOTHING), True), seqs, None)
    has = numbers.is_valid()
    goes_on = pc.and_(
        pc.equal(pc.pairwise_diff(numbers), 1),
        pc.and_(
            pc.equal(pc.pairwise_diff(partitions), 0),
            pc.equal(pc.pairwise_diff(sources.indices), 0),
        ),
    )
    begins = pc.and_(has, pc.invert(pc.coalesce(goes_on, False)))
    run = pc.if_else(has, pc.cumulative_sum(begins.cast(pa.int64())), None)
    return records.append_column(RUN, run)


def known(
    connection: sqlite3.Connection, dataflow: str, stream: str, partition: int, source: str
) -> Seen:
    """Tell what the ledger has of a source."""
    found = connection.execute(SEEN, (dataflow, stream, partition, source)).fetchone()
    seen = Seen()
    if found is not None:
        seen.bounds.frombytes(found[0])
        seen.told_from = found[1]
    return seen


def see(connection: sqlite3.Connection, dataflow: str, stream: str, runs: Iterable[Run]) -> None:
    """Record what a group of batches has of the sources of a stream."""
    now: dict[tuple[int, str], Seen] = {}
    for partition, source, first, last in runs:
        seen = now.get((partition, source))
        if seen is None:
            seen = now[partition, source] = known(connection, dataflow, stream, partition, source)
        seen.add(first, last)
    for key, seen in now.items():
        row = (dataflow, stream, *key, seen.bounds.tobytes(), seen.told_from)
        connection.execute(SEE, row)
