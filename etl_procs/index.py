"""The index: what one lookup is answered from, as of a committed state of its table.

Its versions were read from what is committed, so nothing that is rolled back is ever in it. What
has changed since, committed or not, is read from the log of changes with each question, and those
keys are asked of SQL. When they become many, what is committed of them is put on top.
"""

import sqlite3
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from etl_procs.changes import Changes, Key, Mark
from etl_procs.kept import TooLarge
from etl_procs.stack import Stack
from etl_procs.versions import Layout, Versions

ADVANCE_AT = 256
"""Changes that are taken in at once: to read one from the log costs 0.4 us with each question, to
take one in 8 us once."""
REBUILT_FROM = 4
"""If more than one of so many rows has changed, all are read anew."""
ROWS_AT_ONCE = 2_000
"""Of 50,000, which no cache holds, a million took 1.4 s to read; so, 1.1 s."""


class Index:
    """Answers one lookup."""

    def __init__(self, layout: Layout, changes: Changes, mark: Mark, base: Versions) -> None:
        self._layout = layout
        self._changes = changes
        self._mark = mark
        self.stack = Stack(layout, base)

    @classmethod
    def build(
        cls, layout: Layout, changes: Changes, committed: sqlite3.Connection, bytes_max: int
    ) -> "Index | None":
        """Read the table, as it is committed; None if its changes are not written down."""
        mark = changes.mark(committed)
        if mark is None:
            return None
        lookup = layout.lookup
        sorted_by = [*lookup.key, *([lookup.at] if lookup.at else [])]
        known = " AND ".join(f'"{name}" IS NOT NULL' for name in sorted_by)
        cursor = committed.execute(f"{_select(layout)} WHERE {known}")
        tables, size = [layout.table([])], 0
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            tables.append(layout.table(rows))
            size += tables[-1].nbytes
            if size > bytes_max:
                raise TooLarge
        return cls(layout, changes, mark, Versions.of(layout, pa.concat_tables(tables)))

    def changed(self, connection: sqlite3.Connection) -> list[Key] | None:
        """Name the keys that have changed since what it holds; None if they are too many, or it
        cannot be told: then it must be built anew.
        """
        most = ADVANCE_AT + len(self.stack.base) // REBUILT_FROM
        return self._changes.since(connection, self._mark, most)

    def advance(self, committed: sqlite3.Connection) -> bool:
        """Take in what is committed by now; False if that cannot be told, or is too much."""
        mark, keys = self._changes.mark(committed), self.changed(committed)
        if mark is None or keys is None:
            return False
        if mark != self._mark:
            known = dict.fromkeys(key for key in keys if None not in key)
            if known:
                self.stack.put_on_top(self._read(committed, known))
            self._mark = mark
        return True

    def _read(self, committed: sqlite3.Connection, keys: Iterable[Key]) -> Versions:
        layout, lookup = self._layout, self._layout.lookup
        where = " AND ".join(f'"{name}" = ?' for name in lookup.key)
        where += f' AND "{lookup.at}" IS NOT NULL' if lookup.at else ""
        sql = f"{_select(layout)} WHERE {where}"
        rows: list[tuple[Any, ...]] = []
        gone = []
        for key in keys:
            found = committed.execute(sql, key).fetchall()
            rows += found
            if not found:
                gone.append(layout.gone(key))
        return Versions.of(layout, layout.table(rows + gone))


def _select(layout: Layout) -> str:
    lookup = layout.lookup
    columns = [*lookup.key, *([lookup.at] if lookup.at else []), *lookup.gives]
    return f"SELECT {', '.join(map(_quoted, columns))} FROM {lookup.table.name}"


def _quoted(name: str) -> str:
    return f'"{name}"'
