"""Test vectors of the wire format: records as bytes, and what each gives; and running them."""

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkContext
from pyspark.sql import SparkSession

from etl_procs import Dataflow, Stream, by_count, by_interval, by_punctuation
from etl_procs.batch import (
    FINISHED,
    LAST,
    MARK,
    NOTHING,
    PLACE,
    REASON,
    SEQ,
    SOURCE,
    VALUE,
    index_of,
    offset_of,
)
from etl_procs.wire import Avro, Delimited, FixedWidth, Format, Json, Unknown, Wire, Xml
from headrace import config
from ingest import session
from ingest.decode import decoded, gathered

VECTORS = sorted((Path(__file__).parent / "vectors").glob("*.json"))
RECORDS = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""What of Kafka's records is decoded."""

Record = tuple[bytes | None, Sequence[tuple[str, bytes | None]]]
"""The value and the headers of a Kafka record."""


@contextmanager
def a_spark(scratch: Path) -> Iterator[SparkSession]:
    """Start Spark as the engine does, without Kafka's jars."""
    loaded = config.load(environment={}).config
    started = session.start(loaded.engine, jars=[], scratch=scratch)
    gateway = SparkContext._gateway
    assert gateway is not None
    try:
        yield started
        started.stop()
        gateway.shutdown()
    finally:
        SparkContext._gateway = SparkContext._jvm = None  # or the next one would talk to this one
        SparkContext._active_spark_context = None
        gateway.proc.kill()
        gateway.proc.wait()


def bytes_of(written: Any) -> bytes | None:
    """Read bytes: a text, {"hex": ...}, or null; {"repeat": text, "times": n} for many."""
    if written is None:
        return None
    if isinstance(written, str):
        return written.encode()
    if "hex" in written:
        return bytes.fromhex(written["hex"])
    return str(written["repeat"]).encode() * int(written["times"])


def stream_of(declared: dict[str, Any]) -> Stream:
    """Make the stream that a file of vectors declares."""
    unknown = declared.get("unknown", "ignore")
    wire = Wire(
        _format(**declared["format"]),
        unknown=Unknown(unknown) if unknown in ("ignore", "reject") else unknown,
        time=declared.get("time", ""),
    )
    rules: dict[str, Any] = {"interval": by_interval, "punctuation": by_punctuation}
    rule, *arguments = declared.get("batches", ["count"])
    batches = rules[rule](*arguments) if rule in rules else by_count(10)
    return Dataflow("vectors").stream("tuples", declared["columns"], batches=batches, wire=wire)


def _format(kind: str, **options: Any) -> Format:
    match kind:
        case "delimited":
            return Delimited(options.pop("separator"), **options)
        case "fixed_width":
            return FixedWidth(*options["widths"])
        case "xml":
            return Xml(options["record"], **options.get("paths", {}))
        case "avro":
            return Avro(json.dumps(options["schema"]))
        case _:
            return Json()


def record_of(vector: dict[str, Any]) -> Record:
    """Give the record of a vector."""
    headers = [(key, bytes_of(value)) for key, value in vector.get("headers", [])]
    return bytes_of(vector["value"]), headers


def run(spark: SparkSession, stream: Stream, records: Iterable[Record]) -> list[list[Any]]:
    """Decode records, in one job; give the rows of each, in their order."""
    held = list(records)
    table = pa.Table.from_pylist(
        [
            {"partition": 0, "offset": offset, "value": value, "headers": _named(headers)}
            for offset, (value, headers) in enumerate(held)
        ],
        RECORDS,
    )
    # Through a file: Spark would send what is in memory along with each task.
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        pq.write_table(table, file.name)
        arrived = gathered(decoded(spark.read.parquet(file.name), stream).toArrow(), stream)
    given: list[list[Any]] = [[] for _ in held]
    for row in arrived.sort_by(PLACE).to_pylist():
        given[offset_of(row[PLACE])].append(row)
    for of in given:
        assert [index_of(row[PLACE]) for row in of] == [*range(len(of) - 1), LAST]
    return given


def _named(headers: Sequence[tuple[str, bytes | None]]) -> list[dict[str, str | bytes | None]]:
    return [{"key": key, "value": value} for key, value in headers]


def outcome(row: dict[str, Any], stream: Stream) -> dict[str, Any]:
    """Write what a record gives, as the vectors do."""
    given: dict[str, Any] = {}
    if row[SEQ] is not None:
        given |= {"source": row[SOURCE], "seq": row[SEQ]}
    if row[MARK] == NOTHING:
        return given | {"nothing": True}
    if row[MARK] is not None:
        return given | {"ends": "all" if row[MARK] == FINISHED else row[MARK]}
    if row[REASON] is not None:
        return given | {"dead letter": row[REASON], "bytes": written(row[VALUE])}
    return given | {"tuple": [row[name] for name in stream.columns.names]}


def written(value: bytes | None) -> Any:
    """Write bytes: as a text where they are one that is not long."""
    if value is None:
        return None
    if len(value) > 200:
        return {"length": len(value)}
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"hex": value.hex()}
