"""The outlets: the warehouse's tables, and how the core's values become theirs.

The core has amounts as hundredths or as texts, booleans as numbers, and the days of versions as
numbers such as 20170707.
"""

import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.columns import Column, Type
from tpcdi.dataflow.sources import flow
from tpcdi.schema import TABLES

OUTLETS = {
    name: flow.outlet(name, table.columns, key=table.key, indexes=table.indexes)
    for name, table in TABLES.items()
}
STORED = {Type.BOOLEAN: Type.INTEGER, Type.DATE: Type.TEXT, Type.NUMERIC: Type.TEXT}
DAYS = ("effectivedate", "enddate")
PLACES = 2

SEVERAL: TypeAlias = pa.Array | pa.ChunkedArray


def stored(outlet: str) -> str:
    """Declare the columns of a table of the core that has an outlet's rows."""
    return ", ".join(
        f"{column.name} {_stored(column)}{' NOT NULL' if column.required else ''}"
        for column in OUTLETS[outlet].columns.columns
    )


def _stored(column: Column) -> str:
    kind = Type.INTEGER if column.name in DAYS else STORED.get(column.type, column.type)
    return kind.value


def shown(outlet: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """Give an outlet's row of what the core stores."""
    return {
        column.name: _shown(column, row[column.name]) for column in OUTLETS[outlet].columns.columns
    }


def _shown(column: Column, value: Any) -> Any:
    if column.name in DAYS:
        return date(value)
    if value is None:
        return None
    if column.type is Type.BOOLEAN:
        return bool(value)
    return Decimal(value) if column.type is Type.NUMERIC else value


def table(outlet: str, **columns: Any) -> pa.Table:
    """Make an outlet's rows of columns; one value stands for a column of it."""
    count = max(len(values) for values in columns.values() if hasattr(values, "__len__"))
    schema = OUTLETS[outlet].columns.arrow
    arrays = [_column(columns[field.name], field, count) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _column(values: Any, field: pa.Field, count: int) -> pa.Array:
    if not hasattr(values, "__len__"):
        return pa.repeat(pa.scalar(values, field.type), count)
    array = values if isinstance(values, SEVERAL) else pa.array(values)
    if pa.types.is_decimal(field.type) and pa.types.is_integer(array.type):
        return _in_hundredths(array, field.type)
    return pc.cast(array, field.type)


def _in_hundredths(values: SEVERAL, type_: pa.DataType) -> pa.Array:
    """Take integers for the digits of decimals with two places."""
    assert type_.scale == PLACES, type_
    whole = pc.cast(values, pa.decimal128(38, 0))
    array = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
    return pa.Array.from_buffers(type_, len(array), array.buffers(), array.null_count, array.offset)


def date(day: int) -> str:
    """Write a day, which is a number, as a date."""
    return f"{day // 10_000:04}-{day // 100 % 100:02}-{day % 100:02}"


def is_day(written: str) -> bool:
    """Tell if a text is a date."""
    try:
        return bool(datetime.date.fromisoformat(written).isoformat() == written)
    except ValueError:
        return False


def day(written: str) -> int:
    """Make the number of a day of a date, or of a time."""
    return int(written[:4] + written[5:7] + written[8:10])


def time(written: str) -> int:
    """Make the number of a time of day of a time."""
    return int(written[11:13] + written[14:16] + written[17:19])
