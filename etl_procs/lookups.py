"""Lookups: what a process keeps of the rows that are looked up in, and in how much memory.

What was not used for longest goes when there is no room: it comes back by the rule by which it
came.
"""

import sqlite3
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from etl_procs.abroad import Abroad
from etl_procs.asking import Connects, Warehouses
from etl_procs.errors import CoreError
from etl_procs.kept import Kept, TooLarge, Values, question
from etl_procs.metrics import LookupFigures
from etl_procs.model import Foreign, Lookup
from etl_procs.owned import Owned
from headrace.clock import Clock


class Lookups:
    """Answers the lookups of one connection that writes, within its transactions."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        bytes_max: int,
        excuse: Callable[[float], None],
        clock: Clock,
        warehouses: Connects | None,
    ) -> None:
        self._connect = connect
        self._connects = warehouses
        self.bytes_max = bytes_max
        self.excuse = excuse
        """Told how long something took that is not the fault of who asked."""
        self.clock = clock
        self._asked: Warehouses | None = None
        self._committed: sqlite3.Connection | None = None
        self._kept: dict[str, Kept] = {}
        """The last one used at the end."""
        self.figures: dict[str, LookupFigures] = {}

    def answer(
        self, cursor: sqlite3.Cursor, lookup: Lookup, keys: Any, at: Values | None
    ) -> pa.Table:
        """Give a row for each key; NULLs where there is none."""
        kept = self._kept.pop(lookup.full_name, None) or self._new(lookup)
        self._kept[lookup.full_name] = kept
        return kept.answer(cursor, question(kept.layout, keys, at))

    def make_room(self, used: Kept) -> None:
        """Let others go, the one first that was not used for longest, until all fit."""
        for kept in self._kept.values():
            kept.measure()
        for kept in list(self._kept.values()):
            if sum(one.figures.bytes for one in self._kept.values()) <= self.bytes_max:
                return
            if kept is used:
                raise TooLarge
            kept.drop()

    def warehouses(self) -> Warehouses:
        """Give the connections by which tables of warehouses are asked."""
        if self._asked is None:
            if self._connects is None:
                raise CoreError(
                    "a lookup is over a warehouse's table, and nobody says how it is reached",
                    hint="In a trial: Trial(flow, warehouses=...).",
                )
            self._asked = self._connects()
        return self._asked

    def snapshot(self) -> sqlite3.Connection:
        """Give a connection that sees what is committed. (Nobody commits now: the lock is ours.)"""
        if self._committed is None:
            self._committed = self._connect()
            self._committed.execute("PRAGMA query_only = ON")
        return self._committed

    def close(self) -> None:
        """Forget all of it."""
        self._kept.clear()
        for opened in (self._committed, self._asked):
            if opened is not None:
                opened.close()

    def _new(self, lookup: Lookup) -> Kept:
        figures = self.figures.setdefault(lookup.full_name, LookupFigures())
        if isinstance(lookup.table, Foreign):
            return Abroad(lookup, lookup.table, figures, self)
        return Owned(lookup, figures, self)
