"""The door: writers of several processes come in one after another, in turn.

SQLite's own lock is polled by whoever waits for it, so a writer that never pauses would starve
the others. Here, whoever wants to write takes the door, waits behind it for the one who writes,
and gives the door free when he is in. The next in line can only be somebody else.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etl_procs.errors import Locked

RETRY_S = 0.0005
LONG_RETRY_S = 0.01
SOON_S = 0.05
WAIT_S = 10.0
"""A writer holds the lock for milliseconds; so long a time is a fault."""


class Door:
    """The right to write into one core; each opener of the core has one of his own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._door, self._write = _opened(path, ".door"), _opened(path, ".write")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Come in when it is our turn, and keep the others out until the block ends."""
        self._take(self._door)
        try:
            self._take(self._write)
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._write, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give back the files."""
        os.close(self._door)
        os.close(self._write)

    def _take(self, lock: int) -> None:
        if _taken(lock):
            return
        began = time.monotonic()
        while not _taken(lock):
            waited = time.monotonic() - began
            if waited > WAIT_S:
                raise Locked(
                    f"another process has held the core's write lock for {WAIT_S:.0f} s",
                    hint=f"Find who has {self._path} open for writing: `fuser` tells. Nothing was "
                    "changed, and it is tried again.",
                )
            time.sleep(RETRY_S if waited < SOON_S else LONG_RETRY_S)  # flock knows no limit


def _opened(path: Path, suffix: str) -> int:
    return os.open(path.with_suffix(suffix), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
