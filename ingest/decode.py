"""Decoding: Kafka records into typed columns, in Spark, or the reasons why not.

Spark hands many records at once to Python, as Arrow, and gets back one table of all that is in
them, as bytes: there are neither rows nor columns that Spark would have to know of, so its plan is
small, and the same for all streams.
"""

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere
from pyspark.sql.pandas.functions import arrow_udf

from etl_procs.model import Stream
from headrace import arrow
from ingest.decoding.decoder import Decoder, schema_of

RECORD = ("partition", "offset", "value", "headers")
PARTS = 4
"""Of nothing, which are decoded at the start: as many processes as have a core are started."""
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
        return pa.array([held, *[None] * (len(value) - 1)], pa.binary())

    return decode


def warm(session: SparkSession, stream: Stream) -> None:
    """Have Spark load and start what the first tuples would wait for, of any stream."""
    records = session.range(0, PARTS, numPartitions=PARTS).selectExpr(
        "0 AS partition",
        "id AS offset",
        "CAST('' AS BINARY) AS value",
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    )
    decoded(records, stream).toArrow()


def gathered(tables: pa.Table, stream: Stream) -> pa.Table:
    """Give what was decoded: ARRIVAL, and the stream's columns."""
    held = [arrow.from_bytes(of.as_buffer()) for of in tables[TABLE]]
    return pa.concat_tables([schema_of(stream).empty_table(), *held])
