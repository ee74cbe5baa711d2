"""The decoder by itself, without Spark: what one record is depends on no other one."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from fuzzing import NASTY
from vectoring import RECORDS, VECTORS, Record, record_of, stream_of

from etl_procs import Dataflow, by_count
from etl_procs.wire import Delimited, Wire, Xml
from ingest.decoding import elements
from ingest.decoding.decoder import Decoder
from ingest.decoding.heads import Reader


def records_of(held: list[Record]) -> pa.RecordBatch:
    rows = [
        {
            "partition": 0,
            "offset": 7,
            "value": value,
            "headers": [*({"key": k, "value": v} for k, v in of)],
        }
        for value, of in held
    ]
    return pa.RecordBatch.from_pylist(rows, RECORDS)


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_each_record_gives_the_same_beside_others_as_alone(path: Path) -> None:
    vectors = json.loads(path.read_text())
    decoder = Decoder(stream_of(vectors["stream"]))
    all_of = [*map(record_of, vectors["records"]), *((value, []) for value in NASTY)]
    alone = [
        row for one in all_of for row in decoder.decode(*records_of([one]).columns).to_pylist()
    ]
    assert decoder.decode(*records_of(all_of).columns).to_pylist() == alone
    # As a part of what lies in memory: Spark gives such ones.
    middle = records_of([all_of[0], *all_of, all_of[0]]).slice(1, len(all_of))
    assert decoder.decode(*middle.columns).to_pylist() == alone


def test_a_record_at_which_we_fail_is_a_dead_letter_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Reader.read

    def fails(reader: Reader, headers: pa.Array, values: pa.Array) -> object:
        if b"3|x" in values.to_pylist():
            raise RuntimeError("a fault of ours")
        return read(reader, headers, values)

    monkeypatch.setattr(Reader, "read", fails)
    wire = Wire(Delimited("|"))
    stream = Dataflow("d").stream("t", "a INTEGER, t TEXT", batches=by_count(1), wire=wire)
    held: list[Record] = [(b"%d|x" % n, []) for n in range(6)]
    rows = Decoder(stream).decode(*records_of(held).columns).to_pylist()
    assert [row["a"] for row in rows] == [0, 1, 2, None, 4, 5]
    assert [row["_reason"] for row in rows if row["_reason"]] == ["cannot be read: a fault of ours"]
    assert [row["_value"] for row in rows] == [value for value, _ in held]


def test_that_memory_ends_makes_no_dead_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> object:
        raise pa.ArrowMemoryError("no more")

    monkeypatch.setattr(Reader, "read", fails)
    stream = Dataflow("d").stream("t", "a INTEGER", batches=by_count(1))
    with pytest.raises(MemoryError):
        Decoder(stream).decode(*records_of([(b"{}", [])]).columns)


def test_an_element_whose_names_are_long_together_is_a_dead_letter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elements, "PATHS_MAX", 100)
    wire = Wire(Xml("r"))
    stream = Dataflow("d").stream("t", "a INTEGER", batches=by_count(1), wire=wire)
    within = b"<%s>" + b"<b/>" * 10 + b"</%s>"
    held: list[Record] = [
        (b"<r><a>1</a>" + within.replace(b"%s", name) + b"</r>", []) for name in (b"n", b"n" * 20)
    ]
    rows = Decoder(stream).decode(*records_of(held).columns).to_pylist()
    assert [(row["a"], row["_reason"]) for row in rows] == [
        (1, None),
        (None, "the names of its elements are too long, one within the other"),
    ]
