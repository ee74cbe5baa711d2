"""Topics: the Kafka log as ingest sees it - is it there, which partitions, how far."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kafka import IsolationLevel, KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic, OffsetSpec
from kafka.errors import KafkaError, KafkaTimeoutError, TopicAlreadyExistsError

from etl_procs.model import Stream
from headrace.config import Broker
from headrace.errors import NotRunning
from ingest.security import client_options

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 10_000
PROBE_TIMEOUT_MS = 2_000


@contextmanager
def admin(broker: Broker, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Iterator[KafkaAdminClient]:
    """Open an admin client."""
    with translated(broker):
        client = KafkaAdminClient(
            **client_options(broker),
            client_id="headrace",
            request_timeout_ms=timeout_ms,
            bootstrap_timeout_ms=timeout_ms,
        )
        try:
            yield client
        finally:
            client.close()


@contextmanager
def translated(broker: Broker) -> Iterator[None]:
    """Say in our words that a broker does not answer, or does not let us in."""
    reasons = _Reasons()
    connections = logging.getLogger("kafka.net.manager")
    connections.addHandler(reasons)
    try:
        yield
    except KafkaError as error:
        raise NotRunning(
            f"the broker at {broker.bootstrap} does not answer: {reasons.best or error}",
            hint="Is it up (`headrace status`), is broker.bootstrap its address, and do protocol, "
            "certificates and name in section broker fit it?",
        ) from error
    finally:
        connections.removeHandler(reasons)


class _Reasons(logging.Handler):
    """Hears why a client could not connect: its exception says only that it gave up."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.best = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the error that a connection ended with."""
        for given in record.args if isinstance(record.args, tuple) else ():
            # Over TLS, the broker's "no" is at times lost to its hanging up right after it.
            is_less = self.best and "disconnected" in str(given)
            if isinstance(given, Exception) and not isinstance(given, KafkaTimeoutError):
                self.best = self.best if is_less else str(given)


def probe(broker: Broker) -> None:
    """Return when the broker answers; raise NotRunning when it does not."""
    with admin(broker, PROBE_TIMEOUT_MS) as client:
        client.describe_cluster()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it is now; one that is deleted and made again has another id."""

    name: str
    id: str
    partitions: dict[int, range]
    """The offsets that each partition holds."""


def ensure(broker: Broker, stream: Stream) -> Topic:
    """Create a topic unless it is there; describe it."""
    name, partitions = stream.topic, stream.wire.partitions or broker.topic_partitions
    with admin(broker) as client:
        if name not in client.list_topics():
            try:
                client.create_topics([NewTopic(name, num_partitions=partitions)])
                log.info("created topic %s with %d partitions", name, partitions)
            except TopicAlreadyExistsError:
                log.info("topic %s was created by another engine", name)
            client.wait_for_topics([name])
        return _described(client, name)


def held(broker: Broker, name: str) -> dict[int, range]:
    """Tell the offsets that each partition holds; none if there is no topic."""
    with admin(broker) as client:
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
