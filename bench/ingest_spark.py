"""Bare Spark, the peer of the batcher: the same topics and typing, into Arrow, and no core."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from bench.ingest_data import FORMAT, PARSED
from etl_procs.columns import Type
from headrace import config
from headrace.local import jars
from ingest import records, session

TYPES = {Type.INTEGER: "bigint", Type.REAL: "double", Type.TEXT: "string"}


@contextmanager
def spark(folder: Path, more_jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """Start Spark as the engine does, and stop it."""
    loaded = config.load({}, environment={}).config
    folder.mkdir(exist_ok=True)
    found = [*jars.spark_jars(loaded), *more_jars]
    started = session.start(loaded.engine, jars=found, scratch=folder)
    try:
        yield started
    finally:
        started.stop()


def read(spark: SparkSession, bootstrap: str, topic: str, records_max: int) -> DataFrame:
    """Read a topic from its beginning."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", records_max)
        .load()
    )


def frames(read: DataFrame) -> DataFrame:
    """Take frames apart into typed columns."""
    separator = records.SEPARATOR.decode()
    entries = F.explode(F.split(F.col("value").cast("string"), separator)).alias("line")
    fields = read.select(entries).select(F.split("line", f"[{FORMAT.separator}]").alias("fields"))
    return fields.select(
        *(
            F.col("fields")[at].try_cast(TYPES[column.type]).alias(column.name)
            for at, column in enumerate(PARSED)
        )
    )


def documents(read: DataFrame) -> DataFrame:
    """Read JSON objects into typed columns."""
    schema = ", ".join(f"{column.name} {TYPES[column.type]}" for column in PARSED)
    return read.select(F.from_json(F.col("value").cast("string"), schema).alias("d")).select("d.*")
