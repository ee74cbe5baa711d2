"""The cut: one consistent point over core and warehouse, and what each side gives to it.

The cores' snapshots are opened first, then the warehouse's, and of what is staged in a core only
the batches after the warehouse's ledger are taken. A push in between is seen by the later one:
what it moved comes from the warehouse, whose ledger says so, and whatever the core has forgotten
had arrived there before. So each row, or each key's last operation, is there exactly once.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from pathlib import Path

import psycopg
from psycopg import IsolationLevel

from api.errors import NotReady
from etl_procs import reader
from etl_procs.dataflow import Dataflow
from etl_procs.model import Outlet
from etl_procs.reader import Snapshot
from etl_procs.store import make_durable
from migrations import ledger, staged, tables
from migrations.errors import Gap, LedgerMismatch
from migrations.warehouse import Connection

Flows = Mapping[str, Dataflow]


class Freshness(Enum):
    """How new the rows of an answer are."""

    MAIN = "main"
    """What is merged in the warehouse."""
    DELTA = "delta"
    """All that has arrived there."""
    STAGED = "staged"
    """That, and what the core has committed and not yet moved."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One point: each partition's batch, and where the rows of an outlet are.

    That is: what the name of their schema in the warehouse ends with, and the tables that hold what
    is staged; for an outlet with a key, operations (see `migrations.staged`).
    """

    as_of: Mapping[str, int]
    ending: str = ""
    staged: Mapping[Outlet, str] = field(default_factory=dict)


@contextmanager
def of_main(connection: Connection, outlets: Sequence[Outlet], flows: Flows) -> Iterator[Cut]:
    """Open what is merged in the warehouse, on `connection`, until the block ends."""
    with _warehouse_snapshot(connection, outlets, flows) as arrived:
        merged = ledger.merged(connection, sorted({name for name, _ in arrived}))
        as_of = {flows[name].place(p): merged[name, p] for name, p in arrived}
        yield Cut(as_of, tables.MAIN)


@contextmanager
def of_delta(connection: Connection, outlets: Sequence[Outlet], flows: Flows) -> Iterator[Cut]:
    """Open all that has arrived in the warehouse, on `connection`, until the block ends."""
    with _warehouse_snapshot(connection, outlets, flows) as arrived:
        yield Cut({flows[name].place(p): row.batch for (name, p), row in arrived.items()})


@contextmanager
def of_staged(
    connection: Connection, outlets: Sequence[Outlet], flows: Flows, paths: Sequence[Path]
) -> Iterator[Cut]:
    """Open the state of the cores, by partition, and the warehouse together on `connection`,
    until the block ends.
    """
    most = max((flows[outlet.dataflow].partitions for outlet in outlets), default=1)
    with ExitStack() as cores:
        snapshots = cores.enter_context(reader.cut(paths[:most]))
        # Made before the transaction, which may write into temporary tables and not make them.
        made = _staged_tables(connection, snapshots, outlets, flows)
        with _warehouse_snapshot(connection, outlets, flows) as arrived:
            as_of, ranges = {}, defaultdict(list)
            for (name, partition), row in arrived.items():
                snapshot = snapshots[partition]
                _check_core(name, flows[name].place(partition), row, snapshot)
                through = max(row.batch, snapshot.batch(name))
                as_of[flows[name].place(partition)] = through
                if through > row.batch:
                    make_durable(paths[partition])  # no core must lose what an answer tells
                    ranges[name].append(staged.Range(snapshot, partition, row.batch, through))
            filled = {
                outlet: name
                for outlet, name in made.items()
                if _filled(connection, outlet, name, ranges[outlet.dataflow])
            }
            cores.close()  # a long query must not keep a core from clearing its log
            yield Cut(as_of, staged=filled)


def _filled(
    connection: Connection, outlet: Outlet, name: str, ranges: Sequence[staged.Range]
) -> bool:
    """Copy what is staged for an outlet; tell whether there is any."""
    rows = staged.carried(outlet, staged.read(outlet, *ranges))
    first = next(rows, None)
    if first is None:
        return False
    staged.copy(connection, outlet, staged.temporary(name), chain([first], rows))
    return True


def _staged_tables(
    connection: Connection, snapshots: Sequence[Snapshot], outlets: Sequence[Outlet], flows: Flows
) -> dict[Outlet, str]:
    made = {}
    for number, outlet in enumerate(outlets):
        of_flow = snapshots[: flows[outlet.dataflow].partitions]
        if any(s.measure(outlet, 0, s.batch(outlet.dataflow))[0] for s in of_flow):
            name = f"staged_{number}"
            with _not_ready(outlet.dataflow):
                staged.create(connection, outlet, staged.temporary(name))
            made[outlet] = name
    return made


@contextmanager
def _warehouse_snapshot(
    connection: Connection, outlets: Sequence[Outlet], flows: Flows
) -> Iterator[dict[tuple[str, int], ledger.Migrated]]:
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    with connection.transaction():
        names = sorted({outlet.dataflow for outlet in outlets})
        with _not_ready(", ".join(names)):
            # The first query fixes the snapshot: rows and ledger are seen as they are now.
            arrived = ledger.read(connection, names) if names else {}
        wanted = [(name, p) for name in names for p in range(flows[name].partitions)]
        for name, partition in wanted:
            if (name, partition) not in arrived:
                raise _unprepared(name)
        yield {place: arrived[place] for place in wanted}


def _check_core(name: str, place: str, row: ledger.Migrated, snapshot: Snapshot) -> None:
    if not row.fed_by(snapshot.core_id):
        raise LedgerMismatch(
            f"the warehouse's {place} is fed by the core {row.core}, and the core here is "
            f"{snapshot.core_id}: their batches do not continue each other",
            hint="Ask with freshness main; or point warehouse.url and home at a warehouse and a "
            "data folder that belong together.",
        )
    forgotten = snapshot.forgotten(name)
    if row.batch < forgotten:
        raise Gap(
            f"the warehouse has {place} through batch {row.batch}, and the core has forgotten what "
            f"it staged through batch {forgotten}: the rows in between are in neither",
            hint="Ask with freshness main or delta; `headrace warehouse status` tells more.",
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
