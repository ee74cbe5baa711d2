"""Tuples posted over the REST API: where they are, what is refused, and what a repeat does."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from zlib import crc32

import pytest
from alone import Alone
from collecting import Place, landed, place
from serving import Client, assert_problem, serving
from shop import island_over

from api.streams import Streams
from etl_procs import loader
from etl_procs.reader import Reader
from headrace.config import Broker
from headrace.errors import NotRunning
from ingest.posting import Posting

SOON_S = 4.5
NO_WAREHOUSE = "postgresql://nobody@127.0.0.1:1/nothing"
MORE = """
texts = flow.stream("texts", "n INTEGER, k TEXT", batches=by_count(10), wire=Wire(
    delimited(",", quote='"'), route="k"))
wide = flow.stream("wide", "n INTEGER, k TEXT", batches=by_count(10), wire=Wire(
    fixed_width(3, 3), route="k", partitions=5))
trees = flow.stream("trees", "n INTEGER, k TEXT", batches=by_count(10), wire=Wire(xml("r")))
data = flow.stream("data", "n INTEGER", batches=by_count(10), wire=Wire(avro(
    '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}')))
inner = flow.stream("inner", "n INTEGER")
headed = flow.stream("headed", "n INTEGER, k TEXT", batches=by_count(10), wire=Wire(
    delimited(",", header=True), clean=Clean(rename={"Name": "k"})))
clean = flow.stream("clean", "n INTEGER", batches=by_count(10), wire=Wire(
    clean=Clean(where=lambda fields: fields["n"] > 1)))
@flow.procedure(takes=[texts, wide, trees, data, headed, clean], gives=[inner])
def give(tx, texts, wide, trees, data, headed, clean): ...
@flow.procedure(takes=[inner])
def end(tx, inner): ...
"""


@pytest.fixture
def at(kafka: Alone, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    made = place(tmp_path, f"p{abs(hash(request.node.name)) % 10**9}", kafka.address)
    made.file.write_text(made.file.read_text() + MORE)
    return made


@pytest.fixture
def client(at: Place) -> Iterator[Client]:
    with posting_to(at, at.broker) as made:
        yield made


def posting_to(at: Place, broker: Broker):  # type: ignore[no-untyped-def]
    from contextlib import contextmanager

    @contextmanager
    def opened() -> Iterator[Client]:
        island = island_over(NO_WAREHOUSE, Reader(at.folder / "home" / "core" / "partition-0.db"))
        made = Posting(lambda: broker)
        try:
            streams = Streams(loader.load([at.file]), made)
            with serving(island, streams=streams) as client:
                yield client
        finally:
            made.close()

    return opened()


def post(client: Client, at: Place, body: str | bytes, stream: str = "lines", **more: str):  # type: ignore[no-untyped-def]
    query = more.pop("query", "")
    return client.send("POST", f"/v1/streams/{at.name}/{stream}{query}", body, **more)


def values(at: Place, stream: str = "lines") -> list[bytes]:
    found = landed(at.bootstrap, f"{at.name}.{stream}")
    return [raw for record in found for _, raw in record.tuples]


def test_one_tuple_and_many_are_answered_with_where_they_are(client: Client, at: Place) -> None:
    one = post(client, at, '{"n": 1}')
    assert one.status == 202
    assert one.document["tuples"] == 1
    many = post(client, at, '[{"n": 2}, {"n": 3}]').document
    assert many["tuples"] == 2
    found = {(r.partition, r.offset): r.value for r in at.landed()}
    (first,), (second,) = one.document["records"], many["records"]
    assert found[first["partition"], first["offset"]] == b'{"n": 1}'
    assert found[second["partition"], second["offset"]] == b'{"n": 2}\x1e{"n": 3}'
    assert post(client, at, "[]").document == {"tuples": 0, "records": []}


def test_the_elements_of_an_array_travel_as_they_are_written(client: Client, at: Place) -> None:
    elements = [
        '{"n": 1.0000000000000000001e400, "n" :2}',
        '{"n":\n 123456789012345678901234567890}',
        '{"k": "\\ud800 \\u00e9 é ] , {"}',
    ]
    body = (" [" + " ,\n".join(elements) + "]\n").encode()
    assert post(client, at, body).status == 202
    assert sorted(values(at)) == sorted(element.encode() for element in elements)


@pytest.mark.parametrize("by", ["query", "headers"])
def test_a_source_and_a_number_make_a_repeat_the_same_again(
    client: Client, at: Place, by: str
) -> None:
    given = {"query": "?source=me%20%C3%A9&seq=7"}
    if by == "headers":
        given = {"Headrace_Source": "me", "Headrace_Seq": "7"}
    for _ in range(2):
        assert post(client, at, '[{"n": 1}, {"n": 2}]', **given).status == 202
    first, second = at.landed()
    assert first._replace(offset=second.offset) == second
    assert first.headers == {
        "source": "me é" if by == "query" else "me",
        "seq": "7",
        "frame": "2",
    }


@pytest.mark.parametrize(
    ("stream", "type_", "body", "expected"),
    [
        ("lines", "application/x-ndjson", '{"n": 1}\r\n\n{"n": 2}', [b'{"n": 1}', b'{"n": 2}']),
        ("lines", "text/plain; charset=utf-8", '{"n": 1}', [b'{"n": 1}']),
        ("texts", "text/csv", '1,"a\nb"\n2,c\n', [b'1,"a\nb"', b"2,c"]),
        ("headed", "text/csv", "Name,more,n\na,x,1\n,,2", [b"1,a", b"2,"]),
        ("headed", "text/csv", "", []),
        ("wide", "text/plain", "  1abc\n  2def", [b"  1abc", b"  2def"]),
        ("trees", "application/xml", "<d><r><n>1</n></r></d>", [b"<r><n>1</n></r>"]),
        ("data", "application/avro", b"\x02", [b"\x02"]),
        ("clean", "application/json", '[{"n": 1}, {"n": 2}]', [b'{"n": 2}']),
    ],
)
def test_streams_of_every_format_take_theirs(
    client: Client, at: Place, stream: str, type_: str, body: str, expected: list[bytes]
) -> None:
    reply = post(client, at, body, stream, type_=type_)
    assert reply.status == 202, reply.body
    assert reply.document["tuples"] == len(expected)
    assert sorted(values(at, stream)) == sorted(expected)


@pytest.mark.parametrize(
    ("body", "more", "status"),
    [
        ('{"n": 1}', {"stream": "absent"}, 404),
        ('{"n": 1}', {"stream": "inner"}, 409),
        ('{"n": 1}', {"type_": "text/csv"}, 415),
        ("1,2", {"stream": "texts"}, 415),
        ("x" * (16 * 2**20 + 1), {}, 413),
        ('{"n": "' + "x" * 8 * 2**20 + '"}', {}, 413),
        ("1,a\n2,b", {"stream": "headed", "type_": "text/csv"}, 422),
        ("n,n\n2,b", {"stream": "headed", "type_": "text/csv"}, 422),
        ('{"n": 1} 2', {}, 422),
        ('{"n": NaN}', {}, 422),
        ("[1]", {}, 422),
        ('[{"n": 1},]', {}, 422),
        ('[{"n": 1}', {}, 422),
        ('[{"n": 1}] x', {}, 422),
        ("[" * 100_000, {}, 422),
        ("", {}, 422),
        (b"\xff", {}, 422),
        ('{"n": 1}', {"query": "?source=me"}, 422),
        ('{"n": 1}', {"query": "?seq=1"}, 422),
        ('{"n": 1}', {"query": f"?source={'x' * 1001}&seq=1"}, 422),
        ('{"n": 1}', {"query": "?source=a%00b&seq=1"}, 422),
        ('{"n": 1}', {"query": "?Source=me&Seq=1"}, 422),
        ('{"n": 1}', {"query": "?source=me&seq=-1"}, 422),
        ('{"n": 1}', {"Headrace_Source": "me", "Headrace_Seq": "-1"}, 422),
        ('[{"n": 1}, {"n": 2}]', {"query": f"?source=me&seq={2**63 - 1}"}, 422),
        ('{"n": 1}', {"key": "Bearer guessed"}, 401),
    ],
)
def test_what_cannot_be_taken_is_refused_whole(
    client: Client, at: Place, body: str, more: dict[str, str], status: int
) -> None:
    reply = post(client, at, body, **more)
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(("stream", "body", "partitions"), [
    ("texts", "1,{}", 7),
    ("wide", "  1{}", 5),
])  # fmt: skip
def test_a_posted_tuple_goes_where_its_key_does_of_the_partitions_that_are_declared(
    at: Place, stream: str, body: str, partitions: int
) -> None:
    tuples = [body.format(key) for key in "abcdefgh"]
    with posting_to(at, replace(at.broker, topic_partitions=7)) as client:
        assert post(client, at, "\n".join(tuples), stream, type_="text/plain").status == 202
    found = landed(at.bootstrap, f"{at.name}.{stream}")
    went = {raw: record.partition for record in found for _, raw in record.tuples}
    assert went == {raw.encode(): crc32(raw[-1:].encode()) % partitions for raw in tuples}


@pytest.mark.parametrize("body", ["", "[", '[{"n": 1}', '[{"n": 1},'])
def test_a_body_that_is_cut_off_is_said_to_end_too_early(
    client: Client, at: Place, body: str
) -> None:
    assert "it ends too early" in post(client, at, body).document["detail"]


def test_a_posted_header_has_no_number(client: Client, at: Place) -> None:
    body = "n,Name\n1,a\n2,b"
    reply = post(client, at, body, "headed", type_="text/csv", query="?source=me&seq=7")
    assert reply.document["tuples"] == 2
    (record,) = landed(at.bootstrap, f"{at.name}.headed")
    assert record.tuples == [(7, b"1,a"), (8, b"2,b")]


def test_a_number_that_is_none_is_not_blamed_on_the_body(client: Client, at: Place) -> None:
    reply = post(client, at, "1,2", stream="texts", type_="text/csv", query="?source=me&seq=-1")
    assert b"query/seq" in reply.body.partition(b"errors")[0]


def test_a_broker_that_is_away_is_soon_said_to_be_and_tried_again(
    kafka: Alone, at: Place, client: Client
) -> None:
    assert post(client, at, '{"n": 1}').status == 202
    kafka.freeze()
    try:
        # In use; with no producer; and not in use yet.
        for stream, hint in [
            ("lines", "count once"),
            ("lines", "count once"),
            ("clean", "Is it up"),
        ]:
            began = monotonic()
            reply = post(client, at, '{"n": 2}', stream, query="?source=me&seq=2")
            told = assert_problem(reply, 503, "NotRunning")
            assert monotonic() - began < SOON_S
            assert hint in told["hint"]
            assert reply.headers["retry-after"] == "1"
    finally:
        kafka.thaw()
    assert post(client, at, '{"n": 2}', query="?source=me&seq=2").status == 202
    assert b'{"n": 2}' in values(at)

    def nowhere() -> Broker:
        raise NotRunning("no broker is known", hint="Run `headrace up`.")

    with serving(
        island_over(NO_WAREHOUSE, Reader(at.folder / "x")),
        streams=Streams(loader.load([at.file]), Posting(nowhere)),
    ) as lost:
        assert_problem(post(lost, at, '{"n": 1}'), 503, "NotRunning")


def test_the_openapi_document_shows_how_to_post(client: Client) -> None:
    paths = client.send("GET", "/openapi.json").document["paths"]
    described = paths["/v1/streams/{dataflow}/{stream}"]["post"]
    examples = described["requestBody"]["content"]["application/json"]["examples"]
    assert json.dumps(examples["one"]["value"]) == '{"phone": "555-0100", "contestant": 2}'
    assert {"202", "404", "409", "413", "415", "422", "503"} <= described["responses"].keys()
