"""A rebuild: a dataflow's tables in one warehouse, copied from another, at one point of that.

    lock the ledger of the warehouse that lacks rows, and keep merges out
    open a snapshot of the other: its ledger, at batch m, and its live views
    replace each table by what its live view shows
    write m into the ledger; commit

From m on the core has every batch: it forgets none that a warehouse which it feeds has not
confirmed, and it feeds this one. So pushes go on from there, without a gap or an overlap.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from psycopg import IsolationLevel

from etl_procs.dataflow import Dataflow
from headrace.crash import CrashPoints, Point
from migrations import ledger, merge, warehouse
from migrations.errors import Gap, LedgerMismatch, translated
from migrations.plan import Adopt, Plan, Refill, StepMerged
from migrations.progress import Progress
from migrations.runner import Runner
from migrations.warehouse import Connection, Warehouse


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Rebuilds dataflows in one warehouse from another one."""

    warehouse: Warehouse
    source: Warehouse
    crash: CrashPoints
    migration: str = "rebuild"
    progress: Progress = field(default_factory=Progress)

    def run(self, connection: Connection, dataflow: Dataflow) -> int:
        """Replace what the warehouse has of a dataflow; tell how many rows that is."""
        with (
            translated(f"rebuilding {dataflow.name} in {self.warehouse.name}"),
            warehouse.connect(self.source.url, application="headrace rebuild") as source,
        ):
            source.isolation_level = IsolationLevel.REPEATABLE_READ
            source.read_only = True
            runner = Runner(connection, self.crash, self.migration, self.progress, source=source)
            with connection.transaction():
                for partition in range(dataflow.partitions):
                    ledger.lock(connection, dataflow.name, partition)
                merge.lock(connection, self.warehouse.outlets(dataflow))
                with source.transaction():
                    runner.together(self.decide(dataflow, ledger.read(source, [dataflow.name])))
                self.crash.reached(Point.REBUILD_COMMIT_BEFORE)
            self.crash.reached(Point.REBUILD_COMMIT_AFTER)
        return self.progress.rows

    def decide(self, dataflow: Dataflow, arrived: dict[ledger.Place, ledger.Migrated]) -> Plan:
        """Plan to copy what the other warehouse has."""
        return Plan(
            (
                *map(Refill, self.warehouse.outlets(dataflow)),
                *(Adopt(place, there) for place, there in arrived.items()),
                StepMerged(dataflow.name),
            )
        )


def begin(
    connection: Connection,
    place: Warehouse,
    others: Sequence[Warehouse],
    dataflow: Dataflow,
    partition: int,
    crash: CrashPoints,
) -> None:
    """Fill a warehouse to which nothing of a partition has come; refuse one that went back."""
    if ledger.read(connection, [dataflow.name])[dataflow.name, partition].batch:
        raise Gap(
            f"the warehouse {place.name} lacks batches of {dataflow.name} that the core has "
            "forgotten: it has gone back to an older state",
            hint="Restore a newer one, or copy its tables from another warehouse: "
            f"`headrace migrate rebuild --warehouse {place.name}`.",
        )
    Rebuild(place, source_of(place, others, dataflow), crash).run(connection, dataflow)


def source_of(place: Warehouse, others: Iterable[Warehouse], dataflow: Dataflow) -> Warehouse:
    """Find a warehouse that has all that another one takes of a dataflow."""
    for other in others:
        if other.name != place.name and all(map(other.takes, place.outlets(dataflow))):
            return other
    raise LedgerMismatch(
        f"the core has forgotten batches of {dataflow.name} that the warehouse {place.name} lacks, "
        "and no other warehouse has all of its tables",
        hint="Route to it what another one has, or keep batches for longer (core.keep_s) and "
        "restore a backup of it.",
    )
