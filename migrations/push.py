"""One push: the staged batches of one dataflow, moved into the warehouse whole and once.

    lock the warehouse's ledger row, at batch m
    open the core's snapshot, at batch c
    COPY every outlet's rows of (m, c]
    move the ledger m -> c; commit             <- now the warehouse has them, durably
    the core forgets what is staged through c

Killed before the commit, nothing happened. Killed after it, the next push finds the ledger at c
and only forgets. The snapshot is opened after the lock so that it can never be older than the
ledger that it continues.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import LiteralString

from psycopg import sql

from etl_procs.columns import Type
from etl_procs.dataflow import Dataflow
from etl_procs.model import Outlet
from etl_procs.reader import Reader, Snapshot
from headrace.crash import CrashPoints, Point
from migrations import ledger
from migrations.errors import LedgerMismatch, translated
from migrations.warehouse import Connection, table_of

COPY: LiteralString = "COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)"

WIRE_TYPES = {Type.INTEGER: "int8", Type.REAL: "float8", Type.TEXT: "text"}

Forget = Callable[[str, int], None]
"""`Core.forget`: drop a dataflow's staged batches through the given one."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What one push moved: the batches of (after, through], and whether the core has more."""

    dataflow: str
    after: int
    through: int
    rows: int
    more: bool


@dataclass(frozen=True, slots=True)
class Push:
    """Pushes dataflows from one core."""

    reader: Reader
    forget: Forget
    crash: CrashPoints
    batches_max: int

    def run(self, connection: Connection, dataflow: Dataflow) -> Pushed:
        """Move what is staged, at most `batches_max` batches of it."""
        with translated(f"pushing {dataflow.name}"):
            with connection.transaction():
                pushed = self._move(connection, dataflow)
                self.crash.reached(Point.PUSH_COMMIT_BEFORE)
            self.crash.reached(Point.PUSH_COMMIT_AFTER)
        self.forget(dataflow.name, pushed.through)
        self.crash.reached(Point.PUSH_FORGET_AFTER)
        return pushed

    def _move(self, connection: Connection, dataflow: Dataflow) -> Pushed:
        arrived = ledger.lock(connection, dataflow.name)
        with self.reader.snapshot() as snapshot:
            committed = snapshot.batch(dataflow.name)
            check_continues(arrived, snapshot, dataflow.name)
            through = min(committed, arrived.batch + self.batches_max)
            rows = sum(
                copy_staged(connection, snapshot, outlet, table_of(outlet), arrived.batch, through)
                for outlet in dataflow.outlets.values()
            )
            core_id = snapshot.core_id
        self.crash.reached(Point.PUSH_COPY_AFTER)
        if through > arrived.batch:
            ledger.move(
                connection,
                dataflow.name,
                core_id=core_id,
                after=arrived.batch,
                through=through,
                rows=rows,
            )
        return Pushed(dataflow.name, arrived.batch, through, rows, more=through < committed)


def check_continues(arrived: ledger.Migrated, snapshot: Snapshot, dataflow: str) -> None:
    """Refuse to move rows into a warehouse whose ledger does not continue from this core."""
    if not arrived.fed_by(snapshot.core_id):
        raise LedgerMismatch(
            f"the warehouse's {dataflow} is fed by the core {arrived.core}, and this one is "
            f"{snapshot.core_id}: its batches would double or hide the other's rows",
            hint="Push from the data folder that fed it before; or give this one a warehouse of "
            f"its own; or, to feed it anew, DROP SCHEMA {dataflow} CASCADE there and DELETE its "
            "row from headrace.ledger.",
        )
    committed = snapshot.batch(dataflow)
    if arrived.batch > committed:
        raise LedgerMismatch(
            f"the warehouse has {dataflow} through batch {arrived.batch}, and the core has "
            f"committed {committed} only: the core was restored to an older state, and its next "
            "batches would be taken for those that have arrived",
            hint="Bring back the core's file as it was; or start over with `headrace reset`, "
            f"DROP SCHEMA {dataflow} CASCADE in the warehouse and DELETE its row from "
            "headrace.ledger.",
        )


def copy_staged(
    connection: Connection,
    snapshot: Snapshot,
    outlet: Outlet,
    into: sql.Identifier,
    after: int,
    through: int,
) -> int:
    """COPY what is staged for `outlet` in (after, through] into a table; tell how many rows."""
    batches = snapshot.staged(outlet, after=after, through=through)
    first = next(batches, None)
    if first is None:
        return 0
    statement = sql.SQL(COPY).format(
        table=into,
        columns=sql.SQL(", ").join(sql.Identifier(name) for name in outlet.columns.names),
    )
    rows = 0
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types([WIRE_TYPES[column.type] for column in outlet.columns.columns])
        for batch in (first, *batches):
            assert batch.table.schema.equals(outlet.columns.arrow), batch.batch
            for row in zip(*(column.to_pylist() for column in batch.table.columns), strict=True):
                copy.write_row(row)
            rows += batch.table.num_rows
    return rows
