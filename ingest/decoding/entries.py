"""Entries: what a record holds, one by one: a tuple each, each in its place and with its number.

A plain record is one entry, and so is one that its head makes a punctuation or a dead letter. A
frame holds as many as its header says, and an empty one of them is no tuple.
"""

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from etl_procs.batch import (
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
from ingest.decoding.heads import FRAME, TIME
from ingest.records import SEPARATOR

TEXT = "_text"
"""What is to be decoded; null where that is done, for the entry is no tuple or has a reason."""

TOMBSTONE = "no value: a tombstone is not a tuple"
BYTEWISE = "ISO-8859-1"
"""In it, every byte is a character."""


def entries(heads: DataFrame) -> DataFrame:
    """Give the entries of records with heads: the columns of ARRIVAL, TIME and TEXT."""
    separator, text = SEPARATOR.decode(), F.col("value").cast("string")
    framed = F.col(FRAME).isNotNull() & F.col(REASON).isNull() & F.col("value").isNotNull()
    # Splitting makes U+FFFD of what is not UTF-8.
    most = F.col(FRAME) + 1
    parts = F.when(F.col("_utf8"), F.split(text, separator, most)).otherwise(
        F.split(F.decode("value", BYTEWISE), separator, most)
    )
    split = (
        heads.withColumn("_utf8", F.is_valid_utf8(text))
        .withColumn("_parts", F.when(framed, parts))
        .withColumn("_whole", ~F.coalesce(F.size("_parts") == F.col(FRAME), F.lit(False)))
    )
    each = split.select(
        "*",
        F.posexplode(F.when(F.col("_whole"), F.array(text)).otherwise(F.col("_parts"))).alias(
            "_index", "_entry"
        ),
    )
    bytewise = ~F.col("_utf8") & ~F.col("_whole")
    bytes_ = F.when(bytewise, F.encode("_entry", BYTEWISE)).otherwise(
        F.col("_entry").cast("binary")
    )
    last = F.col("_whole") | (F.col("_index") == F.col(FRAME) - 1)
    nothing = F.col("_entry") == ""
    mark = F.coalesce(MARK, F.when(~F.col("_whole") & nothing, F.lit(NOTHING)))
    # A frame that is not one uses up no number: who sends it again, right this time, is heard.
    is_none = F.col("_whole") & F.col(FRAME).isNotNull()
    cut = each.withColumn(SEQ, F.when(~is_none, F.col(SEQ))).select(
        *placed(last),
        bytes_.alias(VALUE),
        mark.alias(MARK),
        _miscounted().alias(REASON),
        SOURCE,
        TIME,
        F.when(bytewise, F.is_valid_utf8(bytes_.cast("string")))
        .otherwise(F.col("_utf8"))
        .alias("_utf8"),
    )
    reason = F.coalesce(
        REASON,
        F.when(F.col(VALUE).isNull(), F.lit(TOMBSTONE)).when(~F.col("_utf8"), F.lit("not UTF-8")),
    )
    said = cut.withColumn(REASON, F.when(F.col(MARK).isNull(), reason))
    good = F.col(MARK).isNull() & F.col(REASON).isNull()
    return said.withColumn(TEXT, F.when(good, F.col(VALUE).cast("string")))


def placed(last: Expression) -> list[Expression]:
    """Tell where the entry of an `_index` is, and its number in its source."""
    index = F.when(last, LAST).otherwise(F.col("_index"))
    return [
        F.col("partition").alias(PARTITION),
        (F.shiftleft("offset", INDEX_BITS) + index).alias(PLACE),
        (F.col(SEQ) + F.col("_index")).alias(SEQ),
    ]


def _miscounted() -> Expression:
    return F.coalesce(
        REASON,
        F.when(
            F.col("_whole") & F.col("_parts").isNotNull(),
            F.concat(
                F.lit("not the tuples that its header `frame` says: "), F.col(FRAME).cast("string")
            ),
        ),
    )
