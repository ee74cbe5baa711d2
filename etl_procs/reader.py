"""Readers: any process may read a committed state of the core; the writer is never blocked."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from math import inf
from pathlib import Path

import pyarrow as pa

from etl_procs import confirmed, history, ledger, published, staging
from etl_procs.access import Parameters
from etl_procs.dead_letters import DeadLetters
from etl_procs.door import Door
from etl_procs.errors import BadQuery, primary_code
from etl_procs.history import Origins
from etl_procs.model import Kept, Outlet, Stream
from etl_procs.rules import Value
from etl_procs.store import STEPS_BETWEEN_LOOKS
from headrace.clock import SystemClock
from headrace.errors import NotRunning

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


class Snapshot:
    """One committed state of the core, the same for as long as it is open."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.dead_letters = DeadLetters(connection)
        # The first read opens the snapshot: from here on, nothing newer is seen.
        (self.core_id,) = connection.execute("SELECT id FROM headrace_core").fetchone()

    def batch(self, dataflow: str) -> int:
        """Tell the last batch that a dataflow has committed; 0 before the first."""
        return ledger.last_batch(self._connection, dataflow)

    def batches(self) -> dict[str, int]:
        """Tell the last batch of each dataflow that was ever run here."""
        return ledger.last_batches(self._connection)

    def positions(self, dataflow: str, stream: str) -> dict[int, int]:
        """Tell the next offset of each partition of a stream's topic."""
        return ledger.positions(self._connection, dataflow, stream)

    def topic(self, dataflow: str, stream: str) -> str | None:
        """Tell the id of the topic that a stream is read from."""
        return ledger.topic(self._connection, dataflow, stream)

    def origins(self, dataflow: str, batch: int) -> Origins | None:
        """Tell where in the log the tuples of a batch are; None if that is forgotten."""
        return history.origins(self._connection, dataflow, batch)

    def committed_at(self, dataflow: str, batch: int) -> datetime | None:
        """Tell when a batch was committed; None if that is forgotten, or it is not."""
        return history.committed_at(self._connection, dataflow, batch)

    def query(
        self, sql: str, parameters: Parameters = (), *, row_s_max: float = inf
    ) -> tuple[tuple[str, ...], Iterator[tuple[Value, ...]]]:
        """Ask SQLite's SQL of the tables: the names of the columns, and the rows, as they come,
        unless one of them takes longer than `row_s_max`.
        """
        connection = self._connection
        connection.set_authorizer(_authorized)
        limit = _Limit(row_s_max)
        # Between the steps of a long statement, Python can see that somebody pressed Ctrl-C.
        connection.set_progress_handler(limit.is_over, STEPS_BETWEEN_LOOKS)
        with _refusing(limit):
            cursor = connection.execute(sql, parameters)
        if cursor.description is None:
            raise BadQuery("this is no statement that answers anything", hint=QUERY_HINT)
        return tuple(column[0] for column in cursor.description), _rows(cursor, limit)

    def staged(self, outlet: Outlet, after: int, through: int) -> Iterator[pa.Table]:
        """Read what the batches of (after, through] gave to `outlet`, in order, with their
        batch: see `staging.schema`. A stream was given its own.
        """
        if isinstance(outlet, Kept):
            return published.between(self._connection, outlet, after=after, through=through)
        return staging.between(self._connection, outlet, after=after, through=through)

    def kept_after(self, what: Stream | Outlet) -> int | None:
        """Tell after which batch all of a published stream, or of what was staged for an outlet,
        is kept; None for a stream that is not published.
        """
        return published.after(self._connection, what)

    def kept(
        self, what: Stream | Outlet, *, after: int, number: int = 0
    ) -> Iterator[tuple[int, pa.Table]]:
        """Read what is kept of the batches behind `after`: see `published.batches`. The last one
        may be of a round that is still open, and not be whole.
        """
        return published.batches(self._connection, what, after=after, number=number)

    def measure(self, outlet: Outlet, after: int, through: int) -> tuple[int, int]:
        """Tell how many rows and bytes that is, about."""
        if isinstance(outlet, Kept):
            return published.measure(self._connection, outlet, after=after, through=through)
        return staging.measure(self._connection, outlet, after=after, through=through)

    def within(self, outlets: Iterable[Outlet], after: int, through: int, size_max: int) -> int:
        """Tell how far after a batch one can go, and take about so many bytes at most."""
        return staging.within(
            self._connection, outlets, after=after, through=through, size_max=size_max
        )

    def waiting(self, dataflow: str) -> int:
        """Count the rows that wait for a warehouse."""
        return staging.waiting(self._connection, dataflow)

    def confirmed(self, dataflow: str) -> dict[str, int]:
        """Tell through which batch each warehouse that a dataflow feeds has confirmed."""
        return confirmed.of(self._connection, dataflow)

    def forgotten(self, dataflow: str) -> int:
        """Tell through which batch what a dataflow staged is gone."""
        return confirmed.forgotten(self._connection, dataflow)


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
        """Return if there is a core: the engine makes it, and nobody else."""
        with self.snapshot():
            pass

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open the state that is committed now."""
        # rw, not ro: a reader may have to recover the log of a writer that was killed.
        address = f"{self.path.absolute().as_uri()}?mode=rw"
        with ExitStack() as opened:
            try:
                connection = sqlite3.connect(address, uri=True)
                opened.callback(connection.close)
                connection.execute("PRAGMA query_only = ON")
                connection.execute("BEGIN")
                snapshot = Snapshot(connection)
            except sqlite3.OperationalError as error:
                raise NotRunning(
                    f"there is no core to read at {self.path}: {error}",
                    hint="Start the engine once: `headrace up`.",
                ) from error
            yield snapshot


@contextmanager
def cut(paths: Sequence[Path]) -> Iterator[list[Snapshot]]:
    """Open one state of several partitions: for a moment, nobody commits anything in any.

    So none of them is seen with what was done after something that is not seen in another.
    """
    with ExitStack() as opened:
        with ExitStack() as writing:
            if len(paths) > 1 and all(path.exists() for path in paths):
                for path in paths:
                    door = writing.enter_context(closing(Door(path)))
                    writing.enter_context(door.writing())
            snapshots = [opened.enter_context(Reader(path).snapshot()) for path in paths]
        yield snapshots
