"""Recalling: what a batch took of a real topic, read back byte for byte as long as it is there."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from alone import Alone
from flows import HeldClock
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from etl_procs import Batch, Dataflow, Transaction, by_count
from etl_procs.batch import Arrived
from etl_procs.core import Core, core_path
from etl_procs.model import Stream
from etl_procs.reader import Reader
from etl_procs.routing import partition_of, routed
from headrace.config import Broker
from headrace.config import Core as Settings
from headrace.crash import CrashPoints
from ingest import recall, topics
from ingest.decoding.decoder import HEADERS, Decoder
from ingest.recall import Mine, Recalled, Recalling, Stretch

Headers = list[tuple[str, bytes]]
Sent = tuple[int, bytes, Headers]
ALL = Mine(0, 1)
PLAIN: Headers = []


def frame(*values: bytes, seq: int | None = None, partition: int = 0) -> Sent:
    headers = [("frame", b"%d" % len(values))]
    if seq is not None:
        headers += [("source", b"file"), ("seq", b"%d" % seq)]
    return partition, b"\x1e".join(values), headers


def one(value: bytes, partition: int = 0) -> Sent:
    return partition, value, PLAIN


class Log:
    """A topic, a core that has taken all of it, and what each batch gave."""

    def __init__(self, broker: Broker, home: Path, name: str, sent: Sequence[Sent], of: int = 1):
        self.broker = broker
        self.flow = Dataflow("recall", partitions=of)
        self.stream = self.flow.stream(
            name, "n INTEGER NOT NULL", batches=by_count(3, linger_s=1.0), key="n"
        )
        kept = self.flow.outlet("kept", "n INTEGER NOT NULL")

        @self.flow.procedure(takes=self.stream, gives=[kept])
        def keep(tx: Transaction, batch: Batch) -> None:
            tx.emit(kept, batch.table)

        self.topic = topics.ensure(broker, self.stream)
        produce(broker, self.stream, sent)
        came = decoded(broker, self.stream, len(sent))
        self.given: list[dict[int, list[int]]] = []
        self.stretches: list[dict[int, list[Stretch]]] = []
        for partition, part in enumerate(routed(came, of)):
            path, clock = core_path(home, partition), HeldClock()
            core = Core(
                path, settings=Settings(), clock=clock, crash=CrashPoints(), partition=partition
            )
            core.prepare([self.flow])
            core.claim("recall", name, self.topic.id)
            core.open("recall", {name: list(self.topic.partitions)})
            core.feed(part)
            clock.advance(5)
            core.drain()
            core.close()
            with Reader(path).snapshot() as snapshot:
                rows = [
                    row for table in snapshot.staged(kept, 0, 2**62) for row in table.to_pylist()
                ]
                batches = range(1, snapshot.batch("recall") + 1)
                self.given.append(
                    {b: [row["n"] for row in rows if row["_batch"] == b] for b in batches}
                )
                self.stretches.append({b: list(places(snapshot, b)) for b in batches})

    def recall(self, batch: int, mine: Mine = ALL, most: int = 100) -> Recalling:
        stretches = self.stretches[mine.partition][batch]
        return recall.recall(self.broker, self.stream, self.topic.id, stretches, mine, most)


def places(snapshot: object, batch: int) -> Iterator[Stretch]:
    found = snapshot.origins("recall", batch)  # type: ignore[attr-defined]
    for taken in found.taken:
        yield Stretch(taken.partition, taken.first, taken.next)


def produce(broker: Broker, stream: Stream, sent: Sequence[Sent]) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        for partition, value, headers in sent:
            producer.send(stream.topic, value, headers=headers, partition=partition)
        producer.flush()


def decoded(broker: Broker, stream: Stream, count: int) -> Arrived:
    """Read a topic, as Spark would have it read."""
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap)) as consumer:
        at = [TopicPartition(stream.topic, p) for p in consumer.partitions_for_topic(stream.topic)]
        consumer.assign(at)
        consumer.seek_to_beginning(*at)
        came: list[Any] = []
        while len(came) < count:
            for some in consumer.poll(1_000).values():
                came += some
    came.sort(key=lambda record: (record.partition, record.offset))
    columns = zip(*((r.partition, r.offset, r.value, r.headers) for r in came), strict=True)
    types = pa.int32(), pa.int64(), pa.binary(), HEADERS
    given = (pa.array(column, type_) for column, type_ in zip(columns, types, strict=True))
    return Arrived(stream, pa.Table.from_batches([Decoder(stream).decode(*given)]))


@pytest.fixture
def broker(kafka: Alone) -> Broker:
    return Broker(bootstrap=kafka.address, topic_partitions=2)


def n(number: int) -> bytes:
    return b'{"n": %d}' % number


def numbers(found: Recalling) -> list[int]:
    return [int((t.value or b"")[5:-1]) for t in found.tuples if t.reason is None]


def test_the_tuples_of_a_batch_are_read_back_as_they_were_sent(
    broker: Broker, tmp_path: Path
) -> None:
    bad = b'{"n": "x"}'
    sent = [
        one(n(0)),
        frame(n(1), n(2), n(3), b" " + n(4), seq=7),
        one(bad),
        frame(n(5), n(6), partition=1),
        one(n(7), partition=1),
    ]
    log = Log(broker, tmp_path, "exact", sent)
    assert log.given == [{1: [0, 1, 2], 2: [3, 4], 3: [5, 6, 7]}]
    found = {batch: log.recall(batch) for batch in (1, 2, 3)}
    assert [lacking for _, lacking in found.values()] == ["", "", ""]
    assert [t.value for t in found[1].tuples] == [n(0), n(1), n(2)]
    assert found[2].tuples == (
        Recalled("exact", 0, 1, 2, "file", 9, n(3), None),
        Recalled("exact", 0, 1, None, "file", 10, b" " + n(4), None),
        Recalled("exact", 0, 2, None, None, None, bad, found[2].tuples[-1].reason),
    )
    assert "n is no INTEGER" in (found[2].tuples[-1].reason or "")
    assert numbers(found[3]) == [5, 6, 7]
    assert {t.partition for t in found[3].tuples} == {1}


def test_of_divided_tuples_those_of_the_own_partition_are_read_back(
    broker: Broker, tmp_path: Path
) -> None:
    sent = [frame(*(n(number) for number in range(9))), one(b"no JSON"), one(n(9), partition=1)]
    log = Log(broker, tmp_path, "divided", sent, of=2)
    for partition, given in enumerate(log.given):
        assert sorted(number for batch in given.values() for number in batch) == [
            number for number in range(10) if partition_of(number, 2) == partition
        ]
        for batch, wanted in given.items():
            assert sorted(numbers(log.recall(batch, Mine(partition, 2)))) == sorted(wanted)
    reasons = [
        (partition, one.value)
        for partition, given in enumerate(log.given)
        for batch in given
        for one in log.recall(batch, Mine(partition, 2)).tuples
        if one.reason is not None
    ]
    assert reasons == [(0, b"no JSON")]


def test_no_more_is_read_back_than_is_asked_for_and_fits(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(broker, tmp_path, "bounded", [one(n(0)), one(n(1)), one(n(2))])
    assert log.recall(1, most=3).lacking == ""
    few = log.recall(1, most=2)
    assert (numbers(few), few.lacking) == ([0, 1], "there are more than these 2")
    monkeypatch.setattr(recall, "BYTES_MAX", 8)
    small = log.recall(1)
    assert (numbers(small), small.lacking) == ([0, 1], "there are more than these 2")


def test_what_the_topic_has_let_go_of_is_told(broker: Broker, tmp_path: Path) -> None:
    log = Log(broker, tmp_path, "gone", [one(n(number)) for number in range(6)])
    with topics.admin(broker) as client:
        client.delete_records({TopicPartition(log.stream.topic, 0): 4})
    found = log.recall(2)
    assert numbers(found) == [4, 5]
    assert found.lacking == "recall.gone[0] has let go of what is before 4"
    before = log.recall(1)
    assert (before.tuples, before.lacking) == ((), found.lacking)


def test_a_topic_that_was_made_again_is_not_taken_for_the_one_that_was_read(
    broker: Broker, tmp_path: Path
) -> None:
    log = Log(broker, tmp_path, "again", [one(n(1))])
    with topics.admin(broker) as client:
        client.delete_topics([log.stream.topic])
    topics.ensure(broker, log.stream)
    produce(broker, log.stream, [one(n(2))])
    found = log.recall(1)
    assert found.tuples == ()
    assert found.lacking == "the topic recall.again is not the one that they were read from"
