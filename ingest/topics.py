"""Topics: the Kafka log as ingest sees it - is it there, which partitions, how far."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kafka import IsolationLevel, KafkaAdminClient, TopicPartition
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


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now; one that is deleted and made again has another id."""

    name: str
    id: str
    partitions: dict[int, range]
    """The offsets that each partition holds."""


def ensure(bootstrap: str, name: str, partitions: int) -> Topic:
    """Create a topic unless it is there; describe it."""
    with admin(bootstrap) as client:
        if name not in client.list_topics():
            try:
                client.create_topics([NewTopic(name, num_partitions=partitions)])
                log.info("created topic %s with %d partitions", name, partitions)
            except TopicAlreadyExistsError:
                log.info("topic %s was created by another engine", name)
            client.wait_for_topics([name])
        return _described(client, name)


def held(bootstrap: str, name: str) -> dict[int, range]:
    """Tell the offsets that each partition holds; none if there is no topic."""
    with admin(bootstrap) as client:
        return _described(client, name).partitions


def _described(client: KafkaAdminClient, name: str) -> Topic:
    (described,) = client.describe_topics([name])
    at = [TopicPartition(name, p["partition_index"]) for p in described["partitions"] or ()]
    # What a transaction has not committed, or has aborted, is no tuple.
    first, end = (
        client.list_partition_offsets(dict.fromkeys(at, spec), IsolationLevel.READ_COMMITTED)
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    )
    held = {p.partition: range(first[p].offset, end[p].offset) for p in at}
    return Topic(name, str(described["topic_id"]), held)
