"""The watch: it notices what is committed in the cores, whoever does it."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from etl_procs.errors import CoreError
from etl_procs.reader import Reader
from etl_procs.store import make_durable, translated
from headrace.errors import NotRunning

DATA_VERSION = "PRAGMA data_version"


class Watch:
    """Looks at the cores of some partitions; used by one thread at a time.

    While nothing is committed, a look costs some microseconds.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._connections: dict[Path, sqlite3.Connection] = {}
        self._versions: dict[Path, int] = {}
        self._batches: dict[Path, Mapping[str, int]] = {}

    def look(self) -> bool:
        """Look at all cores that there are; tell whether something has been committed. What keeps
        one from being looked at is raised when the others were.
        """
        changed, failure = False, None
        for path in self._paths:
            try:
                with suppress(NotRunning), translated():
                    changed |= self._has_changed(path)
            except CoreError as error:
                failure = error
        if failure is not None:
            raise failure
        return changed

    def _has_changed(self, path: Path) -> bool:
        version = self._version(path)
        if version == self._versions.get(path):
            return False
        with Reader(path).snapshot() as snapshot:
            batches = snapshot.batches()
        make_durable(path)  # no core must lose what somebody is told
        self._batches[path], self._versions[path] = batches, version
        return True

    def batches(self, dataflow: str, partitions: int) -> list[int]:
        """Tell the last batch of each partition, as of the last look: all of it is on the disk."""
        return [self._batches.get(p, {}).get(dataflow, 0) for p in self._paths[:partitions]]

    def _version(self, path: Path) -> int:
        if path not in self._connections:
            Reader(path).check()
            address = f"{path.absolute().as_uri()}?mode=rw"
            opened = sqlite3.connect(address, uri=True, check_same_thread=False)
            self._connections[path] = opened
        (version,) = self._connections[path].execute(DATA_VERSION).fetchone()
        return int(version)
