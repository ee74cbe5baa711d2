"""Declared access, enforced: what a routine's SQL may touch, and what it may emit into.

Each statement is compiled once on a connection of its own under SQLite's authorizer, and the
verdict is remembered. (Setting an authorizer on the working connection would expire all of its
prepared statements, each time.)
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field

from etl_procs import changes
from etl_procs.dataflow import Dataflow
from etl_procs.errors import AccessDenied, CoreError
from etl_procs.model import Given, Lookup, Procedure, Routine, Trigger, Window
from etl_procs.rules import Value

Parameters = Sequence[Value] | dict[str, Value]

WRITES = {
    sqlite3.SQLITE_INSERT: "inserts into",
    sqlite3.SQLITE_UPDATE: "updates",
    sqlite3.SQLITE_DELETE: "deletes from",
}
REMEMBERED_MAX = 10_000
HARMLESS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
TABLES = "SELECT name FROM sqlite_schema UNION VALUES ('sqlite_master'), ('sqlite_schema')"


@dataclass(slots=True)
class Rights:
    """What one routine may touch, and the statements that were found to keep to it."""

    of: str
    reads: frozenset[str]
    writes: frozenset[str]
    gives: dict[int, Given] = field(default_factory=dict)
    """By identity: a look-up for every emit."""
    looks: dict[int, Lookup] = field(default_factory=dict)
    """By identity, too."""
    takes: frozenset[str] = frozenset()
    """The streams whose tuples it may reject."""
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The statements that were allowed, with the names of their columns."""

    @property
    def name(self) -> str:
        """The routine's name, within its dataflow."""
        return self.of.rpartition(".")[2]


def rights_of(routine: Routine, dataflow: Dataflow) -> Rights:
    """Work out what a routine may touch from what it declares."""
    written = {table.name for table in routine.writes}
    windows = [thing for thing in routine.gives if isinstance(thing, Window)]
    if isinstance(routine, Trigger) and isinstance(routine.on, Window):
        windows.append(routine.on)
    private = {window.name for window in windows} | {
        aggregate.name for aggregate in dataflow.aggregates.values() if aggregate.window in windows
    }
    return Rights(
        f"{type(routine).__name__.lower()} {routine.full_name}",
        frozenset(written | private | {table.name for table in routine.reads}),
        frozenset(written),
        {id(thing): thing for thing in routine.gives},
        {id(lookup): lookup for lookup in routine.looks},
        frozenset(s.name for s in routine.takes) if isinstance(routine, Procedure) else frozenset(),
    )


class Access:
    """Compiles statements under the authorizer."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        # SQLite looks at its schema when these are first used; after that they are as harmless
        # as any function.
        connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')").close()

    def compile(self, rights: Rights, sql: str, parameters: Parameters) -> None:
        """Return if `sql` keeps to `rights`; raise what would have to be declared otherwise."""
        refused: list[AccessDenied] = []
        tables = {name for (name,) in self._connection.execute(TABLES)}
        not_named = changes.PREFIX not in sql  # or it could call a part of its own as they are

        def authorize(
            action: int, first: str | None, _second: str | None, _db: str | None, by: str | None
        ) -> int:
            if action == sqlite3.SQLITE_READ and first not in tables:
                return sqlite3.SQLITE_OK  # what the statement itself makes: WITH, json_each
            if not_named and by is not None and by.startswith(changes.PREFIX):
                return sqlite3.SQLITE_OK  # what our own triggers write down
            denied = _denied(rights, action, first or "")
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
                f"{rights.of}: {error} in: {sql}",
                hint="Mend the statement; it is SQLite's dialect, one statement a call.",
            ) from error
        finally:
            self._connection.set_authorizer(None)
        if len(rights.known) >= REMEMBERED_MAX:  # a body that writes values into its SQL
            rights.known.clear()

    def close(self) -> None:
        """Close the connection that statements are compiled on."""
        self._connection.close()


def _denied(rights: Rights, action: int, table: str) -> AccessDenied | None:
    changes_rows = action in WRITES and not table.startswith("sqlite_")
    if changes_rows and table not in rights.writes:
        return AccessDenied(
            f"{rights.of} {WRITES[action]} {table}, which it does not declare",
            hint=f"A window is filled by tx.emit({table}, rows)."
            if table in rights.reads and table in {g.name for g in rights.gives.values()}
            else f"Add the table to its declaration: writes=[..., {table}].",
        )
    if action == sqlite3.SQLITE_READ and table not in rights.reads:
        return AccessDenied(
            f"{rights.of} reads {table}, which it does not declare",
            hint=f"Add the table to its declaration: reads=[..., {table}]. (A window is read by "
            "the procedure that fills it.)",
        )
    if changes_rows or action == sqlite3.SQLITE_READ or action in HARMLESS:
        return None
    return AccessDenied(
        f"{rights.of} runs a statement that is not a query or a change of rows",
        hint="It may SELECT, INSERT, UPDATE and DELETE; the core does the rest.",
    )
