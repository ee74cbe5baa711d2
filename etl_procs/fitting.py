"""Fitting: rows that a user hands over, checked against the columns they are for.

Nothing is converted that would change its value, and nothing passes that an engine further on
could not hold.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
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

PYTHON_TYPES: Mapping[Type, Any] = {Type.INTEGER: int, Type.REAL: float, Type.TEXT: str}

Rows: TypeAlias = pa.Table | Iterable[Mapping[str, Value]]
Part: TypeAlias = list[Tuple] | pa.Table
"""Rows that fit: tuples in the order of the columns, or an Arrow table with their schema."""


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


KINDS = (pa.types.is_integer, pa.types.is_floating, _is_text)
"""Arrow types that become one another without a change of value, or with an error."""


class Fitter:
    """Checks rows for one set of columns."""

    __slots__ = ("_columns", "_kinds", "_pick", "_width")

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._kinds = tuple(PYTHON_TYPES[column.type] for column in columns.columns)
        self._width = len(columns.names)
        self._pick = _picking(columns.names)

    def fit(self, rows: Rows, what: str) -> Part:
        """Give the rows as they are kept; `what` says in an error who hands over what."""
        if isinstance(rows, pa.Table):
            return self._table(rows, what)
        return [self.row(row, what) for row in rows]

    def row(self, row: Mapping[str, Value], what: str) -> Tuple:
        """Give one row as a tuple; what is left out of it is NULL."""
        try:
            values: Tuple = self._pick(row)
            if len(row) == self._width:
                return self.values(values, what)
        except (LookupError, TypeError):
            if not isinstance(row, Mapping):
                raise self._misfit(what, f"{_shown(row)} is no dict by column name") from None
        self._check_names(row, what)
        return self.values(tuple(row.get(name) for name in self._columns.names), what)

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
        for index, (value, column) in enumerate(zip(values, self._columns.columns, strict=True)):
            kind = type(value)
            if value is None:
                if column.required:
                    raise self._misfit(what, f"without {column.name}", alone=True)
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
                raise self._misfit(
                    what, f"{column.name} is {_shown(value)}, no {column.type.value}"
                )
        return tuple(changed or values)

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
        schema = self._columns.arrow
        self._check_names(table.column_names, what)
        for name in self._columns.names:
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(len(table)))
        try:
            table = table.select(self._columns.names)
            for given, declared in zip(table.schema, schema, strict=True):
                if pa.types.is_null(given.type):
                    continue
                if not any(is_kind(given.type) and is_kind(declared.type) for is_kind in KINDS):
                    raise TypeError(f"{given.name} is {given.type}, and not {declared.type}")
            table = table.cast(_nullable(schema))
            table.validate(full=True)
        except (pa.ArrowException, KeyError, TypeError) as error:
            raise self._misfit(what, str(error)) from error
        for column in self._columns.columns:
            values = table[column.name]
            if column.required and values.null_count:
                raise self._misfit(what, f"without {column.name}", alone=True)
            if column.type is Type.TEXT and pc.any(pc.match_substring(values, "\0")).as_py():
                first = values.filter(pc.match_substring(values, "\0"))[0].as_py()
                self._check_text(column, first, what)
            if column.type is Type.REAL and pc.any(pc.is_nan(values)).as_py():
                raise self._misfit(what, f"{column.name} is NaN")
        return table.cast(schema)

    def _misfit(self, what: str, why: str, *, alone: bool = False) -> CoreError:
        return CoreError(
            f"{what} a row {why}" if alone else f"{what} a row that does not fit: {why}",
            hint=f"Its columns are: {self._columns.sql}",
        )


def _picking(names: Sequence[str]) -> Callable[[Mapping[str, Value]], Any]:
    if len(names) == 1:
        (name,) = names
        return lambda row: (row[name],)
    return itemgetter(*names) if names else lambda _row: ()


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])
