"""The batcher: one Spark Structured Streaming query for each stream, from its topic to Arrow.

Delivery: every record from the given positions on is handed over at least once and in the order
of its partition; after a restart, records may be handed over again. Whoever receives them decides
by position what is new, and must not raise: Spark would only log it. Spark's checkpoint is made
anew at each start and may be deleted at any time.
"""

import json
import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from etl_procs.model import Stream
from headrace.config import Config
from headrace.errors import HeadraceError
from ingest import topics
from ingest.decode import decoded

log = logging.getLogger(__name__)

EARLIEST = -2
"""What Spark calls the beginning of a partition."""

Take = Callable[[pa.Table], None]


class Batcher:
    """Reads one stream and hands its tuples over, one micro-batch after the other."""

    def __init__(self, session: SparkSession, stream: Stream, config: Config) -> None:
        self._session = session
        self._stream = stream
        self._config = config
        self._query: StreamingQuery | None = None

    def start(self, positions: Mapping[int, int], take: Take, scratch: Path) -> None:
        """Start reading at `positions` (partitions without one: from the beginning)."""
        bootstrap, topic = self._config.broker.bootstrap, self._stream.topic
        partitions = topics.ensure(bootstrap, topic, self._config.broker.topic_partitions)
        self._refuse_lost(positions, topics.end_offsets(bootstrap, topic))
        starting = {str(p): positions.get(p, EARLIEST) for p in partitions}
        records = (
            self._session.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", json.dumps({topic: starting}))
            .option("maxOffsetsPerTrigger", self._config.engine.batch_rows_max)
            .option("failOnDataLoss", "true")
            # The broker would hold an empty answer back for 500 ms, and a new record with it.
            .option("kafka.fetch.max.wait.ms", 10)
            .load()
        )
        self._query = (
            decoded(records, self._stream)
            .writeStream.queryName(topic)
            .option("checkpointLocation", tempfile.mkdtemp(prefix=f"{topic}-", dir=scratch))
            .trigger(processingTime=f"{self._config.engine.trigger_ms} milliseconds")
            .foreachBatch(lambda frame, _spark_batch: take(frame.toArrow()))
            .start()
        )
        log.info("reading %s from %s", topic, starting)

    def stop(self) -> None:
        """Stop reading."""
        if self._query is not None:
            self._query.stop()

    def wait(self) -> None:
        """Return when reading was stopped; raise what ended it otherwise."""
        assert self._query is not None, "started"
        try:
            self._query.awaitTermination()
        except StreamingQueryException as error:
            raise HeadraceError(
                f"Spark stopped reading {self._stream.topic}: {_first_line(error)}",
                hint="Nothing was lost: positions are in the core's ledger. The engine's log "
                "tells more (`headrace logs engine`).",
            ) from error

    def _refuse_lost(self, positions: Mapping[int, int], ends: Mapping[int, int]) -> None:
        for partition, position in positions.items():
            if position > ends.get(partition, 0):
                raise HeadraceError(
                    f"the ledger has consumed {self._stream.topic}[{partition}] up to offset "
                    f"{position}, and the topic ends at {ends.get(partition, 0)}",
                    hint="The topic was deleted or its log lost. Reading on would skip what is "
                    "written next: restore the topic; or start over with a new data folder and a "
                    "new schema in the warehouse.",
                )


def _first_line(error: StreamingQueryException) -> str:
    return str(error).strip().partition("\n")[0]
