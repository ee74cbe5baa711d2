"""Peers as people write them: kafka-python reads changes, and a commit a poll brings them.

    python -m bench.migrate_consumers BOOTSTRAP TOPIC URL SCHEMA HOW DIES_AT

is one that writes the history, too, and kills itself with SIGKILL between its commit number DIES_AT
in the database and that of the offsets, which is the worst place.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, LiteralString

import psycopg
import sqlalchemy as sa
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from psycopg import sql
from sqlalchemy.dialects import postgresql

from bench.ingest_data import NAMES
from bench.migrate_state import HISTORY, KEPT

ROWS, CORE = "psycopg_rows", "sqlalchemy_core"
CONSUMERS = (ROWS, CORE)
READING = "kafka_python"
"""The same without any database."""
POLL_MS, POLL_RECORDS = 500, 500
"""How many records come at once: as kafka-python has it."""

UPSERT: LiteralString = """\
INSERT INTO {table} ({columns}) VALUES ({values})
ON CONFLICT (id) DO UPDATE SET ({columns}) = ROW ({excluded})"""
DELETE: LiteralString = "DELETE FROM {table} WHERE id = %s"
APPEND: LiteralString = "INSERT INTO {table} ({columns}) VALUES ({values})"

Records = Sequence[ConsumerRecord]
Write = Callable[[Records], None]
"""Brings some records, all or nothing; they are committed when it returns."""


def rows(connection: psycopg.Connection[Any], schema: str, *, history: bool) -> Write:
    """Write row by row, with psycopg."""
    parts = {
        "columns": _listed(*NAMES),
        "values": sql.SQL(", ").join(sql.Placeholder() * len(NAMES)),
        "excluded": sql.SQL(", ").join(sql.Identifier("excluded", name) for name in NAMES),
    }
    table = {"table": sql.Identifier(schema, KEPT)}
    upsert, delete = sql.SQL(UPSERT).format(**parts, **table), sql.SQL(DELETE).format(**table)
    append = sql.SQL(APPEND).format(table=sql.Identifier(schema, HISTORY), **parts)

    def write(records: Records) -> None:
        for record in records:
            if record.value is None:
                connection.execute(delete, [_key(record)])
                continue
            row = tuple(json.loads(record.value).values())
            connection.execute(upsert, row)
            if history:
                connection.execute(append, row)
        connection.commit()

    return write


def core(engine: sa.Engine, schema: str, *, history: bool) -> Write:
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


def read(records: Records) -> None:
    """Write nothing, but know what there is to write."""
    for record in records:
        _key(record)
        if record.value is not None:
            json.loads(record.value)


def consume(bootstrap: str, topic: str, write: Write, group: str, dies_at: int = 0) -> float:
    """Write what the group has not read, to the end of the topic; tell the seconds."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=POLL_RECORDS,
    )
    at = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]
    consumer.assign(at)
    ends = consumer.end_offsets(at)
    commits = 0
    began = time.perf_counter()
    while any(consumer.position(lane) < ends[lane] for lane in at):
        polled = consumer.poll(POLL_MS)
        if not polled:
            continue
        write([record for records in polled.values() for record in records])
        commits += 1
        if commits == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        consumer.commit({lane: _after(records) for lane, records in polled.items()})
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def run(
    bootstrap: str, topic: str, url: str, schema: str, how: str, dies_at: int, *, history: bool
) -> float:
    """Be one of the consumers."""
    if how == READING:
        return consume(bootstrap, topic, read, schema)
    if how == ROWS:
        with psycopg.connect(url) as connection:
            write = rows(connection, schema, history=history)
            return consume(bootstrap, topic, write, schema, dies_at)
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
    try:
        write = core(engine, schema, history=history)
        return consume(bootstrap, topic, write, schema, dies_at)
    finally:
        engine.dispose()


def _key(record: ConsumerRecord) -> int:
    return int(json.loads(record.key)["id"])


def _after(records: Records) -> Any:
    last = records[-1]
    return OffsetAndMetadata(last.offset + 1, "", last.leader_epoch)


def _listed(*names: str) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


if __name__ == "__main__":
    *where, which, number = sys.argv[1:]
    broker, named, into, tables = where
    run(broker, named, into, tables, which, int(number), history=True)
