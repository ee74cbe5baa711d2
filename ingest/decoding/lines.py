"""Lines: the fields of delimited and of fixed-width lines, as texts."""

import re
from itertools import accumulate

from pyspark.sql import Column as Expression
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from etl_procs.wire import Delimited, FixedWidth
from ingest.decoding.entries import TEXT
from ingest.decoding.texts import BROKEN, FIELDS, KEPT, MORE, NULL
from ingest.records import SEPARATOR

QUOTES_MAX = 10_000
"""Of a line: a line of nothing else would take a hundred times its size of memory."""
END = SEPARATOR.decode()
"""Stands between fields while quotes are taken away. No line has it: it could not be in a frame."""


def delimited(
    entries: DataFrame, format: Delimited, columns: int, *, unknown_max: int
) -> DataFrame:
    """Give the fields of lines with a separator, and with quotes or without.

    What comes after `columns` and `unknown_max` fields is one more field.
    """
    line, separator, most = F.col(TEXT), re.escape(format.separator), columns + unknown_max + 1
    fields, null = F.split(line, separator, most), F.lit(format.null)
    bad = F.lit(None).cast("string")
    if format.quote:
        quoted = F.contains(line, F.lit(format.quote))
        parts = F.split(line, re.escape(format.quote), QUOTES_MAX + 2)
        entries = (
            entries.withColumn("_parts", F.when(quoted, parts))
            .withColumn("_parts", F.when(F.size("_parts") <= QUOTES_MAX + 1, F.col("_parts")))
            .withColumn("_well", F.when(F.col("_parts").isNotNull(), _is_quoted_well(separator)))
        )
        bad = F.when(
            quoted & F.col("_parts").isNull(), F.lit(f"more than {QUOTES_MAX:,} quotes")
        ).when(quoted & ~F.col("_well"), F.lit("its quotes do not fit"))
        bare = F.when(F.col("_well"), _quoted(format, most))
        fields = F.when(quoted, bare).otherwise(fields)
        null = F.when(quoted, F.lit(None)).otherwise(null)
    given = F.size(FIELDS)
    few = F.concat(given.cast("string"), F.lit(f" fields, not {columns}"))
    return (
        entries.withColumn(FIELDS, fields)
        .withColumn(NULL, null)
        .withColumn(BROKEN, F.coalesce(_not_a_line(), bad, F.when(given < columns, few)))
        .withColumn(MORE, F.when(given > columns, F.slice(FIELDS, columns + 1, given)))
        .withColumn(KEPT, F.to_json(MORE))
    )


def fixed_width(entries: DataFrame, format: FixedWidth) -> DataFrame:
    """Give the fields of lines that have them at fixed places."""
    ends = list(accumulate(map(abs, format.widths)))
    fields = [
        F.trim(F.substring(TEXT, end - width + 1, width))
        for end, width in zip(ends, format.widths, strict=True)
        if width > 0
    ]
    rest = F.trim(F.substring(TEXT, ends[-1] + 1, 2**31 - 1))
    return (
        entries.withColumn(FIELDS, F.array(*fields))
        .withColumn(NULL, F.lit(""))
        .withColumn(BROKEN, _not_a_line())
        .withColumn(MORE, F.when(rest != "", F.array(rest)))
        .withColumn(KEPT, F.to_json(MORE))
    )


def _not_a_line() -> Expression:
    return F.when(F.col(TEXT) == "", F.lit("empty")).when(
        F.contains(TEXT, F.lit(END)), F.lit("holds the byte 0x1E, which ends a tuple")
    )


# Between quotes are the parts with an odd index. Those with an even one are outside: an empty one
# between two others is a quote that was written twice; any other holds separators at its ends.


def _is_quoted_well(separator: str) -> Expression:
    last = F.size("_parts") - 1

    def fits(part: Expression, index: Expression) -> Expression:
        fields = F.split(part, separator)
        inside = index % 2 == 1
        twice = (part == "") & (index > 0) & (index < last)
        begins = (index == 0) | (F.get(fields, F.lit(0)) == "")
        ends = (index == last) | (F.element_at(fields, -1) == "")
        alone = (part == "") | (F.size(fields) > 1)
        return inside | twice | (begins & ends & alone)

    bad = F.filter("_parts", lambda part, index: ~fits(part, index))
    return (last % 2 == 0) & (F.size(bad) == 0)


def _quoted(format: Delimited, most: int) -> Expression:
    """Take the quotes away; give null for what says so and was not quoted."""
    last = F.size("_parts") - 1

    def bare(part: Expression, index: Expression) -> Expression:
        outside = F.replace(part, F.lit(format.separator), F.lit(END))
        twice = (part == "") & (index > 0) & (index < last)
        # Every quoted field keeps its first quote, which tells it from one that is not.
        after = F.when(index < last, format.quote).otherwise("")
        return (
            F.when(index % 2 == 1, part)
            .when(twice, format.quote)
            .otherwise(F.concat(outside, after))
        )

    def read(field: Expression) -> Expression:
        unquoted = field if format.null is None else F.nullif(field, F.lit(format.null))
        return F.when(
            F.startswith(field, F.lit(format.quote)), F.substring(field, 2, 2**31 - 1)
        ).otherwise(unquoted)

    return F.transform(F.split(F.concat_ws("", F.transform("_parts", bare)), END, most), read)
