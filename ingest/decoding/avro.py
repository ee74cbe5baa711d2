"""Avro: data of a record type, one by one, each as a JSON object of the same fields.

Spark's own reader of Avro is a package that is not to be had for this version; fastavro reads it.
"""

import io
import json
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader

from etl_procs.schema import parsed
from ingest.decoding import documents
from ingest.decoding.entries import Entries
from ingest.decoding.heads import Heads

REASON_CHARACTERS = 200


class Datum(NamedTuple):
    """The bytes of a datum, and what is in it or why it is not read."""

    value: bytes | None
    held: Any = None
    reason: str = ""


class Reader:
    """Reads data that one schema describes."""

    def __init__(self, schema: str) -> None:
        self._schema = parsed(json.loads(schema))

    def entries(self, values: pa.BinaryArray, heads: Heads) -> Entries:
        """Cut the values of records with heads, and read what is in them."""
        cut: list[Datum] = []
        record: list[int] = []
        counts: list[int] = []
        for row, value in enumerate(values.to_pylist()):
            said = value is None or row in heads.reasons or row in heads.marks
            of = [Datum(value)] if said else self.data(value, max(1, int(heads.frame[row])))
            cut += of
            record += [row] * len(of)
            counts.append(len(of))
        size = np.array(counts, np.int64)
        number = np.arange(len(cut)) - (np.cumsum(size) - size)[record]
        is_none = (size == 1) & (heads.frame > 1)
        return Entries(
            np.array(record, np.int64),
            number,
            number == size[record] - 1,
            ~is_none[record],
            pa.array([datum.value for datum in cut], pa.binary()),
            (),
            {row: datum.reason for row, datum in enumerate(cut) if datum.reason},
            [datum.held for datum in cut],
        )

    def data(self, value: bytes, count: int) -> list[Datum]:
        """Cut a value into its data; after a bad one, nothing can be told apart."""
        held = io.BytesIO(value)
        found: list[Datum] = []
        for _ in range(count):
            start = held.tell()
            try:
                datum = documents.plain(schemaless_reader(held, self._schema, None))
            except EOFError:
                if found and start == len(value):
                    return [Datum(value, None, f"has fewer data than {count}")]
                return [*found, Datum(value[start:], None, "not Avro: it ends within a datum")]
            except Exception as error:  # noqa: BLE001 - strange bytes raise whatever they hit
                reason = f"not Avro: {error}"[:REASON_CHARACTERS]
                return [*found, Datum(value[start:], None, reason)]
            found.append(Datum(value[start : held.tell()], datum))
        if held.tell() < len(value):
            return [Datum(value, None, f"has more bytes than {count} data by its schema")]
        return found
