"""Parking: how many rows wait in the tables that say so, such as facts whose key has not come."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

from etl_procs.dataflow import Dataflow
from etl_procs.store import connected
from headrace.clock import Clock

REST = 50
"""Times what a count took, after which the next is due: SQLite reads all of a table for one."""


class Parking:
    """Counts parked rows of one core, as they are committed, beside whoever writes."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._due = 0.0
        self._found: dict[str, int] = {}

    def count(self, dataflows: Iterable[Dataflow]) -> dict[str, int]:
        """Tell how many rows are parked, by dataflow.table; or were of late, if that takes long."""
        tables = [
            (f"{flow.name}.{name}", name)
            for flow in dataflows
            for name, table in flow.tables.items()
            if table.parks
        ]
        began = self._clock.monotonic()
        if not tables or began < self._due:
            return self._found
        with suppress(sqlite3.Error), closing(connected(self._path)) as connection:
            connection.execute("PRAGMA query_only = ON")
            found = {}
            for full_name, name in tables:
                ((found[full_name],),) = connection.execute(f"SELECT count(*) FROM {name}")
            self._found = found
        ended = self._clock.monotonic()
        self._due = ended + REST * (ended - began)
        return self._found
