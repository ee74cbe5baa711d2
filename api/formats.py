"""The formats of an answer: JSON, JSON lines, CSV and an Arrow stream, piece by piece.

Each tells at its end that it is whole, so that one that was cut off is never taken for an answer:
a JSON document is closed, lines end with {"end": ...} or {"error": ...}, Arrow with an empty batch
that says the same in its metadata. CSV has no place for it: whoever sends it must break the
transfer off.
"""

import io
import json
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from api.answer import Head, named
from api.errors import QueryRefused
from api.values import dump, not_finite

END = b"headrace"
"""The key of the metadata in Arrow's last batch."""


class Format(Enum):
    """How an answer is written, by its media type."""

    JSON = "application/json"
    LINES = "application/x-ndjson"
    CSV = "text/csv"
    ARROW = "application/vnd.apache.arrow.stream"


class Writer(Protocol):
    """Writes one answer."""

    def begin(self) -> bytes:
        """Write what comes before the rows."""
        ...

    def rows(self, batch: pa.RecordBatch) -> bytes:
        """Write some rows."""
        ...

    def end(self, end: dict[str, Any]) -> bytes:
        """Write what comes after the last row: `{"end": ...}`, or `{"error": ...}`."""
        ...


def writer(format_: Format, head: Head) -> Writer:
    """Make the writer of an answer."""
    return WRITERS[format_](head)


def error_line(format_: Format, document: Mapping[str, Any]) -> bytes:
    """Write what ends an answer of which only the beginning is there; where a format has no line
    for that, nothing: its transfer must be broken off.
    """
    text = dump({"error": document}) + b"\n"
    return {Format.LINES: text, Format.CSV: b"# " + text}.get(format_, b"")


def document(head: Head) -> dict[str, Any]:
    """Write down what is known of an answer before its first row."""
    return {
        "columns": [{"name": column.name, "type": column.type} for column in head.columns],
        "as_of": dict(head.as_of),
        "freshness": head.freshness,
        "plan": head.plan,
    }


class _Json:
    def __init__(self, head: Head) -> None:
        self._head = head
        self._separator = b""

    def begin(self) -> bytes:
        return dump(document(self._head))[:-1] + b',"rows":['

    def rows(self, batch: pa.RecordBatch) -> bytes:
        if not batch.num_rows:
            return b""
        text = self._separator + dump(values(batch))[1:-1]
        self._separator = b","
        return text

    def end(self, end: dict[str, Any]) -> bytes:
        return b"]" + (b"," + dump(end)[1:])


class _Lines:
    def __init__(self, head: Head) -> None:
        self._head = head

    def begin(self) -> bytes:
        return dump(document(self._head)) + b"\n"

    def rows(self, batch: pa.RecordBatch) -> bytes:
        return b"".join(dump(row) + b"\n" for row in values(batch))

    def end(self, end: dict[str, Any]) -> bytes:
        return dump(end) + b"\n"


class _Csv:
    """As PostgreSQL's COPY writes it: NULL is nothing, an empty text is two quotes."""

    def __init__(self, head: Head) -> None:
        self._head = head

    def begin(self) -> bytes:
        names = [pa.array([column.name]) for column in self._head.columns]
        return self._written(pa.record_batch(names, names=[str(n) for n in range(len(names))]))

    def rows(self, batch: pa.RecordBatch) -> bytes:
        columns = [_text(column) for column in batch.columns]
        names = [str(number) for number in range(len(columns))]
        return self._written(pa.record_batch(columns, names=names))

    def _written(self, batch: pa.RecordBatch) -> bytes:
        sink = io.BytesIO()
        options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
        csv.write_csv(batch, sink, options)
        return sink.getvalue()

    def end(self, end: dict[str, Any]) -> bytes:
        return b"" if "end" in end else b"# " + dump(end) + b"\n"


class _Arrow:
    def __init__(self, head: Head) -> None:
        self._sink = io.BytesIO()
        fields = [
            pa.field(column.name, _wide(column.digits) or column.arrow, metadata=field.metadata)
            for column, field in zip(head.columns, head.schema, strict=True)
        ]
        metadata = {END: dump(document(head))}
        self._schema = pa.schema(fields, metadata=metadata)
        self._writer = pa.ipc.new_stream(self._sink, self._schema)

    def begin(self) -> bytes:
        return self._taken()

    def rows(self, batch: pa.RecordBatch) -> bytes:
        try:
            decimal = batch.cast(self._schema)
        except pa.ArrowInvalid as error:
            raise QueryRefused(
                "a column of decimals with fixed digits has NaN, and Arrow's decimals have none",
                hint="Cast it ::numeric, which is told as text.",
            ) from error
        self._writer.write_batch(decimal)
        return self._taken()

    def end(self, end: dict[str, Any]) -> bytes:
        nothing = self._schema.empty_table().combine_chunks().to_batches()
        empty = nothing[0] if nothing else pa.RecordBatch.from_pylist([], schema=self._schema)
        self._writer.write_batch(empty, custom_metadata={END: dump(end)})
        if "end" in end:  # what failed has no end: a reader must not take it for whole
            self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        text = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return text


WRITERS: dict[Format, Callable[[Head], Writer]] = {
    Format.JSON: _Json,
    Format.LINES: _Lines,
    Format.CSV: _Csv,
    Format.ARROW: _Arrow,
}


def values(batch: pa.RecordBatch) -> list[list[Any]]:
    """Make rows of JSON values."""
    columns = [_values(column) for column in batch.columns]
    return (
        [list(row) for row in zip(*columns, strict=True)]
        if columns
        else [[] for _ in range(batch.num_rows)]
    )


def _values(column: pa.Array) -> list[Any]:
    if pa.types.is_temporal(column.type):
        column = _text(column)
    found: list[Any] = column.to_pylist()
    if _has_others(column):
        return [value if value is None else not_finite(value) for value in found]
    if pa.types.is_list(column.type):
        inner = iter(_values(column.flatten()))
        return [None if each is None else [next(inner) for _ in each] for each in found]
    return found


def _has_others(column: pa.Array) -> bool:
    """Tell whether there are NaN or infinities among floating-point numbers."""
    is_floating = pa.types.is_floating(column.type)
    return is_floating and pc.all(pc.is_finite(column)).as_py() is False


def _text(column: pa.Array) -> pa.Array:
    """Write dates and times as ISO 8601 has them, NaN and infinities as PostgreSQL, and leave the
    rest as it is.
    """
    if _has_others(column):
        return named(column.cast(pa.string()))
    if pa.types.is_timestamp(column.type):
        zone = "+00:00" if column.type.tz else ""
        text = pc.strftime(column.cast(pa.timestamp("us")), "%Y-%m-%dT%H:%M:%S")
        text = pc.replace_substring_regex(text, r"\.000000$", "")
        return pc.binary_join_element_wise(text, zone, "") if zone else text
    if pa.types.is_temporal(column.type):
        return column.cast(pa.string())
    if pa.types.is_list(column.type):
        return pa.array([None if each is None else json.dumps(each) for each in _values(column)])
    return column


def _wide(digits: tuple[int, int] | None) -> pa.DataType | None:
    """Give the decimal of so many digits, if Arrow has it."""
    if digits is None or not 0 <= digits[1] <= digits[0] <= 38:
        return None
    return pa.decimal128(*digits)
