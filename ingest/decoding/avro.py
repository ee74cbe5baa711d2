"""Avro: data of a record type, one by one, each as a JSON object of the same fields.

Spark's own reader of Avro is a package that is not to be had for this version; fastavro reads it.
"""

import io
import json
import math
from typing import Any

import pyarrow as pa
from fastavro import schemaless_reader
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from etl_procs.batch import MARK, REASON, SEQ, SOURCE, VALUE
from etl_procs.schema import parsed
from etl_procs.wire import Avro
from ingest.decoding.entries import TEXT, TOMBSTONE, placed
from ingest.decoding.heads import FRAME, TIME

REASON_CHARACTERS = 200
DATUM = pa.struct([(VALUE, pa.binary()), (TEXT, pa.string()), (REASON, pa.string())])
Datum = dict[str, bytes | str]
"""The bytes of a datum, and what is in it as JSON or why it is not read."""


class Reader:
    """Reads data that one schema describes."""

    def __init__(self, schema: str) -> None:
        self._schema = parsed(json.loads(schema))

    def data(self, value: bytes, count: int) -> list[Datum]:
        """Cut a value into its data; after a bad one, nothing can be told apart."""
        held = io.BytesIO(value)
        found: list[Datum] = []
        for _ in range(count):
            start = held.tell()
            try:
                datum = schemaless_reader(held, self._schema, None)
                text = json.dumps(_as_json(datum), ensure_ascii=False, allow_nan=False)
            except EOFError:
                if found and start == len(value):
                    return [{VALUE: value, REASON: f"has fewer data than {count}"}]
                return [*found, {VALUE: value[start:], REASON: "not Avro: it ends within a datum"}]
            except Exception as error:  # noqa: BLE001 - strange bytes raise whatever they hit
                reason = f"not Avro: {error}"[:REASON_CHARACTERS]
                return [*found, {VALUE: value[start:], REASON: reason}]
            found.append({VALUE: value[start : held.tell()], TEXT: text})
        if held.tell() < len(value):
            return [{VALUE: value, REASON: f"has more bytes than {count} data by its schema"}]
        return found


def entries(heads: DataFrame, format: Avro) -> DataFrame:
    """Give the entries of records with heads: the columns of ARRIVAL, TIME and TEXT."""
    reader = Reader(format.schema)

    def cut(values: pa.Array, counts: pa.Array) -> pa.Array:
        both = zip(values.to_pylist(), counts.to_pylist(), strict=True)
        return pa.array(
            [None if value is None else reader.data(value, count) for value, count in both],
            pa.list_(DATUM),
        )

    asked = F.when(F.col(MARK).isNull() & F.col(REASON).isNull(), F.col("value"))
    given = from_arrow_type(pa.list_(DATUM))
    read = arrow_udf(cut, given)  # type: ignore[call-overload] # its kind is told by its hints
    data = read(asked, F.coalesce(FRAME, F.lit(1)))
    nothing = F.lit(None).cast("string")
    whole = F.struct(F.col("value").alias(VALUE), nothing.alias(TEXT), nothing.alias(REASON))
    each = heads.withColumn("_data", data).select(
        "*", F.posexplode(F.coalesce("_data", F.array(whole))).alias("_index", "_datum")
    )
    last = F.coalesce(F.col("_index") == F.size("_data") - 1, F.lit(True))
    tombstone = F.when(F.col("value").isNull() & F.col(MARK).isNull(), F.lit(TOMBSTONE))
    is_none = F.coalesce((F.size("_data") == 1) & (F.col(FRAME) > 1), F.lit(False))
    return each.withColumn(SEQ, F.when(~is_none, F.col(SEQ))).select(
        *placed(last),
        F.col("_datum")[VALUE].alias(VALUE),
        MARK,
        F.coalesce(REASON, F.col("_datum")[REASON], tombstone).alias(REASON),
        SOURCE,
        TIME,
        F.col("_datum")[TEXT].alias(TEXT),
    )


def _as_json(datum: Any) -> Any:
    """Write what JSON does not have as something that fits no column."""
    if isinstance(datum, dict):
        return {key: _as_json(value) for key, value in datum.items()}
    if isinstance(datum, list):
        return [_as_json(value) for value in datum]
    if isinstance(datum, bytes):
        return {"bytes": datum.hex()}
    if isinstance(datum, float) and not math.isfinite(datum):
        return {"number": str(datum)}
    return datum
