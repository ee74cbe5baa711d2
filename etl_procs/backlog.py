"""The backlog of one border stream: records by epoch, of which batches are taken."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from math import inf

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import (
    ARRIVAL,
    MARK,
    PARTITION,
    PLACE,
    REASON,
    Arrived,
    Batch,
    Input,
    Position,
    Tuple,
    tuples_of,
)
from etl_procs.errors import CoreError
from etl_procs.model import Stream
from etl_procs.rules import ByCount, ByInterval, OnTimeout

# Pieces of more rows are handed on as Arrow; of fewer, a table costs more than its tuples do.
ROWS_OF_A_PIECE = 64

MARKS_AHEAD_MAX = 10_000
"""How many batches one punctuation may end at most."""

BEFORE_ALL = -(2**63)
"""The epoch of what cannot be decoded and comes before any event time of its partition."""
UNKNOWN = 2**63
"""The epoch of a round as long as nothing that waits has an event time."""
ALL = -1
"""The lane of a stream whose partitions are cut together."""


class _Chunk:
    """What one `add` brought, without punctuations, in the order in which it is read."""

    def __init__(self, stream: Stream, records: pa.Table, added: float) -> None:
        self.added = added
        self.records = records
        self.record_bytes = records.nbytes / max(len(records), 1)
        self.cuts = 1
        """Into how many pieces it will be cut, about."""
        self.runs = runs_of(records[PARTITION])
        self.places = _integers(records[PLACE])
        is_bad = records[REASON].is_valid()
        self.bad_at: list[int] = pc.indices_nonzero(is_bad).to_pylist()
        self.bad: pa.Table = records.select(ARRIVAL.names).filter(is_bad) if self.bad_at else None
        self.good = records.filter(pc.invert(is_bad)) if self.bad_at else records
        self.table = self.good.select(stream.columns.names).cast(stream.columns.arrow)
        self._tuples: list[Tuple] | None = None

    def segment(self, epoch: int, partition: int, start: int, end: int) -> "_Segment":
        """Put records of one partition into an epoch."""
        return epoch, partition, (self, start, end), self.places[end - 1] + 1

    def tuples(self, start: int, end: int) -> list[Tuple]:
        """Give decoded tuples; where pieces are small, they are made once for all of them."""
        if self._tuples is None:
            if self.records.num_rows > self.cuts * ROWS_OF_A_PIECE:
                return tuples_of(self.table.slice(start, end - start))
            self._tuples = tuples_of(self.table)
        return self._tuples[start:end]


_Piece = tuple[_Chunk, int, int]
"""Consecutive records of a chunk: from, to."""
_Segment = tuple[int, int, _Piece, int]
"""Consecutive records of a partition in one epoch: epoch, partition, they, the next place."""


class Backlog(ABC):
    """What waits on one border stream: in each of its lanes, segments whose epochs never fall.

    A lane is a partition, or all of them together. A batch is what the lanes have in its epoch.
    """

    def __init__(
        self, stream: Stream, seen: dict[int, int], lanes: Collection[int], epoch: int
    ) -> None:
        rule = stream.batches
        assert rule is not None
        self.stream = stream
        self.waiting = self.ready = self.largest = 0
        self.time_s = (rule.linger_s if isinstance(rule, ByCount) else rule.timeout_s) or inf
        waits = not isinstance(rule, ByCount) and rule.on_timeout is OnTimeout.WAIT
        self.patience = inf if waits else self.time_s
        """How long a round waits for this stream before its batch is closed by force."""
        self.warns_after = self.time_s if waits else inf
        self._seen = seen
        self._passed: dict[int, int] = {}
        self._lanes: dict[int, deque[_Segment]] = {lane: deque() for lane in sorted(lanes)}
        self._together = self._lanes.get(ALL, deque())
        self.reached = dict.fromkeys(self._lanes, epoch)
        """The epoch at which each lane is."""
        self.lowest = epoch
        self._sizes: dict[int, int] = {}

    def add(self, arrived: Arrived, now: float) -> None:
        """Keep what is new."""
        new = self._sane(arrived.after(self._seen).tuples.combine_chunks())
        runs, places = runs_of(new[PARTITION]), _integers(new[PLACE])
        self._check(runs, new[PLACE])
        self._seen.update({partition: places[end - 1] + 1 for partition, _, end in runs})
        for partition, through in arrived.through.items():
            if through > self._seen.get(partition, 0):
                self._seen[partition] = self._passed[partition] = through
        records = new if new[MARK].null_count == len(new) else new.filter(new[MARK].is_null())
        chunk = _Chunk(self.stream, records, now)
        for segment in self._divided(chunk, new):
            epoch, partition, (_, start, end), _ = segment
            self._lanes.get(partition, self._together).append(segment)
            self._sizes[epoch] = self._sizes.get(epoch, 0) + end - start
            chunk.cuts += 1
        self.waiting += records.num_rows
        self.largest = max(self._sizes.values(), default=0) + self._sizes.get(BEFORE_ALL, 0)
        self.lowest = min(self.reached.values())
        self.ready = sum(BEFORE_ALL < epoch < self.lowest for epoch in self._sizes)

    def size(self, epoch: int) -> int:
        """Count the records that a batch has now."""
        return self._sizes.get(epoch, 0) + self._sizes.get(BEFORE_ALL, 0)

    def first(self) -> int:
        """Name the first epoch that has anything here."""
        lanes = self._lanes.values()
        return min(next((s[0] for s in lane if s[0] > BEFORE_ALL), UNKNOWN) for lane in lanes)

    def since(self) -> float:
        """Tell when the oldest of what waits was added; infinity if nothing does."""
        return min((lane[0][2][0].added for lane in self._lanes.values() if lane), default=inf)

    def held(self, epoch: int) -> list[_Piece]:
        """Show what a batch has that is decoded, and leave it there."""
        segments = [s for lane in self._lanes.values() for s in lane if s[0] <= epoch]
        return [_good(*piece) for _, _, piece, _ in segments]

    def passed(self) -> dict[int, int]:
        """Give the positions that no batch will move: nothing of ours lies before them."""
        return {}

    def move(self, positions: Mapping[int, int]) -> None:
        """Forget what was passed before the positions that a batch, or nothing else, moves."""
        for partition, at in positions.items():
            if self._passed.get(partition, inf) <= at:
                del self._passed[partition]

    def cut(self, id: int, epoch: int, filled: Sequence[Tuple]) -> Input:
        """Take the next batch away."""
        pieces: list[_Piece] = []
        bad: list[pa.Table] = []
        positions: dict[int, int] = {}
        rows, size = 0, 0.0
        for lane in self._lanes.values():
            while lane and lane[0][0] <= epoch:
                _, partition, piece, positions[partition] = lane.popleft()
                chunk, start, end = piece
                rows += end - start
                size += chunk.record_bytes * (end - start)
                if chunk.bad_at:
                    good = _good(*piece)
                    if good[2] - good[1] < end - start:
                        bad.append(_bad(*piece))
                    piece = good
                pieces.append(piece)
        if self._passed:
            self.move(positions)
        self.waiting -= rows
        self._sizes.pop(BEFORE_ALL, None)
        if self._sizes.pop(epoch, None) is not None and self.ready:
            self.ready -= 1
        if self.lowest <= epoch < UNKNOWN:  # closed by force
            self.reached = {lane: max(at, epoch + 1) for lane, at in self.reached.items()}
            self.lowest = epoch + 1
        undecoded = pa.concat_tables(bad) if bad else None
        return Input(batch_of(self.stream, id, pieces, filled), undecoded, positions, int(size))

    def _check(self, runs: list[tuple[int, int, int]], places: pa.ChunkedArray) -> None:
        for partition, start, end in runs:
            steps = pc.pairwise_diff(places.slice(start, end - start).combine_chunks())
            assert end - start == 1 or pc.min(steps).as_py() > 0, "a record is there twice"
            if partition not in self._lanes and ALL not in self._lanes:
                raise CoreError(
                    f"topic {self.stream.topic} has a new partition: {partition}",
                    hint="Start the engine again: it then waits for this one too.",
                )

    def _sane(self, new: pa.Table) -> pa.Table:
        """Take out what this rule cannot take; it is undecodable then."""
        return new

    @abstractmethod
    def _divided(self, chunk: _Chunk, new: pa.Table) -> Iterator[_Segment]:
        """Give what came as segments, and move what the lanes have reached."""


class Counted(Backlog):
    """A stream cut by count: an epoch has so many records, in the order in which they are read."""

    def passed(self) -> dict[int, int]:
        """Give the end of what was read where nothing of ours waits: a batch may never come."""
        waiting = {partition for _, partition, _, _ in self._together}
        return {p: through for p, through in self._passed.items() if p not in waiting}

    def _divided(self, chunk: _Chunk, new: pa.Table) -> Iterator[_Segment]:
        assert isinstance(self.stream.batches, ByCount)
        most, epoch = self.stream.batches.tuples, self.reached[ALL]
        left = most - self._sizes.get(epoch, 0)
        for partition, start, run_end in chunk.runs:
            while start < run_end:
                end = min(start + left, run_end)
                yield chunk.segment(epoch, partition, start, end)
                left -= end - start
                start = end
                if not left:
                    epoch, left = epoch + 1, most
        self.reached[ALL] = epoch


class Timed(Backlog):
    """A stream cut by event time: an epoch is an interval of it; late tuples join a later one.

    A mark is another partition's tuple: it tells the time, and is in no batch.
    """

    def _divided(self, chunk: _Chunk, new: pa.Table) -> Iterator[_Segment]:
        assert isinstance(self.stream.batches, ByInterval)
        times, places = epochs_of(new, self.stream.batches), _integers(new[PLACE])
        epochs = pc.coalesce(new[MARK].combine_chunks(), times)
        marked = pc.indices_nonzero(new[MARK].is_valid()).to_pylist()
        for partition, run_start, run_end in runs_of(new[PARTITION]):
            reached = pa.scalar(self.reached[partition], pa.int64())
            rising = pc.cumulative_max(epochs.slice(run_start, run_end - run_start), start=reached)
            for epoch, first, after in runs_of(rising):
                start, end = run_start + first, run_start + after
                piece = chunk, start - bisect_left(marked, start), end - bisect_left(marked, end)
                yield epoch, partition, piece, places[end - 1] + 1
                self.reached[partition] = epoch


class Marked(Backlog):
    """A stream cut by punctuations: the epoch of a partition is its highest one's, plus 1."""

    keeps_insane = True
    """Whether a punctuation that cannot be taken is a dead letter here: all partitions see it."""

    def passed(self) -> dict[int, int]:
        """Give the end of what was read where nothing waits: a punctuation may never come."""
        idle = {partition for partition, lane in self._lanes.items() if not lane}
        return {p: through for p, through in self._passed.items() if p in idle}

    def _sane(self, new: pa.Table) -> pa.Table:
        # One that is a timestamp by mistake would end as many batches before it.
        marks, reasons = new[MARK].to_pylist(), new[REASON].to_pylist()
        reached = dict(self.reached)
        for at, partition in enumerate(new[PARTITION].to_pylist()):
            mark = marks[at]
            if mark is None:
                continue
            if mark > reached.get(partition, mark) + MARKS_AHEAD_MAX:
                marks[at] = None
                reasons[at] = f"punctuation {mark} is too far ahead of {reached[partition]}"
            else:
                reached[partition] = max(reached.get(partition, mark), mark + 1)
        for name, values in ((MARK, marks), (REASON, reasons)):
            at = new.schema.get_field_index(name)
            new = new.set_column(
                at, ARRIVAL.field(name), pa.array(values, ARRIVAL.field(name).type)
            )
        return new if self.keeps_insane else new.filter(new[REASON].is_null())

    def _divided(self, chunk: _Chunk, new: pa.Table) -> Iterator[_Segment]:
        marked = pc.indices_nonzero(new[MARK].is_valid()).to_pylist()
        for partition, run_start, run_end in runs_of(new[PARTITION]):
            epoch = self.reached[partition]
            first, after = bisect_left(marked, run_start), bisect_left(marked, run_end)
            start = run_start - first  # in the chunk, which has no punctuations
            for nth in range(first, after):
                mark, place = new[MARK][marked[nth]].as_py(), new[PLACE][marked[nth]].as_py()
                end = marked[nth] - nth
                if mark >= epoch:  # a lower one is a repeat
                    if end > start:
                        yield chunk.segment(epoch, partition, start, end)
                    yield mark, partition, (chunk, end, end), place + 1
                    epoch, start = mark + 1, end
            end = run_end - after
            if end > start:
                yield chunk.segment(epoch, partition, start, end)
            self.reached[partition] = epoch


def batch_of(stream: Stream, id: int, pieces: list[_Piece], filled: Sequence[Tuple]) -> Batch:
    """Make a batch of pieces, by their places among what is decoded, and of what was filled in."""
    origin = partial(_position, pieces)
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


def _good(chunk: _Chunk, start: int, end: int) -> _Piece:
    """Name the same tuples by their places among the decoded ones of the chunk."""
    return chunk, start - bisect_left(chunk.bad_at, start), end - bisect_left(chunk.bad_at, end)


def _bad(chunk: _Chunk, start: int, end: int) -> pa.Table:
    """Give the others, which could not be decoded."""
    first, after = bisect_left(chunk.bad_at, start), bisect_left(chunk.bad_at, end)
    return chunk.bad.slice(first, after - first)


def _position(spans: list[_Piece], index: int) -> Position | None:
    """Find where a tuple came from; only who asks reads its bytes."""
    for chunk, start, end in spans:
        if index < end - start:
            at = start + index
            return Position(*(chunk.good[name][at].as_py() for name in ARRIVAL.names[:3]))
        index -= end - start
    return None


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


def _integers(column: pa.ChunkedArray) -> memoryview:
    """Give a column as integers that are looked up without Arrow, which takes 1 us for each."""
    array = column.combine_chunks()
    buffer = array.buffers()[1] or b""
    return memoryview(buffer).cast("q")[array.offset : array.offset + len(array)]
