"""Documents: a JSON object in UTF-8, as what the columns declare; or why it is not.

from_json gives the values, and lets through or changes in silence what is no JSON, or does not fit:
junk after the document, half a surrogate pair, a number where a text is declared. Most documents
show at a glance that they have nothing of it. The others are parsed as a variant too, which takes
as long again, and is asked for what is in them.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from etl_procs.columns import Column, Type
from ingest.decoding.entries import TEXT
from ingest.decoding.texts import BROKEN, FAULT, KEPT, MORE, told

READ = {Type.INTEGER: "BIGINT", Type.REAL: "DOUBLE", Type.TEXT: "STRING"}
UNREAD = "_unread"
"""Has the text of a document that from_json could not read, or not all of it."""
OPTIONS = {
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": UNREAD,
}

END = "7193402571"
"""Comes after the document, to see that nothing else does; any number that is rare in documents."""
NOT_ALL = "a key is there twice, and not all of its values fit"
NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"


def typed(entries: DataFrame, columns: Sequence[Column], *, more: bool) -> DataFrame:
    """Give the columns of entries, FAULT and BROKEN; and `more`: MORE and KEPT."""
    read = entries.withColumn("_values", F.from_json(F.col(TEXT), _ddl(columns), OPTIONS))
    # JSON parsers stop after the first document, and junk may follow it.
    wrapped = F.try_parse_json(F.concat(F.lit("["), F.col(TEXT), F.lit(f",{END}]")))
    plain = F.lit(False) if more else F.coalesce(_is_plain(columns), F.lit(False))
    parsed = read.withColumn("_plain", plain).withColumn(
        "_wrapped", F.when(~F.col("_plain"), wrapped)
    )
    values = parsed.select("*", _alone().alias("_alone"), *(_value(column) for column in columns))
    fields = [_field(column) for column in columns]
    nulls = [field.isNull() | F.is_variant_null(field) for field in fields]
    broken = F.when(~F.coalesce("_alone", F.lit(False)), F.lit("not JSON")).when(
        ~F.startswith(F.expr(f"TRIM(LEADING ' \\t\\r\\n' FROM {TEXT})"), F.lit("{")),
        F.lit("not a JSON object"),
    )
    values = values.withColumn("_nul", ~F.col("_plain"))
    faulty = told(values, columns, nulls, _shown(columns))
    fault = F.coalesce(FAULT, F.when(F.col(f"_values.{UNREAD}").isNotNull(), F.lit(NOT_ALL)))
    faulty = faulty.withColumn(BROKEN, F.when(~F.col("_plain"), broken)).withColumn(FAULT, fault)
    if not more:
        return faulty
    known = [column.name for column in columns]
    every = F.try_variant_get("_wrapped", "$[0]", "map<string, variant>")
    found = faulty.withColumn("_unknown", F.map_filter(every, lambda key, _: ~key.isin(known)))
    some = F.size("_unknown") > 0
    return found.withColumn(MORE, F.when(some, F.map_keys("_unknown"))).withColumn(
        KEPT, F.when(some, F.to_json("_unknown"))
    )


def _shown(columns: Sequence[Column]) -> Callable[[Expression], Expression]:
    """Give a field as it is written: a variant writes 4.0 as 4."""
    held = F.array(*(F.to_json(_field(column)) for column in columns))
    paths = F.array(*(F.lit(f"$.{column.name}") for column in columns))

    def shown(index: Expression) -> Expression:
        value = F.get(held, index)
        is_number = (value >= "-") & (value < ":")
        return F.when(
            is_number, F.call_function("get_json_object", F.col(TEXT), F.get(paths, index))
        ).otherwise(value)

    return shown


def _is_plain(columns: Sequence[Column]) -> Expression:
    """Tell of a document that was read that it is one object and ends there, and holds nothing
    that has to be looked at again.
    """
    # Only at its end is there a brace that closes something: nothing can follow the document.
    before = F.octet_length(F.substring_index(TEXT, "}", 1))
    whole = F.startswith(TEXT, F.lit("{")) & (before == F.octet_length(TEXT) - 1)
    read = F.col(f"_values.{UNREAD}").isNull() & ~F.contains(TEXT, F.lit("\\u"))
    texts = [F.col(f"_values.{c.name}") for c in columns if c.type is Type.TEXT]
    surely = [F.coalesce(_is_surely_text(text), F.lit(True)) for text in texts]
    return reduce(and_, surely, whole & read)


def _is_surely_text(value: Expression) -> Expression:
    """Tell that from_json made it of a text, and not of a number, or of something longer."""
    may_be_number = (value >= "-") & (value < ":") & F.rlike(value, F.lit(NUMBER))
    # It writes a number beyond all bounds as "Infinity", with the quotes.
    may_be_other = reduce(or_, [F.startswith(value, F.lit(first)) for first in '{["'])
    return ~(may_be_number | may_be_other | value.isin("true", "false"))


def _alone() -> Expression:
    end = F.to_json(F.try_variant_get("_wrapped", "$[1]", "variant")) == END
    # After a document in an array comes `,` or `]`, in an object `,"key":` or `}`: no junk is
    # taken by both.
    in_array = F.json_array_length(F.concat(F.lit("["), TEXT, F.lit(",0]"))) == 2
    in_object = F.try_parse_json(F.concat(F.lit('{"a":'), TEXT, F.lit("}"))).isNotNull()
    return F.when(F.contains(TEXT, F.lit(END)), in_array & in_object).otherwise(end)


def _ddl(columns: Sequence[Column]) -> str:
    read = [f"{column.name} {READ[column.type]}" for column in columns]
    return ", ".join([*read, f"{UNREAD} STRING"])


def _value(column: Column) -> Expression:
    value = F.col(f"_values.{column.name}")
    if column.type is Type.TEXT:
        is_text = F.schema_of_variant(_field(column)) == "STRING"
        value = F.when(F.col("_plain") | is_text, value)
    return value.alias(column.name)


def _field(column: Column) -> Expression:
    return F.try_variant_get("_wrapped", f"$[0].{column.name}", "variant")
