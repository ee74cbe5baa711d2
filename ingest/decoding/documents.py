"""Documents: a JSON object in UTF-8, as what the columns declare; or why it is not.

It is parsed as a variant, which refuses what from_json lets through or changes in silence: single
quotes, a key twice, half a surrogate pair, a number where a text is declared.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from etl_procs.columns import Column, Type
from ingest.decoding.entries import TEXT
from ingest.decoding.texts import BROKEN, KEPT, MORE, told

# The kinds of a JSON value, as Spark names them, that fit each type; as LIKE patterns.
FITTING = {
    Type.INTEGER: ("BIGINT",),
    Type.REAL: ("DECIMAL%", "DOUBLE", "BIGINT"),
    Type.TEXT: ("STRING",),
}
VARIANT_TYPES = {Type.INTEGER: "bigint", Type.REAL: "double", Type.TEXT: "string"}

END = "7193402571"
"""Comes after the document, to see that nothing else does; any number that is rare in documents."""


def typed(entries: DataFrame, columns: Sequence[Column], *, more: bool) -> DataFrame:
    """Give the columns of entries, FAULT and BROKEN; and `more`: MORE and KEPT."""
    # JSON parsers stop after the first document, and junk may follow it.
    wrapped = F.concat(F.lit("["), F.col(TEXT), F.lit(f",{END}]"))
    names = ", ".join(f"{column.name}: variant" for column in columns)
    parsed = (
        entries.withColumn("_wrapped", F.try_parse_json(wrapped))
        .withColumn("_alone", _alone())
        .withColumn("_object", F.try_variant_get("_wrapped", "$[0]", f"struct<{names}>"))
    )
    fields = [F.col(f"_object.{column.name}") for column in columns]
    values = parsed.select(
        "*", *(_value(c, f).alias(c.name) for c, f in zip(columns, fields, strict=True))
    )
    nulls = [field.isNull() | F.is_variant_null(field) for field in fields]
    broken = F.when(~F.coalesce("_alone", F.lit(False)), F.lit("not JSON")).when(
        F.col("_object").isNull(), F.lit("not a JSON object")
    )
    faulty = told(values, columns, nulls, [F.to_json(field) for field in fields]).withColumn(
        BROKEN, broken
    )
    if not more:
        return faulty
    known = [column.name for column in columns]
    every = F.try_variant_get("_wrapped", "$[0]", "map<string, variant>")
    found = faulty.withColumn("_unknown", F.map_filter(every, lambda key, _: ~key.isin(known)))
    some = F.size("_unknown") > 0
    return found.withColumn(MORE, F.when(some, F.map_keys("_unknown"))).withColumn(
        KEPT, F.when(some, F.to_json("_unknown"))
    )


def _alone() -> Expression:
    end = F.to_json(F.try_variant_get("_wrapped", "$[1]", "variant")) == END
    # After a document in an array comes `,` or `]`, in an object `,"key":` or `}`: no junk is
    # taken by both.
    in_array = F.json_array_length(F.concat(F.lit("["), TEXT, F.lit(",0]"))) == 2
    in_object = F.try_parse_json(F.concat(F.lit('{"a":'), TEXT, F.lit("}"))).isNotNull()
    return F.when(F.contains(TEXT, F.lit(END)), in_array & in_object).otherwise(end)


def _value(column: Column, field: Expression) -> Expression:
    kind = F.schema_of_variant(field)
    fits = reduce(Expression.__or__, (kind.like(pattern) for pattern in FITTING[column.type]))
    return F.when(fits, F.try_variant_get(field, "$", VARIANT_TYPES[column.type]))
