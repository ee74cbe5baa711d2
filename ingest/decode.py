"""Decoding: a Kafka record's bytes into typed columns, in Spark, or the reason why not.

A tuple is one JSON object in UTF-8. It is parsed as a variant, which refuses what from_json lets
through or changes in silence: single quotes, a key twice, half a surrogate pair, a number where a
text is declared.
"""

from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from etl_procs.batch import INDEX_BITS, LAST, MARK, PARTITION, PLACE, REASON, SEQ, SOURCE, VALUE
from etl_procs.columns import Column, Type
from etl_procs.model import Stream
from ingest.records import PUNCTUATION

TEXT, DOCUMENT = "_text", "_document"

NO_BATCH_ID = "its header `punctuation` is no batch id: a whole number"

SHOWN_CHARACTERS = 100
"""How much of a value its reason quotes; the dead letter holds all of its bytes."""

# The kinds of a JSON value, as Spark names them, that fit each type; as LIKE patterns.
FITTING = {
    Type.INTEGER: ("BIGINT",),
    Type.REAL: ("BIGINT", "DOUBLE", "DECIMAL%"),
    Type.TEXT: ("STRING",),
}
NEEDED = {
    Type.INTEGER: "INTEGER (64 bits, no point, no exponent)",  # Spark writes 5.0 as 5
    Type.REAL: "REAL",
    Type.TEXT: "TEXT",
}
VARIANT_TYPES = {Type.INTEGER: "bigint", Type.REAL: "double", Type.TEXT: "string"}


def decoded(records: DataFrame, stream: Stream) -> DataFrame:
    """Turn Kafka records into what the core takes: position, bytes, reason, and the columns."""
    text = F.col("value").cast("string")
    parsed = records.withColumn(TEXT, F.when(F.is_valid_utf8(text), text)).withColumn(
        DOCUMENT, F.try_parse_json(TEXT)
    )
    columns = stream.columns.columns
    mark, bad_mark = _mark()
    reason = F.coalesce(_reason_of_document(), *map(_reason_of_column, columns))
    return parsed.select(
        F.col("partition").alias(PARTITION),
        (F.shiftleft("offset", INDEX_BITS) + LAST).alias(PLACE),
        F.col("value").alias(VALUE),
        F.when(bad_mark, F.lit(NO_BATCH_ID)).when(mark.isNull(), reason).alias(REASON),
        mark.alias(MARK),
        F.lit(None).cast("string").alias(SOURCE),
        F.lit(None).cast("bigint").alias(SEQ),
        *(
            F.try_variant_get(DOCUMENT, f"$.{c.name}", VARIANT_TYPES[c.type]).alias(c.name)
            for c in columns
        ),
    )


def _mark() -> tuple[Expression, Expression]:
    """Find the batch that a record ends, if it is a punctuation; and whether it names none."""
    found = F.filter("headers", lambda header: header["key"] == PUNCTUATION)
    text = F.get(found, F.lit(0))["value"].cast("string")
    mark = F.when(text.rlike(r"^[0-9]{1,18}$"), text.cast("bigint"))
    return mark, (F.size(found) > 0) & mark.isNull()


def _reason_of_document() -> Expression:
    # JSON parsers stop after the first document, and junk may follow it. After a document in an
    # array comes `,` or `]`, in an object `,"key":` or `}`: no junk is taken by both.
    alone = (F.json_array_length(F.concat(F.lit("["), TEXT, F.lit(",0]"))) == 2) & F.try_parse_json(
        F.concat(F.lit('{"a":'), TEXT, F.lit("}"))
    ).isNotNull()
    return (
        F.when(F.col("value").isNull(), F.lit("no value: a tombstone is not a tuple"))
        .when(F.col(TEXT).isNull(), F.lit("not UTF-8"))
        .when(F.col(DOCUMENT).isNull() | ~F.coalesce(alone, F.lit(False)), F.lit("not JSON"))
        .when(~F.schema_of_variant(DOCUMENT).startswith("OBJECT<"), F.lit("not a JSON object"))
    )


def _reason_of_column(column: Column) -> Expression:
    field = F.try_variant_get(DOCUMENT, f"$.{column.name}", "variant")
    kind = F.schema_of_variant(field)
    absent = kind.isNull() | (kind == "VOID")
    fits = reduce(Expression.__or__, (kind.like(pattern) for pattern in FITTING[column.type]))
    reason = F.when(
        ~absent & ~fits,
        F.concat(
            F.lit(f"{column.name} is no {NEEDED[column.type]}: "),
            F.substring(F.to_json(field), 1, SHOWN_CHARACTERS),
        ),
    )
    if column.required:
        reason = reason.when(absent, F.lit(f"{column.name} is missing"))
    if column.type is Type.REAL:
        number = F.try_variant_get(DOCUMENT, f"$.{column.name}", "double")
        reason = reason.when(
            F.abs(number) == float("inf"), F.lit(f"{column.name} is larger than a REAL can be")
        )
    if column.type is Type.TEXT:
        text = F.try_variant_get(DOCUMENT, f"$.{column.name}", "string")
        reason = reason.when(F.instr(text, "\0") > 0, F.lit(f"{column.name} holds a NUL character"))
    return reason
