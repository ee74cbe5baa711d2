"""The vectors of the wire format, through the real Spark."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from vectoring import VECTORS, outcome, record_of, run, stream_of


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
