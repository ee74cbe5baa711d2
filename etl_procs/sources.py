"""Sources: which of their numbers were seen, so that what a producer sends again changes nothing.

Kept for each source in each partition of a topic, in the commit of the tuples themselves: the
highest number, and which of the WINDOW before it were seen. What comes out of order within the
window is told exactly; a number from before it is taken to be a repeat.
"""

import sqlite3
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import MARK, PARTITION, SEQ, SOURCE

WINDOW = 1024
"""More than a producer has under way at once; and a number of so many bits is quick."""
ALL_SEEN = (1 << WINDOW) - 1

KEPT_MAX = 10_000
"""So many sources are kept in mind before those are let go that are in the ledger as they are."""

SEEN = """\
SELECT high, bits FROM headrace_sources
WHERE dataflow = :dataflow AND stream = :stream AND partition = :partition AND source = :source"""

SEE = """\
INSERT INTO headrace_sources VALUES (:dataflow, :stream, :partition, :source, :high, :bits)
ON CONFLICT DO UPDATE SET high = excluded.high, bits = excluded.bits"""


class Run(NamedTuple):
    """Consecutive numbers of a source in one partition."""

    partition: int
    source: str
    first: int
    last: int


class Seen(NamedTuple):
    """Which numbers of a source were seen: bit n of `bits` stands for `high - n`."""

    high: int = -1
    bits: int = 0

    def has(self, number: int) -> bool:
        """Whether a number was seen, or is from before the window."""
        below = self.high - number
        return below >= 0 and (below >= WINDOW or bool(self.bits >> below & 1))

    def with_run(self, first: int, last: int) -> "Seen":
        """Add consecutive numbers."""
        high = max(self.high, last)
        run = (1 << min(last - first + 1, WINDOW)) - 1
        up = high - self.high
        bits = (self.bits << up if up < WINDOW else 0) | (run << min(high - last, WINDOW))
        return Seen(high, bits & ALL_SEEN)


NONE = Seen()


class Sources:
    """What was seen of the sources of one stream: all that was read, committed or not."""

    def __init__(self, known: Callable[[int, str], Seen]) -> None:
        self._known = known
        self._seen: dict[tuple[int, str], Seen] = {}
        self._full = KEPT_MAX

    def fresh(self, records: pa.Table) -> pa.Table:
        """Leave out what was seen before, and take note of the rest."""
        kept, at = [], 0
        for start, end, run in _runs(records):
            kept += [(at, start), *self._fresh(run, start, end)]
            at = end
        kept.append((at, len(records)))
        if sum(end - start for start, end in kept) == len(records):
            return records
        pieces = [records.slice(start, end - start) for start, end in kept if end > start]
        return pa.concat_tables(pieces or [records.slice(0, 0)]).combine_chunks()

    def _fresh(self, run: Run, start: int, end: int) -> list[tuple[int, int]]:
        key = run.partition, run.source
        seen = self._seen.get(key)
        if seen is None:
            self._let_go()
            seen = self._known(*key)
        self._seen[key] = seen.with_run(run.first, run.last)
        if run.first > seen.high:
            return [(start, end)]
        above = min(seen.high, run.last) + 1
        window = range(max(run.first, seen.high - WINDOW), above)
        rows = [start + number - run.first for number in window if not seen.has(number)]
        return [*((row, row + 1) for row in rows), (start + above - run.first, end)]

    def _let_go(self) -> None:
        if len(self._seen) >= self._full:
            self._seen = {key: s for key, s in self._seen.items() if self._known(*key) != s}
            # Or those that are not committed yet would be looked up again for each new one.
            self._full = max(KEPT_MAX, 2 * len(self._seen))


class Numbers:
    """The numbers of some records, of which parts are asked for."""

    def __init__(self, records: pa.Table) -> None:
        self._runs = _runs(records)
        self._starts = [start for start, _, _ in self._runs]
        self.any = bool(self._runs)

    def of(self, start: int, end: int) -> list[Run]:
        """Give the runs of consecutive numbers among the records from `start` to `end`."""
        found = []
        for at in range(max(bisect_right(self._starts, start) - 1, 0), len(self._runs)):
            run_start, run_end, run = self._runs[at]
            if run_start >= end:
                break
            since, till = max(start, run_start), min(end, run_end)
            if since < till:
                first = run.first + since - run_start
                found.append(run._replace(first=first, last=first + till - since - 1))
        return found


def _runs(records: pa.Table) -> list[tuple[int, int, Run]]:
    """Find the runs of consecutive numbers among records, each with its rows: from, to."""
    if records[SEQ].null_count == len(records):
        return []
    partitions, seqs, marks = (records[name].combine_chunks() for name in (PARTITION, SEQ, MARK))
    sources = records[SOURCE].combine_chunks().dictionary_encode()
    numbers = pc.if_else(marks.is_null(), seqs, None)
    has = numbers.is_valid()
    same = pc.and_(
        pc.equal(pc.pairwise_diff(numbers), 1),
        pc.and_(
            pc.equal(pc.pairwise_diff(partitions), 0),
            pc.equal(pc.pairwise_diff(sources.indices), 0),
        ),
    )
    begins = pc.and_(has, pc.invert(pc.coalesce(same, False)))
    starts = pc.indices_nonzero(begins).to_pylist()
    # A run ends where the next one begins, or where something has no number.
    gaps = pc.indices_nonzero(pc.invert(has)).to_pylist()
    found = []
    for start, end in zip(starts, [*starts, len(numbers)][1:], strict=True):
        gap = bisect_left(gaps, start)
        end = min(end, gaps[gap]) if gap < len(gaps) else end
        first = numbers[start].as_py()
        source = sources.dictionary[sources.indices[start].as_py()].as_py()
        found.append(
            (start, end, Run(partitions[start].as_py(), source, first, first + end - start - 1))
        )
    return found


def known(
    connection: sqlite3.Connection, dataflow: str, stream: str, partition: int, source: str
) -> Seen:
    """Tell what the ledger has of a source."""
    of = {"dataflow": dataflow, "stream": stream, "partition": partition, "source": source}
    found = connection.execute(SEEN, of).fetchone()
    return NONE if found is None else Seen(found[0], int.from_bytes(found[1], "little"))


def see(connection: sqlite3.Connection, dataflow: str, stream: str, runs: Iterable[Run]) -> None:
    """Record what a group of batches has of the sources of a stream."""
    now: dict[tuple[int, str], Seen] = {}
    for partition, source, first, last in runs:
        key = partition, source
        seen = now.get(key) or known(connection, dataflow, stream, partition, source)
        now[key] = seen.with_run(first, last)
    for (partition, source), (high, bits) in now.items():
        of = {"dataflow": dataflow, "stream": stream, "partition": partition, "source": source}
        size = (bits.bit_length() + 7) // 8
        connection.execute(SEE, {**of, "high": high, "bits": bits.to_bytes(size, "little")})
