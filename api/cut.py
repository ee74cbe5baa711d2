"""The cut: one consistent point over core and warehouse, and what each side gives to it.

The core's snapshot is opened first, then the warehouse's, and of what is staged only the batches
after the warehouse's ledger are taken. A push in between is seen by the second snapshot: what it
moved comes from the warehouse, whose ledger says so, and whatever the core has forgotten had
arrived there before. No locks, and each row, or each key's last operation, exactly once.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum

import psycopg
from psycopg import IsolationLevel

from api.errors import NotReady
from etl_procs.model import Outlet
from etl_procs.reader import Reader, Snapshot
from migrations import ledger, staged
from migrations.errors import LedgerMismatch
from migrations.warehouse import Connection


class Freshness(Enum):
    """How new the rows of an answer are."""

    MAIN = "main"
    """What has arrived in the warehouse."""
    STAGED = "staged"
    """That, and what the core has committed and not yet moved."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One point: each dataflow's batch, and the tables that hold what is staged of it.

    For an outlet with a key such a table holds operations: see `migrations.staged`.
    """

    as_of: Mapping[str, int]
    staged: Mapping[Outlet, str] = field(default_factory=dict)


@contextmanager
def of_main(connection: Connection, outlets: Sequence[Outlet]) -> Iterator[Cut]:
    """Open the warehouse's state on `connection`, until the block ends."""
    with _warehouse_snapshot(connection, outlets) as arrived:
        yield Cut({dataflow: row.batch for dataflow, row in arrived.items()})


@contextmanager
def of_staged(connection: Connection, outlets: Sequence[Outlet], reader: Reader) -> Iterator[Cut]:
    """Open the state of core and warehouse together on `connection`, until the block ends."""
    with ExitStack() as core:
        snapshot = core.enter_context(reader.snapshot())
        # Made before the transaction, which may write into temporary tables and not make them.
        tables = _staged_tables(connection, snapshot, outlets)
        with _warehouse_snapshot(connection, outlets) as arrived:
            as_of = {}
            for dataflow, row in arrived.items():
                _check_core(dataflow, row, snapshot)
                as_of[dataflow] = max(row.batch, snapshot.batch(dataflow))
            if any(batch > arrived[dataflow].batch for dataflow, batch in as_of.items()):
                reader.make_durable()  # the core must not lose what an answer tells
            filled = {
                outlet: name
                for outlet, name in tables.items()
                if staged.copy(
                    connection,
                    snapshot,
                    outlet,
                    staged.temporary(name),
                    after=arrived[outlet.dataflow].batch,
                    through=as_of[outlet.dataflow],
                )
            }
            core.close()  # a long query must not keep the core from clearing its log
            yield Cut(as_of, filled)


def _staged_tables(
    connection: Connection, snapshot: Snapshot, outlets: Sequence[Outlet]
) -> dict[Outlet, str]:
    tables = {}
    for number, outlet in enumerate(outlets):
        if snapshot.waiting(outlet.dataflow):
            name = f"staged_{number}"
            with _not_ready(outlet.dataflow):
                staged.create(connection, outlet, staged.temporary(name))
            tables[outlet] = name
    return tables


@contextmanager
def _warehouse_snapshot(
    connection: Connection, outlets: Sequence[Outlet]
) -> Iterator[dict[str, ledger.Migrated]]:
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    with connection.transaction():
        dataflows = sorted({outlet.dataflow for outlet in outlets})
        with _not_ready(", ".join(dataflows)):
            # The first query fixes the snapshot: rows and ledger are seen as they are now.
            arrived = ledger.read(connection, dataflows) if dataflows else {}
        for dataflow in dataflows:
            if dataflow not in arrived:
                raise _unprepared(dataflow)
        yield arrived


def _check_core(dataflow: str, row: ledger.Migrated, snapshot: Snapshot) -> None:
    if not row.fed_by(snapshot.core_id):
        raise LedgerMismatch(
            f"the warehouse's {dataflow} is fed by the core {row.core}, and the core here is "
            f"{snapshot.core_id}: their batches do not continue each other",
            hint="Ask with freshness main; or point warehouse.url and home at a warehouse and a "
            "data folder that belong together.",
        )


@contextmanager
def _not_ready(dataflow: str) -> Iterator[None]:
    try:
        yield
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
        raise _unprepared(dataflow) from error


def _unprepared(dataflow: str) -> NotReady:
    return NotReady(
        f"the warehouse has no tables of {dataflow} yet",
        hint="The engine makes them when it first reaches the warehouse: see `headrace status`.",
    )
