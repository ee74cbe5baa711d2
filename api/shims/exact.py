"""Exact: rows as PostgreSQL means them, of what its driver gives as Arrow."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from api.answer import ARROW, NUMERIC, Column, named
from api.errors import QueryRefused
from etl_procs.model import Outlet

FIRST, END = (pa.scalar(day, pa.int32()).cast(pa.date32()) for day in (-719_162, 2_932_897))
"""The first day of the year 1, and that of the year 10000."""


def exact(batch: pa.RecordBatch, columns: Sequence[Column], schema: pa.Schema) -> pa.RecordBatch:
    """Give rows as PostgreSQL means them; refuse what the driver has no values for."""
    given = []
    for values, column in zip(batch.columns, columns, strict=True):
        found = values.storage if isinstance(values, pa.ExtensionArray) else values
        if column.arrow != found.type:
            found = pc.cast(found, column.arrow)
        type_ = column.type.removesuffix("[]")
        if type_ == NUMERIC:
            found = _named(found)
        elif pa.types.is_temporal(ARROW.get(type_, pa.string())):
            _check_years(column, pc.list_flatten(found) if column.type != type_ else found)
        given.append(found)
    return pa.RecordBatch.from_arrays(given, schema=schema)


def _named(numbers: pa.Array) -> pa.Array:
    if not pa.types.is_list(numbers.type):
        return named(numbers)
    nothing = numbers.is_null() if numbers.null_count else None
    return pa.ListArray.from_arrays(numbers.offsets, named(numbers.values), mask=nothing)


def _check_years(column: Column, moments: pa.Array) -> None:
    """Refuse what is no date of the years 1 to 9999: what is infinite, the driver gives as some
    date long before them.
    """
    first, end = (day.cast(moments.type) for day in (FIRST, END))
    if pc.any(pc.or_(pc.less(moments, first), pc.greater_equal(moments, end))).as_py():
        raise QueryRefused(
            f"the column {column.name} has a {column.type} that is infinite, or not of the years 1 "
            "to 9999",
            hint="Have it told as text: cast it ::text.",
        )


def lendable(outlet: Outlet, batch: pa.RecordBatch) -> pa.Table:
    """Give rows that came of one engine as values of the table's columns, for another."""
    try:
        return pa.Table.from_batches([batch]).cast(outlet.columns.arrow)
    except pa.ArrowInvalid as error:
        raise QueryRefused(
            f"{outlet.full_name} has a value that cannot be brought to another warehouse: {error}",
            hint="Ask of this table alone, or leave such rows out of it.",
        ) from error
