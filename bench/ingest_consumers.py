"""Peers as people write them today: kafka-python reads, psycopg writes, then the offsets commit.

    python -m bench.ingest_consumers BOOTSTRAP TOPIC CONNINFO NAME HOW DIES_AT

is one that kills itself with SIGKILL between its commit number DIES_AT in the database and that of
the offsets, which is the worst place.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from psycopg import sql

from bench.ingest_data import NAMES

EACH, POLL = "psycopg_each_message", "psycopg_each_poll"
CONSUMERS = (EACH, POLL)
POLL_MS = 500
INSERT: LiteralString = "INSERT INTO {} VALUES ({})"


def consume(
    bootstrap: str,
    topic: str,
    conninfo: str,
    name: str,
    how: str,
    *,
    dies_at: int = 0,
    records_max: int = 0,
) -> float:
    """Write what the group has not read into the table of this name; tell the seconds of a row.

    It ends where the topic ends, or after the poll that brings `records_max` records.
    """
    insert = sql.SQL(INSERT).format(
        sql.Identifier(name), sql.SQL(", ").join(sql.Placeholder() * len(NAMES))
    )
    with psycopg.connect(conninfo) as connection:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        at = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(at)
        ends = consumer.end_offsets(at)
        commits = read = 0
        began = time.perf_counter()
        while any(consumer.position(lane) < ends[lane] for lane in at):
            for records in consumer.poll(POLL_MS).values():
                for some in [[record] for record in records] if how == EACH else [records]:
                    with connection.cursor() as cursor:
                        cursor.executemany(insert, [_row(record) for record in some])
                    connection.commit()
                    commits += 1
                    read += len(some)
                    if commits == dies_at:
                        os.kill(os.getpid(), signal.SIGKILL)
                    consumer.commit(_after(some))
            if 0 < records_max <= read:
                break
        seconds = time.perf_counter() - began
        consumer.close()
    return seconds / read


def _row(record: ConsumerRecord) -> tuple[Any, ...]:
    return tuple(json.loads(record.value).values())


def _after(records: Sequence[ConsumerRecord]) -> dict[TopicPartition, Any]:
    last = records[-1]
    lane = TopicPartition(last.topic, last.partition)
    return {lane: OffsetAndMetadata(last.offset + 1, "", last.leader_epoch)}


if __name__ == "__main__":
    *arguments, number = sys.argv[1:]
    consume(*arguments, dies_at=int(number))
