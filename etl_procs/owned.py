"""Owned: the lookups into tables of the core, and what SQL answers beside their indexes.

An answer is what SQL would say in the same transaction at that moment. An index is built when SQL
has been asked so much that building it would not have cost more.
"""

import logging
import sqlite3
import time
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from etl_procs.asking import Row
from etl_procs.changes import Changes, Key
from etl_procs.index import ADVANCE_AT, Index
from etl_procs.kept import Kept, Means, TooLarge
from etl_procs.metrics import LookupFigures
from etl_procs.model import Lookup
from etl_procs.questions import Question
from etl_procs.records import Codes
from etl_procs.stack import Stack
from etl_procs.versions import Layout, Unsortable

log = logging.getLogger(__name__)

FEW = 32
"""So few keys are asked of SQL: at 5 us each that takes no longer than a search in an index."""
ROWS_PER_KEY = 4
"""To ask SQL for a key costs as much as to read so many rows into an index."""


class Owned(Kept):
    """A lookup into a table of the core."""

    def __init__(self, lookup: Lookup, figures: LookupFigures, means: Means) -> None:
        super().__init__(Layout(lookup), figures)
        self._means = means
        self._changes = Changes(lookup)
        self._statements = _statements(lookup)
        self._index: Index | None = None
        self._asked = 0
        """How many keys SQL was asked for since there is no index."""
        self._count_at = 0
        """When it is worth while to count the table's rows again."""
        self._never = False
        """Whether it cannot be kept."""

    @property
    def stack(self) -> Stack | None:
        """Give what is in memory, if there is something."""
        return None if self._index is None else self._index.stack

    def drop(self) -> None:
        """Let the index go."""
        self._index = None
        self.measure()

    def answer(self, cursor: sqlite3.Cursor, question: Question) -> pa.Table:
        """Give a row for each key; NULLs where there is none."""
        count = len(question)
        changed = self._ready(cursor.connection, count) if count > FEW else None
        if changed is None or self.stack is None:
            self.figures.misses += count
            return self.table(self._ask(cursor, question))
        return self.find(
            self.stack,
            question,
            _codes(self.layout, changed),
            lambda rest: self._ask(cursor, rest),
        )

    def _ready(self, connection: sqlite3.Connection, count: int) -> list[Key] | None:
        """Make an index ready for `count` keys, if it is worth while: name the keys that have
        changed since what it holds.
        """
        began = time.monotonic()
        try:
            if self._index is None and not self._build(connection, count):
                return None
            assert self._index is not None
            changed = self._index.changed(connection)
            if changed is not None and len(changed) >= ADVANCE_AT:
                if self._index.advance(self._means.snapshot()):
                    changed = self._index.changed(connection)
                    self._means.make_room(self)
                else:
                    changed = None
        except (TooLarge, Unsortable) as error:
            self._give_up(error)
            changed = None
        finally:
            self._means.excuse(time.monotonic() - began)
        if changed is None:
            self.drop()
        else:
            self.figures.behind = len(changed)
        return changed

    def _build(self, connection: sqlite3.Connection, count: int) -> bool:
        self._asked += count
        if self._never or self._asked < self._count_at:
            return False
        most = self._asked * ROWS_PER_KEY
        table = self.layout.lookup.table.name
        counted = f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT ?)"
        (rows,) = connection.execute(counted, [most + 1]).fetchone()
        if rows > most:
            self._count_at = 2 * self._asked
            return False
        means = self._means
        self._index = Index.build(self.layout, self._changes, means.snapshot(), means.bytes_max)
        if self._index is None:
            return False
        self._asked = self._count_at = 0
        self.figures.builds += 1
        means.make_room(self)
        return True

    def _give_up(self, error: Exception) -> None:
        self._never = True
        log.warning(
            "lookup %s is answered by SQL: %s", self.layout.lookup.full_name, why_not(error)
        )

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
