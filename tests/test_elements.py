"""Elements: the records of XML, and of Avro container files, whatever else they hold."""

import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_procs import Dataflow, by_count
from etl_procs.model import Stream
from etl_procs.wire import Avro, Format, Xml
from headrace.errors import HeadraceError
from ingest.elements import Document
from ingest.reading import Reader
from ingest.records import OVERSIZE_BYTES_KEPT, TUPLE_BYTES_MAX
from ingest.runs import Bookmark, Run

DOCUMENTS = {
    b"": [],
    b"<a/>": [],
    b"<r/>": [b"<r/>"],
    b"<a><r/><r></r ></a>": [b"<r/>", b"<r></r >"],
    b"<a><r><r>1</r><r/></r>x<R/><rs/></a>": [b"<r><r>1</r><r/></r>"],
    b"<a><rs><r/></rs><r x='&lt;/r>'>&#65;</r></a>\n": [b"<r/>", b"<r x='&lt;/r>'>&#65;</r>"],
    b"<a><!-- <r/> --><![CDATA[<r>]]><?p <r/>?><r><![CDATA[</r>]]></r></a>": [
        b"<r><![CDATA[</r>]]></r>"
    ],
    b"<x:a xmlns:x='u'><x:r/><r y:z='1'/></x:a>": [b"<r y:z='1'/>"],
    b"<!DOCTYPE a SYSTEM 'a.dtd'><a><r>&who;</r></a>": [b"<r>&who;</r>"],
    "\ufeff<a><r>\u00e9</r></a>".encode(): ["<r>\u00e9</r>".encode()],
    "<?xml version='1.0' encoding='iso-8859-15'?><a><r>\u20ac</r></a>".encode("iso-8859-15"): [
        "<r>\u20ac</r>".encode()
    ],
    "<a><r>\u20ac</r></a>".encode("utf-16"): ["<r>\u20ac</r>".encode()],
    "<?xml version='1.0' encoding='utf-16'?><a><r>\u20ac</r></a>".encode("utf-16-be"): [
        "<r>\u20ac</r>".encode()
    ],
}

BAD = {
    b"<a><r>1</r><r>2": (1, "no element found"),
    b"<a><r>1</r><r>2</q>": (1, "mismatched tag"),
    b"<a><r>1</r></a><a/>": (1, "junk after document element"),
    b"<a><r>1</r><r>\xff</r></a>": (1, "can't decode byte 0xff"),
    b"<!DOCTYPE a [<!ENTITY e 'x'>]><a><r>&e;</r></a>": (0, "declares the entity e"),
    b"<!DOCTYPE a [<!ENTITY % e 'x'>]><a/>": (0, "declares the entity e"),
    b"<?xml version='1.0' encoding='zip'?><a/>": (0, "encoding zip"),
    b"<a>" * 1_001: (0, "1,000 deep"),
    b"text": (0, "syntax error"),
}


def stream(format_: Format) -> Stream:
    return Dataflow("documents").stream("s", "n INTEGER", batches=by_count(1), wire=format_)


def scanned(document: bytes, block: int, at: Bookmark | None = None) -> list[bytes]:
    scans = Document(Xml("r"), at or Bookmark())
    runs: list[Run] = []
    for begin in range(0, len(document), block):
        runs += scans.feed(document[begin : begin + block])
    return [raw for run in runs + list(scans.finish()) for raw in run.raws]


@pytest.mark.parametrize("document", DOCUMENTS, ids=repr)
def test_the_records_of_a_document_are_its_own_bytes(document: bytes) -> None:
    for block in (1, 2, 7, 1_000):
        assert scanned(document, block) == DOCUMENTS[document]
        assert scanned(document, block, Bookmark(2, 5)) == DOCUMENTS[document][1:]


@pytest.mark.parametrize("document", BAD, ids=lambda document: repr(document[:60]))
def test_a_bad_document_gives_what_is_good_before_it_says_what_is_bad(
    tmp_path: Path, document: bytes
) -> None:
    records, what = BAD[document]
    (tmp_path / "d.xml").write_bytes(document)
    found: list[bytes] = []

    def read_all() -> None:
        with Reader(tmp_path / "d.xml", stream(Xml("r"))) as reader:
            for run in reader.runs():
                found.extend(run.raws)

    with pytest.raises(HeadraceError, match=what) as raised:
        read_all()
    assert found == [b"<r>1</r>"] * records
    assert "d.xml" in raised.value.what


ELEMENTS = st.recursive(
    st.sampled_from(["t", "&amp;", "<!--<r>-->", "<r/>", "<b/>", "é"]),
    lambda inner: st.tuples(st.sampled_from(["r", "b", "rr"]), st.lists(inner, max_size=3)).map(
        lambda made: f"<{made[0]}>{''.join(made[1])}</{made[0]}>"
    ),
    max_leaves=12,
)


@given(st.lists(ELEMENTS, max_size=6), st.integers(1, 9))
def test_any_blocks_give_the_same_records(elements: list[str], block: int) -> None:
    document = f"<a>{''.join(elements)}</a>".encode()
    found = scanned(document, block)
    assert found == scanned(document, len(document))
    alone = "".join(elements).encode()
    for raw in found:  # they stand there in this order, and are whole
        before, there, alone = alone.partition(raw)
        assert there
        assert scanned(raw, len(raw)) == [raw]
        assert b"<r>" not in before.replace(b"<!--<r>-->", b"")


def test_a_big_document_and_a_big_record_take_no_memory() -> None:
    record = b"<r><n>1</n>" + b"<m>xxxxxxxxxxxxxxxxxxxxxxxxxxxxx</m>" * 100 + b"</r>\n"
    scans = Document(Xml("r"))
    found: list[tuple[int, int]] = []
    blocks = [
        b"<a>",
        *[record * 10] * 500,
        *[b"padding " * 8_000] * 100,
        b"<r>",
        *[b"x" * 64_000] * 300,
        b"</r>",
        b"<r/></a>",
    ]
    tracemalloc.start()
    for block in blocks:
        for run in scans.feed(block):
            found += [(len(raw), run.oversize.get(index, 0)) for index, raw in enumerate(run.raws)]
    assert not list(scans.finish())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [
        *[(len(record) - 1, 0)] * 5_000,
        (OVERSIZE_BYTES_KEPT, 300 * 64_000 + 7),
        (4, 0),
    ]
    assert peak < 3 * TUPLE_BYTES_MAX


def test_a_comment_without_end_is_refused() -> None:
    scans = Document(Xml("r"))
    list(scans.feed(b"<a><!-- "))

    def endless() -> None:
        for _ in range(40):
            list(scans.feed(b"x" * 2**20))

    with pytest.raises(HeadraceError, match="a tag or a comment has more than"):
        endless()


DECLARED: dict[str, Any] = {
    "type": "record",
    "name": "tuple",
    "fields": [
        {"name": "n", "type": ["null", "long"]},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    ],
}
OLDER = {**DECLARED, "fields": [{"name": "n", "type": "int"}, {"name": "gone", "type": "string"}]}
OTHER = {**DECLARED, "fields": [{"name": "m", "type": "int"}]}


def container(schema: Any, rows: list[dict[str, Any]], **more: Any) -> bytes:
    made = io.BytesIO()
    fastavro.writer(made, schema, rows, sync_interval=200, **more)
    return made.getvalue()


def read(path: Path, at: Bookmark | None = None) -> list[bytes]:
    with Reader(path, stream(Avro(json.dumps(DECLARED)))) as reader:
        runs = reader.runs(at) if at else reader.runs()
        return [raw for run in runs for raw in run.raws]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_the_records_of_a_container_file_are_datums_of_the_declared_schema(
    tmp_path: Path, codec: str
) -> None:
    path = tmp_path / "f.avro"
    plain = {**DECLARED, "fields": [DECLARED["fields"][0], {"name": "t", "type": "long"}]}
    cases: list[tuple[Any, list[dict[str, Any]]]] = [
        (plain, [{"n": n, "t": 2**62 + n} for n in range(1_000)]),
        (OLDER, [{"n": n, "gone": "x"} for n in range(1_000)]),
    ]
    for schema, rows in cases:
        path.write_bytes(container(schema, rows, codec=codec))
        raws = read(path)
        found = [
            fastavro.schemaless_reader(io.BytesIO(raw), fastavro.parse_schema(plain), None)
            for raw in raws
        ]
        assert found == [{"n": row["n"], "t": row.get("t", 0)} for row in rows]
        for number in (1, 2, 500, 1_000, 1_001):
            assert read(path, Bookmark(number)) == raws[number - 1 :]


def test_a_container_file_that_does_not_fit_or_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.avro"
    path.write_bytes(container(OTHER, [{"m": 1}]))
    with pytest.raises(HeadraceError, match="not to be read as the declared schema"):
        read(path)
    whole = container(DECLARED, [{"n": n, "t": n} for n in range(1_000)])
    path.write_bytes(whole)
    good = read(path)
    for damaged in (whole[:-1], whole[:-17], whole[:-30], whole[:3000], whole[:20], b"text"):
        path.write_bytes(damaged)
        found: list[bytes] = []
        with Reader(path, stream(Avro(json.dumps(DECLARED)))) as reader:
            runs = reader.runs()
            with pytest.raises(HeadraceError, match=r"f\.avro: .* damaged, after its record"):
                found.extend(raw for run in runs for raw in run.raws)
        assert found == good[: len(found)]
    path.write_bytes(b"")
    assert read(path) == []


def test_a_container_file_whose_data_may_be_of_any_depth_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.avro"
    chain = {"name": "chain", "type": ["null", "tuple"]}
    path.write_bytes(container({**DECLARED, "fields": [*DECLARED["fields"], chain]}, []))
    with pytest.raises(HeadraceError, match=r"f\.avro: .* tuple holds itself"):
        read(path)
