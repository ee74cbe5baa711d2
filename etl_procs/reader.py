"""Readers: any process may read a committed state of the core; the writer is never blocked."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import wraps
from math import inf
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakSet

from etl_procs import history, ledger, own_tables, published, staging
from etl_procs.access import Parameters
from etl_procs.dataflow import Dataflow
from etl_procs.dead_letters import DeadLetters
from etl_procs.errors import BadQuery, primary_code
from etl_procs.rules import Value
from etl_procs.store import (
    STEPS_BETWEEN_LOOKS,
    Door,
    Store,
    Write,
    connected,
)
from headrace.clock import Clock, SystemClock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints
from headrace.errors import NotRunning

Of = ParamSpec("Of")
Found = TypeVar("Found")

CLOCK = SystemClock()

READING = {
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_RECURSIVE,
    sqlite3.SQLITE_SELECT,
}
ASKING = {
    # What SQLite asks for functions that give tables, as json_each does; it never lets it be done.
    (sqlite3.SQLITE_UPDATE, "sqlite_master"),
    (sqlite3.SQLITE_PRAGMA, "table_info"),
}
FORBIDDEN = {sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY}

QUERY_HINT = (
    "It takes one SELECT in SQLite's dialect, over tables, windows and what begins with headrace_."
)


def _reads(
    read: Callable[Concatenate[sqlite3.Connection, Of], Found],
) -> Callable[Concatenate["Snapshot", Of], Found]:
    """Make what reads from a connection a method of snapshots."""

    @wraps(read)
    def method(snapshot: "Snapshot", /, *args: Of.args, **kwargs: Of.kwargs) -> Found:
        return read(snapshot.connection, *args, **kwargs)

    return method


class Snapshot:
    """One committed state of the core, the same for as long as it is open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.dead_letters = DeadLetters(connection)
        # The first read opens the snapshot: from here on, nothing newer is seen.
        (self.core_id,) = connection.execute("SELECT id FROM headrace_core").fetchone()

    batch = _reads(ledger.last_batch)
    batches = _reads(ledger.last_batches)
    positions = _reads(ledger.positions)
    topic = _reads(ledger.topic)
    origins = _reads(history.origins)
    committed_at = _reads(history.committed_at)
    staged = _reads(published.between)
    measure = _reads(published.measure)
    within = _reads(staging.within)
    waiting = _reads(staging.waiting)
    forgotten = _reads(staging.forgotten)
    confirmed = _reads(staging.confirmed)
    kept = _reads(published.batches)
    """Of the last batch there may be a part only: its round may be open still."""
    kept_after = _reads(published.after)

    def query(
        self, sql: str, parameters: Parameters = (), *, row_s_max: float = inf
    ) -> tuple[tuple[str, ...], Iterator[tuple[Value, ...]]]:
        """Ask SQLite's SQL of the tables: the names of the columns, and the rows, as they come,
        unless one of them takes longer than `row_s_max`.
        """
        connection = self.connection
        connection.set_authorizer(_authorized)
        limit = _Limit(row_s_max)
        # Between the steps of a long statement, Python can see that somebody pressed Ctrl-C.
        connection.set_progress_handler(limit.is_over, STEPS_BETWEEN_LOOKS)
        with _refusing(limit):
            cursor = connection.execute(sql, parameters)
        if cursor.description is None:
            raise BadQuery("this is no statement that answers anything", hint=QUERY_HINT)
        return tuple(column[0] for column in cursor.description), _rows(cursor, limit)


class _Limit:
    """How long SQLite may work for one row: not how long a reader takes between two of them."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._until = CLOCK.monotonic() + self.seconds

    def is_over(self) -> bool:
        """Tell SQLite whether to interrupt the statement."""
        return CLOCK.monotonic() > self._until


def _rows(cursor: sqlite3.Cursor, limit: _Limit) -> Iterator[tuple[Value, ...]]:
    with _refusing(limit):
        limit.begin()
        # Not `yield from`: it would close the cursor when nobody asks on, maybe after the file.
        while (row := next(cursor, None)) is not None:
            yield row
            limit.begin()


@contextmanager
def _refusing(limit: _Limit) -> Iterator[None]:
    """Say of an error that a statement or its values made what the core takes."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        if isinstance(error, sqlite3.Error) and primary_code(error) == sqlite3.SQLITE_INTERRUPT:
            if not limit.is_over():
                raise KeyboardInterrupt from error
            raise BadQuery(
                f"the core has worked for {limit.seconds:g} s, and there is no row yet",
                hint="Ask for less at once; the limit is api.query_timeout_ms.",
            ) from error
        only = isinstance(error, sqlite3.Error) and primary_code(error) in FORBIDDEN
        raise BadQuery(
            "the core is only read here, and this is no SELECT"
            if only
            else f"the core cannot answer this: {error}",
            hint=QUERY_HINT,
        ) from error


def _authorized(
    action: int, first: str | None, _second: str | None, _db: str | None, _by: str | None
) -> int:
    """Let pass what only reads; a connection that refuses to write could still open other files."""
    allowed = action in READING or (action, first) in ASKING
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


@dataclass(frozen=True, slots=True)
class Reader:
    """Opens snapshots of the core at `path`; one connection each, so threads need no care."""

    path: Path

    def check(self) -> None:
        """Return if there is a core of this version: the engine makes it, and nobody else."""
        with self.snapshot() as snapshot:
            own_tables.check(snapshot.connection)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open the state that is committed now."""
        with closing(_connected(self.path)) as connection, _begun(self.path, connection) as opened:
            yield opened


class Lasting:
    """Opens snapshots of the core at `path` over one connection, one after another: a new one reads
    the whole schema first, which takes longer than many a query. One thread uses it at a time.

    A core that somebody has put in the place of the one that was read is opened anew.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: _Connection | None = None
        self._file: tuple[int, int] | None = None
        """The one that the connection has open."""

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open the state that is committed now."""
        file = _file(self.path)
        if self._file != file:
            self.close()
        try:
            if self._connection is None:
                self._connection, self._file = _connected(self.path), file
            with _begun(self.path, self._connection) as snapshot:
                yield snapshot
            self._connection.end()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next snapshot opens another one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class _Connection(sqlite3.Connection):
    """A connection that knows its cursors: for one that was not read to its end, SQLite would keep
    open the state that it reads, also for whoever reads next.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._cursors = WeakSet[sqlite3.Cursor]()

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        cursor = self.cursor()
        self._cursors.add(cursor)
        return cursor.execute(sql, parameters)

    def end(self) -> None:
        """End the transaction, and whatever reads in it."""
        for cursor in [*self._cursors]:
            cursor.close()
        self.rollback()


def _connected(path: Path) -> _Connection:
    # rw, not ro: a reader may have to recover the log of a writer that was killed.
    address = f"{path.absolute().as_uri()}?mode=rw"
    with _there(path):
        # Read by one thread at a time: some that the island's DuckDB starts are others.
        connection = sqlite3.connect(
            address, uri=True, check_same_thread=False, factory=_Connection
        )
        connection.execute("PRAGMA query_only = ON")
    return connection


@contextmanager
def _begun(path: Path, connection: sqlite3.Connection) -> Iterator[Snapshot]:
    with _there(path):
        connection.execute("BEGIN")
        snapshot = Snapshot(connection)
    try:
        yield snapshot
    except sqlite3.OperationalError:
        own_tables.check(connection)
        raise


@contextmanager
def _there(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise NotRunning(
            f"there is no core to read at {path}: {error}",
            hint="Start the engine once: `headrace up`.",
        ) from error


def _file(path: Path) -> tuple[int, int] | None:
    """Tell which file is called so: while it is open, no other is the same."""
    try:
        found = path.stat()
    except OSError:  # whoever opens it says what is wrong
        return None
    return found.st_dev, found.st_ino


@contextmanager
def changing(
    path: Path, settings: Settings, crash: CrashPoints, write: Write
) -> Iterator[sqlite3.Connection]:
    """Run the block as one transaction of a core that is there, beside an engine or without one.

    It is on the disk then, whatever the settings say: nobody else remembers what was asked for.
    """
    Reader(path).check()
    with (
        closing(Store(path, replace(settings, durability="strong"), crash)) as store,
        store.commit(write) as connection,
    ):
        yield connection


@contextmanager
def cut(cores: Sequence[Reader | Lasting]) -> Iterator[list[Snapshot]]:
    """Open one state of several partitions: for a moment, nobody commits anything in any.

    So none of them is seen with what was done after something that is not seen in another.
    """
    with ExitStack() as opened:
        with ExitStack() as writing:
            if len(cores) > 1 and all(core.path.exists() for core in cores):
                for core in cores:
                    door = writing.enter_context(closing(Door(core.path)))
                    writing.enter_context(door.writing())
            snapshots = [opened.enter_context(core.snapshot()) for core in cores]
        yield snapshots


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
