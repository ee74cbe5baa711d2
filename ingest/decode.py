"""Decoding: Kafka records into typed columns, in Spark, or the reasons why not.

Spark hands many records at once to Python, as Arrow, and gets back one table of all that is in
them, as bytes: there are neither rows nor columns that Spark would have to know of, so its plan is
small, and the same for all streams.
"""

import gc
from collections.abc import Callable
from functools import cache

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.functions import arrow_udf

from etl_procs.model import Stream
from headrace import arrow
from ingest.decoding.decoder import Decoder, schema_of

RECORD = ("partition", "offset", "value", "headers")
TABLE = "tuples"
"""Holds a table in the row of the first of the records that it was made of."""


def decoded(records: DataFrame, stream: Stream) -> DataFrame:
    """Turn Kafka records into what `gathered` makes tables of."""
    given = arrow_udf(decoding(stream), "binary")  # type: ignore[call-overload] # its hints tell
    # What it gives for a record depends on those beside it. Otherwise Spark would ask what is not
    # null, and then again of these alone.
    tables = records.select(given.asNondeterministic()(*RECORD).alias(TABLE))
    return tables.where(F.col(TABLE).isNotNull())


def decoding(stream: Stream) -> Callable[[pa.Array, pa.Array, pa.Array, pa.Array], pa.Array]:
    """Make what Spark's Python does with records."""
    decoder = Decoder(stream)

    def decode(partition: pa.Array, offset: pa.Array, value: pa.Array, of: pa.Array) -> pa.Array:
        if not len(value):
            return pa.nulls(0, pa.binary())
        tuples = decoder.decode(partition, offset, value, of)
        held = arrow.to_bytes(pa.Table.from_batches([tuples]), compressed=True)
        _settle()
        return pa.array([held, *[None] * (len(value) - 1)], pa.binary())

    return decode


@cache
def _settle() -> None:
    """Take what is loaded out of what Spark has Python clean up after each task: pandas among it,
    which Arrow loads when it first decodes.
    """
    gc.freeze()


def gathered(tables: pa.Table, stream: Stream) -> pa.Table:
    """Give what was decoded: ARRIVAL, and the stream's columns."""
    held = [arrow.from_bytes(of.as_buffer()) for of in tables[TABLE]]
    return pa.concat_tables([schema_of(stream).empty_table(), *held])
