"""Windows: tables of the recent part of what a procedure emits, and aggregates kept over them.

A window has a table of its name, which its procedure reads, and a staged one, where tuples wait
for the slide. Both change only by `put`, in the transaction of the procedure, and are rolled back
with it. Aggregates are kept by SQLite's own triggers, as tuples come and go.
"""

import sqlite3
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


class WindowTable:
    """The tables of one window, whatever its extent is."""

    def __init__(self, window: Window) -> None:
        self.name = window.name
        self._staged = f"headrace_staged_{window.name}"
        self._columns = self._all_columns(window)
        places = ", ".join("?" for _ in self._columns)
        self._insert = f"INSERT INTO {self.name} VALUES ({places})"  # noqa: S608 - checked names
        self._stage = f"INSERT INTO {self._staged} VALUES ({places})"  # noqa: S608
        self._declared = window.columns.sql

    def put(
        self, cursor: sqlite3.Cursor, tuples: Sequence[Tuple], batch: int, slid: Slid | None
    ) -> None:
        """Take tuples in, and slide if it is time."""
        raise NotImplementedError

    def make(self, connection: sqlite3.Connection) -> None:
        """Create both tables."""
        for table in (self.name, self._staged):
            connection.execute(f"CREATE TABLE {table} ({self._definition()}) STRICT")

    def _all_columns(self, window: Window) -> tuple[str, ...]:
        return window.columns.names

    def _definition(self) -> str:
        return self._declared

    def _enter(self, cursor: sqlite3.Cursor, condition: str, *values: int) -> None:
        """Move staged tuples into the window."""
        move = f"INSERT INTO {self.name} SELECT * FROM {self._staged}"  # noqa: S608
        cursor.execute(f"{move} WHERE {condition} ORDER BY rowid", values)


class TupleWindow(WindowTable):
    """A window by tuples. Rows are only taken away at the old end, so rowids have no holes."""

    def __init__(self, window: Window, extent: LastTuples) -> None:
        super().__init__(window)
        self._slide = extent.slide
        self._size = extent.size
        self._leave = f"DELETE FROM {self.name} WHERE rowid <= ?"  # noqa: S608
        self._newest = f"SELECT coalesce(max(rowid), 0) FROM {self.name}"  # noqa: S608

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
                cursor.execute(self._leave, (newest - self._size,))
                if slid:
                    slid()

    def _expire(self, cursor: sqlite3.Cursor) -> None:
        (newest,) = cursor.execute(self._newest).fetchone()
        cursor.execute(self._leave, (newest - self._size,))

    def _put_staged(
        self, cursor: sqlite3.Cursor, tuples: Sequence[Tuple], slid: Slid | None
    ) -> None:
        cursor.executemany(self._stage, tuples)
        bounds = f"SELECT min(rowid), max(rowid) FROM {self._staged}"  # noqa: S608
        first, last = cursor.execute(bounds).fetchone()
        if first is None:
            return
        while last - first + 1 >= self._slide:
            first += self._slide
            self._enter(cursor, "rowid < ?", first)
            cursor.execute(f"DELETE FROM {self._staged} WHERE rowid < ?", [first])  # noqa: S608
            self._expire(cursor)
            if slid:
                slid()


class BatchWindow(WindowTable):
    """A window by batches: it slides at the batches whose id is a multiple of `slide`."""

    def __init__(self, window: Window, extent: LastBatches) -> None:
        super().__init__(window)
        self._extent = extent

    def put(
        self, cursor: sqlite3.Cursor, tuples: Sequence[Tuple], batch: int, slid: Slid | None
    ) -> None:
        """Take all tuples of a batch in, and slide if it is its turn."""
        slide = self._extent.slide
        missed = (batch - 1) // slide * slide  # if the batch at which it was due has died
        waits = f"SELECT 1 FROM {self._staged} WHERE {BATCH} <= ?"  # noqa: S608
        if slide > 1 and cursor.execute(waits, [missed]).fetchone():
            self._slide_to(cursor, missed, slid)
        cursor.executemany(self._stage, [(*values, batch) for values in tuples])
        if batch % slide == 0:
            self._slide_to(cursor, batch, slid)

    def _slide_to(self, cursor: sqlite3.Cursor, batch: int, slid: Slid | None) -> None:
        self._enter(cursor, f"{BATCH} <= ?", batch)
        cursor.execute(f"DELETE FROM {self._staged} WHERE {BATCH} <= ?", [batch])  # noqa: S608
        expire = f"DELETE FROM {self.name} WHERE {BATCH} <= ?"  # noqa: S608
        cursor.execute(expire, [batch - self._extent.size])
        if slid:
            slid()

    def make(self, connection: sqlite3.Connection) -> None:
        """Create both tables, and find the oldest batch by an index."""
        super().make(connection)
        connection.execute(f"CREATE INDEX headrace_age_{self.name} ON {self.name} ({BATCH})")

    def _all_columns(self, window: Window) -> tuple[str, ...]:
        return (*window.columns.names, BATCH)

    def _definition(self) -> str:
        return f"{self._declared}, {BATCH} INTEGER NOT NULL"


class IntervalWindow(WindowTable):
    """A window by event time: it slides when a tuple reaches the next multiple of `slide`.

    It goes to each boundary at which tuples enter, and to the newest. A late tuple enters with
    the next slide, if it is not too old for it by then.
    """

    def __init__(self, window: Window, column: str, size: int, slide: int) -> None:
        super().__init__(window)
        self._column, self._size, self._slide = column, size, slide

    def put(
        self, cursor: sqlite3.Cursor, tuples: Sequence[Tuple], batch: int, slid: Slid | None
    ) -> None:
        """Take tuples in, and slide to where event time has come."""
        cursor.executemany(self._stage, tuples)
        span = f"SELECT min({self._column}), max({self._column}) FROM {self._staged}"  # noqa: S608
        first, last = cursor.execute(span).fetchone()
        if first is None:
            return
        found = cursor.execute(BOUNDARY, [self.name]).fetchone()
        boundary = found[0] if found else self._floor(first)
        newest = max(self._floor(last), boundary)
        while boundary < newest:
            (first,) = cursor.execute(span.replace(f", max({self._column})", "")).fetchone()
            enters = max(self._floor(first) + self._slide, boundary + self._slide)
            boundary = min(enters, newest)
            self._slide_to(cursor, boundary)
            if slid:
                slid()
        cursor.execute(SET_BOUNDARY, {"name": self.name, "boundary": boundary})

    def make(self, connection: sqlite3.Connection) -> None:
        """Create both tables, and find tuples by their time through an index."""
        super().make(connection)
        for table in (self.name, self._staged):
            connection.execute(f"CREATE INDEX headrace_age_{table} ON {table} ({self._column})")

    def _slide_to(self, cursor: sqlite3.Cursor, boundary: int) -> None:
        oldest = boundary - self._size
        time = self._column
        self._enter(cursor, f"{time} >= ? AND {time} < ?", oldest, boundary)
        cursor.execute(f"DELETE FROM {self._staged} WHERE {time} < ?", [boundary])  # noqa: S608
        cursor.execute(f"DELETE FROM {self.name} WHERE {time} < ?", [oldest])  # noqa: S608

    def _floor(self, time: Any) -> int:
        return int(time // self._slide * self._slide)


def table_for(window: Window) -> WindowTable:
    """Make what slides a window, by its extent."""
    extent = window.extent
    if isinstance(extent, LastTuples):
        return TupleWindow(window, extent)
    if isinstance(extent, LastBatches):
        return BatchWindow(window, extent)
    return IntervalWindow(window, extent.column, extent.size, extent.slide)


def make_aggregate(connection: sqlite3.Connection, aggregate: Aggregate) -> None:
    """Create an aggregate's table and what keeps it, and fill it from the window as it is."""
    name, window = aggregate.name, aggregate.window
    types = {column.name: column.type.value for column in window.columns.columns}
    counts = [value for value, summed in aggregate.values if not summed]
    # Somebody has to know when the last tuple of a key is gone.
    values = aggregate.values if counts else (*aggregate.values, ("_count", ""))
    count = counts[0] if counts else "_count"
    columns = [f"{key} {types[key]} NOT NULL" for key in aggregate.by]
    columns += [f"{value} INTEGER NOT NULL" for value, _ in values]
    if aggregate.by:
        columns.append(f"PRIMARY KEY ({', '.join(aggregate.by)})")
    connection.execute(f"CREATE TABLE {name} ({', '.join(columns)}) STRICT")

    def of(row: str, sign: str) -> str:
        return ", ".join(
            f"{value} = {value} {sign} " + (f"coalesce({row}.{summed}, 0)" if summed else "1")
            for value, summed in values
        )

    key_is = " AND ".join(f"{key} = {{row}}.{key}" for key in aggregate.by) or "true"
    old_key = key_is.format(row="OLD")
    if aggregate.by:
        new = [f"NEW.{key}" for key in aggregate.by]
        new += [f"coalesce(NEW.{summed}, 0)" if summed else "1" for _, summed in values]
        add = (
            f"INSERT INTO {name} VALUES ({', '.join(new)}) "  # noqa: S608
            f"ON CONFLICT DO UPDATE SET {of('NEW', '+')}"
        )
        gone = f"DELETE FROM {name} WHERE {old_key} AND {count} = 0;"  # noqa: S608
    else:
        add = f"UPDATE {name} SET {of('NEW', '+')}"  # noqa: S608
        gone = ""
    take = f"UPDATE {name} SET {of('OLD', '-')} WHERE {old_key}"  # noqa: S608
    sums = [f"coalesce(sum({summed}), 0)" if summed else "count(*)" for _, summed in values]
    by = f" GROUP BY {', '.join(aggregate.by)}" if aggregate.by else ""
    fill = ", ".join([*aggregate.by, *sums])
    connection.execute(f"INSERT INTO {name} SELECT {fill} FROM {window.name}{by}")  # noqa: S608
    connection.execute(
        f"CREATE TRIGGER headrace_add_{name} AFTER INSERT ON {window.name} BEGIN {add}; END"
    )
    connection.execute(
        f"CREATE TRIGGER headrace_take_{name} AFTER DELETE ON {window.name} "
        f"BEGIN {take}; {gone} END"
    )


def drop_aggregate(connection: sqlite3.Connection, name: str) -> None:
    """Drop an aggregate, and what keeps it."""
    for what in (f"TRIGGER headrace_add_{name}", f"TRIGGER headrace_take_{name}", f"TABLE {name}"):
        connection.execute(f"DROP {what.replace(' ', ' IF EXISTS ', 1)}")
