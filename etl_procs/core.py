"""The core: one SQLite database, one writer at a time, one commit for all that a batch does."""

import inspect
import sqlite3
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pyarrow as pa

from etl_procs import dead_letters, ledger, staging
from etl_procs.access import Access
from etl_procs.batch import ARRIVAL, REASON, Arrived, Batch
from etl_procs.errors import (
    OF_THE_MACHINE,
    CoreError,
    DefinitionChanged,
    ProcedureFailed,
    line_of,
    primary_code,
)
from etl_procs.dataflow import Dataflow
from etl_procs.model import Procedure, Table
from etl_procs.transaction import Transaction
from headrace.clock import Clock
from headrace.crash import CrashPoints, Point
from headrace.errors import HeadraceError

# A short writer of another process holds the lock for milliseconds; ten seconds is a fault.
BUSY_TIMEOUT_MS = 10_000
LOG_BYTES_KEPT = 64 * 2**20


def core_path(home: Path) -> Path:
    """Name the core's file in a data folder."""
    return home / "core" / "partition-0.db"


class _NothingNew(Exception):
    """All that arrived was done before; the transaction is rolled back."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of one batch."""

    batch: int
    tuples: int
    dead_letters: int
    staged: int


class Core:
    """The writer of one core. Its methods may be called from any thread, one at a time."""

    def __init__(self, path: Path, *, clock: Clock, crash: CrashPoints) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._lock = threading.Lock()
        self._clock = clock
        self._crash = crash
        self._connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("PRAGMA foreign_keys = ON")
        # A long reader makes the log grow; it is cut to this when the reader is gone.
        self._connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_KEPT}")
        self._access = Access(path)
        # The batch that this engine believes each dataflow to be at: the ledger is compared to it.
        self._at: dict[str, int] = {}

    def prepare(self, dataflows: Iterable[Dataflow]) -> None:
        """Make what is missing, and refuse definitions that are not what the core holds."""
        statements = files("etl_procs").joinpath("schema.sql").read_text(encoding="utf-8")
        with self._lock, self._commit():
            for statement in statements.split(";\n"):
                self._connection.execute(statement)
            if self._connection.execute("SELECT 1 FROM headrace_core").fetchone() is None:
                new_id = str(uuid.uuid4())
                self._connection.execute("INSERT INTO headrace_core VALUES (?)", [new_id])
            for dataflow in dataflows:
                for table in dataflow.tables.values():
                    self._make(table)
                ledger.enter(self._connection, dataflow)
                staging.check(self._connection, dataflow)
                self._at[dataflow.name] = ledger.last_batch(self._connection, dataflow.name)

    def close(self) -> None:
        """Close the file; what was committed stays."""
        with self._lock:
            self._access.close()
            self._connection.close()

    def positions(self, dataflow: str, topic: str, topic_id: str) -> dict[int, int]:
        """Tell the next offset of each partition of a topic, if it is still the same topic."""
        with self._lock, self._commit():
            ledger.claim(self._connection, dataflow, topic, topic_id)
            return ledger.positions(self._connection, dataflow, topic)

    def run(self, procedure: Procedure, arrived: Arrived) -> Committed | None:
        """Run `procedure` on what arrived, as the next batch; None if all of it was done before.

        One commit holds the ledger's step, the positions, the tables' changes, the staged rows
        and the dead letters. If it raises, nothing of this batch is there.
        """
        try:
            return self._run(procedure, arrived)
        except _NothingNew:
            return None

    def _run(self, procedure: Procedure, arrived: Arrived) -> Committed:
        stream = procedure.takes
        with self._lock, self._commit(Point.CORE_COMMIT_BEFORE, Point.CORE_COMMIT_AFTER):
            batch = self._at[procedure.dataflow] + 1
            ledger.step(self._connection, procedure, batch)
            done = ledger.positions(self._connection, procedure.dataflow, stream.topic)
            fresh = arrived.after(done)
            if not fresh.tuples.num_rows:
                raise _NothingNew
            next_offsets = fresh.next_positions()
            ledger.move_positions(self._connection, procedure.dataflow, stream.topic, next_offsets)
            committed = self._execute(procedure, fresh, batch)
        self._at[procedure.dataflow] = batch
        return committed

    def forget(self, dataflow: str, through: int) -> None:
        """Drop staged batches that a warehouse has confirmed."""
        with self._lock, self._commit():
            staging.forget(self._connection, dataflow, through)

    def _execute(self, procedure: Procedure, fresh: Arrived, batch: int) -> Committed:
        decoded = fresh.decoded()
        tuples = decoded.select(procedure.takes.columns.names)
        transaction = Transaction(self._connection, procedure, self._access.check)
        self._call(procedure, transaction, Batch(procedure.takes, batch, tuples))
        refused = pa.concat_tables([fresh.undecoded(), _rejected(decoded, transaction.rejected)])
        at = self._clock.now().isoformat()
        dead_letters.add(self._connection, procedure.takes, batch, refused, at)
        staged = 0
        for outlet in procedure.gives:
            tables = transaction.emitted.get(outlet.name)
            if tables:
                table = pa.concat_tables(tables)
                staging.add(self._connection, outlet, batch, table)
                staged += table.num_rows
        return Committed(batch, fresh.tuples.num_rows, refused.num_rows, staged)

    def _call(self, procedure: Procedure, transaction: Transaction, batch: Batch) -> None:
        try:
            procedure.body(transaction, batch)
            if transaction.broken is not None:
                raise transaction.broken  # whatever the body made of it
        except HeadraceError:
            raise
        except Exception as error:
            if isinstance(error, sqlite3.Error) and primary_code(error) in OF_THE_MACHINE:
                raise  # not the procedure's fault
            file = inspect.unwrap(procedure.body).__code__.co_filename
            raise ProcedureFailed(
                f"procedure {procedure.dataflow}.{procedure.name} failed on batch {batch.id}: "
                f"{type(error).__name__}: {error} ({line_of(file, error)})",
                hint="Nothing of the batch was kept. Mend the procedure and start the engine "
                "again: it takes the same tuples.",
            ) from error

    def _make(self, table: Table) -> None:
        held = self._connection.execute(
            "SELECT columns FROM headrace_tables WHERE name = ?", [table.name]
        ).fetchone()
        if held is None:
            self._connection.execute(f"CREATE TABLE {table.name} ({table.columns.sql}) STRICT")
            places = ", ".join("?" for _ in table.columns.columns)
            insert = f"INSERT INTO {table.name} VALUES ({places})"  # noqa: S608 - a checked name
            self._connection.executemany(insert, table.rows)
            self._connection.execute(
                "INSERT INTO headrace_tables VALUES (?, ?)", [table.name, table.columns.sql]
            )
        elif held[0].split() != table.columns.sql.split():
            raise DefinitionChanged(
                f"table {table.name} is declared as ({table.columns.sql}), "
                f"and the core holds ({held[0]})",
                hint="Declare it as it was, give the new one another name, or start over with "
                "`headrace reset`.",
            )

    @contextmanager
    def _commit(self, before: Point | None = None, after: Point | None = None) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            assert self._connection.in_transaction, "nothing ends the transaction but this"
            if before:
                self._crash.reached(before)
            self._connection.execute("COMMIT")
            if after:
                self._crash.reached(after)
        except sqlite3.Error as error:
            raise _failure(error) from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")


def _rejected(decoded: pa.Table, rejected: dict[int, str]) -> pa.Table:
    """Take the rejected tuples out of a batch, each with its reason."""
    indexes = sorted(rejected)
    taken = decoded.take(pa.array(indexes, pa.int64()))
    reasons = pa.array([rejected[index] for index in indexes], pa.string())
    return taken.set_column(ARRIVAL.get_field_index(REASON), ARRIVAL.field(REASON), reasons)


def _failure(error: sqlite3.Error) -> CoreError:
    match primary_code(error):
        case sqlite3.SQLITE_FULL:
            return CoreError(
                "the disk that holds the core is full",
                hint="Free some room; nothing was half-written, and the engine goes on from there.",
            )
        case sqlite3.SQLITE_BUSY:
            return CoreError(
                f"another process held the core's write lock for {BUSY_TIMEOUT_MS // 1000} s",
                hint="Find who has the file open for writing: `fuser` on the core's file tells.",
            )
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return CoreError(
                f"the core's file is damaged: {error}",
                hint="Restore the data folder from a backup, or start over with `headrace reset`.",
            )
    return CoreError(f"the core's database said: {error}", hint="Nothing of the batch was kept.")
