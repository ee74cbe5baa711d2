"""The store: one SQLite database, one writer at a time, in turn, and what a failed write means."""

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from math import inf
from pathlib import Path

from etl_procs import changes
from etl_procs.access import Access
from etl_procs.asking import Connects
from etl_procs.errors import CoreError, Locked, OutOfRoom, primary_code
from etl_procs.lookups import Lookups
from headrace.clock import Clock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints, Point

# The door keeps our own writers apart; this is for a stranger's, such as the sqlite3 shell.
BUSY_TIMEOUT_MS = 10_000
LOG_BYTES_KEPT = 64 * 2**20
STATEMENTS_KEPT = 1_000
STEPS_BETWEEN_LOOKS = 100_000
"""Steps of SQLite's machine, about a millisecond, after which the time of a unit is looked at."""
SYNCHRONOUS = {"strong": "FULL", "weak": "NORMAL"}
RETRY_S = 0.0005
LONG_RETRY_S = 0.01
SOON_S = 0.05
WAIT_S = 10.0
"""A writer holds the lock for milliseconds; so long a time is a fault."""


class Write(Enum):
    """The kinds of transactions that write, and the crash points around their commits."""

    OPEN = (Point.CORE_OPEN_BEFORE, Point.CORE_OPEN_AFTER)
    GROUP = (Point.CORE_COMMIT_BEFORE, Point.CORE_COMMIT_AFTER)
    CALL = (Point.CORE_CALL_BEFORE, Point.CORE_CALL_AFTER)
    LETTERS = (Point.CORE_LETTERS_BEFORE, Point.CORE_LETTERS_AFTER)
    FORGET = (Point.CORE_FORGET_BEFORE, Point.CORE_FORGET_AFTER)
    PUBLISH = (Point.CORE_PUBLISH_BEFORE, Point.CORE_PUBLISH_AFTER)


class Store:
    """A connection that writes. Used by one thread at a time."""

    def __init__(self, path: Path, settings: Settings, crash: CrashPoints) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.connection = connected(path)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[settings.durability]}")
        # A long reader makes the log grow; it is cut to this when the reader is gone.
        self.connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_KEPT}")
        # Debian's SQLite writes zeros over what is deleted: to forget a million rows took 0.25 s
        # longer, a fifth of their push.
        self.connection.execute("PRAGMA secure_delete = OFF")
        self._door = Door(path)
        self._crash = crash

    @contextmanager
    def commit(self, write: Write) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction; if it raises, nothing of it is there."""
        before, after = write.value
        with self._door.writing(), translated():
            try:
                self.connection.execute("BEGIN IMMEDIATE")
                yield self.connection
                assert self.connection.in_transaction, "nothing ends the transaction but this"
                self._crash.reached(before)
                self.connection.execute("COMMIT")
                self._crash.reached(after)
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    @contextmanager
    def without_references(self) -> Iterator[None]:
        """Enforce no foreign keys meanwhile: a table that is replaced would take with it, or
        change, what refers to it. (SQLite takes this only between two transactions.)
        """
        self.connection.execute("PRAGMA foreign_keys = OFF")
        try:
            yield
        finally:
            self.connection.execute("PRAGMA foreign_keys = ON")

    def close(self) -> None:
        """Close the file; what was committed stays."""
        self.connection.close()
        self._door.close()


class GuardedStore(Store):
    """A store in which users' code runs: `access` keeps it to what it declares, `lookups` answer,
    and a statement ends when it is `overdue_at`, by the clock's monotonic time.
    """

    def __init__(
        self,
        path: Path,
        settings: Settings,
        crash: CrashPoints,
        clock: Clock,
        warehouses: Connects | None = None,
    ) -> None:
        super().__init__(path, settings, crash)
        self.access = Access(connected(path))
        self.overdue_at = inf
        size_max = settings.lookups_mb_max * 2**20
        self.lookups = Lookups(lambda: connected(path), size_max, self._excuse, clock, warehouses)
        self._trimmed_at = 0
        self.connection.set_progress_handler(
            lambda: clock.monotonic() > self.overdue_at, STEPS_BETWEEN_LOOKS
        )

    @contextmanager
    def commit(self, write: Write) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction; if it raises, nothing of it is there."""
        with super().commit(write) as connection:
            yield connection
            if connection.total_changes > self._trimmed_at + changes.TRIM_EVERY:
                changes.trim(connection)
                self._trimmed_at = connection.total_changes

    def _excuse(self, seconds: float) -> None:
        self.overdue_at += seconds

    def close(self) -> None:
        """Close the file; what was committed stays."""
        self.lookups.close()
        self.access.close()
        # SQLite does so where nobody else is connected: a file that is copied then is whole.
        with suppress(sqlite3.Error):
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        super().close()


def connected(path: Path) -> sqlite3.Connection:
    """Connect to a core's file, as everyone does who compiles or runs a procedure's SQL."""
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, cached_statements=STATEMENTS_KEPT
    )
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA foreign_keys = ON")
    # Otherwise what REPLACE deletes would be deleted without its triggers.
    connection.execute("PRAGMA recursive_triggers = ON")
    return connection


def make_durable(path: Path) -> None:
    """Return when all that is committed in a core's file is on the disk, whoever wrote it."""
    try:
        with path.with_name(path.name + "-wal").open("rb") as log:
            os.fsync(log)
    except FileNotFoundError:
        return  # closed in order: all of it is in the file itself
    except OSError as error:
        raise OutOfRoom(
            f"what the core has committed cannot be brought to its disk: {error}",
            hint="See what the system's log says of the disk; nobody is told of it until then.",
        ) from error


@contextmanager
def translated() -> Iterator[None]:
    """Say what an error of SQLite's means for the core."""
    try:
        yield
    except sqlite3.Error as error:
        raise failure(error) from error
    except MemoryError as error:  # Python's own, or SQLite's, for which Python has no other
        raise OutOfRoom(
            "this machine has no memory left",
            hint="Give it more, or cut smaller batches. Nothing was half-written.",
        ) from error


def failure(error: sqlite3.Error) -> CoreError:
    """Say what an error of SQLite's means for the core."""
    match primary_code(error):
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_NOMEM:
            return OutOfRoom(
                "the disk that holds the core is full"
                if primary_code(error) == sqlite3.SQLITE_FULL
                else f"the core's file could not be written: {error}",
                hint="Free some room. Nothing was half-written, and the core goes on from there.",
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return Locked(
                f"another process held the core's write lock for {BUSY_TIMEOUT_MS // 1000} s",
                hint="Find who has the file open for writing: `fuser` on the core's file tells.",
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return CoreError(
                f"the core's file is damaged: {error}",
                hint="Restore the data folder from a backup, or start over with `headrace reset`.",
            )
    return CoreError(f"the core's database said: {error}", hint="Nothing of it was kept.")


class Door:
    """The right to write into one core; each opener of the core has one of his own.

    SQLite's own lock is polled by whoever waits for it, so a writer that never pauses would starve
    the others. Here, whoever wants to write takes the door, waits behind it for the one who writes,
    and gives the door free when he is in. The next in line can only be somebody else.
    """

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
