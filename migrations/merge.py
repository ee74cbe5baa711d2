"""A merge: what is in the deltas of a dataflow, brought into main, in one transaction.

It takes what has arrived when it begins; what arrives meanwhile stays in delta. Who reads live sees
the same rows before, during and after it, whenever the snapshot was opened: rows are deleted from
delta, and no file is cut. Two merges of a dataflow wait for each other; pushes wait for none.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import LiteralString

from psycopg import IsolationLevel, sql

from etl_procs.dataflow import Dataflow
from etl_procs.model import Outlet
from headrace.crash import CrashPoints, Point
from migrations import drift, ledger, tables
from migrations.errors import translated
from migrations.plan import Merge, Plan, StepMerged, Vacuum
from migrations.progress import Progress
from migrations.runner import Runner
from migrations.warehouse import Connection, Warehouse

# It keeps merges out, and lets rows be copied in. A merge takes it before its first query: its
# snapshot is to be opened when the merge before has ended.
LOCK: LiteralString = "LOCK TABLE {tables} IN SHARE UPDATE EXCLUSIVE MODE"

# With 4 MB as by default, half a million operations take 1.15 times as long.
MEMORY: LiteralString = "SET LOCAL work_mem = '64MB'"

HAS_ROWS: LiteralString = "SELECT EXISTS (SELECT FROM {delta})"


@dataclass(frozen=True, slots=True)
class Merging:
    """Merges dataflows in one warehouse."""

    warehouse: Warehouse
    crash: CrashPoints
    migration: str = "merge"
    progress: Progress = field(default_factory=Progress)

    def run(self, connection: Connection, dataflow: Dataflow) -> int:
        """Merge what has arrived of a dataflow; tell how many rows of main that changed."""
        outlets = self.warehouse.outlets(dataflow)
        assert outlets, "nobody merges what a warehouse does not take"
        runner = Runner(connection, self.crash, self.migration, self.progress)
        with translated(f"merging {dataflow.name} in {self.warehouse.name}"):
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            try:
                with self.progress.counting(), connection.transaction():
                    lock(connection, outlets)
                    connection.execute(MEMORY)
                    drift.require(connection, self.warehouse, dataflow)
                    plan = decide(connection, dataflow, outlets)
                    runner.run(plan.together)
                    self.crash.reached(Point.MERGE_COMMIT_BEFORE)
            finally:
                connection.isolation_level = None
            self.crash.reached(Point.MERGE_COMMIT_AFTER)
            runner.run(plan.then)
        return self.progress.rows


def decide(connection: Connection, dataflow: Dataflow, outlets: tuple[Outlet, ...]) -> Plan:
    """Plan the merge of what is in the deltas."""
    filled = [outlet for outlet in outlets if _has_rows(connection, outlet)]
    arrived = ledger.read(connection, [dataflow.name])
    is_merged = ledger.merged(connection, [dataflow.name])
    # Rows arrive with the ledger; but a merge leaves those of a table that is routed here no more.
    if not filled and {place: row.batch for place, row in arrived.items()} == is_merged:
        return Plan()
    return Plan(
        (*map(Merge, filled), StepMerged(dataflow.name)),
        tuple(map(Vacuum, filled)),
    )


def _has_rows(connection: Connection, outlet: Outlet) -> bool:
    delta = tables.identifier(tables.delta(outlet))
    ((found,),) = connection.execute(sql.SQL(HAS_ROWS).format(delta=delta))
    return bool(found)


def lock(connection: Connection, outlets: Iterable[Outlet]) -> None:
    """Keep merges out until the transaction ends."""
    deltas = sql.SQL(", ").join(tables.identifier(tables.delta(outlet)) for outlet in outlets)
    connection.execute(sql.SQL(LOCK).format(tables=deltas))
