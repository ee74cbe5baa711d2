"""Topics: the Kafka log as ingest sees it - is it there, which partitions, how far."""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from kafka import IsolationLevel, KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic, OffsetSpec
from kafka.errors import KafkaError, KafkaTimeoutError, NoError, TopicAlreadyExistsError, for_code

from etl_procs.model import Stream
from headrace.clock import Clock
from headrace.config import Broker
from headrace.errors import HeadraceError, NotRunning, Refused
from ingest.records import COMPLETE, SEPARATOR
from ingest.security import client_options

log = logging.getLogger(__name__)

RETENTION = "retention.ms"
REQUEST_TIMEOUT_MS = 10_000
PROBE_TIMEOUT_MS = 2_000
PATIENCE_S = 60.0
"""How long a broker that is away is waited for: as long as Spark's own client waits."""
GONE_S = 5.0
"""How long a topic is waited for that the broker does not know: it may have just started."""
LOOK_AGAIN_S = 0.2
PEEK_RECORDS, PEEK_TIMEOUT_MS = 1_000, 5_000


@contextmanager
def admin(broker: Broker, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Iterator[KafkaAdminClient]:
    """Open an admin client."""
    with translated(broker):
        client = _connected(broker, timeout_ms)
        try:
            yield client
        finally:
            client.close()


def _connected(broker: Broker, timeout_ms: int) -> KafkaAdminClient:
    return KafkaAdminClient(
        **client_options(broker),
        client_id="headrace",
        request_timeout_ms=timeout_ms,
        bootstrap_timeout_ms=timeout_ms,
    )


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


def ensure(broker: Broker, stream: Stream, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Topic:
    """Create a stream's topic as it is declared, unless it is there; describe it."""
    (topic,) = ensure_all(broker, [stream], timeout_ms)
    return topic


def ensure_all(
    broker: Broker, streams: Sequence[Stream], timeout_ms: int = REQUEST_TIMEOUT_MS
) -> list[Topic]:
    """Create the topics of streams as they are declared, unless they are there; describe them.

    One that is there is not changed: what differs is said.
    """
    names = [stream.topic for stream in streams]
    with admin(broker, timeout_ms) as client:
        there = set(client.list_topics())
        _create(client, broker, [stream for stream in streams if stream.topic not in there])
        topics = _described(client, names)
        for stream, topic in zip(streams, topics, strict=True):
            if stream.topic in there:
                _compare(client, stream, topic)
            _check_route(stream, topic)
        return topics


def _create(client: KafkaAdminClient, broker: Broker, streams: Sequence[Stream]) -> None:
    new = {
        stream.topic: NewTopic(
            stream.topic,
            num_partitions=stream.wire.partitions or broker.topic_partitions,
            topic_configs=(
                {} if stream.wire.retention_h is None else {RETENTION: str(_retention_ms(stream))}
            ),
        )
        for stream in streams
    }
    if not new:
        return
    for answer in client.create_topics(list(new.values()), raise_errors=False)["topics"]:
        name, error = answer["name"], for_code(answer["error_code"])
        if error is TopicAlreadyExistsError:
            log.info("topic %s was created by another engine", name)
        elif error is not NoError:
            raise error(f"topic {name} is not created: {answer.get('error_message')}")
        else:
            log.info("created topic %s with %d partitions", name, new[name].num_partitions)
    client.wait_for_topics(list(new))


def _check_route(stream: Stream, topic: Topic) -> None:
    route = stream.wire.route
    if isinstance(route, int) and route not in topic.partitions:
        raise Refused(
            f"stream {topic.name} is routed to partition {route}, and its topic has "
            f"{len(topic.partitions)}",
            hint="Declare a partition that is there: they count from 0.",
        )


def refuse_fewer(topic: Topic, declared: int, kind: type[HeadraceError] = HeadraceError) -> None:
    """Refuse to route tuples among more partitions than a topic has."""
    there = len(topic.partitions)
    if there < declared:
        raise kind(
            f"topic {topic.name} has {there} partitions, and {declared} are declared: tuples would "
            "be routed where nothing is",
            hint=f"Add some (kafka-topics.sh --alter --topic {topic.name} --partitions {declared})"
            f", or declare {there}.",
        )


def _compare(client: KafkaAdminClient, stream: Stream, topic: Topic) -> None:
    declared, there = stream.wire.partitions, len(topic.partitions)
    refuse_fewer(topic, declared or 0, Refused)
    if declared is not None and there > declared:
        log.warning(
            "topic %s has %d partitions, and %d are declared: those behind get no tuples from the "
            "collector. Partitions cannot be taken away: declare %d",
            *(topic.name, there, declared, there),
        )
    if stream.wire.retention_h is None:
        return
    found = client.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, topic.name)], config_filter="All"
    )
    kept = int(found["topic"][topic.name][RETENTION]["value"])
    if kept != _retention_ms(stream):
        log.warning(
            "topic %s keeps records for %s, and %g h are declared: kafka-configs.sh --alter "
            "--topic %s --add-config %s=%d changes it",
            *(topic.name, f"{kept / 3_600_000:g} h" if kept >= 0 else "ever"),
            *(stream.wire.retention_h, topic.name, RETENTION, _retention_ms(stream)),
        )


def _retention_ms(stream: Stream) -> int:
    assert stream.wire.retention_h is not None
    return round(stream.wire.retention_h * 3_600_000)


def described(broker: Broker, name: str) -> Topic:
    """Describe a topic; one that is not there has no partitions."""
    with admin(broker) as client:
        (topic,) = _described(client, [name])
        return topic


def held(broker: Broker, name: str) -> dict[int, range]:
    """Tell the offsets that each partition holds; none if there is no topic."""
    return described(broker, name).partitions


class Peek(NamedTuple):
    """Some records: how many, and about what is in them."""

    records: int
    tuples: int
    size: int


def peek(broker: Broker, topic: Topic, offsets: Mapping[int, int]) -> Peek:
    """Look at some of the records that `topic` holds behind `offsets`."""
    begins = {p: max(offsets.get(p, 0), held.start) for p, held in topic.partitions.items()}
    waiting = {
        TopicPartition(topic.name, p): begin
        for p, begin in begins.items()
        if begin < topic.partitions[p].stop
    }
    if not waiting:
        return Peek(0, 0, 0)
    with reading(broker, waiting) as consumer:
        found = consumer.poll(PEEK_TIMEOUT_MS, max_records=PEEK_RECORDS)
    values = [record.value or b"" for some in found.values() for record in some]
    tuples = sum(1 + value.count(SEPARATOR) for value in values)
    return Peek(len(values), tuples, sum(map(len, values)))


def tells_time(broker: Broker, name: str, records: Mapping[int, range]) -> bool:
    """Tell whether none of these records of a topic, by partition, is more than a time that has
    come.
    """
    ends = {TopicPartition(name, p): some for p, some in records.items() if some}
    if sum(map(len, ends.values())) > PEEK_RECORDS:
        return False
    with reading(broker, {at: some.start for at, some in ends.items()}) as consumer:
        while any(consumer.position(partition) < some.stop for partition, some in ends.items()):
            found = consumer.poll(PEEK_TIMEOUT_MS, max_records=PEEK_RECORDS)
            came = [record for some in found.values() for record in some]
            if not came or not all(COMPLETE in dict(r.headers) and not r.value for r in came):
                return False
    return True


@contextmanager
def reading(broker: Broker, begins: Mapping[TopicPartition, int]) -> Iterator[KafkaConsumer]:
    """Open a client that reads what is committed, from these offsets on and in no group."""
    with (
        translated(broker),
        closing(
            KafkaConsumer(
                **client_options(broker), client_id="headrace", isolation_level="read_committed"
            )
        ) as consumer,
    ):
        consumer.assign(list(begins))
        for partition, begin in begins.items():
            consumer.seek(partition, begin)
        yield consumer


def _described(client: KafkaAdminClient, names: Sequence[str]) -> list[Topic]:
    described = {topic["name"]: topic for topic in client.describe_topics(list(names))}
    at = {
        name: [
            TopicPartition(name, p["partition_index"]) for p in described[name]["partitions"] or ()
        ]
        for name in names
    }
    # What a transaction has not committed, or has aborted, is no tuple.
    first, end = (
        client.list_partition_offsets(
            dict.fromkeys(chain(*at.values()), spec), IsolationLevel.READ_COMMITTED
        )
        for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    )
    return [
        Topic(
            name,
            str(described[name]["topic_id"]),
            {p.partition: range(first[p].offset, end[p].offset) for p in at[name]},
        )
        for name in names
    ]


class _Gone(NotRunning):
    """The broker answers, and does not know the topic."""


class Watched:
    """A topic under watch: it must stay the one that was opened.

    A topic that is deleted and made again has another id, which no other had before. So what was
    read before a look that finds the old id is of the old topic, and may be committed at its
    positions. With several brokers, the one that is asked may learn of it some milliseconds after
    the one that was read from.
    """

    def __init__(self, broker: Broker, topic: Topic, clock: Clock) -> None:
        self._broker = broker
        self._topic = topic
        self._clock = clock
        self._client: KafkaAdminClient | None = None
        self._looking = threading.Lock()
        self._closed = threading.Event()

    def look(self) -> list[int]:
        """Name its partitions if it is still the one; wait for a broker that is away, and raise in
        the end.
        """
        now = self._clock.monotonic
        began, gone = now(), 0.0
        with self._looking:
            while True:
                try:
                    with translated(self._broker):
                        return self._look()
                except _Gone:
                    gone = gone or now()
                    if now() - gone > GONE_S or self._closed.wait(LOOK_AGAIN_S):
                        raise
                except NotRunning:
                    if now() - began > PATIENCE_S or self._closed.wait(LOOK_AGAIN_S):
                        raise

    def _look(self) -> list[int]:
        if self._client is None:
            self._client = _connected(self._broker, REQUEST_TIMEOUT_MS)
        name, id = self._topic.name, self._topic.id
        (found,) = self._client.describe_topics([name])
        code = for_code(found["error_code"])
        if code is NoError and str(found["topic_id"]) != id:
            raise HeadraceError(
                f"the topic {name} was deleted and made again while it was read: it is not the one "
                "whose positions the core has",
                hint="What was read of the new one was not taken. What the old one still had is "
                "lost. Start over with a new data folder and a new schema in the warehouse.",
            )
        if code is not NoError:
            raise _Gone(
                f"the broker has no topic {name} any more: {code.__name__}",
                hint="Was it deleted, or the broker's data lost? What was committed stays.",
            )
        return [partition["partition_index"] for partition in found["partitions"]]

    def close(self) -> None:
        """Let go of the broker; whoever waits for it is told so."""
        self._closed.set()
        if self._client is not None:
            self._client.close()
