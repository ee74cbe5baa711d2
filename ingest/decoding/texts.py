"""Texts: fields that are texts, as what the columns declare; or why they are not."""

from collections.abc import Callable, Sequence

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from etl_procs.columns import Column, Type

FIELDS, NULL, MORE, KEPT, BROKEN = "_fields", "_null", "_more", "_kept", "_broken"
"""What a format makes of an entry: its fields as texts; what of them is no value; the names of
unknown fields, if there are any, and all that is in them as JSON; why there are no fields."""
FAULT = "_fault"

SHOWN_CHARACTERS = 100
"""How much of a value its reason quotes; the dead letter holds all of its bytes."""

NEEDED = {
    Type.INTEGER: "INTEGER (64 bits, no point, no exponent)",
    Type.REAL: "REAL",
    Type.TEXT: "TEXT",
}
KINDS = 3
"""The faults of a field: it is missing, no value of its type, or one that is not held here."""
MISSING, UNFIT, BEYOND = range(KINDS)


def whole(text: Expression) -> Expression:
    """Read a whole number of 64 bits: digits with or without a sign; null for all else."""
    # Spark would pass over spaces and control characters at both ends.
    first = (text >= "+") & (text < ":")
    return F.when(first & _is_digit(_last(text)), text.try_cast("bigint"))


def real(text: Expression) -> Expression:
    """Read a number; null for all else, such as what only Java takes for one: NaN, 1d, 0x1p3."""
    last = _last(text)
    decimal = (
        (text >= "+")
        & (text < ":")
        & (_is_digit(last) | (last == F.lit(b".")))
        & ~F.contains(text, F.lit("x"))
        & ~F.contains(text, F.lit("X"))
    )
    return F.when(decimal, text.try_cast("double"))


def _last(text: Expression) -> Expression:
    """Give the last byte: that of a text would be looked for from its beginning."""
    return F.substring(text.cast("binary"), -1, 1)


def _is_digit(byte: Expression) -> Expression:
    return byte.between(F.lit(b"0"), F.lit(b"9"))


def _as_it_is(text: Expression) -> Expression:
    return text


READ = {Type.INTEGER: whole, Type.REAL: real, Type.TEXT: _as_it_is}


def typed(lines: DataFrame, columns: Sequence[Column], text: str) -> DataFrame:
    """Give lines that have the FIELDS of a `text` the columns, and as FAULT why they do not fit."""
    # As columns first: each is asked for several times.
    fields = [_field(F.lit(n)).alias(f"_field_{n}") for n in range(len(columns))]
    values = lines.select("*", *fields).select(
        "*", *(READ[c.type](F.col(f"_field_{n}")).alias(c.name) for n, c in enumerate(columns))
    )
    nulls = [_field(F.lit(n)).isNull() for n in range(len(columns))]
    nul = F.contains(text, F.lit("\0"))
    return told(values.withColumn("_nul", nul), columns, nulls, _field)


def _field(index: Expression) -> Expression:
    return F.nullif(F.get(FIELDS, index), F.col(NULL))


def told(
    values: DataFrame,
    columns: Sequence[Column],
    nulls: Sequence[Expression],
    shown: Callable[[Expression], Expression],
) -> DataFrame:
    """Add as FAULT what is wrong with the first column that does not fit.

    It has no value though its field is no null; the field of its index is then `shown`. A
    text is searched for NUL characters where `_nul` says that there may be some.
    """
    # As a number first, for the words are the same for all columns: code of its own for the words
    # of each would be more than the JVM compiles.
    code = F.coalesce(
        *(_code(KINDS * n, c, null) for n, (c, null) in enumerate(zip(columns, nulls, strict=True)))
    )
    words = F.array(*(F.lit(word) for column in columns for word in _words(column)))
    index = F.floor(F.col("_code") / KINDS).cast("int")
    value = F.substring(shown(index), 1, SHOWN_CHARACTERS)
    told = F.concat(
        F.get(words, F.col("_code")),
        F.when(F.col("_code") % KINDS == UNFIT, F.coalesce(value, F.lit(""))).otherwise(""),
    )
    return values.select("*", code.alias("_code")).select(
        "*", F.when(F.col("_code").isNotNull(), told).alias(FAULT)
    )


def _words(column: Column) -> list[str]:
    beyond = "is larger than a REAL can be" if column.type is Type.REAL else "holds a NUL character"
    return [
        f"{column.name} is missing",
        f"{column.name} is no {NEEDED[column.type]}: ",
        f"{column.name} {beyond}",
    ]


def _code(first: int, column: Column, null: Expression) -> Expression:
    value = F.col(column.name)
    unfit = F.when(~null, F.lit(first + UNFIT))
    code = F.when(value.isNull(), unfit.otherwise(first + MISSING) if column.required else unfit)
    if column.type is Type.REAL:
        return code.when(F.abs(value) == float("inf"), first + BEYOND)
    if column.type is Type.TEXT:
        return code.when(F.col("_nul") & F.contains(value, F.lit("\0")), first + BEYOND)
    return code


def unknown() -> Expression:
    """Say which fields are unknown, if there are any."""
    listed = F.substring(F.concat_ws(", ", MORE), 1, SHOWN_CHARACTERS)
    return F.when(F.col(MORE).isNotNull(), F.concat(F.lit("unknown fields: "), listed))
