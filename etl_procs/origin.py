"""The origin: one partition's core, as those see it who move what it has staged."""

import sqlite3
from collections.abc import Collection
from contextlib import AbstractContextManager
from pathlib import Path

from etl_procs import followed, staging
from etl_procs.reader import Reader, Snapshot
from etl_procs.store import Store, Write, make_durable
from headrace.clock import Clock, SystemClock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints


class Origin:
    """What is staged in a core that was made: to read, and to drop once it has arrived."""

    def __init__(
        self, path: Path, settings: Settings, crash: CrashPoints, clock: Clock | None = None
    ) -> None:
        self._path = path
        self._store = Store(path, settings, crash)
        self._keep_s = settings.keep_s
        self._clock = clock or SystemClock()

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open the state that is committed now."""
        return Reader(self._path).snapshot()

    def make_durable(self) -> None:
        """Return when all that is committed is on the disk: before others are told of it."""
        make_durable(self._path)

    def feed(self, dataflow: str, warehouses: Collection[str]) -> list[str]:
        """Keep a dataflow's batches for these warehouses alone; name those that are left."""
        with self._store.commit(Write.FORGET) as connection:
            return staging.feed(connection, dataflow, warehouses)

    def confirm(self, dataflow: str, warehouse: str, through: int) -> int:
        """Take note of what a warehouse has, and forget what all of them have had for long enough;
        tell through which batch all is gone.
        """
        with self._store.commit(Write.FORGET) as connection:
            staging.confirm(connection, dataflow, warehouse, through)
            return self._forget(connection, dataflow)

    def hold(self, dataflow: str, warehouse: str) -> None:
        """Forget nothing more, until this warehouse has confirmed something again."""
        with self._store.commit(Write.FORGET) as connection:
            staging.confirm(connection, dataflow, warehouse, 0)

    def forget(self, dataflow: str) -> int:
        """Forget what all warehouses have had for long enough."""
        with self._store.commit(Write.FORGET) as connection:
            return self._forget(connection, dataflow)

    def _forget(self, connection: sqlite3.Connection, dataflow: str) -> int:
        at = self._clock.now().timestamp()
        keep_s = followed.kept_s(self._path, self._keep_s, at)
        return staging.forget(connection, dataflow, at=at, keep_s=keep_s)

    def close(self) -> None:
        """Close the core's file."""
        self._store.close()
