"""Declared access, enforced: what a procedure's SQL may touch.

Each statement is compiled once on a connection of its own under SQLite's authorizer, and the
verdict is remembered. (Setting an authorizer on the working connection would expire all of its
prepared statements, each time.)
"""

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from etl_procs.errors import AccessDenied, CoreError
from etl_procs.model import Procedure
from etl_procs.rules import Value

Parameters = Sequence[Value] | Mapping[str, Value]

WRITES = {
    sqlite3.SQLITE_INSERT: "inserts into",
    sqlite3.SQLITE_UPDATE: "updates",
    sqlite3.SQLITE_DELETE: "deletes from",
}
REMEMBERED_MAX = 10_000
HARMLESS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


class Access:
    """Remembers which statements each procedure may run."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False)
        # As on the working connection: a deletion that cascades is access to the other table.
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._allowed: set[tuple[str, str, str]] = set()

    def check(self, procedure: Procedure, sql: str, parameters: Parameters) -> None:
        """Return if `procedure` may run `sql`; raise what it would have to declare otherwise."""
        key = (procedure.dataflow, procedure.name, sql)
        if key not in self._allowed:
            self._compile(procedure, sql, parameters)
            if len(self._allowed) >= REMEMBERED_MAX:  # a body that writes values into its SQL
                self._allowed.clear()
            self._allowed.add(key)

    def close(self) -> None:
        """Close the connection that statements are compiled on."""
        self._connection.close()

    def _compile(self, procedure: Procedure, sql: str, parameters: Parameters) -> None:
        refused: list[AccessDenied] = []

        def authorize(
            action: int, first: str | None, _second: str | None, _db: str | None, _by: str | None
        ) -> int:
            denied = _denied(procedure, action, first or "")
            if denied is None:
                return sqlite3.SQLITE_OK
            refused.append(denied)
            return sqlite3.SQLITE_DENY

        self._connection.set_authorizer(authorize)
        try:
            self._connection.execute(f"EXPLAIN {sql}", parameters).close()
        except (sqlite3.Error, sqlite3.Warning) as error:
            if refused:
                raise refused[0] from None
            raise CoreError(
                f"procedure {procedure.dataflow}.{procedure.name}: {error} in: {sql}",
                hint="Mend the statement; it is SQLite's dialect, one statement a call.",
            ) from error
        finally:
            self._connection.set_authorizer(None)


def _denied(procedure: Procedure, action: int, table: str) -> AccessDenied | None:
    of = f"procedure {procedure.dataflow}.{procedure.name}"
    written = {t.name for t in procedure.writes}
    if action in WRITES and table not in written:
        return AccessDenied(
            f"{of} {WRITES[action]} {table}, which it does not declare",
            hint=f"Add the table to the procedure's declaration: writes=[..., {table}].",
        )
    if action == sqlite3.SQLITE_READ and table not in written | {t.name for t in procedure.reads}:
        return AccessDenied(
            f"{of} reads {table}, which it does not declare",
            hint=f"Add the table to the procedure's declaration: reads=[..., {table}].",
        )
    if action in WRITES or action == sqlite3.SQLITE_READ or action in HARMLESS:
        return None
    return AccessDenied(
        f"{of} runs a statement that is not a query or a change of rows",
        hint="A procedure may SELECT, INSERT, UPDATE and DELETE; the core does the rest.",
    )
