"""Decoding: Kafka records into typed columns, in Spark, or the reasons why not.

Spark hands many records at once to Python, as Arrow, and gets back one table of all that is in
them, as bytes: there are neither rows nor columns that Spark would have to know of, so its plan is
small, and the same for all streams.
"""

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.functions import arrow_udf

from etl_procs.model import Stream
from ingest.decoding.decoder import Decoder, schema_of

RECORD = ("partition", "offset", "value", "headers")
TABLE = "tuples"
"""Holds a table in the row of the first of the records that it was made of."""


def decoded(records: DataFrame, stream: Stream) -> DataFrame:
    """Turn Kafka records into what `gathered` makes tables of."""
    decoder = Decoder(stream)

    def decode(partition: pa.Array, offset: pa.Array, value: pa.Array, of: pa.Array) -> pa.Array:
        if not len(value):
            return pa.nulls(0, pa.binary())
        tuples = decoder.decode(partition, offset, value, of)
        held = pa.BufferOutputStream()
        with pa.ipc.new_stream(held, tuples.schema) as stream:
            stream.write_batch(tuples)
        return pa.array([held.getvalue().to_pybytes(), *[None] * (len(value) - 1)], pa.binary())

    given = arrow_udf(decode, "binary")  # type: ignore[call-overload] # its kind is told by its hints
    # What it gives for a record depends on those beside it. Otherwise Spark would ask what is not
    # null, and then again of these alone.
    tables = records.select(given.asNondeterministic()(*RECORD).alias(TABLE))
    return tables.where(F.col(TABLE).isNotNull())


def gathered(tables: pa.Table, stream: Stream) -> pa.Table:
    """Give what was decoded: ARRIVAL, and the stream's columns."""
    return pa.Table.from_batches(_batches(tables), schema_of(stream))


def _batches(tables: pa.Table) -> Iterable[pa.RecordBatch]:
    for held in tables[TABLE]:
        with pa.ipc.open_stream(held.as_buffer()) as batches:
            yield from batches
