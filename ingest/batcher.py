"""The batcher: one Spark Structured Streaming query for each stream, from its topic to Arrow.

Delivery: every record from the given positions on is handed over at least once and in the order
of its partition; after a restart, records may be handed over again. Whoever receives them decides
by position what is new, and must not raise: Spark would only log it. Where the log goes on without
a record, as behind a transaction, the next place is handed over after all that lies before it.
Spark's checkpoint is made anew at each start, hardly used, and may be deleted at any time.
"""

import json
import logging
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from etl_procs.batch import ARRIVAL, PARTITION, PLACE, offset_of, place_of
from etl_procs.model import Stream
from headrace.clock import Clock
from headrace.config import Config
from headrace.errors import HeadraceError
from ingest import topics
from ingest.crowd import Crowd
from ingest.decode import decoded, gathered
from ingest.pace import Pace
from ingest.security import spark_options
from ingest.session import alive

log = logging.getLogger(__name__)

LOOK_EVERY_S = 5
"""How soon it is noticed, while nothing comes, that a topic was deleted and made again, or that the
log has gone on without a record.
"""

LEADER_WAIT_MS = 15_000
BROKER_WAIT_MS = 180_000

UNTRACKED = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": str(10**12),
    "_asyncProgressTrackingOverrideSinkSupportCheck": "true",
}
"""Spark writes its progress down hardly ever: nobody asks for it, and for each file Hadoop starts a
`chmod` and some `readlink`s. That was 150 ms of each micro-batch.
"""

Take = Callable[[pa.Table, Mapping[int, int]], None]
"""Takes tuples, and the next places of partitions where they do not tell them."""


class Batcher:
    """Reads one stream and hands its tuples over, one micro-batch after the other."""

    def __init__(
        self, session: SparkSession, stream: Stream, config: Config, crowd: Crowd, clock: Clock
    ) -> None:
        self._session = session
        self._stream = stream
        self._config = config
        self._crowd = crowd
        self._clock = clock
        engine = config.engine
        self._pace = Pace(engine.read_tuples_max, engine.read_mb_max)
        self._query: StreamingQuery | None = None
        self._take: Take = lambda _tuples, _through: None
        self._begin: Callable[[Collection[int]], None] | None = None
        """Begins to read partitions where reading has come to; None once it is stopped."""
        self._beginning = threading.Lock()
        self._stopped = threading.Event()
        self._handing = threading.Lock()
        self._next: dict[int, int] = {}
        self._watched: topics.Watched | None = None
        self._lost: HeadraceError | None = None
        self._nothing = pa.schema([*ARRIVAL, *stream.columns.arrow]).empty_table()

    def start(
        self, topic: topics.Topic, positions: Mapping[int, int], take: Take, scratch: Path
    ) -> None:
        """Start reading `topic` at `positions` (partitions without one: at the offset 0)."""
        refuse_lost(topic, positions)
        self._watched = topics.Watched(self._config.broker, topic, self._clock)
        self._next = dict(positions)
        self._take = take
        self._begin = lambda partitions: self._read(topic.name, partitions, scratch)
        offsets = {partition: offset_of(place) for partition, place in positions.items()}
        self._pace.begin(*topics.peek(self._config.broker, topic, offsets))
        with alive(f"began to read {topic.name}"):
            self._begin(topic.partitions)

    def _read(self, topic: str, partitions: Collection[int], scratch: Path) -> None:
        # Not at the "earliest": what is deleted until Spark reads would be passed over in silence.
        starting = {str(p): offset_of(self._next.get(p, 0)) for p in partitions}
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", topic)
        records = (
            self._session.readStream.format("kafka")
            .options(**spark_options(self._config.broker))
            .option("subscribe", topic)
            .option("startingOffsets", json.dumps({topic: starting}))
            .option("maxOffsetsPerTrigger", self._pace.records)
            .option("includeHeaders", "true")  # a punctuation is told by its header
            .option("failOnDataLoss", "true")
            # What a producer's transaction has aborted is no tuple.
            .option("kafka.isolation.level", "read_committed")
            # The broker would hold an empty answer back for 500 ms, and a new record with it.
            .option("kafka.fetch.max.wait.ms", 10)
            # Whoever asks a leader that has died waits so long, and then asks who leads now: so
            # often that a broker that is away is told by our own look at the topic.
            .option("kafka.default.api.timeout.ms", LEADER_WAIT_MS)
            .option("kafka.request.timeout.ms", LEADER_WAIT_MS)
            .option("fetchOffset.numRetries", BROKER_WAIT_MS // LEADER_WAIT_MS)
            .load()
        )
        self._query = (
            decoded(records, self._stream)
            .writeStream.queryName(topic)
            .option("checkpointLocation", tempfile.mkdtemp(prefix=f"{topic}-", dir=scratch))
            .options(**UNTRACKED)
            .trigger(processingTime=f"{self._config.engine.trigger_ms} milliseconds")
            .foreachBatch(lambda frame, _spark_batch: self._hand_over(frame))
            .start()
        )
        log.info("reading %s from %s, %d records at once", topic, starting, self._pace.records)

    def stop(self) -> None:
        """Stop reading."""
        with self._beginning:
            self._begin = None
        self._stopped.set()
        if self._watched is not None:
            self._watched.close()
        if self._query is not None:
            self._query.stop()

    def _hand_over(self, frame: DataFrame) -> None:
        began = self._clock.monotonic()
        tuples = gathered(frame.toArrow(), self._stream)
        rest_s = self._crowd.rest_s(self._stream.topic, self._clock.monotonic() - began)
        if tuples.num_rows:
            self._look()  # after the reading: what it finds is what was read
        at = tuples.group_by(PARTITION).aggregate([(PLACE, "max")])
        with self._handing:
            self._take(tuples, {})
            for partition, place in zip(*(c.to_pylist() for c in at.columns), strict=True):
                self._next[partition] = place + 1
        if self._pace.changes(tuples) and self._query is not None:
            # Not here: Spark waits for this call before it stops.
            threading.Thread(target=self._query.stop, name="change pace", daemon=True).start()
        elif not self._pace.is_full:
            self._stopped.wait(rest_s)

    def _pass_on(self, read: StreamingQueryProgress | None) -> None:
        """Hand over how far Spark has read, where no tuple tells it. (Spark makes progress known
        when the micro-batch is handed over.)
        """
        if read is None or not self._handing.acquire(blocking=False):
            return  # what is being handed over is further
        try:
            ends = (json.loads(read.sources[0].endOffset) or {}).get(self._stream.topic, {})
            places = {int(partition): place_of(end, 0) for partition, end in ends.items()}
            through = {p: place for p, place in places.items() if place > self._next.get(p, 0)}
            if through:
                self._take(self._nothing, through)
                self._next |= through
        finally:
            self._handing.release()

    def _look(self) -> Collection[int]:
        """See that the topic is still the one that was opened; name its partitions."""
        assert self._watched is not None, "started"
        try:
            return self._watched.look()
        except HeadraceError as error:
            self._lost = error  # Spark would tell only that something was raised
            raise

    def wait(self) -> None:
        """Return when reading was stopped; raise what ended it otherwise."""
        try:
            self._wait()
        except Exception as error:
            if self._begin is not None:
                raise
            log.info("stopped reading %s, amid: %s", self._stream.topic, error)

    def _wait(self) -> None:
        try:
            with alive(f"read {self._stream.topic}"):
                self._read_on()
        except StreamingQueryException as error:
            if self._lost is not None:
                raise self._lost from error
            self._look()  # that the topic is gone says more than what Spark met
            raise HeadraceError(
                f"Spark stopped reading {self._stream.topic}: {_said(error)}",
                hint="Positions are in the core's ledger; the next start goes on there, or says "
                "what is missing. `headrace logs engine` tells more.",
            ) from error

    def _read_on(self) -> None:
        assert self._query is not None, "started"
        while self._begin is not None:
            is_over = self._query.awaitTermination(LOOK_EVERY_S)
            if self._begin is None:
                return
            read = self._query.lastProgress
            partitions = self._look()  # where nothing comes, nothing else would
            self._pass_on(read)
            with self._beginning:
                if is_over and self._begin is not None:
                    # Spark wants to be told where to begin in each: also in new ones.
                    self._begin(partitions)


def refuse_lost(topic: topics.Topic, positions: Mapping[int, int]) -> None:
    """Refuse to read on where the log no longer holds what was not read, or what was."""
    # Where nothing was read yet, reading is to begin at 0; or the claim of the topic says where.
    for partition, place in {**dict.fromkeys(topic.partitions, 0), **positions}.items():
        position = offset_of(place)
        held = topic.partitions.get(partition, range(0))
        if position < held.start:
            raise HeadraceError(
                f"{held.start - position} records of {topic.name}[{partition}], from offset "
                f"{position} on, were deleted before they were read",
                hint="The topic's retention passed them. To go on without them, start over with a "
                "new data folder and a new schema in the warehouse; and keep more.",
            )
        if position > held.stop:
            raise HeadraceError(
                f"the ledger has consumed {topic.name}[{partition}] up to offset {position}, and "
                f"the topic ends at {held.stop}",
                hint="Its log was lost. Reading on would skip what is written next: restore the "
                "topic; or start over with a new data folder and a new schema in the warehouse.",
            )


def _said(error: StreamingQueryException) -> str:
    """Give the innermost cause that Spark names; the lines above it are how it came there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return (causes or lines or ["no reason given"])[-1 if causes else 0]
