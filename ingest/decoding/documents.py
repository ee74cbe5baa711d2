"""Documents: a JSON object in UTF-8, as what the columns declare; or why it is not.

It is read twice, for its values and for its rules, which is faster than getting values out of a
variant. from_json gives the values; parsing it as a variant refuses what from_json lets through or
changes in silence: single quotes, a key twice, half a surrogate pair, junk after the document, a
number where a text is declared.
"""

from collections.abc import Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from etl_procs.columns import Column, Type
from ingest.decoding.entries import TEXT
from ingest.decoding.texts import BROKEN, KEPT, MORE, told

READ = {Type.INTEGER: "BIGINT", Type.REAL: "DOUBLE", Type.TEXT: "STRING"}
OPTIONS = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", "mode": "PERMISSIVE"}

END = "7193402571"
"""Comes after the document, to see that nothing else does; any number that is rare in documents."""


def typed(entries: DataFrame, columns: Sequence[Column], *, more: bool) -> DataFrame:
    """Give the columns of entries, FAULT and BROKEN; and `more`: MORE and KEPT."""
    # JSON parsers stop after the first document, and junk may follow it.
    wrapped = F.concat(F.lit("["), F.col(TEXT), F.lit(f",{END}]"))
    parsed = (
        entries.withColumn("_wrapped", F.try_parse_json(wrapped))
        .withColumn("_texts", F.try_variant_get("_wrapped", "$[0]", _struct_of_texts(columns)))
        .withColumn("_values", F.from_json(F.col(TEXT), _ddl(columns), OPTIONS))
    )
    values = parsed.select("*", _alone().alias("_alone"), *(_value(column) for column in columns))
    fields = [F.try_variant_get("_wrapped", f"$[0].{c.name}", "variant") for c in columns]
    nulls = [field.isNull() | F.is_variant_null(field) for field in fields]
    broken = F.when(~F.coalesce("_alone", F.lit(False)), F.lit("not JSON")).when(
        ~F.startswith(F.expr(f"TRIM(LEADING ' \\t\\r\\n' FROM {TEXT})"), F.lit("{")),
        F.lit("not a JSON object"),
    )
    shown = F.array(*(F.to_json(field) for field in fields))
    faulty = told(values, columns, nulls, lambda index: F.get(shown, index))
    faulty = faulty.withColumn(BROKEN, broken)
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


def _struct_of_texts(columns: Sequence[Column]) -> str:
    texts = (f"{column.name}: variant" for column in columns if column.type is Type.TEXT)
    return f"struct<{', '.join(texts)}>"


def _ddl(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name} {READ[column.type]}" for column in columns)


def _value(column: Column) -> Expression:
    value = F.col(f"_values.{column.name}")
    if column.type is Type.TEXT:  # from_json would make texts of numbers
        kind = F.schema_of_variant(F.col(f"_texts.{column.name}"))
        value = F.when(kind == "STRING", value)
    return value.alias(column.name)
