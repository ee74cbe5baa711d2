"""Owned: the lookups into tables of the core, and what SQL answers beside their indexes.

An answer is what SQL would say in the same transaction at that moment. An index holds versions as
they are committed, so nothing that is rolled back is ever in it. What has changed since, committed
or not, is read from the log of changes with each question, and those keys are asked of SQL; when
they become many, what is committed of them is put on top. It is built when SQL has been asked so
much that building it would not have cost more.
"""

import logging
import sqlite3
import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from etl_procs.asking import Row
from etl_procs.changes import Changes, Key, Mark
from etl_procs.kept import Kept, Question, TooLarge
from etl_procs.metrics import LookupFigures
from etl_procs.model import Lookup
from etl_procs.records import Codes, Places
from etl_procs.versions import DOUBTFUL, Flags, Layout, Stack, Unsortable, Versions

if TYPE_CHECKING:
    from etl_procs.lookups import Lookups

log = logging.getLogger(__name__)

FEW = 32
"""So few keys are asked of SQL: at 5 us each that takes no longer than a search in an index."""
ROWS_PER_KEY = 4
"""To ask SQL for a key costs as much as to read so many rows into an index."""
ADVANCE_AT = 256
"""Changes that are taken in at once: to read one from the log costs 0.4 us with each question, to
take one in 8 us once."""
REBUILT_FROM = 4
"""If more than one of so many rows has changed, all are read anew."""
ROWS_AT_ONCE = 2_000
"""Of 50,000, which no cache holds, a million took 1.4 s to read; so, 1.1 s."""


class Owned(Kept):
    """A lookup into a table of the core."""

    def __init__(self, lookup: Lookup, figures: LookupFigures, means: "Lookups") -> None:
        super().__init__(lookup, figures, means)
        self._changes = Changes(lookup)
        self._statements = _statements(lookup)
        columns = ", ".join(f'"{name}"' for name in (*_sorted_by(lookup), *lookup.gives))
        self._select = f"SELECT {columns} FROM {lookup.table.name}"
        self._mark: Mark | None = None
        """The state of the table that is in the index."""
        self._asked = 0
        """How many keys SQL was asked for since there is no index."""
        self._count_at = 0
        """When it is worth while to count the table's rows again."""
        self._never = False
        """Whether it cannot be kept."""

    def answer(self, cursor: sqlite3.Cursor, question: Question) -> pa.Table:
        """Give a row for each key; NULLs where there is none."""
        count = len(question)
        changed = self._ready(cursor.connection, count) if count > FEW else None
        if changed is None or self.stack is None:
            self.figures.misses += count
            return self.table(self._ask(cursor, question))
        codes = _codes(self.layout, changed)
        return self.find(self.stack, question, codes, partial(self._ask, cursor))

    def is_open(self, places: Places) -> Flags:
        """Tell which keys have changed, or have a code that another has."""
        is_doubtful: Flags = places == DOUBTFUL
        return is_doubtful

    def _ready(self, connection: sqlite3.Connection, count: int) -> list[Key] | None:
        """Make an index ready for `count` keys, if it is worth while: name the keys that have
        changed since what it holds.
        """
        began, changed = time.monotonic(), None
        try:
            if self.stack is not None or self._build(connection, count):
                changed = self._current(connection)
        except (TooLarge, Unsortable) as error:
            self._never, name = True, self.layout.lookup.full_name
            log.warning("lookup %s is answered by SQL: %s", name, why_not(error))
        finally:
            self.means.excuse(time.monotonic() - began)
        if changed is None:
            self.drop()
        else:
            self.figures.behind = len(changed)
        return changed

    def _build(self, connection: sqlite3.Connection, count: int) -> bool:
        """Read the table, as it is committed, if that pays and its changes are written down."""
        self._asked += count
        if self._never or self._asked < self._count_at:
            return False
        most, lookup = self._asked * ROWS_PER_KEY, self.layout.lookup
        counted = f"SELECT count(*) FROM (SELECT 1 FROM {lookup.table.name} LIMIT ?)"
        (rows,) = connection.execute(counted, [most + 1]).fetchone()
        if rows > most:
            self._count_at = 2 * self._asked
            return False
        committed = self.means.snapshot()
        self._mark = self._changes.mark(committed)
        if self._mark is None:
            return False
        known = " AND ".join(f'"{name}" IS NOT NULL' for name in _sorted_by(lookup))
        cursor = committed.execute(f"{self._select} WHERE {known}")
        pieces = iter(lambda: cursor.fetchmany(ROWS_AT_ONCE), [])
        self.stack = Stack(self.layout, self.gathered(pieces))
        self._asked = self._count_at = 0
        self.figures.builds += 1
        self.means.make_room(self)
        return True

    def _current(self, connection: sqlite3.Connection) -> list[Key] | None:
        """Name the keys that have changed since what the index holds, in which they are taken in
        when they are many; None if it cannot be told: then it must be built anew.
        """
        changed = self._changed(connection)
        if changed is None or len(changed) < ADVANCE_AT:
            return changed
        if not self._advance(self.means.snapshot()):
            return None
        changed = self._changed(connection)
        self.means.make_room(self)
        return changed

    def _changed(self, connection: sqlite3.Connection) -> list[Key] | None:
        assert self.stack is not None
        assert self._mark is not None
        most = ADVANCE_AT + len(self.stack.base) // REBUILT_FROM
        return self._changes.since(connection, self._mark, most)

    def _advance(self, committed: sqlite3.Connection) -> bool:
        """Take in what is committed by now; False if that cannot be told, or is too much."""
        assert self.stack is not None
        mark, keys = self._changes.mark(committed), self._changed(committed)
        if mark is None or keys is None:
            return False
        known = dict.fromkeys(key for key in keys if None not in key)
        self.stack.put_on_top(self._read(committed, known))
        self._mark = mark
        return True

    def _read(self, committed: sqlite3.Connection, keys: Iterable[Key]) -> Versions:
        layout, lookup = self.layout, self.layout.lookup
        where = " AND ".join(f'"{name}" = ?' for name in lookup.key)
        where += f' AND "{lookup.at}" IS NOT NULL' if lookup.at else ""
        rows: list[Row] = []
        for key in keys:
            found = committed.execute(f"{self._select} WHERE {where}", key).fetchall()
            rows += found or [layout.gone(key)]
        return Versions.of(layout, layout.table(rows))

    def _ask(self, cursor: sqlite3.Cursor, question: Question) -> list[Row]:
        """Ask SQL for each key."""
        nothing = (None,) * len(self.layout.given)
        answers = []
        for parameters in question.rows():
            found: list[Row] = []
            for statement in self._statements:
                found = found or cursor.execute(statement, parameters).fetchall()
            answers.append(found[0] if found else nothing)
        return answers


def why_not(error: Exception) -> str:
    """Say why rows cannot be kept in memory."""
    if isinstance(error, TooLarge):
        return "it does not fit into core.lookups_mb_max"
    return "its moments are longer than 64 bytes, or have NUL characters"


def _sorted_by(lookup: Lookup) -> tuple[str, ...]:
    return (*lookup.key, lookup.at) if lookup.at else lookup.key


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
