"""Our way from Kafka into the core, and bare Spark's from Kafka into Arrow, in one Spark.

Each reads the whole topic. The clock starts at the end of the first micro-batch after a part of it
is done (`pace.WARM_SHARE`): starting a query costs both the same, and our own pace finds its limit.
"""

import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bench import ingest_spark
from bench.pace import Pace
from etl_procs import loader
from etl_procs.batch import Arrived
from etl_procs.core import core_path
from etl_procs.flow import Committed
from etl_procs.partitions import Partitions, Start, Topic
from etl_procs.reader import Reader
from headrace import config
from headrace.clock import SystemClock
from headrace.local.home import Home
from ingest import topics
from ingest.batcher import Batcher
from ingest.crowd import Crowd


def bare(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    decode: Callable[[DataFrame], DataFrame],
    at_once: int,
    count: int,
    folder: Path,
) -> float:
    """Read a topic into Arrow by a query of Spark's own."""
    pace = Pace(count)

    def take(frame: DataFrame, _batch: int) -> None:
        rows = frame.toArrow().num_rows
        pace.read(rows)
        pace.add(rows)

    query = (
        decode(ingest_spark.read(spark, bootstrap, topic, at_once))
        .writeStream.option("checkpointLocation", str(folder))
        .foreachBatch(take)
        .start()
    )
    try:
        return pace.seconds()
    finally:
        query.stop()


def ours(spark: SparkSession, bootstrap: str, flow_file: Path, count: int, folder: Path) -> float:
    """Read a topic into a core, by our batcher and a partition's own process."""
    settings = {
        "home": str(folder),
        "flows": str(flow_file),
        "broker.bootstrap": bootstrap,
        "engine.read_tuples_max": str(min(config.Engine().read_tuples_max, max(1, count // 5))),
    }
    loaded = config.load(settings, environment={}).config
    home = Home(loaded.home)
    home.create()
    ((name, flow),) = loader.load(loaded.flows).items()
    (stream,) = flow.borders
    topic = topics.ensure(loaded.broker, stream)
    pace = Pace(count)

    def committed(_partition: int, what: Committed) -> None:
        assert not what.dead_tuples, f"{what.dead_tuples} dead letters"
        pace.add(what.tuples)

    def take(tuples: pa.Table, through: Mapping[int, int]) -> None:
        pace.read(tuples.num_rows)
        partitions.take(Arrived(stream, tuples, through), 1)

    partitions = Partitions(
        [Start(loaded, 0, home.metrics())], on_commit=committed, on_failure=pace.fail
    )
    with ExitStack() as closing:
        closing.callback(partitions.stop)
        partitions.start()
        partitions.open({name: {stream.name: Topic(topic.id, tuple(topic.partitions))}})
        clock = SystemClock()
        batcher = Batcher(spark, stream, loaded, Crowd(lambda: 1, clock), clock)
        closing.callback(batcher.stop)
        batcher.start(topic, {}, take, Path(tempfile.mkdtemp(dir=folder)))
        threading.Thread(target=_watch, args=[batcher, pace], daemon=True).start()
        closing.callback(partitions.ask_to_stop)
        seconds = pace.seconds()
    with Reader(core_path(loaded.home)).snapshot() as snapshot:
        staged = snapshot.waiting(name)
        assert staged == count, f"{staged} rows are staged of {count}"
    return seconds


def _watch(batcher: Batcher, pace: Pace) -> None:
    """Let it read on at another pace, as the engine does."""
    try:
        batcher.wait()
    except Exception as error:  # noqa: BLE001 - handed to who waits
        pace.fail(error)
