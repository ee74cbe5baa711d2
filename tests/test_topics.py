"""Topics: made as they are declared, and left alone where they are there already."""

import logging
from contextlib import closing

import pytest
from alone import Alone
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from etl_procs import Dataflow, by_count
from etl_procs.model import Stream
from etl_procs.wire import Wire
from headrace.clock import SystemClock
from headrace.config import Broker
from headrace.errors import HeadraceError, NotRunning, Refused
from ingest import topics
from ingest.topics import Topic


@pytest.fixture
def broker(kafka: Alone) -> Broker:
    return Broker(bootstrap=kafka.address, topic_partitions=3)


def stream(name: str, partitions: int | None = None, retention_h: float | None = None) -> Stream:
    flow = Dataflow("topics")
    declared = Wire(partitions=partitions, retention_h=retention_h)
    return flow.stream(name, "n INTEGER", batches=by_count(1), wire=declared)


def retention_ms(broker: Broker, name: str) -> str:
    with topics.admin(broker) as client:
        asked = [ConfigResource(ConfigResourceType.TOPIC, name)]
        found = client.describe_configs(asked, config_filter="All")
    return str(found["topic"][name]["retention.ms"]["value"])


def test_a_topic_has_the_partitions_and_the_retention_that_are_declared(broker: Broker) -> None:
    declared = stream("declared", partitions=5, retention_h=0.5)
    assert len(topics.ensure(broker, declared).partitions) == 5
    assert retention_ms(broker, declared.topic) == "1800000"


def test_without_a_declaration_it_has_those_of_the_configuration(broker: Broker) -> None:
    assert len(topics.ensure(broker, stream("plain")).partitions) == 3
    assert retention_ms(broker, "topics.plain") == "604800000"


def test_many_topics_are_made_by_one_request_as_each_is_declared(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    requests: list[int] = []
    create = KafkaAdminClient.create_topics

    def counted(self: KafkaAdminClient, new: list[object], **more: object) -> object:
        requests.append(len(new))
        return create(self, new, **more)

    monkeypatch.setattr(KafkaAdminClient, "create_topics", counted)
    topics.ensure(broker, stream("many_2", partitions=2))
    declared = [stream(f"many_{n}", partitions=n, retention_h=n) for n in (1, 2, 3)]
    for _ in range(2):
        ensured = topics.ensure_all(broker, declared)
        assert [(t.name, len(t.partitions)) for t in ensured] == [
            ("topics.many_1", 1),
            ("topics.many_2", 2),
            ("topics.many_3", 3),
        ]
    assert len({topic.id for topic in ensured}) == 3
    assert requests == [1, 2]
    assert retention_ms(broker, "topics.many_3") == "10800000"
    assert "topics.many_2 keeps records for 168 h, and 2 h are declared" in caplog.text


def test_a_topic_that_the_broker_does_not_make_is_named_and_the_others_are_made(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "_retention_ms", lambda _: -7)
    declared = [stream("good", partitions=1), stream("bad", retention_h=1), stream("fine")]
    with pytest.raises(NotRunning, match=r"topic topics\.bad is not created: .*retention\.ms"):
        topics.ensure_all(broker, declared)
    there = [len(topics.held(broker, each.topic)) for each in declared]
    assert there == [1, 0, 3]


def test_a_topic_that_another_engine_makes_meanwhile_is_taken_as_it_is(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = topics.ensure(broker, stream("meanwhile", partitions=2))
    monkeypatch.setattr(KafkaAdminClient, "list_topics", lambda _: [])
    assert topics.ensure_all(broker, [stream("meanwhile"), stream("own")])[0] == first


def test_a_topic_that_is_there_is_left_alone_and_what_differs_is_said(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    first = topics.ensure(broker, stream("there", partitions=4, retention_h=2))
    caplog.set_level(logging.WARNING, "ingest.topics")
    topics.ensure(broker, stream("there", partitions=4, retention_h=2))
    topics.ensure(broker, stream("there"))
    assert caplog.messages == []
    assert topics.ensure(broker, stream("there", partitions=2, retention_h=1)) == first
    partitions, retention = caplog.messages
    assert "has 4 partitions, and 2 are declared" in partitions
    assert "keeps records for 2 h, and 1 h are declared: kafka-configs.sh" in retention
    assert retention_ms(broker, "topics.there") == "7200000"


def test_fewer_partitions_than_declared_are_refused(broker: Broker) -> None:
    topics.ensure(broker, stream("few", partitions=1))
    with pytest.raises(Refused, match="has 1 partitions, and 2 are declared") as refused:
        topics.ensure(broker, stream("few", partitions=2))
    assert "--partitions 2" in refused.value.hint


def test_a_route_to_a_partition_that_is_not_there_is_refused(broker: Broker) -> None:
    flow = Dataflow("topics")
    made = flow.stream("routed", "n INTEGER", batches=by_count(1), wire=Wire(route=3))
    for _ in range(2):  # when it is made, and when it is there
        with pytest.raises(Refused, match="is routed to partition 3, and its topic has 3"):
            topics.ensure(broker, made)


def test_a_topic_under_watch_must_stay_the_one_that_was_opened(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "GONE_S", 0.5)
    watched = topics.Watched(broker, topics.ensure(broker, stream("seen")), SystemClock())
    with closing(watched):
        assert watched.look() == [0, 1, 2]
        with topics.admin(broker) as client:
            client.delete_topics(["topics.seen"])
        with pytest.raises(NotRunning, match=r"has no topic topics\.seen any more"):
            watched.look()
        topics.ensure(broker, stream("seen"))
        with pytest.raises(HeadraceError, match=r"topics\.seen was deleted and made again"):
            watched.look()


def test_a_broker_that_stays_away_is_not_waited_for_without_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "PATIENCE_S", 0.5)
    monkeypatch.setattr(topics, "REQUEST_TIMEOUT_MS", 300)
    watched = topics.Watched(Broker(bootstrap="127.0.0.1:1"), Topic("t", "id", {}), SystemClock())
    with closing(watched), pytest.raises(NotRunning, match="the broker at 127"):
        watched.look()


def test_a_peek_tells_how_large_the_records_are_that_wait(broker: Broker) -> None:
    declared = stream("peeked", partitions=2)
    empty = topics.ensure(broker, declared)
    assert topics.peek(broker, empty, {}) == (0, 0, 0)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        producer.send(empty.name, b"taken already", partition=0)
        for _ in range(3):
            producer.send(empty.name, b"a\x1eb\x1ec", partition=0)
        producer.send(empty.name, key=b"k", partition=1)
    there = topics.ensure(broker, declared)
    assert topics.peek(broker, there, {0: 1, 1: 1}) == (3, 9, 15)
    assert topics.peek(broker, there, {0: 4}) == (1, 1, 0)
    assert topics.peek(broker, there, {0: 4, 1: 1}) == (0, 0, 0)
