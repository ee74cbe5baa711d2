"""The vectors of the wire format, through the real Spark."""

import json
import random
from pathlib import Path

import fuzzing
import pytest
from pyspark.sql import SparkSession
from vectoring import VECTORS, outcome, record_of, run, stream_of

from etl_procs.batch import ARRIVAL

MUTANTS = 1_000


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_each_record_gives_what_its_vector_says(spark: SparkSession, path: Path) -> None:
    held = json.loads(path.read_text())
    stream, vectors = stream_of(held["stream"]), held["records"]
    rows = run(spark, stream, map(record_of, vectors))
    for vector, of in zip(vectors, rows, strict=True):
        assert [outcome(row, stream) for row in of] == vector["gives"], vector["about"]


def test_every_format_has_vectors() -> None:
    kinds = {json.loads(path.read_text())["stream"]["format"]["kind"] for path in VECTORS}
    assert kinds == {"json", "delimited", "fixed_width", "xml", "avro"}


def test_what_becomes_of_unknown_fields_changes_nothing_else(spark: SparkSession) -> None:
    (path,) = (path for path in VECTORS if path.stem == "json")
    held = json.loads(path.read_text())
    kept = stream_of(held["stream"])
    columns = held["stream"]["columns"].removesuffix(f", {kept.wire.unknown} TEXT")
    ignored = stream_of({**held["stream"], "columns": columns, "unknown": "ignore"})
    records = [record_of(vector) for vector in held["records"]]
    chance = random.Random(7)  # noqa: S311 - to be the same again
    records += [fuzzing.mutant(chance, records) for _ in range(MUTANTS)]
    names = (*ARRIVAL.names, *ignored.columns.names)
    whole, part = (run(spark, stream, records) for stream in (kept, ignored))
    for record, with_them, without in zip(records, whole, part, strict=True):
        assert [[row[n] for n in names] for row in with_them] == [
            [row[n] for n in names] for row in without
        ], record
