"""What people write today and ours, into PostgreSQL: how fast, and what a SIGKILL does to each.

Each is killed where it has written and not yet noted that it has: the consumers between the commit
in the database and that of the offsets, Spark's JDBC writer before Spark notes its micro-batch,
ours at crash points. Each is then started again and ends; its rows tell what is lost or doubled.
"""

from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession

from bench import consumers, ingest_jdbc, killing
from bench.harness import Figures
from bench.ingest_data import declared
from bench.ingest_engine import Engine
from headrace.crash import Point

KILLED_AT = 1
"""At which commit a consumer is."""
JDBC = "spark_jdbc"
SPARK_STARTS_S = 120
SHORT_LIVED = {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""A JVM that is soon killed, and whose speed nobody measures, need not compile for speed."""
POINTS = (
    Point.CORE_COMMIT_BEFORE,
    Point.CORE_COMMIT_AFTER,
    Point.PUSH_COPY_AFTER,
    Point.PUSH_COMMIT_BEFORE,
    Point.PUSH_COMMIT_AFTER,
)


class Work(NamedTuple):
    """A topic with so many documents, and the database that they belong into."""

    bootstrap: str
    topic: str
    documents: int
    url: str


def consumer_rows_per_s(work: Work, how: str, records_max: int) -> float:
    """Let a consumer write that many, about."""
    _make(work, how)
    argv = (work.bootstrap, work.topic, work.url, how, how)
    consumed = consumers.run(*argv, records_max=records_max)
    return consumed.records / consumed.seconds


def consumer_killed(work: Work, how: str) -> Figures:
    """Kill a consumer, let another go on, and count."""
    _make(work, table := f"{how}_killed")
    argv = (work.bootstrap, work.topic, work.url, table, how)
    program = killing.module("bench.consumers", *argv, str(KILLED_AT))
    killing.run_until_killed(program, SHORT_LIVED)
    consumers.run(*argv)
    return harm(work, sql.Identifier(table))


def jdbc_rows_per_s(spark: SparkSession, work: Work, folder: Path, at_once: int) -> float:
    """Let Spark's JDBC writer write all; the first micro-batch does not count."""
    _make(work, JDBC)
    written = ingest_jdbc.write(
        spark, work.bootstrap, work.topic, work.url, JDBC, folder / JDBC, at_once
    )
    # All micro-batches have `at_once` rows but the last one, which has what is left.
    return (work.documents - at_once) / (written[-1] - written[0])


def jdbc_killed(other: "Future[SparkSession]", work: Work, folder: Path, at_once: int) -> Figures:
    """Kill Spark after it has written, let another go on at its checkpoint, and count."""
    _make(work, table := f"{JDBC}_killed")
    place = folder / table
    place.mkdir()
    argv = (work.bootstrap, work.topic, work.url, table)
    program = killing.module("bench.ingest_jdbc", *argv, place, str(at_once))
    killing.run_until_killed(program, SHORT_LIVED)
    ingest_jdbc.write(other.result(SPARK_STARTS_S), *argv, place, at_once)
    return harm(work, sql.Identifier(table))


def ours_killed(engine: Engine, points: tuple[Point, ...]) -> None:
    """Kill our engine at each of these points, one start after the other."""
    for point in points:
        settings = {"testing__crash_at": point.value, "push__every_ms": "50"}
        with engine.running(SHORT_LIVED, **settings):
            engine.until_killed()


def harm(work: Work, table: sql.Composable) -> Figures:
    """Count what is missing in a table, and what is there more than once."""
    rows, different = counted(work.url, table)
    return {"rows_lost": float(work.documents - different), "rows_doubled": float(rows - different)}


def counted(url: str, table: sql.Composable) -> tuple[int, int]:
    """Count the rows of a table, and the different ids."""
    with psycopg.connect(url) as connection:
        query = sql.SQL("SELECT count(*), count(DISTINCT id) FROM {}").format(table)
        found = connection.execute(query).fetchone()
    assert found is not None
    return found[0], found[1]


def _make(work: Work, table: str) -> None:
    statement = sql.SQL("CREATE TABLE {} ({})")
    with psycopg.connect(work.url) as connection:
        connection.execute(statement.format(sql.Identifier(table), declared(required=False)))
