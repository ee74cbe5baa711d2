"""Producing: bare kafka-python, as fast as it can or paced by a clock."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kafka import KafkaProducer

from bench.ingest_data import Headers
from ingest import topics
from ingest.producer import RECORD_BYTES_MAX

PARTITIONS = 2


@contextmanager
def producer(bootstrap: str) -> Iterator[KafkaProducer]:
    """Open a producer as the collector has it; when it closes, all is acknowledged."""
    made = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", linger_ms=5, max_request_size=RECORD_BYTES_MAX
    )
    try:
        yield made
        made.flush()
    finally:
        made.close()


def fill(bootstrap: str, topic: str, values: Iterable[tuple[bytes, Headers]]) -> int:
    """Make a topic and send values to its partitions in turn; tell how many bytes."""
    topics.ensure(bootstrap, topic, PARTITIONS)
    size, sent = 0, []
    with producer(bootstrap) as opened:
        for number, (value, headers) in enumerate(values):
            partition = number % PARTITIONS
            sent.append(opened.send(topic, value, headers=headers, partition=partition))
            size += len(value)
    for each in sent:
        each.get(0)  # raises what went wrong
    return size
