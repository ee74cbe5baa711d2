"""Decoding: Kafka records into typed columns, in Spark, or the reasons why not.

A record's head says what is in it (heads), its value is cut into entries (entries), and each entry
is read by the stream's format (documents; lines; elements; avro).
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from etl_procs.batch import ARRIVAL, REASON
from etl_procs.columns import Column
from etl_procs.model import Stream
from etl_procs.wire import Avro, Delimited, FixedWidth, Json, Unknown, Wire, Xml
from ingest.decoding import avro, documents, elements, lines, texts
from ingest.decoding.entries import TEXT, entries
from ingest.decoding.heads import TIME, headed
from ingest.decoding.texts import BROKEN, FAULT, KEPT

UNKNOWN_FIELDS_MAX = 1_000
"""Of a line, where they are kept."""


def decoded(records: DataFrame, stream: Stream) -> DataFrame:
    """Turn Kafka records into what the core takes: ARRIVAL, and the stream's columns."""
    wire, columns = stream.wire, stream.columns.columns
    kept = wire.unknown if isinstance(wire.unknown, str) else ""
    body = [column for column in columns if column.name not in (wire.time, kept)]
    typed = _typed(headed(records, stream), wire, body)
    if kept:
        typed = typed.withColumn(kept, F.col(KEPT))
    if wire.time:
        typed = typed.withColumn(wire.time, F.col(TIME))
    faults = [F.col(BROKEN), F.col(FAULT)]
    if wire.unknown is Unknown.REJECT:
        faults.append(texts.unknown())
    for column in columns:
        if column.required and column not in body:
            absent = F.col(column.name).isNull()
            faults.append(F.when(absent, F.lit(f"{column.name} is missing")))
    fault = F.when(F.col(TEXT).isNotNull(), F.coalesce(*faults))
    return typed.withColumn(REASON, F.coalesce(REASON, fault)).select(
        *ARRIVAL.names, *stream.columns.names
    )


def _typed(heads: DataFrame, wire: Wire, columns: Sequence[Column]) -> DataFrame:
    """Give each entry the columns that are in its body, as its format has them."""
    more = wire.unknown is not Unknown.IGNORE
    match wire.format:
        case Json():
            return documents.typed(entries(heads), columns, more=more)
        case Avro():
            return documents.typed(avro.entries(heads, wire.format), columns, more=more)
        case Delimited():
            most = UNKNOWN_FIELDS_MAX if isinstance(wire.unknown, str) else 0
            given = lines.delimited(entries(heads), wire.format, len(columns), unknown_max=most)
        case FixedWidth():
            given = lines.fixed_width(entries(heads), wire.format)
        case Xml():
            given = elements.elements(entries(heads), wire.format, columns)
    return texts.typed(given, columns, TEXT)
