"""Sending: where each tuple goes and how it is framed; what a failure leaves behind it."""

from functools import partial
from pathlib import Path
from zlib import crc32

import pytest
from alone import Alone
from collecting import Landed, Place, landed, place
from fakes import until
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions

from etl_procs.wire import Avro, Json, Route, Wire
from headrace.errors import HeadraceError
from ingest import topics
from ingest.client import ASK_AGAIN_MS, Producer
from ingest.framing import HOLES_MAX, Framing, Record
from ingest.runs import Run
from ingest.security import client_options
from ingest.sender import Sender

AVRO = Avro('{"type": "record", "name": "r", "fields": []}')


def as_landed(record: Record) -> Landed:
    headers = {key: value.decode() for key, value in record.headers}
    return Landed(record.partition, 0, record.value, headers)


def raws_of(run: Run) -> dict[int, bytes]:
    return {run.first + n: raw for n, raw in enumerate(run.raws) if raw}


def framed(framing: Framing, run: Run, source: str = "s") -> dict[int, tuple[int, bytes]]:
    """Give number -> (partition, bytes) of all tuples of a run."""
    found: dict[int, tuple[int, bytes]] = {}
    for record in framing.records(source, run):
        tuples = as_landed(record).tuples
        assert len(tuples) == record.tuples
        for number, raw in tuples:
            assert number is not None
            assert number not in found
            found[number] = record.partition, raw
    return found


def initials(raws: list[bytes]) -> list[str | None]:
    return [None if raw == b"?" else raw[:1].decode() for raw in raws]


RUNS = st.lists(st.sampled_from([b"", b"a", b"bb", b"x\x1ey", b"c" * 200]), max_size=400)


@given(RUNS, st.integers(1, 10**6), st.sampled_from([*Route, "k", 1]), st.integers(1, 9))
def test_every_tuple_is_in_a_record_with_its_number_whatever_the_route(
    raws: list[bytes], first: int, route: Route | str | int, partitions: int
) -> None:
    framing = Framing(Wire(route=route), max(partitions, 2), initials)
    run = Run(first, raws, 0)
    records = list(framing.records("s", run))
    entries: dict[int, tuple[int, bytes]] = {}
    for record in records:
        headers = dict(record.headers)
        begin, count = int(headers["seq"]), int(headers.get("frame", b"1"))
        pieces = record.value.split(b"\x1e") if "frame" in headers else [record.value]
        assert len(pieces) == count
        entries |= {begin + n: (record.partition, raw) for n, raw in enumerate(pieces) if raw}
    assert {number: raw for number, (_, raw) in entries.items()} == raws_of(run)


@given(RUNS, st.integers(0, 400), st.sampled_from([*Route, "k"]))
def test_where_a_tuple_goes_does_not_depend_on_where_reading_began(
    raws: list[bytes], at: int, route: Route | str
) -> None:
    framing = Framing(Wire(route=route), 5, initials)
    raws = [raw.replace(b"\x1e", b"") for raw in raws] * 5
    whole = framed(framing, Run(900, raws, 0))
    later = framed(framing, Run(900 + at, raws[at:], 0))
    assert later.items() <= whole.items()


def test_the_routes_are_those_that_are_declared() -> None:
    run = Run(1, [b"%d" % n for n in range(3_000)], 0)
    by_source = framed(Framing(Wire(), 7), run)
    assert {p for p, _ in by_source.values()} == {crc32(b"s") % 7}
    spread = framed(Framing(Wire(route=Route.SPREAD), 7), run)
    assert [spread[n][0] for n in (1, 1_000, 1_001, 2_001)] == [0, 0, 1, 2]
    fixed = framed(Framing(Wire(route=3), 7), run)
    assert {p for p, _ in fixed.values()} == {3}
    instead = framed(Framing(Wire(route=Route.SPREAD), 7, partition=6), run)
    assert {p for p, _ in instead.values()} == {6}


def test_by_key_a_tuple_goes_where_its_key_does() -> None:
    raws = [b"a1", b"b1", b"a2", b"?"]
    framing = Framing(Wire(route="k"), 64, initials)
    found = {r.partition: r.value for r in framing.records("s", Run(1, raws, 0))}
    assert found == {
        crc32(b"a") % 64: b"a1\x1e\x1ea2",
        crc32(b"b") % 64: b"b1",
        crc32(b"") % 64: b"?",
    }


def test_an_oversize_tuple_is_alone_and_says_its_size() -> None:
    run = Run(5, [b"a", b"begins", b"c", b"d"], 0, {1: 9_000_000})
    records = list(Framing(Wire(), 1).records("s", run))
    assert [r.value for r in records] == [b"a", b"begins", b"c\x1ed"]
    assert dict(records[1].headers) == {"source": b"s", "seq": b"6", "oversize": b"9000000"}


def test_long_holes_are_not_written_and_avro_has_none() -> None:
    raws = [b"a", *[b""] * (HOLES_MAX + 1), b"b", b"", b"c"]
    values = [r.value for r in Framing(Wire(Json()), 1).records("s", Run(1, raws, 0))]
    assert values == [b"a", b"b\x1e\x1ec"]
    avro = list(Framing(Wire(AVRO), 1).records("s", Run(1, [b"a", b"b", b"", b"c\x1e"], 0)))
    assert [(r.value, dict(r.headers)["seq"]) for r in avro] == [(b"ab", b"1"), (b"c\x1e", b"4")]


def test_without_a_source_tuples_have_no_number_and_holes_no_place() -> None:
    run = Run(1, [b"a", b"", b"b"], 0)
    for route in (*Route, 0):
        (record,) = Framing(Wire(route=route), 3).records("", run)
        assert (record.value, record.headers) == (b"a\x1eb", [("frame", b"2")])


def sender_to(at: Place, said: list[str]) -> Sender[int]:
    topics.ensure(at.broker, at.stream)
    return Sender(
        lambda: Producer(client_options(at.broker)), at.stream.topic, wait_s=30, tell=said.append
    )


def record(n: int, value: bytes) -> Record:
    return Record(0, value, [("source", b"s"), ("seq", b"%d" % n)], 1)


def set_record_bytes_max(at: Place, size: int) -> None:
    topics.ensure(at.broker, at.stream)
    admin = KafkaAdminClient(bootstrap_servers=at.bootstrap)
    admin.alter_configs(
        [
            ConfigResource(
                ConfigResourceType.TOPIC, at.stream.topic, {"max.message.bytes": str(size)}
            )
        ]
    )
    admin.close()


def test_behind_a_record_that_the_broker_refuses_nothing_lands(
    kafka: Alone, tmp_path: Path
) -> None:
    at = place(tmp_path, "refusing", kafka.address)
    set_record_bytes_max(at, 1_200_000)
    sender = sender_to(at, [])

    def send_all() -> None:
        for n in range(1, 301):
            sender.send("s", [record(n, b"x" * (2_000_000 if n == 50 else 50_000))], n)
        sender.flush()

    with pytest.raises(HeadraceError, match=r"does not take a record of refusing\.lines"):
        send_all()
    sender.close()
    numbers = [n for r in at.landed() for n, _ in r.tuples]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) < 50
    assert sender.take_safe().get("s", 0) <= len(numbers)


def acknowledged(sender: Sender[int], tuples: int) -> bool:
    sender.look()
    return sender.acknowledged >= tuples


def test_after_a_failure_a_new_producer_begins_with_what_was_not_acknowledged(
    kafka: Alone, tmp_path: Path
) -> None:
    at = place(tmp_path, "again", kafka.address)
    said: list[str] = []
    sender = sender_to(at, said)
    for n in range(1, 401):
        sender.send("s", [record(n, b"x" * 50_000)], n)
        if n % 100 == 0:
            # As if the broker had lost its place: it refuses this batch, and would take the next.
            # Of a producer of which it knows nothing yet it takes any number.
            until(partial(acknowledged, sender, n - 50), "the broker acknowledges them")
            manager = sender._producer._transaction_manager  # type: ignore[union-attr]
            manager.set_sequence_number(TopicPartition(at.stream.topic, 0), 5_000)
    sender.flush()
    assert sender.take_safe() == {"s": 400}
    assert sender.acknowledged == 400
    sender.close()
    assert any("failed, and begins again" in text for text in said)
    first: list[int] = []
    for found in at.landed():
        first += [n for n, _ in found.tuples if n is not None and n > max(first, default=0)]
    assert first == list(range(1, 401))


def test_a_producer_may_ask_for_its_topic_as_soon_as_it_is_connected(kafka: Alone) -> None:
    producer = Producer({"bootstrap_servers": kafka.address})
    assert producer._metadata.refresh_backoff() == ASK_AGAIN_MS
    producer.give_up()


def test_a_partition_that_is_added_changes_no_route(kafka: Alone, tmp_path: Path) -> None:
    at = place(tmp_path, "grown", kafka.address, wire="route='k'")
    file = at.lines(500)
    process = at.spawn(file)
    assert process.wait(60) == 0, process.communicate()
    admin = KafkaAdminClient(bootstrap_servers=at.bootstrap)
    admin.create_partitions({at.stream.topic: NewPartitions(5)})
    admin.close()
    for bookmark in (at.folder / "home" / "collector").iterdir():
        bookmark.unlink()
    process = at.spawn(file)
    assert process.wait(60) == 0, process.communicate()
    where: dict[int | None, set[int]] = {}
    for found in landed(at.bootstrap, at.stream.topic):
        for number, _ in found.tuples:
            where.setdefault(number, set()).add(found.partition)
    assert sorted(len(partitions) for partitions in where.values()) == [1] * 500
