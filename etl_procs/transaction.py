"""The transaction: what a procedure's body is given to work with."""

import sqlite3
from collections.abc import Callable, Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.access import Parameters
from etl_procs.batch import Row
from etl_procs.columns import Columns
from etl_procs.errors import CoreError
from etl_procs.model import Outlet, Procedure, Value

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

    def query(self, sql: str, parameters: Parameters = ()) -> list[dict[str, Value]]:
        """Run a query and return its rows, by column name."""
        cursor = self._run(sql, parameters)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run an INSERT, UPDATE or DELETE and return the number of rows that it changed."""
        return self._run(sql, parameters).rowcount

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
        self.rejected.setdefault(row.index, reason)

    @property
    def _named(self) -> str:
        return f"{self._procedure.dataflow}.{self._procedure.name}"

    def _run(self, sql: str, parameters: Parameters) -> sqlite3.Cursor:
        self._check(self._procedure, sql, parameters)
        return self._connection.execute(sql, parameters)


def _typed(rows: pa.Table | Iterable[Mapping[str, Value]], columns: Columns, what: str) -> pa.Table:
    schema = columns.arrow
    try:
        if isinstance(rows, pa.Table):
            table = rows.select(columns.names).cast(schema)
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
