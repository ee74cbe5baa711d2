"""The decoder of a stream: of Kafka records, the tuples that are in them.

A record's head says what is in it (heads), its value is cut into entries (entries; avro), and each
entry is read by the stream's format (documents; lines; elements).
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import (
    ARRIVAL,
    INDEX_BITS,
    LAST,
    MARK,
    NOTHING,
    PARTITION,
    PLACE,
    REASON,
    SEQ,
    SOURCE,
    VALUE,
)
from etl_procs.model import Stream
from etl_procs.wire import Avro, Delimited, FixedWidth, Json, Unknown, Xml
from ingest.decoding import avro, documents, elements, lines, texts
from ingest.decoding.entries import Entries, entries
from ingest.decoding.heads import Heads, Reader
from ingest.decoding.texts import SHOWN_CHARACTERS, Read

UNKNOWN_FIELDS_MAX = 1_000
"""Of a line, where they are kept."""
REASON_CHARACTERS = 200
TOMBSTONE = "no value: a tombstone is not a tuple"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def schema_of(stream: Stream) -> pa.Schema:
    """Tell what is given of a stream."""
    return pa.schema([*ARRIVAL, *stream.columns.arrow])


class Decoder:
    """Decodes the records of one stream. It is sent to Spark's executors: nothing of a user's."""

    def __init__(self, stream: Stream) -> None:
        wire = stream.wire
        self._heads = Reader(stream.batches)
        self._format = wire.format
        self._rejects = wire.unknown is Unknown.REJECT
        self._kept = str(wire.unknown) if isinstance(wire.unknown, str) else ""
        self._time = wire.time
        self._columns = stream.columns.columns
        self._schema = schema_of(stream)
        self._body = [c for c in self._columns if c.name not in (self._time, self._kept)]
        self._avro = avro.Reader(self._format.schema) if isinstance(self._format, Avro) else None
        self._elements = (
            elements.Reader(self._format, self._body) if isinstance(self._format, Xml) else None
        )

    def decode(
        self, partition: pa.Array, offset: pa.Array, value: pa.Array, headers: pa.Array
    ) -> pa.RecordBatch:
        """Give what is in records: ARRIVAL, and the stream's columns.

        Whatever a record is, the others are read. One that we fail at is a dead letter.
        """
        columns = partition, offset, value, headers
        try:
            return self._decode(*columns)
        except MemoryError:
            raise  # that is no record's fault
        except Exception as error:  # noqa: BLE001 - what it is, we did not foresee
            if len(value) == 1:
                return self._failed(partition, offset, value, error)
        middle = len(value) // 2
        halves = slice(None, middle), slice(middle, None)
        return pa.concat_batches([self.decode(*(of[half] for of in columns)) for half in halves])

    def _failed(
        self, partition: pa.Array, offset: pa.Array, value: pa.Array, error: Exception
    ) -> pa.RecordBatch:
        """Give a record that could not be read."""
        place = offset[0].as_py() << INDEX_BITS | LAST
        given = {
            PARTITION: partition,
            PLACE: pa.array([place]),
            VALUE: value,
            REASON: pa.array([f"cannot be read: {error}"[:REASON_CHARACTERS]]),
        }
        nothing = {field.name: pa.nulls(1, field.type) for field in self._schema}
        return pa.RecordBatch.from_pydict(nothing | given, self._schema)

    def _decode(
        self, partition: pa.Array, offset: pa.Array, value: pa.Array, headers: pa.Array
    ) -> pa.RecordBatch:
        heads = self._heads.read(headers, value)
        cut = entries(value, heads) if self._avro is None else self._avro.entries(value, heads)
        count, record = len(cut.values), pa.array(cut.record)
        marks, reasons = _said(cut, heads)
        is_tuple = np.ones(count, bool)
        is_tuple[[*marks, *reasons]] = False
        read = self._read(cut, is_tuple, reasons)
        place = offset.to_numpy()[cut.record] << INDEX_BITS
        given = {
            PARTITION: partition.take(record),
            PLACE: pa.array(place + np.where(cut.is_last, LAST, cut.number)),
            VALUE: cut.values,
            MARK: _sparse(marks, count, pa.int64()),
            SOURCE: heads.source.dictionary_encode().take(record),
            SEQ: pc.add(heads.seq.take(record), pa.array(cut.number, mask=~cut.is_numbered)),
            **dict(zip((c.name for c in self._body), read.values, strict=True)),
        }
        if self._time:
            given[self._time] = heads.time.take(record)
        if self._kept:
            kept = {row: more.kept for row, more in read.more.items()}
            given[self._kept] = _sparse(kept, count, pa.string())
        faults = {**self._faults(read, given, is_tuple), **read.faults}
        given[REASON] = _sparse(faults | reasons, count, pa.string())
        return pa.RecordBatch.from_arrays(
            [given[name] for name in self._schema.names], schema=self._schema
        )

    def keys(self, name: str, values: list[bytes]) -> list[str | None]:
        """Give the text of a column in tuples; None in what does not decode."""
        count = len(values)
        at, headers = pa.array(np.zeros(count, np.int64)), pa.nulls(count, HEADERS)
        read = self.decode(at.cast(pa.int32()), at, pa.array(values, pa.binary()), headers)
        keys = pc.if_else(read[REASON].is_null(), read[name], None).to_pylist()
        return [None if key is None else str(key) for key in keys]

    @property
    def _knows_more(self) -> bool:
        return self._rejects or bool(self._kept)

    def _read(self, cut: Entries, is_tuple: np.ndarray, reasons: dict[int, str]) -> Read:
        """Read the entries that are tuples by now; note in `reasons` which are no texts."""
        if cut.data is not None:
            return documents.typed(cut.data, None, self._body, more=self._knows_more)
        bodies = texts.decoded(cut.values, is_tuple, reasons)
        match self._format:
            case Json():
                return documents.read(bodies, self._body, more=self._knows_more)
            case Delimited() as form:
                most = UNKNOWN_FIELDS_MAX if self._kept else 0
                fields = lines.delimited(bodies, form, len(self._body), unknown_max=most)
            case FixedWidth() as form:
                fields = lines.fixed_width(bodies, form)
            case _:
                assert self._elements is not None, "it is XML"
                fields = self._elements.fields(bodies)
        return texts.typed(fields, bodies, self._body)

    def _faults(
        self, read: Read, given: Mapping[str, pa.Array], is_tuple: np.ndarray
    ) -> dict[int, str]:
        """Tell what is wrong with tuples beside what is in their columns."""
        faults: dict[int, str] = {}
        if self._rejects:
            for row, more in read.more.items():
                faults[row] = f"unknown fields: {', '.join(more.names)[:SHOWN_CHARACTERS]}"
        for column in self._columns:
            if column.required and column not in self._body:
                lacking = is_tuple & texts.flags(given[column.name].is_null())
                texts.add(faults, texts.rows(lacking), texts.missing(column))
        return faults


def _said(cut: Entries, heads: Heads) -> tuple[dict[int, int], dict[int, str]]:
    """Tell which entries are no tuples, and which are bad whatever is in them."""
    marks, reasons = dict.fromkeys(cut.nothing, NOTHING), dict(cut.reasons)
    if heads.marks or heads.reasons:  # each has one entry
        first = np.searchsorted(cut.record, np.arange(len(heads.seq))).tolist()
        marks |= {first[record]: mark for record, mark in heads.marks.items()}
        reasons |= {first[record]: reason for record, reason in heads.reasons.items()}
    if cut.values.null_count:
        lacking = texts.rows(texts.flags(cut.values.is_null()))
        texts.add(reasons, (row for row in lacking if row not in marks), TOMBSTONE)
    return marks, reasons


def _sparse(values: Mapping[int, object], count: int, type_: pa.DataType) -> pa.Array:
    """Make an array of a few values; the others are null."""
    if not values:
        return pa.nulls(count, type_)
    every: list[object] = [None] * count
    for row, value in values.items():
        every[row] = value
    return pa.array(every, type_)
