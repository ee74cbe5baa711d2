"""Topics: the Kafka log as ingest sees it - is it there, which partitions, how far."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic, OffsetSpec
from kafka.errors import KafkaError, TopicAlreadyExistsError

from headrace.errors import NotRunning

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 10_000
PROBE_TIMEOUT_MS = 2_000


@contextmanager
def admin(bootstrap: str, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Iterator[KafkaAdminClient]:
    """Open an admin client."""
    with translated(bootstrap):
        client = KafkaAdminClient(
            bootstrap_servers=bootstrap,
            client_id="headrace",
            request_timeout_ms=timeout_ms,
            bootstrap_timeout_ms=timeout_ms,
        )
        try:
            yield client
        finally:
            client.close()


@contextmanager
def translated(bootstrap: str) -> Iterator[None]:
    """Say in our words that a broker does not answer."""
    try:
        yield
    except KafkaError as error:
        raise NotRunning(
            f"the broker at {bootstrap} does not answer: {error}",
            hint="Is it up (`headrace status`), and is broker.bootstrap its address?",
        ) from error


def probe(bootstrap: str) -> None:
    """Return when the broker answers; raise NotRunning when it does not."""
    with admin(bootstrap, PROBE_TIMEOUT_MS) as client:
        client.describe_cluster()


def ensure(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Create a topic unless it is there; tell its partitions."""
    with admin(bootstrap) as client:
        if topic not in client.list_topics():
            try:
                client.create_topics([NewTopic(topic, num_partitions=partitions)])
                log.info("created topic %s with %d partitions", topic, partitions)
            except TopicAlreadyExistsError:
                log.info("topic %s was created by another engine", topic)
            client.wait_for_topics([topic])
        return _partitions(client, topic)


def end_offsets(bootstrap: str, topic: str) -> dict[int, int]:
    """Tell the offset after the last record of each partition; none if there is no topic."""
    with admin(bootstrap) as client:
        latest = client.list_partition_offsets(
            {TopicPartition(topic, p): OffsetSpec.LATEST for p in _partitions(client, topic)}
        )
        return {at.partition: found.offset for at, found in latest.items()}


def _partitions(client: KafkaAdminClient, topic: str) -> list[int]:
    (described,) = client.describe_topics([topic])
    return sorted(p["partition_index"] for p in described["partitions"] or ())
