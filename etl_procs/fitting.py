"""Fitting: rows that a user hands over, checked against the columns they are for.

Nothing is converted that would change its value, and nothing passes that an engine further on
could not hold.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from functools import cache
from operator import itemgetter
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import Tuple
from etl_procs.columns import Column, Columns, Type
from etl_procs.errors import CoreError
from etl_procs.rules import Value

INTEGER_LEAST, INTEGER_MOST = -(2**63), 2**63 - 1
REAL_BITS_MOST = 1023
SHOWN_MAX = 200

PYTHON_TYPES: Mapping[Type, Any] = {
    Type.INTEGER: int,
    Type.REAL: float,
    Type.TEXT: str,
    Type.BOOLEAN: bool,
    Type.DATE: date,
}
"""What a column plainly holds; of the other types, each value is looked at closely."""

ISO_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
ISO_TIMESTAMP = re.compile(rf"{ISO_DATE.pattern}[T ][0-9]{{2}}(:[0-9]{{2}}){{2}}(\.[0-9]{{1,6}})?")
"""As SQLite writes them, too. Python alone would cut a seventh digit off."""

DAY_FIRST, DAY_LAST, DAY_US = -719_162, 2_932_896, 86_400_000_000
RANGES = {
    Type.DATE: (DAY_FIRST, DAY_LAST),
    Type.TIMESTAMP: (DAY_FIRST * DAY_US, (DAY_LAST + 1) * DAY_US - 1),
}
"""The years 1 to 9999, as Arrow counts from 1970: what Python can tell, and so an answer."""

FLOAT_HINT = "A float is not exact: give Decimal('0.10'), or an int."

Row: TypeAlias = Mapping[str, Value | date | Decimal]
Rows: TypeAlias = pa.Table | Iterable[Row]
Part: TypeAlias = list[Tuple] | pa.Table
"""Rows that fit: tuples in the order of the columns, or an Arrow table with their schema."""
Take: TypeAlias = Callable[[Column, Any], Any]


def _is_exact(value: int) -> bool:
    return value.bit_length() <= REAL_BITS_MOST and float(value) == value


def _shown(value: Any) -> str:
    """Show a value in an error: a part of it is enough, and some integers cannot be written."""
    if isinstance(value, int) and value.bit_length() > REAL_BITS_MOST:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "..."


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _is_naive(type_: pa.DataType) -> bool:
    return pa.types.is_timestamp(type_) and type_.tz is None


KINDS = (
    pa.types.is_integer,
    pa.types.is_floating,
    _is_text,
    pa.types.is_boolean,
    pa.types.is_date32,
    _is_naive,
    pa.types.is_decimal,
)
"""Arrow types that become one another without a change of value, or with an error."""


class Fitter:
    """Checks rows for one set of columns."""

    __slots__ = ("_columns", "_kinds", "_pick", "_takes", "_width")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._kinds = tuple(PYTHON_TYPES.get(column.type) for column in columns.columns)
        self._takes = tuple(OF_WAREHOUSES.get(column.type) for column in columns.columns)
        self._width = len(columns.names)
        self._pick = _picking(columns.names)

    def fit(self, rows: Rows, what: str) -> Part:
        """Give the rows as they are kept; `what` says in an error who hands over what."""
        if isinstance(rows, pa.Table):
            return self._table(rows, what)
        return [self.row(row, what) for row in rows]

    def row(self, row: Row, what: str) -> Tuple:
        """Give one row as a tuple; what is left out of it is NULL."""
        try:
            values: Tuple = self._pick(row)
            if len(row) == self._width:
                return self.values(values, what)
        except (LookupError, TypeError):
            if not isinstance(row, Mapping):
                raise self._misfit(what, f"{_shown(row)} is no dict by column name") from None
        self._check_names(row, what)
        whole: Any = tuple(row.get(name) for name in self._columns.names)
        return self.values(whole, what)

    def _check_names(self, given: Iterable[str], what: str) -> None:
        if unknown := [name for name in given if name not in self._columns.names]:
            raise self._misfit(what, f"there is no column {', '.join(map(str, unknown))}")

    def values(self, values: Tuple, what: str) -> Tuple:
        """Check the values of one row."""
        value: Any
        for value, kind in zip(values, self._kinds):  # noqa: B905 - strict costs as much again
            if type(value) is not kind or not (
                INTEGER_LEAST <= value <= INTEGER_MOST
                if kind is int
                else value.isascii() and "\0" not in value
                if kind is str
                else value == value
            ):
                return self._closely(values, what)
        return values

    def _closely(self, values: Tuple, what: str) -> Tuple:
        """Check values of which some are not plainly what their columns hold."""
        changed = None
        columns = zip(values, self._columns.columns, self._takes, strict=True)
        for index, (value, column, take) in enumerate(columns):
            kind = type(value)
            if value is None:
                if column.required:
                    raise self._misfit(what, f"without {column.name}", alone=True)
            elif take is not None:
                changed = changed or list(values)
                changed[index] = self._taken(take, column, value, what)
            elif column.type is Type.INTEGER and kind is int:
                if not INTEGER_LEAST <= value <= INTEGER_MOST:  # type: ignore[operator]
                    raise self._misfit(what, f"{column.name} is {_shown(value)}, beyond 64 bits")
            elif column.type is Type.TEXT and kind is str:
                self._check_text(column, value, what)  # type: ignore[arg-type]
            elif column.type is Type.REAL and kind is float:
                if value != value:
                    raise self._misfit(what, f"{column.name} is NaN")
            elif column.type is Type.REAL and kind is int and _is_exact(value):  # type: ignore[arg-type]
                changed = changed or list(values)
                changed[index] = float(value)
            else:
                raise self._misfit(what, f"{column.name} is {_shown(value)}, no {column.sql}")
        return tuple(changed or values)

    def _taken(self, take: Take, column: Column, value: Any, what: str) -> Any:
        """Check a value of a type that only an outlet has; text may stand for a time."""
        try:
            return take(column, value)
        except (ValueError, DecimalException):
            pass
        hint = FLOAT_HINT if column.type is Type.NUMERIC and type(value) is float else None
        raise self._misfit(what, f"{column.name} is {_shown(value)}, no {column.sql}", hint=hint)

    def _check_text(self, column: Column, value: str, what: str) -> None:
        # PostgreSQL has no text with NUL in it: such a row would block every push after it.
        if "\0" in value:
            raise CoreError(
                f"{what} a {column.name} with a NUL character, which PostgreSQL cannot hold",
                hint="Reject such a tuple, or take the character out.",
            )
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise self._misfit(what, f"{column.name}: {error}") from None

    def _table(self, table: pa.Table, what: str) -> pa.Table:
        names = table.column_names
        self._check_names(names, what)
        nothing = pa.chunked_array([pa.nulls(len(table))])
        try:
            given = [table[n] if n in names else nothing for n in self._columns.names]
        except KeyError as error:
            raise self._misfit(what, str(error)) from error
        fitted = [
            self._column(column, values, what)
            for column, values in zip(self._columns.columns, given, strict=True)
        ]
        return pa.table(fitted, schema=self._columns.arrow)

    def _column(self, column: Column, values: pa.ChunkedArray, what: str) -> pa.ChunkedArray:
        """Give a column of a table as it is kept."""
        if not _is_of_a_kind(values.type, column.arrow):
            raise self._misfit(what, f"{column.name} is {values.type}, and not {column.arrow}")
        try:
            fitted = _cast(values, column.arrow)
            fitted.validate(full=True)
        except pa.ArrowException as error:
            for value in values if column.type is Type.NUMERIC else ():
                if value.is_valid:  # Arrow does not say which it is
                    self._taken(_numeric, column, value.as_py(), what)
            raise self._misfit(what, f"{column.name}: {error}") from error
        if column.required and fitted.null_count:
            raise self._misfit(what, f"without {column.name}", alone=True)
        if column.type is Type.TEXT and pc.any(pc.match_substring(fitted, "\0")).as_py():
            first = fitted.filter(pc.match_substring(fitted, "\0"))[0].as_py()
            self._check_text(column, first, what)
        if column.type is Type.REAL and pc.any(pc.is_nan(fitted)).as_py():
            raise self._misfit(what, f"{column.name} is NaN")
        if column.type in RANGES:
            self._check_range(column, fitted, what)
        return fitted

    def _check_range(self, column: Column, values: pa.ChunkedArray, what: str) -> None:
        first, last = (pa.scalar(end, column.arrow) for end in RANGES[column.type])
        beyond = values.filter(pc.or_(pc.less(values, first), pc.greater(values, last)))
        if len(beyond):
            shown = f"{column.name} is {beyond[0].value} as {column.arrow}"
            raise self._misfit(what, f"{shown}, beyond the years 1 to 9999")

    def _misfit(
        self, what: str, why: str, *, alone: bool = False, hint: str | None = None
    ) -> CoreError:
        return CoreError(
            f"{what} a row {why}" if alone else f"{what} a row that does not fit: {why}",
            hint=hint or f"Its columns are: {self._columns.sql}",
        )


def _picking(names: Sequence[str]) -> Callable[[Row], Any]:
    if len(names) == 1:
        (name,) = names
        return lambda row: (row[name],)
    return itemgetter(*names) if names else lambda _row: ()


def _is_of_a_kind(given: pa.DataType, declared: pa.DataType) -> bool:
    if pa.types.is_null(given) or (pa.types.is_decimal(declared) and pa.types.is_integer(given)):
        return True
    return any(is_kind(given) and is_kind(declared) for is_kind in KINDS)


def _cast(values: pa.ChunkedArray, declared: pa.DataType) -> pa.ChunkedArray:
    if values.type == declared:
        return values  # Arrow takes 1 us to find that out, for each column of each batch
    if pa.types.is_decimal(declared) and pa.types.is_integer(values.type):
        values = values.cast(pa.decimal128(20, 0))  # any: straight, Arrow asks for room for all
    return values.cast(declared)


def _boolean(_column: Column, value: Any) -> bool:
    if type(value) is bool:
        return value
    raise ValueError


def _date(_column: Column, value: Any) -> date:
    if type(value) is date:
        return value
    if type(value) is str and ISO_DATE.fullmatch(value):
        return date.fromisoformat(value)
    raise ValueError


def _timestamp(_column: Column, value: Any) -> datetime:
    if type(value) is datetime and value.tzinfo is None:
        return value
    if type(value) is str and ISO_TIMESTAMP.fullmatch(value):
        return datetime.fromisoformat(value)
    raise ValueError


def _numeric(column: Column, value: Any) -> Decimal:
    if type(value) is int or (type(value) is Decimal and value.is_finite()):
        unit, context = _exactly(column.precision, column.scale)
        return Decimal(value).quantize(unit, context=context)
    raise ValueError


OF_WAREHOUSES: Mapping[Type, Take] = {
    Type.BOOLEAN: _boolean,
    Type.DATE: _date,
    Type.TIMESTAMP: _timestamp,
    Type.NUMERIC: _numeric,
}
"""How a value of a type that only an outlet has is taken, exactly or not at all."""


@cache
def _exactly(precision: int, scale: int) -> tuple[Decimal, Context]:
    """Give the last place of a NUMERIC, and arithmetic that neither rounds nor has more digits."""
    return Decimal(1).scaleb(-scale), Context(prec=precision, traps=[Inexact, InvalidOperation])
