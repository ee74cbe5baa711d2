"""The transaction: what a routine's body is given to work with."""

import sqlite3
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from etl_procs.access import Parameters, Rights
from etl_procs.batch import Row
from etl_procs.errors import Aborted, AccessDenied, CoreError, Unanswered
from etl_procs.fitting import Rows
from etl_procs.kept import Values
from etl_procs.model import Given, Lookup, Outlet

if TYPE_CHECKING:
    from etl_procs.execution import Execution


OVER = CoreError("a transaction is over", hint="Use it only within the body it was given to.")
"""What an execution is broken by at its end."""

NAN = "NaN is no value of a table: SQLite would store NULL"


class Transaction:
    """One execution of one routine: all of its effects commit, or none."""

    __slots__ = ("_cursor", "_execution", "_rights", "batch")

    def __init__(self, rights: Rights, execution: "Execution") -> None:
        self._rights = rights
        self._execution = execution
        self._cursor = execution.cursor
        self.batch = execution.batch
        """The id of the batch; 0 in a call."""

    def query(self, sql: str, parameters: Parameters = ()) -> list[dict[str, Any]]:
        """Run a query and return its rows, by column name."""
        rows = self._run(sql, parameters)
        names = self._rights.known[sql]
        return [dict(zip(names, row)) for row in rows]  # noqa: B905 - strict costs half as much

    def table(self, sql: str, parameters: Parameters = ()) -> pa.Table:
        """Run a query and return its rows as an Arrow table."""
        rows = self._run(sql, parameters)
        names = self._rights.known[sql]
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        return pa.table([pa.array(column) for column in columns], names=names)

    def lookup(self, lookup: Lookup, keys: Any, at: Values | None = None) -> pa.Table:
        """Give the row of each key, in order, as of the moments `at`; NULLs where there is none.

        `keys` are Arrow's, or a list; for a key of several columns, a list of such columns.
        """
        self._check_open()
        if id(lookup) not in self._rights.looks:
            raise self._undeclared("looks up in", lookup, "looks")
        assert self._execution.lookups is not None
        try:
            return self._execution.lookups.answer(self._cursor, lookup, keys, at)
        except sqlite3.Error as error:
            self._execution.failed(error)
            raise
        except Unanswered as error:
            self._execution.broken = error  # whatever the body makes of it
            raise

    def execute(self, sql: str, parameters: Parameters = ()) -> int:
        """Run an INSERT, UPDATE or DELETE and return the number of rows that it changed."""
        connection = self._cursor.connection
        before = connection.total_changes
        self._run(sql, parameters)
        if connection.total_changes == before:
            return 0
        # The total counts what triggers write down, too. Of a statement that begins with WITH,
        # Python does not know that it changes rows.
        changed = self._cursor.rowcount
        if changed < 0:
            ((changed,),) = self._cursor.execute("SELECT changes()").fetchall()
        return int(changed)

    def executemany(self, sql: str, rows: Iterable[Parameters]) -> int:
        """Run an INSERT, UPDATE or DELETE for each of `rows`, and return the number changed."""
        rows = list(rows)
        if not rows:
            return 0
        self._check(sql, rows[0])
        for row in rows:
            for value in row.values() if isinstance(row, dict) else row:
                if value != value:
                    raise ValueError(NAN)
        try:
            self._cursor.executemany(sql, rows)
        except sqlite3.Error as error:
            self._execution.failed(error)
            raise
        self._rights.known.setdefault(sql, _column_names(self._rights, self._cursor))
        return self._cursor.rowcount

    def emit(self, target: Given, rows: Rows) -> None:
        """Hand rows to a stream, a window or an outlet; for a keyed outlet, they replace those
        of the same key.
        """
        if id(target) not in self._rights.gives:
            raise self._undeclared("emits into", target, "gives")
        if self._execution.broken is not None:
            self._check_open()
        self._execution.emit(self._rights, target, rows)

    def delete(self, outlet: Outlet, keys: Rows) -> None:
        """Delete the rows of these keys from a keyed outlet's table in the warehouse."""
        self._check_open()
        if id(outlet) not in self._rights.gives:
            raise self._undeclared("deletes from", outlet, "gives")
        if not isinstance(outlet, Outlet) or not outlet.key:
            raise CoreError(
                f"{self._rights.of} deletes from {outlet.name}, which has no key",
                hint="Declare an outlet with a key, and delete from that.",
            )
        self._execution.delete(self._rights, outlet, keys)

    def reject(self, row: Row, reason: str) -> None:
        """Set one tuple of the batch aside as a dead letter, with the reason."""
        self._check_open()
        if not isinstance(row, Row):
            raise CoreError(
                f"{self._rights.of} rejects {row!r:.100}, which is no tuple of its batch",
                hint="Give it one of batch.rows(), itself: a copy does not know its place.",
            )
        if not isinstance(reason, str):
            raise TypeError(f"the reason of a rejection is a text, and not {reason!r}")
        stream = row.batch.stream.name
        if stream not in self._rights.takes or self._execution.batch_of(stream) is not row.batch:
            raise CoreError(
                f"{self._rights.of} rejects a tuple of {stream} that is not of its batch",
                hint="A procedure rejects tuples of the batch that it was given; others none.",
            )
        reason.encode()  # half a surrogate pair cannot be stored
        self._execution.rejected.setdefault((self._rights.name, row.batch, row.index), reason)

    def abort(self, reason: str) -> None:
        """Give the whole batch up: it is tried again, and then becomes a dead letter."""
        raise Aborted(
            f"{self._rights.of} aborts: {reason}", hint="`headrace dead-letters` shows it."
        )

    def _undeclared(self, does: str, thing: object, where: str) -> CoreError:
        """Say what to declare, of something that is not declared as what is `where`."""
        kinds, named = (
            (Lookup, "lookup") if where == "looks" else (Given, "stream, window or outlet")
        )
        if not isinstance(thing, kinds):
            return CoreError(
                f"{self._rights.of} {does} {thing!r:.80}, which is no {named}",
                hint="Give the thing itself, as it was declared: not its name.",
            )
        return AccessDenied(
            f"{self._rights.of} {does} {thing.name}, which it does not declare",
            hint=f"Add the {type(thing).__name__.lower()} to its declaration: "
            f"{where}=[..., {thing.name}].",
        )

    def _run(self, sql: str, parameters: Parameters) -> list[Any]:
        names = self._rights.known.get(sql)
        if names is None or self._execution.broken is not None:
            self._check(sql, parameters)
        for value in parameters.values() if isinstance(parameters, dict) else parameters:
            if value != value:
                raise ValueError(NAN)
        cursor = self._cursor
        try:
            cursor.execute(sql, parameters)
            rows = cursor.fetchall() if names is None or names else []
        except sqlite3.Error as error:
            self._execution.failed(error)
            raise
        if names is None:
            self._rights.known[sql] = _column_names(self._rights, cursor)
        return rows

    def _check(self, sql: str, parameters: Parameters) -> None:
        self._check_open()
        if sql not in self._rights.known:
            self._execution.access.compile(self._rights, sql, parameters)

    def _check_open(self) -> None:
        broken = self._execution.broken
        if broken is OVER:
            raise CoreError(f"{self._rights.of} uses a transaction that is over", hint=OVER.hint)
        if broken is not None:
            raise broken


def _column_names(rights: Rights, cursor: sqlite3.Cursor) -> tuple[str, ...]:
    names = tuple(column[0] for column in cursor.description or ())
    if len(set(names)) < len(names):
        raise CoreError(
            f"{rights.of} asks for two columns of one name: {', '.join(names)}",
            hint="Name one of them otherwise: SELECT a.id AS a_id, b.id.",
        )
    return names
