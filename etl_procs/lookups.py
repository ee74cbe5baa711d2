"""Lookups: the indexes that a process keeps of a core's tables, and what SQL answers beside them.

An answer is what SQL would say in the same transaction at that moment. An index is built when SQL
has been asked so much that building it would not have cost more, and the one that was not used for
longest goes when there is no room: it comes back by the same rule.
"""

import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from etl_procs.changes import Changes, Key
from etl_procs.errors import CoreError
from etl_procs.index import ADVANCE_AT, Index, TooLarge
from etl_procs.metrics import LookupFigures
from etl_procs.model import Lookup
from etl_procs.rules import Value
from etl_procs.versions import DOUBTFUL, Asked, Codes, Layout, Unsortable

log = logging.getLogger(__name__)

Values: TypeAlias = pa.Array | pa.ChunkedArray | Sequence[Value | None]
"""One column: Arrow's, or a list."""

FEW = 32
"""So few keys are asked of SQL: at 5 us each that takes no longer than a search in an index."""
ROWS_PER_KEY = 4
"""To ask SQL for a key costs as much as to read so many rows into an index."""


@dataclass(slots=True)
class _Kept:
    """What is kept of one lookup."""

    layout: Layout
    changes: Changes
    figures: LookupFigures
    statements: list[str]
    index: Index | None = None
    asked: int = 0
    """How many keys SQL was asked for since there is no index."""
    count_at: int = 0
    """When it is worth while to count the table's rows again."""
    never: bool = False
    """Whether it cannot be kept."""


class Lookups:
    """Answers the lookups of one connection that writes, within its transactions."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        bytes_max: int,
        excuse: Callable[[float], None],
    ) -> None:
        self._connect = connect
        self._bytes_max = bytes_max
        self._excuse = excuse
        """Told how long something took that is not the fault of who asked."""
        self._committed: sqlite3.Connection | None = None
        self._kept: dict[str, _Kept] = {}
        """The last one used at the end."""
        self.figures: dict[str, LookupFigures] = {}

    def answer(
        self, cursor: sqlite3.Cursor, lookup: Lookup, keys: Any, at: Values | None
    ) -> pa.Table:
        """Give a row for each key; NULLs where there is none."""
        kept = self._kept.pop(lookup.full_name, None) or self._new(lookup)
        self._kept[lookup.full_name] = kept
        columns, moments = _columns(kept.layout, keys, at)
        count = len(columns[0])
        changed = None
        if count > FEW:
            changed = self._ready(cursor.connection, kept, count)
        if changed is None or kept.index is None:
            kept.figures.misses += count
            return _table(kept, _ask(cursor, kept, columns, moments))
        return self._find(cursor, kept, changed, columns, moments)

    def close(self) -> None:
        """Forget all of it."""
        self._kept.clear()
        if self._committed is not None:
            self._committed.close()

    def _new(self, lookup: Lookup) -> _Kept:
        figures = self.figures.setdefault(lookup.full_name, LookupFigures())
        return _Kept(Layout(lookup), Changes(lookup), figures, _statements(lookup))

    def _find(
        self,
        cursor: sqlite3.Cursor,
        kept: _Kept,
        changed: list[Key],
        columns: list[pa.Array],
        moments: pa.Array | None,
    ) -> pa.Table:
        assert kept.index is not None
        layout = kept.layout
        null = np.zeros(len(columns[0]), np.bool_)
        for values in (*columns, *([] if moments is None else [moments])):
            if values.null_count:
                null |= values.is_null().to_numpy(zero_copy_only=False)
        held = None if moments is None else layout.moments(moments)
        asked = Asked(layout.codes(columns), columns, held)
        rows, places = kept.index.find(asked, _codes(layout, changed))
        places[null] = -1
        left = np.flatnonzero(places == DOUBTFUL)
        kept.figures.hits += len(places) - len(left)
        kept.figures.misses += len(left)
        if len(left):
            some = pa.array(left)
            subset = [column.take(some) for column in columns]
            found = _ask(cursor, kept, subset, None if moments is None else moments.take(some))
            places[left] = np.arange(len(rows), len(rows) + len(left))
            rows = pa.concat_tables([rows, _rows(layout, found)])
        taken = rows.take(pa.array(places, mask=places < 0))
        return taken.cast(layout.given)

    def _ready(self, connection: sqlite3.Connection, kept: _Kept, count: int) -> list[Key] | None:
        """Make an index ready for `count` keys, if it is worth while: name the keys that have
        changed since what it holds.
        """
        began = time.monotonic()
        try:
            if kept.index is None and not self._build(connection, kept, count):
                return None
            assert kept.index is not None
            changed = kept.index.changed(connection)
            if changed is not None and len(changed) >= ADVANCE_AT:
                if kept.index.advance(self._snapshot()):
                    changed = kept.index.changed(connection)
                    self._make_room(kept)
                else:
                    changed = None
        except (TooLarge, Unsortable) as error:
            self._give_up(kept, error)
            changed = None
        finally:
            self._excuse(time.monotonic() - began)
        if changed is None:
            self._drop(kept)
        else:
            kept.figures.behind = len(changed)
        return changed

    def _build(self, connection: sqlite3.Connection, kept: _Kept, count: int) -> bool:
        kept.asked += count
        if kept.never or kept.asked < kept.count_at:
            return False
        most = kept.asked * ROWS_PER_KEY
        table = kept.layout.lookup.table.name
        counted = f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT ?)"
        (rows,) = connection.execute(counted, [most + 1]).fetchone()
        if rows > most:
            kept.count_at = 2 * kept.asked
            return False
        kept.index = Index.build(kept.layout, kept.changes, self._snapshot(), self._bytes_max)
        if kept.index is None:
            return False
        kept.asked = kept.count_at = 0
        kept.figures.builds += 1
        self._make_room(kept)
        return kept.index is not None

    def _make_room(self, used: _Kept) -> None:
        """Let others go, the one first that was not used for longest, until all fit."""
        for kept in self._kept.values():
            if kept.index is not None:
                kept.figures.entries, kept.figures.bytes = kept.index.entries, kept.index.nbytes
        for kept in list(self._kept.values()):
            if sum(one.figures.bytes for one in self._kept.values()) <= self._bytes_max:
                return
            if kept is used:
                raise TooLarge
            self._drop(kept)

    def _give_up(self, kept: _Kept, error: Exception) -> None:
        kept.never = True
        why = (
            "it does not fit into core.lookups_mb_max"
            if isinstance(error, TooLarge)
            else "its moments are longer than 64 bytes, or have NUL characters"
        )
        log.warning("lookup %s is answered by SQL: %s", kept.layout.lookup.full_name, why)

    def _drop(self, kept: _Kept) -> None:
        kept.index = None
        kept.figures.entries = kept.figures.bytes = 0

    def _snapshot(self) -> sqlite3.Connection:
        """Give a connection that sees what is committed. (Nobody commits now: the lock is ours.)"""
        if self._committed is None:
            self._committed = self._connect()
            self._committed.execute("PRAGMA query_only = ON")
        return self._committed


def _columns(
    layout: Layout, keys: Any, at: Values | None
) -> tuple[list[pa.Array], pa.Array | None]:
    """Make Arrow arrays of what is asked, or say what does not fit."""
    lookup = layout.lookup
    of = f"lookup {lookup.full_name}"
    given = [keys] if len(lookup.key) == 1 else list(keys)
    if len(given) != len(lookup.key):
        raise CoreError(
            f"{of} is asked with {len(given)} columns, and its key has {len(lookup.key)}",
            hint=f"Give it one column for each of {', '.join(lookup.key)}, in this order.",
        )
    if (at is None) == bool(lookup.at):
        raise CoreError(
            f"{of} is asked without a moment" if lookup.at else f"{of} knows no moments",
            hint=f"Give it the values of {lookup.at}: at=[...]."
            if lookup.at
            else "Leave `at` away, or declare the column from whose value on a row is in force.",
        )
    pairs = zip(lookup.key, given, layout.keys, strict=True)
    columns = [_array(of, *pair) for pair in pairs]
    moments = None if at is None else _array(of, lookup.at, at, layout.columns[len(columns)])
    if len({len(values) for values in (*columns, *([] if moments is None else [moments]))}) > 1:
        raise CoreError(
            f"{of} is asked with columns of different lengths",
            hint="Give as many values of each: a row is found for every one.",
        )
    return columns, moments


def _array(of: str, name: str, values: Values, type_: pa.DataType) -> pa.Array:
    try:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if not isinstance(values, pa.Array):
            values = pa.array(values)
        is_number = pa.types.is_integer(values.type)
        if is_number != pa.types.is_integer(type_) and not pa.types.is_null(values.type):
            raise TypeError(f"it is {values.type}")
        if not is_number and not _is_text(values.type):
            raise TypeError(f"it is {values.type}")
        return values.cast(type_)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        wanted = "INTEGER" if pa.types.is_integer(type_) else "TEXT"
        raise CoreError(
            f"{of} is asked for a {name} that is no {wanted}: {error}",
            hint=f"Give it {wanted} values, as the table's column holds them.",
        ) from error


def _is_text(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return _is_text(type_.value_type)
    return bool(
        pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_null(type_)
    )


def _codes(layout: Layout, changed: Iterable[Key]) -> Codes:
    known = [key for key in changed if None not in key]
    if not known:
        return np.zeros(0, np.uint64)
    columns = zip(*known, strict=True)
    return np.unique(
        layout.codes([pa.array(c, t) for c, t in zip(columns, layout.keys, strict=True)])
    )


def _statements(lookup: Lookup) -> list[str]:
    """Write the queries that answer for one key: the next one if there is none before."""
    gives = ", ".join(f'"{name}"' for name in lookup.gives)
    key = " AND ".join(f'"{name}" = ?' for name in lookup.key)
    found = f"SELECT {gives} FROM {lookup.table.name} WHERE {key}"
    if not lookup.at:
        return [found]
    at = f'"{lookup.at}"'
    last = f"{found} AND {at} <= ? ORDER BY {at} DESC LIMIT 1"
    first = f"{found} AND {at} > ? ORDER BY {at} LIMIT 1"
    return [last, first] if lookup.or_earliest else [last]


def _ask(
    cursor: sqlite3.Cursor, kept: _Kept, columns: list[pa.Array], moments: pa.Array | None
) -> list[tuple[Any, ...]]:
    """Ask SQL for each key."""
    asked = [column.to_pylist() for column in (*columns, *([] if moments is None else [moments]))]
    nothing = (None,) * len(kept.layout.given)
    answers = []
    for parameters in zip(*asked, strict=True):
        found: list[tuple[Any, ...]] = []
        for statement in kept.statements:
            found = found or cursor.execute(statement, parameters).fetchall()
        answers.append(found[0] if found else nothing)
    return answers


def _rows(layout: Layout, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    types = layout.columns[-len(layout.given) :]
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, names=layout.given.names)


def _table(kept: _Kept, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    return _rows(kept.layout, rows).cast(kept.layout.given)
