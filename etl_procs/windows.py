"""Windows: tables of the recent part of what a procedure emits.

A window has a table of its name, which its procedure reads, and a staged one, where tuples wait
for the slide. Both change only by `put`, in the transaction of the procedure, and are rolled back
with it. An aggregate over it has a table too, which SQLite's triggers keep as tuples come and go.
"""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from etl_procs.batch import Tuple
from etl_procs.model import Aggregate, Window
from etl_procs.rules import LastBatches, LastTuples

Slid = Callable[[], None]
"""Called after each slide: runs the triggers that users have put on it."""

BATCH = "_batch"
"""The column by which a window by batches knows how old its tuples are."""

BOUNDARY = "SELECT boundary FROM headrace_windows WHERE name = ?"

SET_BOUNDARY = """\
INSERT INTO headrace_windows VALUES (:name, :boundary)
ON CONFLICT DO UPDATE SET boundary = excluded.boundary"""


class WindowTable(ABC):
    """The two tables of a window: tuples enter from the staged one and leave by their age."""

    def __init__(self, window: Window, age: str, *more_columns: str) -> None:
        self.name = window.name
        self._staged = f"headrace_staged_{window.name}"
        self._age = age
        self._size, self._slide = window.extent.size, window.extent.slide
        self._definition = ", ".join([window.columns.sql, *more_columns])
        places = ", ".join("?" for _ in (*window.columns.names, *more_columns))
        self._insert = f"INSERT INTO {self.name} VALUES ({places})"
        self._stage = f"INSERT INTO {self._staged} VALUES ({places})"
        self._enter = (
            f"INSERT INTO {self.name} SELECT * FROM {self._staged} "
            f"WHERE {age} >= ? AND {age} < ? ORDER BY rowid"
        )
        self._unstage = f"DELETE FROM {self._staged} WHERE {age} < ?"
        self._leave = f"DELETE FROM {self.name} WHERE {age} < ?"

    @abstractmethod
    def put(
        self, cursor: sqlite3.Cursor, tuples: Sequence[Tuple], batch: int, slid: Slid | None
    ) -> None:
        """Take tuples in, and slide if it is time."""

    def make(self, connection: sqlite3.Connection) -> None:
        """Create both tables."""
        for table in (self.name, self._staged):
            connection.execute(f"CREATE TABLE {table} ({self._definition}) STRICT")

    def _slide_to(self, cursor: sqlite3.Cursor, end: int, slid: Slid | None) -> None:
        """Let the window hold what is younger than `end`, but not too old for it."""
        oldest = end - self._size
        cursor.execute(self._enter, (oldest, end))
        cursor.execute(self._unstage, (end,))
        cursor.execute(self._leave, (oldest,))
        if slid:
            slid()

    def _index_age(self, connection: sqlite3.Connection, table: str) -> None:
        connection.execute(f"CREATE INDEX headrace_age_{table} ON {table} ({self._age})")


class TupleWindow(WindowTable):
    """A window by tuples. Rows are only taken away at the old end, so rowids have no holes."""

    def __init__(self, window: Window) -> None:
        super().__init__(window, "rowid")
        self._newest = f"SELECT coalesce(max(rowid), 0) FROM {self.name}"
        self._waiting = f"SELECT min(rowid), max(rowid) FROM {self._staged}"

    def put(
        self, cursor: sqlite3.Cursor, tuples: Sequence[Tuple], batch: int, slid: Slid | None
    ) -> None:
        """Take tuples in, and slide after every `slide` of them."""
        if self._slide > 1:
            self._put_staged(cursor, tuples, slid)
        elif slid is None and len(tuples) != 1:
            cursor.executemany(self._insert, tuples)
            self._expire(cursor)
        else:
            for values in tuples:
                newest = cursor.execute(self._insert, values).lastrowid
                assert newest is not None, "an INSERT has a row"
                cursor.execute(self._leave, (newest - self._size + 1,))
                if slid:
                    slid()

    def _put_staged(
        self, cursor: sqlite3.Cursor, tuples: Sequence[Tuple], slid: Slid | None
    ) -> None:
        cursor.executemany(self._stage, tuples)
        first, last = cursor.execute(self._waiting).fetchone()
        if first is None:
            return
        while last - first + 1 >= self._slide:
            end = first + self._slide
            cursor.execute(self._enter, (first, end))
            cursor.execute(self._unstage, (end,))
            self._expire(cursor)
            if slid:
                slid()
            first = end

    def _expire(self, cursor: sqlite3.Cursor) -> None:
        (newest,) = cursor.execute(self._newest).fetchone()
        cursor.execute(self._leave, (newest - self._size + 1,))


class BatchWindow(WindowTable):
    """A window by batches: it slides at the batches whose id is a multiple of `slide`."""

    def __init__(self, window: Window) -> None:
        super().__init__(window, BATCH, f"{BATCH} INTEGER NOT NULL")
        self._waits = f"SELECT 1 FROM {self._staged} WHERE {BATCH} <= ?"

    def put(
        self, cursor: sqlite3.Cursor, tuples: Sequence[Tuple], batch: int, slid: Slid | None
    ) -> None:
        """Take all tuples of a batch in, and slide if it is its turn."""
        slide = self._slide
        missed = (batch - 1) // slide * slide  # if the batch at which it was due has died
        if slide > 1 and cursor.execute(self._waits, (missed,)).fetchone():
            self._slide_to(cursor, missed + 1, slid)
        cursor.executemany(self._stage, [(*values, batch) for values in tuples])
        if batch % slide == 0:
            self._slide_to(cursor, batch + 1, slid)

    def make(self, connection: sqlite3.Connection) -> None:
        """Create both tables, and find the oldest batch by an index."""
        super().make(connection)
        self._index_age(connection, self.name)


class IntervalWindow(WindowTable):
    """A window by event time: it slides when a tuple reaches the next multiple of `slide`.

    It goes to each boundary at which tuples enter, and to the newest. A late tuple enters with
    the next slide, if it is not too old for it by then.
    """

    def __init__(self, window: Window, time: str) -> None:
        super().__init__(window, time)
        self._first = f"SELECT min({time}) FROM {self._staged}"
        self._span = f"SELECT min({time}), max({time}) FROM {self._staged}"

    def put(
        self, cursor: sqlite3.Cursor, tuples: Sequence[Tuple], batch: int, slid: Slid | None
    ) -> None:
        """Take tuples in, and slide to where event time has come."""
        cursor.executemany(self._stage, tuples)
        first, last = cursor.execute(self._span).fetchone()
        if first is None:
            return
        found = cursor.execute(BOUNDARY, [self.name]).fetchone()
        boundary = found[0] if found else self._floor(first)
        newest = max(self._floor(last), boundary)
        while boundary < newest:
            (first,) = cursor.execute(self._first).fetchone()
            enters = max(self._floor(first), boundary) + self._slide
            boundary = min(enters, newest)
            self._slide_to(cursor, boundary, slid)
        cursor.execute(SET_BOUNDARY, {"name": self.name, "boundary": boundary})

    def make(self, connection: sqlite3.Connection) -> None:
        """Create both tables, and find tuples by their time through an index."""
        super().make(connection)
        for table in (self.name, self._staged):
            self._index_age(connection, table)

    def _floor(self, time: Any) -> int:
        return int(time // self._slide * self._slide)


def table_for(window: Window) -> WindowTable:
    """Make what slides a window, by its extent."""
    extent = window.extent
    if isinstance(extent, LastTuples):
        return TupleWindow(window)
    if isinstance(extent, LastBatches):
        return BatchWindow(window)
    return IntervalWindow(window, extent.column)


def make_aggregate(connection: sqlite3.Connection, aggregate: Aggregate) -> None:
    """Create an aggregate's table and what keeps it, and fill it from the window as it is."""
    name, window, by = aggregate.name, aggregate.window.name, aggregate.by
    counts = [value for value, summed in aggregate.values if not summed]
    # Somebody has to know when the last tuple of a key is gone.
    values = aggregate.values if counts else (*aggregate.values, ("_count", ""))
    count = counts[0] if counts else "_count"

    def share(row: str) -> list[str]:
        """Say what one row adds to each value."""
        return [f"coalesce({row}.{summed}, 0)" if summed else "1" for _, summed in values]

    def changed(row: str, sign: str) -> str:
        shares = zip(values, share(row), strict=True)
        return ", ".join(f"{value} = {value} {sign} {of_row}" for (value, _), of_row in shares)

    if by:
        keys = ", ".join(by)
        new = ", ".join([*(f"NEW.{key}" for key in by), *share("NEW")])
        is_old = " AND ".join(f"{key} = OLD.{key}" for key in by)
        more, grouped = [f"PRIMARY KEY ({keys})"], f" GROUP BY {keys}"
        add = f"INSERT INTO {name} VALUES ({new}) ON CONFLICT DO UPDATE SET {changed('NEW', '+')}"
        take = (
            f"UPDATE {name} SET {changed('OLD', '-')} WHERE {is_old}; "
            f"DELETE FROM {name} WHERE {is_old} AND {count} = 0"
        )
    else:  # one row, which is always there
        more, grouped = [], ""
        add = f"UPDATE {name} SET {changed('NEW', '+')}"
        take = f"UPDATE {name} SET {changed('OLD', '-')}"
    types = {column.name: column.type.value for column in aggregate.window.columns.columns}
    columns = [f"{key} {types[key]} NOT NULL" for key in by]
    columns += [f"{value} INTEGER NOT NULL" for value, _ in values]
    sums = [f"coalesce(sum({summed}), 0)" if summed else "count(*)" for _, summed in values]
    for statement in (
        f"CREATE TABLE {name} ({', '.join([*columns, *more])}) STRICT",
        f"INSERT INTO {name} SELECT {', '.join([*by, *sums])} FROM {window}{grouped}",
        f"CREATE TRIGGER headrace_add_{name} AFTER INSERT ON {window} BEGIN {add}; END",
        f"CREATE TRIGGER headrace_take_{name} AFTER DELETE ON {window} BEGIN {take}; END",
    ):
        connection.execute(statement)


def drop_aggregate(connection: sqlite3.Connection, name: str) -> None:
    """Drop an aggregate, and what keeps it."""
    connection.execute(f"DROP TRIGGER IF EXISTS headrace_add_{name}")
    connection.execute(f"DROP TRIGGER IF EXISTS headrace_take_{name}")
    connection.execute(f"DROP TABLE IF EXISTS {name}")
