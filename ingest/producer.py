"""The producer: lines into a stream's topic, one tuple each, acknowledged by the broker."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from kafka import KafkaProducer
from kafka.errors import KafkaError

from headrace.config import Broker
from headrace.errors import HeadraceError
from ingest.records import PUNCTUATION
from ingest.security import client_options
from ingest.topics import Topic, translated

RECORD_BYTES_MAX = 16 * 2**20
"""What the local broker takes, too."""

ACKNOWLEDGED_S = 30.0


@contextmanager
def _producer(broker: Broker) -> Iterator[KafkaProducer]:
    with translated(broker):
        producer = KafkaProducer(
            **client_options(broker),
            client_id="headrace-produce",
            acks="all",
            linger_ms=5,
            max_request_size=RECORD_BYTES_MAX,
        )
    try:
        yield producer
    finally:
        producer.close()


def produce(broker: Broker, topic: str, values: Iterable[bytes]) -> Iterator[int]:
    """Send each value as one record; yield how many were sent, and return when all are durable.

    If it raises, some of them may be in the topic: sending all again repeats those.
    """
    lost: list[BaseException] = []
    sent = 0
    with _producer(broker) as producer:
        for value in values:
            try:
                producer.send(topic, value).add_errback(lost.append)
            except KafkaError as error:
                producer.flush()
                raise HeadraceError(
                    f"tuple {sent + 1} ({len(value):,} bytes) cannot be sent to {topic}: {error}",
                    hint=f"The {sent:,} before it were sent, and nothing after it. Mend or remove "
                    "it, and send the rest.",
                ) from error
            if lost:
                break
            sent += 1
            yield sent
        producer.flush()
    if lost:
        raise HeadraceError(
            f"the broker did not take all of the first {sent:,} tuples for {topic}: {lost[0]}",
            hint="Mend the cause, and send all again if repeats do no harm.",
        ) from lost[0]


def punctuate(broker: Broker, topic: Topic, batch: int) -> None:
    """End a batch in every partition of a topic; return when all of them have it durably."""
    headers = [(PUNCTUATION, str(batch).encode())]
    with _producer(broker) as producer, translated(broker):
        sent = [
            producer.send(topic.name, b"", partition=partition, headers=headers)
            for partition in topic.partitions
        ]
        for each in sent:
            each.get(ACKNOWLEDGED_S)
