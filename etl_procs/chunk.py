"""Chunks: what one arrival brought, and the pieces of it of which batches are made."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import (
    ARRIVAL,
    FINISHED,
    MARK,
    ORIGIN,
    PARTITION,
    PLACE,
    REASON,
    SEQ,
    SOURCE,
    Batch,
    Run,
    Tuple,
    nowhere,
    tuples_of,
)
from etl_procs.model import Stream
from etl_procs.rules import ByInterval
from headrace import arrow

# Pieces of more rows are handed on as Arrow; of fewer, a table costs more than its tuples do.
ROWS_OF_A_PIECE = 64

BEFORE_ALL = -(2**63)
"""The epoch of what cannot be decoded and comes before any event time of its partition."""
LATE = "_late"
"""The column that marks tuples for the stream of those that are late."""
RUN = "_run"
"""The column that tells apart the runs of consecutive numbers, where anything has one."""


class Chunk:
    """Records without punctuations, in the order in which they are read."""

    def __init__(self, stream: Stream, records: pa.Table, added: float) -> None:
        self.added = added
        self.records = records
        self.record_bytes = records.nbytes / max(len(records), 1)
        self.cuts = 1
        """Into how many pieces it will be cut, about."""
        self.places = integers(records[PLACE])
        is_bad = records[REASON].is_valid()
        self.bad_at: list[int] = pc.indices_nonzero(is_bad).to_pylist()
        self.bad: pa.Table = records.select(ARRIVAL.names).filter(is_bad) if self.bad_at else None
        self.good = records.filter(pc.invert(is_bad)) if self.bad_at else records
        self.table = self.good.select(stream.columns.names).cast(stream.columns.arrow)
        self.late_at: list[int] = []
        """Which of the decoded ones go to the stream of those that are late."""
        if LATE in records.column_names:
            self.late_at = pc.indices_nonzero(self.good[LATE]).to_pylist()
        self.numbers = Numbers(records) if RUN in records.column_names else None
        self._tuples: list[Tuple] | None = None

    def tuples(self, start: int, end: int) -> list[Tuple]:
        """Give decoded tuples; where pieces are small, they are made once for all of them."""
        if self._tuples is None:
            if self.records.num_rows > self.cuts * ROWS_OF_A_PIECE:
                return tuples_of(self.table.slice(start, end - start))
            self._tuples = tuples_of(self.table)
        return self._tuples[start:end]


class Numbers:
    """The numbers of some records, of which parts are asked for."""

    def __init__(self, records: pa.Table) -> None:
        self._seqs = integers(records[SEQ])
        self._runs = numbers_of(records)
        self._starts = [start for start, *_ in self._runs]

    def of(self, start: int, end: int) -> list[Run]:
        """Give the runs of consecutive numbers among the records from `start` to `end`."""
        found, seqs = [], self._seqs
        for at in range(max(bisect_right(self._starts, start) - 1, 0), len(self._runs)):
            run_start, run_end, run = self._runs[at]
            if run_start >= end:
                break
            since, till = max(start, run_start), min(end, run_end)
            if since < till:
                # An empty entry is no record: its number goes with the next one of the run.
                first = seqs[since - 1] + 1 if since > run_start else seqs[since]
                found.append(run._replace(first=first, last=seqs[till - 1]))
        return found


Piece = tuple[Chunk, int, int]
"""Consecutive records of a chunk: from, to."""
Segment = tuple[int, int, Piece, int]
"""Consecutive records of a partition in one epoch: epoch, partition, they, the next place."""


class Chunks:
    """What one `add` brought: one chunk, or one of each partition, in memory of its own.

    Partitions that are cut `apart` wait apart: a record of one that is far ahead would keep in
    memory all that the others came with.
    """

    def __init__(self, stream: Stream, records: pa.Table, added: float, *, apart: bool) -> None:
        self._apart = apart
        self._make: Callable[[pa.Table], Chunk] = lambda held: Chunk(stream, held, added)
        self._nothing = records.schema.empty_table()
        runs = runs_of(records[PARTITION]) if apart else [(0, 0, len(records))]
        self._chunks: dict[int, tuple[Chunk, int]] = {}
        for partition, start, end in runs:
            alone = len(runs) == 1
            held = records if alone else copied(records.slice(start, end - start))
            self._chunks[partition] = self._make(held), start
        self.bytes = sum(chunk.records.nbytes for chunk, _ in self._chunks.values())

    def piece(self, partition: int, start: int, end: int) -> "Piece":
        """Name records of a partition by their places among all; it may be that there are none."""
        of = partition if self._apart else 0
        if of not in self._chunks:
            self._chunks[of] = self._make(self._nothing), end
        chunk, begin = self._chunks[of]
        chunk.cuts += 1
        return chunk, start - begin, end - begin

    def segment(self, epoch: int, partition: int, start: int, end: int) -> "Segment":
        """Put records of one partition into an epoch."""
        piece = self.piece(partition, start, end)
        return epoch, partition, piece, piece[0].places[piece[2] - 1] + 1


def copied(records: pa.Table) -> pa.Table:
    """Give records that hold no memory but their own."""
    return arrow.from_bytes(arrow.to_bytes(records))


def batch_of(stream: Stream, id: int, pieces: list[Piece], filled: Sequence[Tuple]) -> Batch:
    """Make a batch of pieces, by their places among what is decoded, and of what was filled in."""
    made = _batch_of(stream, id, pieces, filled)
    if not stream.order or len(made) < 2:
        return made
    order = pc.sort_indices(made.table, [(stream.order, "ascending")])
    return Batch(stream, id, table=made.table.take(order), origin=lambda: made.origin.take(order))


def _batch_of(stream: Stream, id: int, pieces: list[Piece], filled: Sequence[Tuple]) -> Batch:
    origin = partial(_origin, pieces, len(filled))
    if len(pieces) == 1 and not filled:  # as most are
        ((chunk, start, end),) = pieces
        if end - start <= ROWS_OF_A_PIECE:
            return Batch(stream, id, tuples=chunk.tuples(start, end), origin=origin)
    rows = sum(end - start for _, start, end in pieces)
    if rows > ROWS_OF_A_PIECE * len(pieces) and not filled:
        tables = [chunk.table.slice(start, end - start) for chunk, start, end in pieces]
        return Batch(stream, id, table=pa.concat_tables(tables), origin=origin)
    tuples = [values for piece in pieces for values in piece[0].tuples(piece[1], piece[2])]
    return Batch(stream, id, tuples=tuples + list(filled), origin=origin)


def parted(chunk: Chunk, start: int, end: int) -> Iterator[tuple[bool, Piece]]:
    """Part decoded tuples into those that are late and those that are not."""
    for at in chunk.late_at[bisect_left(chunk.late_at, start) : bisect_left(chunk.late_at, end)]:
        if at > start:
            yield False, (chunk, start, at)
        yield True, (chunk, at, at + 1)
        start = at + 1
    if end > start:
        yield False, (chunk, start, end)


def decoded(chunk: Chunk, start: int, end: int) -> Piece:
    """Name the same tuples by their places among the decoded ones of the chunk."""
    return chunk, start - bisect_left(chunk.bad_at, start), end - bisect_left(chunk.bad_at, end)


def undecoded(chunk: Chunk, start: int, end: int) -> pa.Table:
    """Give the others, which could not be decoded."""
    first, after = bisect_left(chunk.bad_at, start), bisect_left(chunk.bad_at, end)
    return chunk.bad.slice(first, after - first)


def _origin(pieces: list[Piece], filled: int) -> pa.Table:
    """Tell where tuples came from; those that were filled in are the last."""
    given = [
        chunk.good.select(ORIGIN.names).slice(start, end - start) for chunk, start, end in pieces
    ]
    return pa.concat_tables([*(table.cast(ORIGIN) for table in given), nowhere(filled)])


def stretches(new: pa.Table) -> Iterator[tuple[int, int, int, int | None, int]]:
    """Give what lies between marks: partition, from, to (as if there were no marks), and the mark
    that is after it, if there is one, with its place.
    """
    marked = pc.indices_nonzero(new[MARK].is_valid()).to_pylist()
    for partition, run_start, run_end in runs_of(new[PARTITION]):
        first, after = bisect_left(marked, run_start), bisect_left(marked, run_end)
        start = run_start - first
        for nth in range(first, after):
            end = marked[nth] - nth
            yield partition, start, end, *(new[name][marked[nth]].as_py() for name in (MARK, PLACE))
            start = end
        yield partition, start, run_end - after, None, 0


def until_finished(new: pa.Table) -> Iterator[tuple[int, int, int, bool]]:
    """Give the rows of each partition: from, to, and whether it is finished after them."""
    finished = pc.indices_nonzero(pc.equal(new[MARK], FINISHED)).to_pylist()
    for partition, start, run_end in runs_of(new[PARTITION]):
        for row in finished[bisect_left(finished, start) : bisect_left(finished, run_end)]:
            yield partition, start, row, True
            start = row + 1
        yield partition, start, run_end, False


def numbers_of(records: pa.Table) -> list[tuple[int, int, Run]]:
    """Give (from, to, it) of each run of consecutive numbers."""
    rows = [(start, end) for run, start, end in runs_of(records[RUN]) if run is not None]
    starts = pa.array([start for start, _ in rows], pa.int64())
    partitions, sources, firsts, lasts = (
        records[name].take(at).to_pylist()
        for name, at in (
            (PARTITION, starts),
            (SOURCE, starts),
            (SEQ, starts),
            (SEQ, pa.array([end - 1 for _, end in rows], pa.int64())),
        )
    )
    runs = map(Run, partitions, sources, firsts, lasts)
    return [(start, end, run) for (start, end), run in zip(rows, runs, strict=True)]


def epochs_of(records: pa.Table, rule: ByInterval) -> pa.Array:
    """Give the interval of each record; the least for those that have no event time."""
    times, length = records[rule.column], pa.scalar(rule.length, pa.int64())
    quotient = pc.divide(times, length)
    below = pc.less(times, pc.multiply(quotient, length))  # Arrow rounds towards 0
    floor = pc.subtract(quotient, below.cast(pa.int64()))
    known = pc.max_element_wise(floor, BEFORE_ALL + 1)
    return pc.if_else(records[REASON].is_valid(), BEFORE_ALL, known).combine_chunks()


def runs_of(column: pa.ChunkedArray | pa.Array) -> list[tuple[int, int, int]]:
    """Give (value, from, to) of each run of equal values."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    runs = pc.run_end_encode(array)
    ends = runs.run_ends.to_pylist()
    return list(zip(runs.values.to_pylist(), [0, *ends[:-1]], ends, strict=True)) if ends else []


def integers(column: pa.ChunkedArray) -> memoryview:
    """Give a column as integers that are looked up without Arrow, which takes 1 us for each."""
    array = column.combine_chunks()
    buffer = array.buffers()[1] or b""
    return memoryview(buffer).cast("q")[array.offset : array.offset + len(array)]
