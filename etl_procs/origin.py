"""The origin: one partition's core, as those see it who move what it has staged."""

from contextlib import AbstractContextManager
from pathlib import Path

from etl_procs import staging
from etl_procs.reader import Reader, Snapshot
from etl_procs.store import Store, Write, make_durable
from headrace.config import Core as Settings
from headrace.crash import CrashPoints


class Origin:
    """What is staged in a core that was made: to read, and to drop once it has arrived."""

    def __init__(self, path: Path, settings: Settings, crash: CrashPoints) -> None:
        self._path = path
        self._store = Store(path, settings, crash)

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open the state that is committed now."""
        return Reader(self._path).snapshot()

    def make_durable(self) -> None:
        """Return when all that is committed is on the disk: before others are told of it."""
        make_durable(self._path)

    def forget(self, dataflow: str, through: int) -> None:
        """Drop staged batches that a warehouse has confirmed."""
        with self._store.commit(Write.FORGET) as connection:
            staging.forget(connection, dataflow, through)

    def close(self) -> None:
        """Close the core's file."""
        self._store.close()
