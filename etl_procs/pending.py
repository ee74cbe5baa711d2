"""Pending batches: what a stream holds for those who have still to take it, between two groups."""

import sqlite3
from collections.abc import Iterable, Iterator

import pyarrow as pa

from etl_procs.batch import ORIGIN, Batch
from etl_procs.columns import ARROW, OF_THE_CORE, Column, Columns
from etl_procs.dataflow import Dataflow
from etl_procs.errors import DefinitionChanged
from etl_procs.model import Stream
from headrace import arrow

INSERT = "INSERT INTO headrace_pending VALUES (:dataflow, :stream, :batch, :data)"

DELETE = """\
DELETE FROM headrace_pending
WHERE dataflow = :dataflow AND stream = :stream AND batch = :batch"""

ALL = "SELECT stream, batch, data FROM headrace_pending WHERE dataflow = :dataflow"

Key = tuple[str, int]
"""A stream's name and a batch's id."""


def add(connection: sqlite3.Connection, dataflow: str, batches: Iterable[Batch]) -> None:
    """Write batches down, with the places that their tuples came from."""
    for batch in batches:
        values = {"dataflow": dataflow, "stream": batch.stream.name, "batch": batch.id}
        connection.execute(INSERT, {**values, "data": to_bytes(batch)})


def drop(connection: sqlite3.Connection, dataflow: str, keys: Iterable[Key]) -> None:
    """Delete batches that everybody has taken."""
    for stream, batch in keys:
        connection.execute(DELETE, {"dataflow": dataflow, "stream": stream, "batch": batch})


def all_of(connection: sqlite3.Connection, dataflow: Dataflow) -> Iterator[Batch]:
    """Read the batches that a dataflow has still to take."""
    for name, batch, data in connection.execute(ALL, {"dataflow": dataflow.name}):
        stream = dataflow.streams.get(name)
        if stream is None:  # no longer declared: it is as its tuples are
            fields = list(arrow.from_bytes(data).schema)[len(ORIGIN) :]
            stream = Stream(dataflow.name, name, Columns("", tuple(map(_column, fields))))
        yield from_bytes(stream, batch, data)


def to_bytes(batch: Batch) -> bytes:
    """Write a batch as one Arrow IPC stream: where each tuple came from, and its columns."""
    schema = pa.schema([*ORIGIN, *batch.table.schema])
    columns = [*batch.origin.columns, *batch.table.columns]
    return arrow.to_bytes(pa.table(columns, schema=schema))


def from_bytes(stream: Stream, batch: int, data: bytes) -> Batch:
    """Read back what `to_bytes` wrote."""
    check_fits(stream, batch, data)
    table = arrow.from_bytes(data)
    tuples = table.drop_columns(ORIGIN.names)
    return Batch(stream, batch, table=tuples, origin=lambda: table.select(ORIGIN.names))


def check_fits(stream: Stream, batch: int, data: bytes) -> None:
    """Refuse a batch, of which the beginning is enough, with other columns than the stream's."""
    with pa.ipc.open_stream(data) as reader:
        if not reader.schema.equals(pa.schema([*ORIGIN, *stream.columns.arrow])):
            raise DefinitionChanged(
                f"batch {batch} of {stream.full_name} is still to be taken, and that stream is "
                "declared with other columns now",
                hint="Bring the old definition back until the batches in flight are done.",
            )


def _column(field: pa.Field) -> Column:
    (type_,) = (known for known in OF_THE_CORE if ARROW[known] == field.type)
    return Column(field.name, type_, required=not field.nullable)
