"""The intake: what has arrived on a dataflow's border streams and is in no batch yet.

It cuts rounds of it: batch r of every border stream. It keeps nothing on disk: the positions that
a round moves are committed with its effects, and Kafka brings again what lies after them.

Given the log, these are always cut in the same places, however it is read and wherever an engine
begins again at the ledger's position:
* by_interval and by_punctuation, as far as no timeout closes a batch;
* by_count without linger_s, over a topic of one partition.

These depend on more. The ledger fixes them: what is committed is never cut again, what is not may
be cut otherwise by the next engine.
* by_count over several partitions: on the order in which they are read;
* linger_s, and timeouts that close: on the clock; a function that fills in: on what it gives.

In a batch cut by count, tuples lie as they were read; in one cut by epochs, by partition and
offset. A punctuation moves the position with the batch that it ends; one that ends nothing does so
with the next record after it.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import inf

from etl_procs.backlog import ALL, NEVER, UNKNOWN, Backlog, Counted, Marked, Timed
from etl_procs.batch import Arrived, Round, Tuple, tuples_of
from etl_procs.chunk import BEFORE_ALL, batch_of
from etl_procs.dataflow import Dataflow
from etl_procs.errors import CoreError
from etl_procs.fitting import Fitter
from etl_procs.model import Stream
from etl_procs.routing import own
from etl_procs.rules import ByCount, ByInterval, ByPunctuation, Missing, OnTimeout
from etl_procs.sources import Seen, Sources
from headrace.clock import Clock
from headrace.errors import HeadraceError

log = logging.getLogger(__name__)


class Intake:
    """What waits on the border streams of one dataflow. One thread at a time may use it."""

    def __init__(
        self,
        dataflow: Dataflow,
        *,
        batch: int,
        epoch: int | None,
        positions: Mapping[str, Mapping[int, int]],
        finished: Mapping[str, Collection[int]],
        partitions: Mapping[str, Collection[int]],
        clock: Clock,
        rows_max: int,
        known: Callable[[str, int, str], Seen],
        me: int = 0,
    ) -> None:
        """Begin after the last `batch` in the ledger, and the last `epoch` that it closed.

        An epoch is an interval of event time; or else it counts the rounds that were cut, and so
        the punctuations. It is not the batch: dead letters that run again are batches too.
        By stream name: `positions` are the next places that the ledger has, `finished` the
        partitions that are finished there, `partitions` are all that the topic has, and `known`
        tells what the ledger has of a source in one of them. A batch may have `rows_max` tuples.
        `me` is this partition of the dataflow's.
        """
        self._me, self._of = me, dataflow.partitions
        self._clock, self._rows_max = clock, rows_max
        self.batch = batch
        """The last one; the core says so, for dead letters that run again take ids too."""
        self._warned: set[str] = set()
        self._timed = any(isinstance(s.batches, ByInterval) for s in dataflow.borders)
        self._cut = epoch or 0
        self.backlogs: dict[str, Backlog] = {}
        for stream in dataflow.borders:
            seen, rule = dict(positions.get(stream.name, {})), stream.batches
            first, lanes = self._cut + 1, partitions[stream.name]
            sources = Sources(stream.full_name, partial(known, stream.name))
            ended = finished.get(stream.name, ())
            if isinstance(rule, ByCount):
                self._check_size(stream, rule.tuples)
                self.backlogs[stream.name] = Counted(stream, seen, [ALL], first, sources)
            elif isinstance(rule, ByPunctuation):
                marked = Marked(stream, seen, lanes, first, sources, ended)
                marked.keeps_insane = me == 0  # as all that does not decode
                self.backlogs[stream.name] = marked
            else:
                first = BEFORE_ALL if epoch is None else epoch + 1
                self.backlogs[stream.name] = Timed(stream, seen, lanes, first, sources, ended)

    def add(self, arrived: Arrived) -> None:
        """Keep what was not added before, and lies after the ledger's positions."""
        queue = self.backlogs[arrived.stream.name]
        queue.add(arrived, self._clock.monotonic())
        if queue.waiting > self._rows_max >= queue.largest and not queue.ready:
            epoch = self._epoch()
            lacking = ", ".join(str(lane) for lane, at in queue.reached.items() if at <= epoch)
            raise CoreError(
                f"stream {queue.stream.full_name}: {queue.waiting} tuples wait "
                f"for a batch to end, and it does not end in partition {lacking}",
                hint="Bring something there, give the stream a timeout_s, or raise "
                "core.batch_rows_max.",
            )

    def next(self) -> Round | None:
        """Cut the next round, if it is complete or its time is over."""
        epoch, late = self._epoch(), []
        for queue in self.backlogs.values():
            if queue.largest > self._rows_max:
                self._check_size(queue.stream, queue.size(epoch))
            if queue.holds(epoch):
                late.append(queue)
        filled: Mapping[Backlog, Sequence[Tuple]] = {}
        if late or not self.backlogs:
            if not self._over(late, epoch):
                return None
            filled = {queue: self._fill(queue, epoch) for queue in late}
        elif next(iter(self.backlogs.values())).lowest == NEVER and self.oldest() is None:
            return None
        self.batch += 1
        self._cut = epoch
        if self._warned:
            self._warned.clear()
        inputs = tuple(
            [
                queue.cut(self.batch, epoch, filled.get(queue, ()))
                for queue in self.backlogs.values()
            ]
        )
        return Round(self.batch, inputs, epoch if epoch < UNKNOWN else None)

    def deadline(self) -> float | None:
        """Tell when `next` may close a round that is incomplete now, or warns that it does not."""
        began, epoch = self.oldest(), self._epoch()
        late = [queue for queue in self.backlogs.values() if queue.holds(epoch)]
        if began is None or not late:
            return None
        warnings = [q.warns_after for q in late if q.stream.name not in self._warned]
        due = began + min([max(queue.patience for queue in late), *warnings])
        return None if due == inf else due

    def passed(self) -> dict[str, dict[int, int]]:
        """Tell, by stream, positions that no round will move: what lies before them is others'."""
        found = {stream: queue.passed() for stream, queue in self.backlogs.items()}
        return {stream: positions for stream, positions in found.items() if positions}

    def finished(self) -> dict[str, set[int]]:
        """Name, by stream, the partitions that are finished."""
        return {stream: queue.finished() for stream, queue in self.backlogs.items()}

    def move(self, positions: Mapping[str, Mapping[int, int]]) -> None:
        """Note that positions which were passed are in the ledger."""
        for stream, queue in self.backlogs.items():
            queue.move(positions.get(stream, {}))

    def oldest(self, *, tuples: bool = False) -> float | None:
        """Tell when the oldest record that waits, or the oldest of the `tuples`, was added."""
        since = min((queue.since(tuples=tuples) for queue in self.backlogs.values()), default=inf)
        return None if since == inf else since

    def _epoch(self) -> int:
        # By event time: the first interval that has anything, so that a gap of a year is nothing.
        if self._timed:
            return min(queue.first() for queue in self.backlogs.values())
        return self._cut + 1

    def _over(self, late: Sequence[Backlog], epoch: int) -> bool:
        """Tell if the time of all who hold the round is over; warn once of those who go on."""
        began = self.oldest()
        if began is None:
            return False
        now = self._clock.monotonic()
        for queue in late:
            if now >= began + queue.warns_after and queue.stream.name not in self._warned:
                self._warned.add(queue.stream.name)
                self._warn(queue, epoch, "stays open")
        return all(now >= began + queue.patience for queue in late)

    def _fill(self, queue: Backlog, epoch: int) -> list[Tuple]:
        """Give what is added to a batch whose time is over, and say that it is closed."""
        stream, rule, batch = queue.stream, queue.stream.batches, self.batch + 1
        if not isinstance(rule, ByInterval | ByPunctuation):
            return []
        if isinstance(rule.on_timeout, OnTimeout):
            self._warn(queue, epoch, "is closed with what is there")
            return []
        name = getattr(rule.on_timeout, "__name__", repr(rule.on_timeout))
        what = f"stream {stream.full_name}: {name}, called to fill batch {batch},"
        there = batch_of(stream, batch, queue.held(epoch), ()).rows()
        fitter = Fitter(stream.columns)
        try:
            given = rule.on_timeout(Missing(stream.name, batch, there))
            fitted = [fitter.row(row, f"{what} gave") for row in given]
        except HeadraceError:
            raise
        except Exception as error:
            raise CoreError(
                f"{what} failed: {type(error).__name__}: {error}",
                hint="The batch is still open. Mend the function, and start the engine again.",
            ) from error
        filled = tuples_of(
            own(stream, fitted, self._me, self._of)
        )  # each partition asks for its own
        self._check_size(stream, queue.size(epoch) + len(filled))
        self._warn(queue, epoch, f"is closed with {len(filled)} more that {name} gave")
        return filled

    def _warn(self, queue: Backlog, epoch: int, what: str) -> None:
        of, after_s = queue.stream.full_name, queue.time_s
        lacking = ", ".join(str(lane) for lane, at in queue.reached.items() if at <= epoch)
        text = "stream %s: after %g s, batch %d %s: %d tuples; its end lacks in partition %s"
        log.warning(text, of, after_s, self.batch + 1, what, queue.size(epoch), lacking)

    def _check_size(self, stream: Stream, rows: int) -> None:
        if rows > self._rows_max:
            raise CoreError(
                f"stream {stream.full_name}: batch {self.batch + 1} has {rows} rows, "
                f"and a batch may have {self._rows_max}",
                hint="Cut it finer (fewer tuples, shorter intervals, more punctuations), or raise "
                "core.batch_rows_max.",
            )
