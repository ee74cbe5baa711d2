"""Cleaning: what is done with a tuple's fields near the source, and what its key is."""

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_procs import Dataflow, by_count
from etl_procs.model import Stream
from etl_procs.wire import (
    Avro,
    Changed,
    Clean,
    Delimited,
    FixedWidth,
    Format,
    Json,
    Mean,
    Unknown,
    Wire,
    Xml,
)
from headrace.errors import DefinitionError, HeadraceError, Refused
from ingest.cleaning import Cleaner
from ingest.decoding.decoder import Decoder

COLUMNS = "id INTEGER NOT NULL, name TEXT, value REAL"


def stream(format_: Format | None = None, clean: Clean | None = None, **more: Any) -> Stream:
    wire = Wire(format_ or Json(), clean=clean, **more)
    return Dataflow("cleaning").stream("s", COLUMNS, batches=by_count(1), wire=wire)


def cleaned(raws: list[bytes], clean: Clean, format_: Format | None = None) -> list[bytes]:
    return Cleaner(stream(format_, clean)).clean(raws)


def test_without_cleaning_the_same_list_goes_through() -> None:
    raws = [b"x"]
    assert Cleaner(stream()).clean(raws) is raws
    assert Cleaner(stream(Delimited(",", header=True)), ("id", "name", "value")).clean(raws) is raws


def test_json_is_renamed_kept_and_dropped_with_every_sign_of_its_values() -> None:
    value = '{"a":[1.10, 1e400,\t"\\u00e9"]}'
    raw = f' {{"b" : {value} , "ID":12345678901234567890.000,"é":1}} '.encode()
    rename = Clean(rename={"ID": "id"}, drop=("é",))
    assert cleaned([raw], rename) == [f'{{"b": {value}, "id": 12345678901234567890.000}}'.encode()]
    assert cleaned([raw], Clean(rename={"ID": "id"}, keep=("id",))) == [
        b'{"id": 12345678901234567890.000}'
    ]
    assert cleaned([b"{}", b'{"id":1}'], Clean(drop=("name",))) == [b"{}", b'{"id": 1}']


UNREADABLE = [
    b"\xff", b"", b"x", b"[1]", b'{"a":1', b'{"a":1,}', b'{"a" 1}', b'{"a":1}}', b'{a:1}', b"{1:2}",
    b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":02}', b'{"a":' + b"[" * 100_000, b'{,}',
    b'{"a":1 "b":2}',
    b'{"id":1,"ID":2}', b'{"a":"\n"}', b'{"ID":1,"a":1e99999999999999999999}',
]  # fmt: skip


@pytest.mark.parametrize("raw", UNREADABLE, ids=lambda raw: repr(raw[:20]))
def test_json_that_cannot_be_read_goes_through_and_does_not_decode(raw: bytes) -> None:
    found = cleaned([raw], Clean(rename={"ID": "id"}, where=lambda _: False))
    assert found == [raw and raw + b"\xff"], "or its columns would be NULL, or what was not asked"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5), st.booleans(), st.sampled_from([None, 1]))
def test_json_means_the_same_after_cleaning(
    document: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    raw = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode(
        "utf-8", "surrogatepass"
    )
    (found,) = cleaned([raw], Clean(drop=("name",)))
    document.pop("name", None)
    assert json.loads(found) == document
    assert list(json.loads(found)) == list(document)


def test_where_sees_the_values_and_leaves_tuples_out() -> None:
    seen: list[Any] = []

    def where(fields: Any) -> bool:
        seen.append(dict(fields))
        return bool(fields["name"] != "no")

    raws = [b'{"name":"no","v":1.50}', b'{"name":"yes","v":1}', b""]
    assert cleaned(raws, Clean(where=where)) == [b"", raws[1], b""]
    assert [str(fields["v"]) for fields in seen] == ["1.50", "1"]
    seen.clear()
    assert cleaned([b"1,no,", b"2,,3", b"x"], Clean(where=where), Delimited(",")) == [
        b"", b"2,,3", b"x\xff",
    ]  # fmt: skip
    assert seen == [
        {"id": "1", "name": "no", "value": None}, {"id": "2", "name": None, "value": "3"},
    ]  # fmt: skip
    assert cleaned([b" 1no  5"], Clean(where=where), FixedWidth(2, 4, 1)) == [b""]
    cleaned([b"1,,"], Clean(where=where), Delimited(",", null=None))
    assert seen[-1]["name"] == ""
    with pytest.raises(HeadraceError, match=r"`where` cannot say .* KeyError"):
        cleaned([b"{}"], Clean(where=where))


def test_oversize_tuples_are_not_cleaned() -> None:
    cleaner = Cleaner(stream(clean=Clean(where=lambda _: False)))
    assert cleaner.clean([b"{}", b"{}"], but={1: 9}) == [b"", b"{}"]


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_delimited_file_is_put_into_the_order_of_the_columns(quote: str) -> None:
    format_ = Delimited("||", quote=quote, header=True, null="-")
    cleaner = Cleaner(stream(format_), ("more", "value", "id"))
    field = '"a""||"' if quote else "|a"
    assert cleaner.clean([f"{field}||2.50||1".encode(), b"1||2", b"1||2||3||4", b"\xc3||1||2"]) == [
        b"1||-||2.50", b"1||2\xff", b"1||2||3||4\xff", b"\xc3||1||2\xff",
    ]  # fmt: skip
    with pytest.raises(Refused, match="no field id, which cannot be NULL"):
        Cleaner(stream(format_), ("name", "value"))
    with pytest.raises(Refused, match="no field name"):
        Cleaner(stream(Delimited(",", header=True, null=None)), ("id", "value"))
    keeps_more = stream(format_, unknown=Unknown.REJECT)
    assert Cleaner(keeps_more, ("more", "value", "id")).clean([b"m||2||1"]) == [b"1||-||2||m"]


def test_quoted_fields_stay_as_they_are_written() -> None:
    clean = Clean(columns=("value", "who", "id"), rename={"who": "name"})
    raws = [b'1.0,"a,""\n",7', b'1,"open,2', b'1,"a"b,2']
    assert cleaned(raws, clean, Delimited(",", quote='"')) == [
        b'7,"a,""\n",1.0', b'1,"open,2\xff', b'1,"a"b,2\xff',
    ]  # fmt: skip


@pytest.mark.parametrize("clean", [Clean(drop=("name",)), Clean(keep=("id", "value"))], ids=str)
def test_a_field_that_is_left_out_is_null(clean: Clean) -> None:
    assert cleaned([b"1,a,2"], clean, Delimited(",")) == [b"1,,2"]
    assert cleaned([b" 1abc2"], clean, FixedWidth(2, 3, 1)) == [b" 1   2"]


def test_a_column_that_the_wire_fills_is_no_field_of_the_source() -> None:
    timed = stream(Delimited(",", header=True), time="id")
    assert Cleaner(timed, ("value", "name")).clean([b"2,a"]) == [b"a,2"]
    keeps_more = stream(Delimited(",", header=True), unknown="name")
    assert Cleaner(keeps_more, ("more", "value", "id")).clean([b"m,2,1"]) == [b"1,2,m"]


def test_a_mean_is_that_of_the_last_values_of_its_group() -> None:
    clean = Clean(smooth=(Mean("value", last=2, by="name"),))
    assert Cleaner(stream(clean=clean)).needs_history
    assert not Cleaner(stream()).needs_history
    raws = [b"1,a,1", b"2,b,10", b"3,a,2", b"4,a,", b"5,a,4", b"6,a,x", b"7,b,1e999"]
    assert cleaned(raws, clean, Delimited(",")) == [
        b"1,a,1.0", b"2,b,10.0", b"3,a,1.5", b"4,a,", b"5,a,3.0", b"6,a,x", b"7,b,1e999",
    ]  # fmt: skip
    assert cleaned([b'{"value":1,"id":0}', b'{"value":"2"}', b'{"value":2}'], clean) == [
        b'{"value": 1.0, "id": 0}', b'{"value": "2"}', b'{"value": 1.5}',
    ]  # fmt: skip


def test_what_has_not_changed_enough_is_left_out() -> None:
    clean = Clean(smooth=(Changed("value", least=0.5),))
    raws = [b"1,,1", b"2,,1.4", b"3,,1.5", b"4,,", b"5,,1.1", b"6,,1"]
    assert cleaned(raws, clean, Delimited(",")) == [raws[0], b"", raws[2], raws[3], b"", raws[5]]
    by_name = Clean(smooth=(Changed("value", least=1, by="name"),))
    raws = [b"1,a,1", b"2,b,5", b"3,a,1.9", b"4,b,4", b"5,a,2"]
    assert cleaned(raws, by_name, Delimited(",")) == [raws[0], raws[1], b"", raws[3], raws[4]]


def test_smoothing_goes_by_what_is_wanted_and_in_its_order() -> None:
    last = Mean("value", last=2)
    wanted = Clean(where=lambda fields: fields["name"] != "no", smooth=(last,))
    assert cleaned([b"1,,1", b"2,no,9", b"3,,3"], wanted, Delimited(",")) == [
        b"1,,1.0", b"", b"3,,2.0",
    ]  # fmt: skip
    twice = Clean(smooth=(last, Changed("value", least=2)))
    assert cleaned([b"1,,0", b"2,,2", b"3,,4"], twice, Delimited(",")) == [
        b"1,,0.0", b"", b"3,,3.0",
    ]  # fmt: skip


def test_a_mean_is_that_of_its_own_column() -> None:
    wire = Wire(Delimited(","), clean=Clean(smooth=(Mean("b", last=2),)))
    two = Dataflow("cleaning").stream("s", "a REAL, b REAL", batches=by_count(1), wire=wire)
    assert Cleaner(two).clean([b"1,2", b"3,4"]) == [b"1,2.0", b"3,3.0"]


REFUSED: dict[str, Callable[[], object]] = {
    "is that of the last 0": lambda: Mean("value", last=0),
    "changes by at least -1": lambda: Changed("value", least=-1),
    "keeps fields and drops others": lambda: Clean(keep=("a",), drop=("b",)),
    "where is 5": lambda: Clean(where=5),  # type: ignore[arg-type]
    "keep is 'id'": lambda: Clean(keep="id"),  # type: ignore[arg-type]
    "drop names a field twice": lambda: Clean(drop=("a", "a")),
    "rename is": lambda: Clean(rename=["a"]),  # type: ignore[arg-type]
    "makes two fields one": lambda: Clean(rename={"a": "c", "b": "c"}),
    "smooth is": lambda: Clean(smooth=Mean("value", last=1)),  # type: ignore[arg-type]
    "header is 1": lambda: Delimited(",", header=1),  # type: ignore[arg-type]
    "smooths id, which is no REAL": lambda: stream(clean=Clean(smooth=(Mean("id", last=1),))),
    "smooths name": lambda: stream(clean=Clean(smooth=(Changed("name", least=1),))),
    "smoothed by who": lambda: stream(clean=Clean(smooth=(Mean("value", last=1, by="who"),))),
    "a mean has no fixed width": lambda: stream(
        FixedWidth(1, 1, 1), Clean(smooth=(Mean("value", last=1),))
    ),
    "leaves out id": lambda: stream(clean=Clean(keep=("name",))),
    "no fields of text": lambda: stream(Xml("r"), Clean(drop=("name",))),
    "fields of its source twice": lambda: stream(clean=Clean(columns=("id",))),
    "renames fields that have no names": lambda: stream(
        FixedWidth(1, 1, 1), Clean(rename={"a": "b"})
    ),
    "with them what is behind the last one": lambda: stream(
        FixedWidth(1, 1, 1), Clean(drop=("name",)), unknown=Unknown.REJECT
    ),
    "cleans other: no fields": lambda: stream(
        Delimited(","), Clean(columns=("id", "a", "b"), drop=("other",))
    ),
    "cleans nam: no fields": lambda: stream(Delimited(","), Clean(drop=("nam",))),
    "cleans Name: no fields": lambda: stream(clean=Clean(rename={"Name": "name"}, drop=("Name",))),
    "keeps nam, and has no such columns": lambda: stream(clean=Clean(keep=("id", "nam"))),
    "keeps nme, and has no": lambda: stream(Delimited(",", header=True), Clean(keep=("id", "nme"))),
    "keeps more, and has no": lambda: stream(
        clean=Clean(keep=("id", "more"), where=bool), unknown=Unknown.REJECT
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_refused(what: str) -> None:
    with pytest.raises(DefinitionError, match=what):
        REFUSED[what]()


def test_what_may_make_sense_is_taken() -> None:
    stream(clean=Clean(drop=("large",)))
    stream(clean=Clean(keep=("id", "state"), where=lambda fields: fields["state"] == "on"))
    stream(clean=Clean(keep=("id", "state")), unknown="name")
    stream(clean=Clean(rename={"ID": "id", "id": "old"}, drop=("old",)))


AVRO = {
    "type": "record",
    "name": "s",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "value", "type": "double"},
    ],
}


def datum(**row: Any) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(AVRO), row)
    return made.getvalue()


@pytest.mark.parametrize(
    ("format_", "raw"),
    [
        (Json(), b'{"id": 7, "name": "\\u00e9", "value": 15e-1}'),
        (Delimited(","), "007,é,1.50".encode()),
        (Delimited("|", quote="'"), "7|'é'|+1.5".encode()),
        (FixedWidth(3, 2, -1, 5), "  7é x1.5".encode()),
        (Xml("r", id="@id", name="Who/Name"), "<r id='7'><Who><Name>é</Name></Who>"
         "<value>1.5</value></r>".encode()),
        (Avro(json.dumps(AVRO)), datum(id=7, name="é", value=1.5)),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_key_is_the_text_of_the_decoded_value(format_: Format, raw: bytes) -> None:
    for name, value in [("id", 7), ("name", "é"), ("value", 1.5)]:
        keys = Decoder(stream(format_)).keys(name, [raw, b"\xff\xff", raw])
        assert keys == [str(value), None, str(value)]


@pytest.mark.parametrize("raw", [b"7,x,1.5,more,", b"7,'x',1.5,'a,b'"])
def test_a_key_is_found_in_a_line_with_unknown_fields_too(raw: bytes) -> None:
    for name, value in [("id", "7"), ("name", "x"), ("value", "1.5")]:
        assert Decoder(stream(Delimited(",", quote="'"))).keys(name, [raw]) == [value]


def test_a_key_that_does_not_decode_is_none() -> None:
    cases: list[tuple[Format, bytes]] = [
        (Json(), b'{"id": "7"}'), (Json(), b'{"id": true}'), (Json(), b"{}"),
        (Json(), b'{"id":7.0}'),
        (Delimited(","), b"1_0,,"), (Delimited(","), b",,"), (Delimited(","), b"1"),
    ]  # fmt: skip
    for format_, raw in cases:
        assert Decoder(stream(format_)).keys("id", [raw]) == [None]


FIELDS = st.lists(st.text('ab,"\né ', max_size=4), min_size=4, max_size=4)


@given(st.lists(FIELDS, min_size=1), st.booleans())
def test_fields_are_the_same_whether_their_names_are_asked_for_or_not(
    rows: list[list[str]], is_asked: bool
) -> None:
    columns = ("name", "value", "id", "d")
    clean = Clean(columns=columns, drop=("d",))
    if is_asked:
        clean = Clean(columns=columns, drop=("d",), where=lambda fields: len(dict(fields)) == 3)
    raws = [",".join(map(written_quoted, row)).encode() for row in rows]
    found = cleaned(raws, clean, Delimited(",", quote='"'))
    read = [next(csv.reader(io.StringIO(raw.decode(), newline=""), strict=True)) for raw in found]
    assert read == [[row[2], row[0], row[1]] for row in rows]


def written_quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text
