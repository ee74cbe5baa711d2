"""The backlog of one border stream: records by epoch, of which batches are taken."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import inf

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import (
    ARRIVAL,
    FINISHED,
    MARK,
    NOTHING,
    PARTITION,
    PLACE,
    REASON,
    Arrived,
    Input,
    Run,
    Tuple,
)
from etl_procs.chunk import (
    BEFORE_ALL,
    LATE,
    Chunks,
    Piece,
    Segment,
    batch_of,
    decoded,
    epochs_of,
    integers,
    parted,
    runs_of,
    stretches,
    undecoded,
    until_finished,
)
from etl_procs.errors import CoreError
from etl_procs.model import Stream
from etl_procs.rules import ByCount, ByInterval, Late, OnTimeout
from etl_procs.sources import Sources

MARKS_AHEAD_MAX = 10_000
"""How many batches one punctuation may end at most."""

UNKNOWN = 2**63
"""The epoch of a round as long as nothing that waits has an event time."""
NEVER = 2**64
"""The epoch of a partition that is finished: after that of any round."""
EPOCH_MAX = 2**62
"""The interval that all later ones count as: it can be closed, and those after it have numbers."""
ALL = -1
"""The lane of a stream whose partitions are cut together."""


class Backlog(ABC):
    """What waits on one border stream: in each of its lanes, segments whose epochs never fall.

    A lane is a partition, or all of them together. A batch is what the lanes have in its epoch.
    """

    def __init__(
        self,
        stream: Stream,
        seen: dict[int, int],
        lanes: Collection[int],
        epoch: int,
        sources: Sources,
        finished: Collection[int] = (),
    ) -> None:
        rule = stream.batches
        assert rule is not None
        self.stream = stream
        self.waiting = self.ready = self.largest = 0
        self.bytes = 0.0
        self.time_s = (rule.linger_s if isinstance(rule, ByCount) else rule.timeout_s) or inf
        waits = not isinstance(rule, ByCount) and rule.on_timeout is OnTimeout.WAIT
        self.patience = inf if waits else self.time_s
        """How long a round waits for this stream before its batch is closed by force."""
        self.warns_after = self.time_s if waits else inf
        late = rule.late if isinstance(rule, ByInterval) else None
        self.corrections = late if isinstance(late, Stream) else None
        """The stream of what is late, if that has one of its own."""
        self._begun = dict(seen)
        self._seen = seen
        self.sources = sources
        self._resumes: dict[int, int] = {}
        """The epoch with which those partitions go on that are finished."""
        self._open: set[int] = set()
        """The partitions that have brought something in the epoch where they are."""
        self._passed: dict[int, int] = {}
        self._lanes: dict[int, deque[Segment]] = {lane: deque() for lane in sorted(lanes)}
        self._together = self._lanes.get(ALL, deque())
        self.reached = dict.fromkeys(self._lanes, epoch)
        """The epoch at which each lane is."""
        for partition in self._lanes.keys() & finished:
            self._finish(partition)
        self.lowest = min(self.reached.values())
        self._sizes: dict[int, int] = {}

    def add(self, arrived: Arrived, now: float) -> None:
        """Keep what is new."""
        came = arrived.after(self._seen).tuples
        runs, places = runs_of(came[PARTITION]), integers(came[PLACE])
        self._check(runs, came[PLACE])
        read = {partition: places[end - 1] + 1 for partition, _, end in runs}
        for partition, through in arrived.through.items():
            if through > max(read.get(partition, 0), self._seen.get(partition, 0)):
                read[partition] = through
        self._seen.update(read)
        came = self.sources.fresh(came)
        if pc.any(pc.equal(came[MARK], NOTHING)).as_py():
            came = came.filter(pc.coalesce(pc.not_equal(came[MARK], NOTHING), True))
        new = self._sane(came)
        records = new if new[MARK].null_count == len(new) else new.filter(new[MARK].is_null())
        chunks = Chunks(self.stream, records, now, apart=ALL not in self._lanes)
        moved: dict[int, int] = {}
        for segment in self._divided(chunks, new):
            epoch, partition, (_, start, end), moved[partition] = segment
            self._lanes.get(partition, self._together).append(segment)
            self._sizes[epoch] = self._sizes.get(epoch, 0) + end - start
        for partition, at in read.items():
            if at > max(moved.get(partition, 0), self._begun.get(partition, 0)):
                self._passed[partition] = at
        self.waiting += records.num_rows
        self.bytes += chunks.bytes
        self.largest = max(self._sizes.values(), default=0) + self._sizes.get(BEFORE_ALL, 0)
        self.lowest = min(self.reached.values())
        self.ready = sum(BEFORE_ALL < epoch < self.lowest for epoch in self._sizes)

    def holds(self, epoch: int) -> bool:
        """Whether a round has to wait for this stream."""
        return self.lowest <= epoch

    def size(self, epoch: int) -> int:
        """Count the records that a batch has now."""
        return self._sizes.get(epoch, 0) + self._sizes.get(BEFORE_ALL, 0)

    def first(self) -> int:
        """Name the first epoch that has anything here."""
        lanes = self._lanes.values()
        return min(next((s[0] for s in lane if s[0] > BEFORE_ALL), UNKNOWN) for lane in lanes)

    def since(self, *, tuples: bool = False) -> float:
        """Tell when the oldest of what waits (of its `tuples`) was added; infinity if none was."""
        lanes = self._lanes.values()
        firsts = [
            next((s[2] for s in lane if s[2][2] > s[2][1] or not tuples), None) for lane in lanes
        ]
        return min((piece[0].added for piece in firsts if piece), default=inf)

    def held(self, epoch: int) -> list[Piece]:
        """Show what a batch has that is decoded, and leave it there."""
        segments = [s for lane in self._lanes.values() for s in lane if s[0] <= epoch]
        return [decoded(*piece) for _, _, piece, _ in segments]

    def passed(self) -> dict[int, int]:
        """Give the positions that no batch will move: nothing that waits lies before them."""
        idle = {partition for partition, lane in self._lanes.items() if not lane}
        return {p: through for p, through in self._passed.items() if p in idle}

    def finished(self) -> set[int]:
        """Name the partitions that nobody waits for: after what was passed of them, too."""
        return {lane for lane, at in self.reached.items() if at == NEVER}

    def move(self, positions: Mapping[int, int]) -> None:
        """Forget what was passed before the positions that a batch, or nothing else, moves."""
        for partition, at in positions.items():
            if self._passed.get(partition, inf) <= at:
                del self._passed[partition]

    def cut(self, id: int, epoch: int, filled: Sequence[Tuple]) -> Input:
        """Take the next batch away."""
        pieces: list[Piece] = []
        late: list[Piece] = []
        bad: list[pa.Table] = []
        positions: dict[int, int] = {}
        firsts: dict[int, int] = {}
        numbers: list[Run] = []
        rows, size = 0, 0.0
        for lane in self._lanes.values():
            while lane and lane[0][0] <= epoch:
                _, partition, piece, positions[partition] = lane.popleft()
                chunk, start, end = piece
                if start < end and partition not in firsts:
                    firsts[partition] = chunk.places[start]
                rows += end - start
                size += chunk.record_bytes * (end - start)
                if chunk.numbers:
                    numbers += chunk.numbers.of(start, end)
                if chunk.bad_at:
                    good = decoded(*piece)
                    if good[2] - good[1] < end - start:
                        bad.append(undecoded(*piece))
                    piece = good
                if chunk.late_at:
                    for is_late, part in parted(*piece):
                        (late if is_late else pieces).append(part)
                else:
                    pieces.append(piece)
        if self._passed:
            self.move(positions)
        self.waiting -= rows
        self.bytes = self.bytes - size if self.waiting else 0.0
        self._sizes.pop(BEFORE_ALL, None)
        if self._sizes.pop(epoch, None) is not None and self.ready:
            self.ready -= 1
        if self.lowest <= epoch < UNKNOWN:  # closed by force
            self._open -= {lane for lane, at in self.reached.items() if at <= epoch}
            self.reached = {lane: max(at, epoch + 1) for lane, at in self.reached.items()}
            self.lowest = epoch + 1
        if self._resumes and epoch < UNKNOWN:  # as at a start after this round
            self._resumes = {lane: max(at, epoch + 1) for lane, at in self._resumes.items()}
        return Input(
            batch_of(self.stream, id, pieces, filled),
            pa.concat_tables(bad) if bad else None,
            positions,
            int(size),
            numbers,
            batch_of(self.corrections, id, late, ()) if self.corrections else None,
            firsts,
        )

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

    def _at(self, partition: int) -> int:
        """Tell the epoch with which a partition goes on."""
        return self._resumes.get(partition, self.reached.get(partition, 0))

    def _reach(self, partition: int, epoch: int, *, open_: bool) -> None:
        """Note that a partition is at an epoch; one that was finished is waited for again."""
        self._resumes.pop(partition, None)
        self.reached[partition] = epoch
        (self._open.add if open_ else self._open.discard)(partition)

    def _finish(self, partition: int) -> None:
        """Close what a partition has open, and do not wait for it until it brings something."""
        self._resumes[partition] = self._at(partition) + (partition in self._open)
        self._open.discard(partition)
        self.reached[partition] = NEVER

    @abstractmethod
    def _divided(self, chunks: Chunks, new: pa.Table) -> Iterator[Segment]:
        """Give what came as segments, and move what the lanes have reached."""


class Counted(Backlog):
    """A stream cut by count: an epoch has so many records, in the order in which they are read."""

    def passed(self) -> dict[int, int]:
        """Give the positions that no batch will move: nothing that waits lies before them."""
        waiting = {partition for _, partition, _, _ in self._together}
        return {p: through for p, through in self._passed.items() if p not in waiting}

    def _divided(self, chunks: Chunks, new: pa.Table) -> Iterator[Segment]:
        assert isinstance(self.stream.batches, ByCount)
        most, epoch = self.stream.batches.tuples, self.reached[ALL]
        left = most - self._sizes.get(epoch, 0)
        for partition, start, stop, mark, _ in stretches(new):
            while start < stop:
                end = min(start + left, stop)
                yield chunks.segment(epoch, partition, start, end)
                left -= end - start
                start = end
                if not left:
                    epoch, left = epoch + 1, most
            if mark == FINISHED and left < most:
                epoch, left = epoch + 1, most
        self.reached[ALL] = epoch


class Timed(Backlog):
    """A stream cut by event time: an epoch is an interval of it.

    A mark tells the time, and is in no batch: a punctuation, or another partition's tuple.
    """

    _stretches: Sequence[tuple[int, int, int, bool]] = ()
    """Of what is being added, by rows: partition, from, to, and whether it is finished then."""
    _epochs: pa.Array
    """The epoch of each of its rows, which never falls in a partition."""

    def _sane(self, new: pa.Table) -> pa.Table:
        assert isinstance(self.stream.batches, ByInterval)
        rule, marks = self.stream.batches, new[MARK].combine_chunks()
        own = pc.min_element_wise(pc.coalesce(marks, epochs_of(new, rule)), EPOCH_MAX)
        self._stretches = list(until_finished(new))
        self._epochs = self._risen(own)
        came_late = pc.and_(
            pc.less(own, self._epochs), pc.and_(marks.is_null(), new[REASON].is_null())
        )
        if not pc.any(came_late).as_py() or rule.late is Late.NEXT:
            return new
        if rule.late is not Late.DEAD:
            return new.append_column(LATE, came_late)
        ends = pc.multiply(self._epochs, rule.length).cast(pa.string())
        reason = pc.binary_join_element_wise(
            f"late: {rule.column} is",
            new[rule.column].cast(pa.string()),
            "and all before",
            ends,
            "has come",
            " ",
        )
        at = new.schema.get_field_index(REASON)
        return new.set_column(at, ARRIVAL.field(REASON), pc.if_else(came_late, reason, new[REASON]))

    def _risen(self, own: pa.Array) -> pa.Array:
        """Give the highest epoch that the partition of each row had reached with it."""
        reached: dict[int, int] = {}
        risen, open_ = [own.slice(0, 0)], set(self._open)
        for partition, start, end, finished in self._stretches:
            at = reached.get(partition, self._at(partition))
            part = pc.cumulative_max(own.slice(start, end - start), start=pa.scalar(at, pa.int64()))
            if end > start:
                open_.add(partition)
                at = part[-1].as_py()
            risen.append(part)
            if finished:
                risen.append(pa.array([at], pa.int64()))
                at += partition in open_
                open_.discard(partition)
            reached[partition] = at
        return pa.concat_arrays(risen)

    def _divided(self, chunks: Chunks, new: pa.Table) -> Iterator[Segment]:
        places = integers(new[PLACE])
        marked = pc.indices_nonzero(new[MARK].is_valid()).to_pylist()
        for partition, stretch_start, stretch_end, finished in self._stretches:
            for epoch, first, after in runs_of(
                self._epochs.slice(stretch_start, stretch_end - stretch_start)
            ):
                start, end = stretch_start + first, stretch_start + after
                records = start - bisect_left(marked, start), end - bisect_left(marked, end)
                piece = chunks.piece(partition, *records)
                yield epoch, partition, piece, places[end - 1] + 1
                self._reach(partition, epoch, open_=True)
            if finished:
                self._finish(partition)


class Marked(Backlog):
    """A stream cut by punctuations: the epoch of a partition is its highest one's, plus 1."""

    keeps_insane = True
    """Whether a punctuation that cannot be taken is a dead letter here: all partitions see it."""

    def _sane(self, new: pa.Table) -> pa.Table:
        # One that is a timestamp by mistake would end as many batches before it.
        marks, reasons = new[MARK].to_pylist(), new[REASON].to_pylist()
        reached: dict[int, int] = {}
        for at, partition in enumerate(new[PARTITION].to_pylist()):
            mark = marks[at]
            if mark is None or mark == FINISHED:
                continue
            before = reached.get(partition, self._at(partition))
            if mark > before + MARKS_AHEAD_MAX:
                marks[at] = None
                reasons[at] = f"punctuation {mark} is too far ahead of {before}"
            else:
                reached[partition] = max(before, mark + 1)
        for name, values in ((MARK, marks), (REASON, reasons)):
            at = new.schema.get_field_index(name)
            new = new.set_column(
                at, ARRIVAL.field(name), pa.array(values, ARRIVAL.field(name).type)
            )
        return new if self.keeps_insane else new.filter(new[REASON].is_null())

    def _divided(self, chunks: Chunks, new: pa.Table) -> Iterator[Segment]:
        for partition, start, end, mark, place in stretches(new):
            epoch = self._at(partition)
            if end > start:
                yield chunks.segment(epoch, partition, start, end)
                self._reach(partition, epoch, open_=True)
            if mark == FINISHED:
                self._finish(partition)
            elif mark is not None and mark >= epoch:  # a lower one is a repeat
                yield mark, partition, chunks.piece(partition, end, end), place + 1
                self._reach(partition, mark + 1, open_=False)
