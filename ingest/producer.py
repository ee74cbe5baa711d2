"""The producer: lines into a stream's topic, one tuple each, acknowledged by the broker."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kafka import KafkaProducer
from kafka.errors import KafkaError

from headrace.errors import HeadraceError
from ingest.topics import translated


@contextmanager
def _producer(bootstrap: str) -> Iterator[KafkaProducer]:
    with translated(bootstrap):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, client_id="headrace-produce", acks="all", linger_ms=5
        )
    try:
        yield producer
    finally:
        producer.close()


def produce(bootstrap: str, topic: str, values: Iterable[bytes]) -> Iterator[int]:
    """Send each value as one record; yield how many were sent, and return when all are durable.

    If it raises, some of them may be in the topic: sending all again repeats those.
    """
    failed: list[BaseException] = []
    with _producer(bootstrap) as producer:
        sent = 0
        for value in values:
            try:
                producer.send(topic, value).add_errback(failed.append)
            except KafkaError as error:
                failed.append(error)
            if failed:
                break
            sent += 1
            yield sent
        producer.flush()
    if failed:
        raise HeadraceError(
            f"the broker refused record {sent} for {topic}: {failed[0]}",
            hint="Records up to the ones in flight are in the topic; mend the cause and send "
            "the rest.",
        ) from failed[0]
