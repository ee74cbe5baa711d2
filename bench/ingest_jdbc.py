"""A peer as people write it today: Spark's foreachBatch, and its JDBC writer into PostgreSQL.

    python -m bench.ingest_jdbc BOOTSTRAP TOPIC URL TABLE FOLDER RECORDS_MAX

is one that kills itself with SIGKILL after the first write, before Spark notes the micro-batch.
"""

import os
import signal
import sys
from pathlib import Path
from time import perf_counter
from urllib.parse import urlsplit

from pyspark.sql import DataFrame, SparkSession

from bench import ingest_spark, peer_jars

CHECKPOINT, SPARK = "checkpoint", "spark"


def write(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    url: str,
    table: str,
    folder: Path,
    records_max: int,
    *,
    dies: bool = False,
) -> list[float]:
    """Append what the checkpoint has not to a table; tell when each micro-batch was written."""
    at = urlsplit(url)
    options = {"user": at.username or "", "password": at.password or ""}
    options["driver"] = "org.postgresql.Driver"
    written = []

    def take(frame: DataFrame, _batch: int) -> None:
        frame.write.jdbc(
            f"jdbc:postgresql://{at.hostname}:{at.port}{at.path}", table, "append", options
        )
        written.append(perf_counter())
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)

    read = ingest_spark.read(spark, bootstrap, topic, records_max)
    query = (
        ingest_spark.documents(read)
        .writeStream.option("checkpointLocation", str(folder / CHECKPOINT))
        .trigger(availableNow=True)
        .foreachBatch(take)
        .start()
    )
    query.awaitTermination()
    return written


if __name__ == "__main__":
    broker, named, into, rows_into, place, most = sys.argv[1:]
    with ingest_spark.spark(Path(place) / SPARK, [peer_jars.driver()]) as session:
        write(session, broker, named, into, rows_into, Path(place), int(most), dies=True)
