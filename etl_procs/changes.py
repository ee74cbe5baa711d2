"""Changes: which keys of a table have changed, written down by triggers in the same transaction.

So it is as true as the table is: whoever writes - a batch, a call of another process - and whatever
is rolled back. A row that is appended, whose rowid is above all others, is found by that and not
written down: to insert many costs little more. Wherever the greatest rowid may fall, it is noted as
the floor, above which all rows are new.
"""

import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from etl_procs.columns import Type
from etl_procs.errors import DefinitionChanged
from etl_procs.model import Lookup, Table

Key = tuple[Any, ...]

PREFIX = "headrace_changes "
KEPT = 100_000
"""Changes that are kept at least; who is further behind begins anew."""
TRIM_EVERY = KEPT // 4
LEAST = -(2**63)

OURS = f"SELECT type, name FROM sqlite_schema WHERE name GLOB '{PREFIX}*' AND type = :type"
THERE = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = :name"


class Mark(NamedTuple):
    """A state of a table, told by what has changed until then."""

    schema: int
    """The number of the database's schema: with another one, all rows may be others."""
    number: int
    """The last change that was written down."""
    high: int
    """The greatest rowid."""


class Changes:
    """What changes in a table, by the columns that are a lookup's key."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._table, key = lookup.table.name, [f'"{name}"' for name in lookup.key]
        self._log = log_of(lookup)
        keys = ", ".join(key)
        self._mark = (
            "SELECT schema_version, "
            f'ifnull((SELECT max(headrace_number) FROM "{self._log}"), 0), '
            f"ifnull((SELECT max(_rowid_) FROM {self._table}), {LEAST}) FROM pragma_schema_version"
        )
        self._first = f'SELECT ifnull(min(headrace_number), 0) FROM "{self._log}"'
        self._written = (
            f'SELECT {keys}, headrace_floor FROM "{self._log}" WHERE headrace_number > ? LIMIT ?'
        )
        self._appended = f"SELECT {keys} FROM {self._table} WHERE _rowid_ > ? LIMIT ?"

    def mark(self, connection: sqlite3.Connection) -> Mark | None:
        """Tell the state of the table; None if its changes are not written down."""
        if connection.execute(THERE, {"name": self._log}).fetchone() is None:
            return None
        return Mark(*connection.execute(self._mark).fetchone())

    def since(self, connection: sqlite3.Connection, mark: Mark, most: int) -> list[Key] | None:
        """Name the keys that have changed since then, some twice, and others too; None if there are
        more than `most`, or it cannot be told.
        """
        now = self.mark(connection)
        if now is None or now.schema != mark.schema:
            return None
        (first,) = connection.execute(self._first).fetchone()
        if first > mark.number + 1:
            return None
        written = connection.execute(self._written, [mark.number, most + 1]).fetchall()
        high = min([mark.high, *(row[-1] for row in written if row[-1] is not None)])
        left = most + 1 - len(written)
        appended = connection.execute(self._appended, [high, left]).fetchall() if left else []
        keys = [row[:-1] for row in written] + appended
        return keys if len(keys) <= most else None

    def make(self, connection: sqlite3.Connection) -> None:
        """Let changes be written down from now on."""
        if connection.execute(THERE, {"name": self._table}).fetchone() is None:
            raise DefinitionChanged(
                f"lookup {self._lookup.full_name} is over {self._table}, which this core does not "
                "hold",
                hint="Let the engine run the dataflow that declares the table, too.",
            )
        types = {column.name: column.type for column in self._lookup.table.columns.columns}
        key = self._lookup.key
        columns = "".join(f'"{name}" {Type(types[name]).value}, ' for name in key)
        old, new = (", ".join(f'{row}."{name}"' for name in key) for row in ("OLD", "NEW"))
        differs = " OR ".join(f'OLD."{name}" IS NOT NEW."{name}"' for name in key)
        names = ", ".join(f'"{name}"' for name in key)
        into = f'INSERT INTO "{self._log}" ({names}, headrace_floor)'
        highest = f"(SELECT ifnull(max(_rowid_), {LEAST}) FROM {self._table})"
        connection.execute(
            f'CREATE TABLE IF NOT EXISTS "{self._log}" '
            f"(headrace_number INTEGER PRIMARY KEY, {columns}headrace_floor INTEGER) STRICT"
        )
        for event, body in (
            (f"INSERT ON {self._table} WHEN NEW._rowid_ < {highest}", f"{into} SELECT {new}, NULL"),
            (
                f"UPDATE ON {self._table}",
                f"{into} SELECT {old}, {highest}; {into} SELECT {new}, NULL WHERE {differs}",
            ),
            (f"DELETE ON {self._table}", f"{into} SELECT {old}, {highest}"),
        ):
            name = f"{self._log} {event.partition(' ')[0]}"
            connection.execute(
                f'CREATE TRIGGER IF NOT EXISTS "{name}" AFTER {event} BEGIN {body}; END'
            )


def log_of(lookup: Lookup) -> str:
    """Name the log; lookups into one table by one key share it."""
    return f"{PREFIX}{' '.join([lookup.table.name, *lookup.key])}"


def drop(connection: sqlite3.Connection) -> None:
    """Write nothing down any more, and forget what was: to be done before tables are changed."""
    for kind in ("trigger", "table"):
        for _, name in connection.execute(OURS, {"type": kind}).fetchall():
            connection.execute(f'DROP {kind} "{name}"')


def make(connection: sqlite3.Connection, lookups: Iterable[Lookup]) -> None:
    """Write down what changes for those of these lookups that are over the core's tables."""
    for lookup in lookups:
        if isinstance(lookup.table, Table):
            Changes(lookup).make(connection)


def trim(connection: sqlite3.Connection) -> None:
    """Forget old changes; the last ones stay, by whose numbers the next are numbered."""
    for _, log in connection.execute(OURS, {"type": "table"}).fetchall():
        connection.execute(
            f'DELETE FROM "{log}" WHERE headrace_number <= '
            f'(SELECT max(headrace_number) FROM "{log}") - {KEPT}'
        )
