"""Dead letters: tuples that could not be processed, with reason, position and bytes."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from etl_procs.batch import OFFSET, PARTITION, REASON, VALUE
from etl_procs.model import Stream

INSERT = """\
INSERT INTO headrace_dead_letters
    (dataflow, stream, batch, topic, partition, "offset", reason, value, at)
VALUES
    (:dataflow, :stream, :batch, :topic, :partition, :offset, :reason, :value, :at)"""

LIST = """\
SELECT id, dataflow, stream, batch, topic, partition, "offset", reason, value, at
FROM headrace_dead_letters ORDER BY id"""

REASONS = """\
SELECT dataflow, reason, count(*) FROM headrace_dead_letters
GROUP BY dataflow, reason ORDER BY dataflow, count(*) DESC, reason"""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One tuple that could not be processed."""

    id: int
    dataflow: str
    stream: str
    batch: int
    topic: str
    partition: int
    offset: int
    reason: str
    value: bytes | None
    at: str


def add(
    connection: sqlite3.Connection, stream: Stream, batch: int, tuples: pa.Table, at: str
) -> None:
    """Set tuples aside; each has its reason in the column `_reason`."""
    connection.executemany(
        INSERT,
        (
            {
                "dataflow": stream.dataflow,
                "stream": stream.name,
                "batch": batch,
                "topic": stream.topic,
                "partition": row[PARTITION],
                "offset": row[OFFSET],
                "reason": row[REASON],
                "value": row[VALUE],
                "at": at,
            }
            for row in tuples.select([PARTITION, OFFSET, REASON, VALUE]).to_pylist()
        ),
    )


def all_of(connection: sqlite3.Connection) -> Iterable[DeadLetter]:
    """List every dead letter, oldest first."""
    return (DeadLetter(*row) for row in connection.execute(LIST))


def reasons(connection: sqlite3.Connection) -> list[tuple[str, str, int]]:
    """Count dead letters by dataflow and reason."""
    return connection.execute(REASONS).fetchall()
