"""The transaction: what a procedure's body is given to work with."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.access import Parameters
from etl_procs.batch import Row
from etl_procs.columns import Columns
from etl_procs.errors import OF_THE_MACHINE, CoreError, primary_code
from etl_procs.model import Outlet, Procedure
from etl_procs.rules import Value


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


KINDS = (pa.types.is_integer, pa.types.is_floating, _is_text)
"""Arrow types that become one another without a change of value, or with an error."""

Check = Callable[[Procedure, str, Parameters], None]


class Transaction:
    """One execution of one procedure on one batch: all of its effects commit, or none.

    It only collects what the body emits and rejects; the core writes that in the same commit.
    """

    def __init__(self, connection: sqlite3.Connection, procedure: Procedure, check: Check) -> None:
        self._connection = connection
        self._procedure = procedure
        self._check = check
        self.emitted: dict[str, list[pa.Table]] = {}
        self.rejected: dict[int, str] = {}
        self.broken: sqlite3.Error | None = None
        """The error after which nothing of the batch can be kept, even if the body caught it."""

    def query(self, sql: str, parameters: Parameters = ()) -> list[dict[str, Value]]:
        """Run a query and return its rows, by column name."""
        names, rows = self._run(sql, parameters)
        if len(set(names)) < len(names):
            raise CoreError(
                f"{self._named} asks for two columns of one name: {', '.join(names)}",
                hint="Name one of them otherwise: SELECT a.id AS a_id, b.id.",
            )
        return [dict(zip(names, row, strict=True)) for row in rows]

    def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run an INSERT, UPDATE or DELETE and return the number of rows that it changed."""
        before = self._connection.total_changes
        self._run(sql, parameters)
        return self._connection.total_changes - before

    def emit(self, outlet: Outlet, rows: pa.Table | Iterable[Mapping[str, Value]]) -> None:
        """Hand rows to an outlet: they reach the warehouse once, with this batch."""
        if outlet not in self._procedure.gives:
            raise CoreError(
                f"procedure {self._named} emits into {outlet.name}, which it does not declare",
                hint=f"Add the outlet to the procedure's declaration: gives=[..., {outlet.name}].",
            )
        table = _typed(rows, outlet.columns, f"{self._named} emits into {outlet.name}")
        if table.num_rows:
            self.emitted.setdefault(outlet.name, []).append(table)

    def reject(self, row: Row, reason: str) -> None:
        """Set one tuple of the batch aside as a dead letter, with the reason."""
        if not isinstance(reason, str):
            raise TypeError(f"the reason of a rejection is a text, and not {reason!r}")
        reason.encode()  # half a surrogate pair cannot be stored
        self.rejected.setdefault(row.index, reason)

    @property
    def _named(self) -> str:
        return f"{self._procedure.dataflow}.{self._procedure.name}"

    def _run(self, sql: str, parameters: Parameters) -> tuple[list[str], list[tuple[Value, ...]]]:
        if self.broken is not None:
            raise self.broken
        self._check(self._procedure, sql, parameters)
        values = parameters.values() if isinstance(parameters, Mapping) else parameters
        if any(value != value for value in values):
            raise ValueError("NaN is no value of a table: SQLite would store NULL")
        try:
            cursor = self._connection.execute(sql, parameters)
            return [column[0] for column in cursor.description or ()], cursor.fetchall()
        except sqlite3.Error as error:
            # SQLite may have ended the transaction by itself. What ran after that would commit.
            if not self._connection.in_transaction or primary_code(error) in OF_THE_MACHINE:
                self.broken = error
            raise


def _typed(rows: pa.Table | Iterable[Mapping[str, Value]], columns: Columns, what: str) -> pa.Table:
    schema = columns.arrow
    try:
        if isinstance(rows, pa.Table):
            table = rows.select(columns.names)
            for column, declared in zip(table.schema, schema, strict=True):
                if pa.types.is_null(column.type):
                    continue
                if not any(is_kind(column.type) and is_kind(declared.type) for is_kind in KINDS):
                    raise TypeError(f"{column.name} is {column.type}, and not {declared.type}")
            table = table.cast(schema)
        else:
            table = pa.Table.from_pylist([_exactly(row, columns.names) for row in rows], schema)
        table.validate(full=True)
    except (pa.ArrowException, KeyError, TypeError, OverflowError) as error:
        raise CoreError(
            f"{what} a row that does not fit: {error}",
            hint=f"Its columns are: {columns.sql}",
        ) from error
    for column in columns.columns:
        values = table[column.name]
        if column.required and values.null_count:
            raise CoreError(
                f"{what} a row without {column.name}", hint=f"Its columns are: {columns.sql}"
            )
        # PostgreSQL has no text with NUL in it: such a row would block every push after it.
        if pa.types.is_string(values.type) and pc.any(pc.match_substring(values, "\0")).as_py():
            raise CoreError(
                f"{what} a {column.name} with a NUL character, which PostgreSQL cannot hold",
                hint="Reject such a tuple, or take the character out.",
            )
    return table


def _exactly(row: Mapping[str, Value], names: tuple[str, ...]) -> Mapping[str, Value]:
    if row.keys() != set(names):
        raise KeyError(f"it has {', '.join(row)} and not {', '.join(names)}")
    return row
