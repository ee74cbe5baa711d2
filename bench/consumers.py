"""Peers as people write them: kafka-python reads, a client of PostgreSQL writes, offsets commit.

    python -m bench.consumers BOOTSTRAP TOPIC URL PLACE HOW DIES_AT

is one that kills itself with SIGKILL between its commit number DIES_AT in the database and that of
the offsets, which is the worst place. PLACE is the table, or the schema of both tables.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, NamedTuple

import psycopg
import sqlalchemy as sa
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from psycopg import sql
from sqlalchemy.dialects import postgresql

from bench.ingest_data import NAMES
from bench.migrate_state import HISTORY, KEPT

EACH, POLL = "psycopg_each_message", "psycopg_each_poll"
INSERTING = (EACH, POLL)
"""Who appends all records to a table."""
ROWS, CORE = "psycopg_rows", "sqlalchemy_core"
CHANGING = (ROWS, CORE)
"""Who takes records for changes of rows, in a table with a key; at will, of a history, too."""
READING = "kafka_python"
"""The same without any database."""
POLL_MS, POLL_RECORDS = 500, 500
"""How many records come at once: as kafka-python has it."""

UPSERT: LiteralString = """\
INSERT INTO {table} ({columns}) VALUES ({values})
ON CONFLICT (id) DO UPDATE SET ({columns}) = ROW ({excluded})"""
DELETE: LiteralString = "DELETE FROM {table} WHERE id = %s"
INSERT: LiteralString = "INSERT INTO {table} ({columns}) VALUES ({values})"

COLUMNS = sql.SQL(", ").join(map(sql.Identifier, NAMES))
VALUES = sql.SQL(", ").join(sql.Placeholder() * len(NAMES))
EXCLUDED = sql.SQL(", ").join(sql.Identifier("excluded", name) for name in NAMES)

Records = Sequence[ConsumerRecord]
Write = Callable[[Records], None]
"""Brings some records, all or nothing; they are committed when it returns."""


class Consumed(NamedTuple):
    """What reading a topic to its end took."""

    seconds: float
    records: int


def _inserting(connection: psycopg.Connection[Any], table: str) -> Write:
    insert = sql.SQL(INSERT).format(table=sql.Identifier(table), columns=COLUMNS, values=VALUES)

    def write(records: Records) -> None:
        with connection.cursor() as cursor:
            cursor.executemany(insert, [_row(record) for record in records])
        connection.commit()

    return write


def _by_rows(connection: psycopg.Connection[Any], schema: str, *, history: bool) -> Write:
    """Write row by row, with psycopg."""
    parts = {"columns": COLUMNS, "values": VALUES, "excluded": EXCLUDED}
    table = {"table": sql.Identifier(schema, KEPT)}
    upsert, delete = sql.SQL(UPSERT).format(**parts, **table), sql.SQL(DELETE).format(**table)
    append = sql.SQL(INSERT).format(table=sql.Identifier(schema, HISTORY), **parts)

    def write(records: Records) -> None:
        for record in records:
            if record.value is None:
                connection.execute(delete, [_key(record)])
                continue
            connection.execute(upsert, _row(record))
            if history:
                connection.execute(append, _row(record))
        connection.commit()

    return write


def _by_core(engine: sa.Engine, schema: str, *, history: bool) -> Write:
    """Write many rows in one statement, with SQLAlchemy Core."""
    metadata = sa.MetaData(schema)
    kept = sa.Table(KEPT, metadata, autoload_with=engine)
    appended = sa.Table(HISTORY, metadata, autoload_with=engine)
    insert = postgresql.insert(kept)
    others = {name: insert.excluded[name] for name in NAMES if name != "id"}
    upsert = insert.on_conflict_do_update(index_elements=["id"], set_=others)

    def write(records: Records) -> None:
        # A statement may not change a row twice: the last record of each key counts.
        last = {_key(record): record.value for record in records}
        gone = [key for key, value in last.items() if value is None]
        new = [json.loads(value) for value in last.values() if value is not None]
        with engine.begin() as connection:
            if gone:
                connection.execute(sa.delete(kept).where(kept.c.id.in_(gone)))
            if new:
                connection.execute(upsert, new)
            if history:
                every = [json.loads(record.value) for record in records if record.value is not None]
                connection.execute(sa.insert(appended), every)

    return write


def _read(records: Records) -> None:
    """Write nothing, but know what there is to write."""
    for record in records:
        _key(record)
        if record.value is not None:
            json.loads(record.value)


@contextmanager
def _writing(how: str, url: str, place: str, *, history: bool) -> Iterator[Write]:
    """Connect as one of the consumers."""
    if how == READING:
        yield _read
    elif how == CORE:
        engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
        try:
            yield _by_core(engine, place, history=history)
        finally:
            engine.dispose()
    else:
        with psycopg.connect(url) as connection:
            if how == ROWS:
                yield _by_rows(connection, place, history=history)
            else:
                yield _inserting(connection, place)


def run(
    bootstrap: str,
    topic: str,
    url: str,
    place: str,
    how: str,
    *,
    history: bool = False,
    dies_at: int = 0,
    records_max: int = 0,
) -> Consumed:
    """Be one of the consumers: write what its group, which is of the place, has not read.

    It ends where the topic ends, or after the poll that brings `records_max` records.
    """
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=place,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=POLL_RECORDS,
    )
    at = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]
    consumer.assign(at)
    ends = consumer.end_offsets(at)
    commits = read = 0
    with _writing(how, url, place, history=history) as write:
        began = time.perf_counter()
        while any(consumer.position(lane) < ends[lane] for lane in at):
            polled = [record for of in consumer.poll(POLL_MS).values() for record in of]
            for some in _committed(polled, how):
                write(some)
                commits += 1
                if commits == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                consumer.commit(_after(some))
            read += len(polled)
            if 0 < records_max <= read:
                break
        seconds = time.perf_counter() - began
    consumer.close()
    return Consumed(seconds, read)


def _committed(polled: Records, how: str) -> list[Records]:
    """Divide what has come by what is committed together."""
    if how == EACH:
        return [[record] for record in polled]
    return [polled] if polled else []


def _row(record: ConsumerRecord) -> tuple[Any, ...]:
    return tuple(json.loads(record.value).values())


def _key(record: ConsumerRecord) -> int:
    return int(json.loads(record.key)["id"])


def _after(records: Records) -> dict[TopicPartition, Any]:
    last = {TopicPartition(record.topic, record.partition): record for record in records}
    return {
        lane: OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)
        for lane, record in last.items()
    }


if __name__ == "__main__":
    *arguments, number = sys.argv[1:]
    run(*arguments, history=True, dies_at=int(number))
