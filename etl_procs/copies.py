"""Copies: a warehouse's table in memory, as it was at a moment that is not long ago."""

from contextlib import closing

import pyarrow as pa

from etl_procs.asking import Warehouses
from etl_procs.kept import TooLarge
from etl_procs.model import Foreign
from etl_procs.stack import Stack
from etl_procs.versions import Layout, Versions
from headrace.clock import Clock


class Copy:
    """The rows of one table, by a lookup's key."""

    def __init__(self, layout: Layout, foreign: Foreign, clock: Clock, bytes_max: int) -> None:
        self._layout = layout
        self._foreign = foreign
        self._clock = clock
        self._bytes_max = bytes_max
        self._version = ""
        self._as_of = 0.0
        self.is_anew = False
        """Whether all rows were read, the last time."""
        self.stack: Stack | None = None

    @property
    def age_s(self) -> float:
        """Tell how old it is: nothing that was committed before is missing."""
        return self._clock.monotonic() - self._as_of

    def read(self, warehouses: Warehouses) -> int:
        """Make it new: read all rows, or what has changed, if that can be told. Tell how many."""
        as_of, version = self._clock.monotonic(), ""
        self.is_anew = False
        if self._foreign.version:
            version = warehouses.version(self._foreign)
            if self.stack is not None and version == self._version:
                self._as_of = as_of
                return 0
        changed = self._changed(warehouses)
        if self.stack is None or not len(changed):
            changed = self._read(warehouses, "")
            self.stack, self.is_anew = Stack(self._layout, changed), True
        else:
            self.stack.put_on_top(changed)
        self._as_of, self._version = as_of, version
        return len(changed)

    def _changed(self, warehouses: Warehouses) -> Versions:
        """Give what has come after the version that is held; nothing if that cannot be told. If
        there is none although the version is another, it went back: rows were put in place of all.
        """
        if self.stack is None or not self._version:
            return Versions.of(self._layout, self._layout.table([]))
        return self._read(warehouses, self._version)

    def _read(self, warehouses: Warehouses, after: str) -> Versions:
        tables, size = [self._layout.table([])], 0
        with closing(warehouses.read(self._layout.lookup, after)) as pieces:
            for rows in pieces:
                tables.append(self._layout.table(rows))
                size += tables[-1].nbytes
                if size > self._bytes_max:
                    raise TooLarge
        return Versions.of(self._layout, pa.concat_tables(tables))
