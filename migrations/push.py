"""A push: what one partition has staged of a dataflow, moved into a warehouse whole and once.

    lock the warehouse's ledger row, at batch m
    open the core's snapshot, at batch c
    look whether the tables are as they are defined
    make sure that the core has c on its disk
    COPY every outlet's rows of (m, c] into delta; both sides count them and sum them up
    move the ledger m -> c; commit             <- now the warehouse has them, durably
    lock the row again; if it is still at c, the core takes note, and forgets what all have

Killed before the commit, nothing happened. Killed after it, the next push finds the ledger at c
and only takes note. The snapshot is opened after the lock so that it can never be older than the
ledger that it continues. The core's disk comes first because, with core.durability weak, a power
failure could still take c back, and other tuples would become batches of the same ids.
"""

from dataclasses import dataclass, field
from typing import LiteralString

from etl_procs.dataflow import Dataflow
from etl_procs.origin import Origin
from etl_procs.reader import Snapshot
from headrace.crash import CrashPoints, Point
from migrations import drift, ledger, tables
from migrations.errors import Gap, LedgerMismatch, NotFed, Unfilled, translated
from migrations.plan import Confirm, Copy, Plan, Step
from migrations.progress import Progress
from migrations.runner import Runner
from migrations.warehouse import Connection, Warehouse

BYTES_MAX = 2**28
"""So much staged data is moved at once, about at most. What has a key is in memory as a whole."""

# The transaction in which the core takes note has only locks: its commit waits for no disk.
CHANGES_NOTHING: LiteralString = "SET LOCAL synchronous_commit = off"

WENT_BACK = "Was it restored from a backup? Restore a newer one."
IS_NEW = "It is new: the engine copies its tables from another warehouse that has them."


@dataclass(frozen=True, slots=True)
class Pushed:
    """What one push moved: the batches of (after, through], and whether the partition has more.

    `rows` counts what they have staged: rows, and of outlets with a key, operations. Those that a
    later one of the same key has overtaken are counted too, as `Snapshot.waiting` did before.
    """

    after: int
    through: int
    rows: int
    more: bool


@dataclass(frozen=True, slots=True)
class Push:
    """Pushes dataflows from the core of one partition into one warehouse."""

    partition: int
    warehouse: Warehouse
    origin: Origin
    crash: CrashPoints
    batches_max: int
    migration: str = "push"
    progress: Progress = field(default_factory=Progress)

    def run(self, connection: Connection, dataflow: Dataflow, upto: int | None = None) -> Pushed:
        """Move what is staged, at most `batches_max` batches of it, and none after `upto`."""
        runner = Runner(connection, self.crash, self.migration, self.progress, origin=self.origin)
        with translated(f"pushing {dataflow.name} to {self.warehouse.name}"):
            with self.progress.counting(), connection.transaction():
                arrived = ledger.lock(connection, dataflow.name, self.partition)
                with self.origin.snapshot() as runner.snapshot:
                    committed = runner.snapshot.batch(dataflow.name)
                    # A core that has lost what it had when `upto` was decided has less than that.
                    last = committed if upto is None else min(upto, committed)
                    most = min(max(last, arrived.batch), arrived.batch + self.batches_max)
                    through = runner.snapshot.within(
                        self.warehouse.outlets(dataflow), arrived.batch, most, BYTES_MAX
                    )
                    plan = decide(
                        self.warehouse, dataflow, self.partition, arrived, runner.snapshot, through
                    )
                    if plan.together:
                        drift.require(connection, self.warehouse, dataflow)
                        self.origin.make_durable()
                    runner.run(plan.together)
                self.crash.reached(Point.PUSH_COMMIT_BEFORE)
            self.crash.reached(Point.PUSH_COMMIT_AFTER)
            if plan.then:
                with connection.transaction():
                    connection.execute(CHANGES_NOTHING)
                    # A rebuild may have taken it back since: the core keeps what it then lacks.
                    if ledger.lock(connection, dataflow.name, self.partition).batch == through:
                        runner.run(plan.then)
        rows = sum(tally.rows for tally in runner.brought.values())
        return Pushed(arrived.batch, through, rows, more=through < last)


def decide(
    place: Warehouse,
    dataflow: Dataflow,
    partition: int,
    arrived: ledger.Migrated,
    snapshot: Snapshot,
    through: int,
) -> Plan:
    """Plan how to bring a warehouse from what has arrived to batch `through`."""
    at, after = (dataflow.name, partition), arrived.batch
    confirmed = snapshot.confirmed(dataflow.name)
    if place.name not in confirmed:
        raise NotFed(
            f"the core keeps nothing of {dataflow.name} for the warehouse {place.name}",
            hint="It is new in the configuration: restart the engine, which feeds it from then on.",
        )
    check_continues(arrived, snapshot, dataflow.name, place.name)
    if lacking := lacks(place, dataflow, arrived):
        raise Unfilled(
            f"the warehouse {place.name} has {dataflow.name} through batch {after}, and nothing of "
            f"{', '.join(lacking)}: that was routed to it later",
            hint="The engine copies what another warehouse has of it: `headrace warehouse status` "
            "tells what it waits for.",
        )
    if through == after:
        return Plan(
            then=() if confirmed[place.name] == after else (Confirm(at, place.name, after),)
        )
    copies = [
        Copy(outlet, partition, after, through, *found)
        for outlet in place.outlets(dataflow)
        for found in [snapshot.measure(outlet, after, through)]
        if found[0]
    ]
    step = Step(at, arrived, through, snapshot.core_id)
    return Plan((*copies, step), (Confirm(at, place.name, through),))


def lacks(place: Warehouse, dataflow: Dataflow, arrived: ledger.Migrated) -> list[str]:
    """Name the outlets that are routed to a warehouse, and of which its ledger does not know."""
    return [o.name for o in place.outlets(dataflow) if o.name not in arrived.tables]


def check_continues(
    arrived: ledger.Migrated, snapshot: Snapshot, dataflow: str, warehouse: str
) -> None:
    """Refuse to move rows into a warehouse whose ledger does not continue from this core."""
    anew = (
        f"or, to fill it anew, DROP SCHEMA {', '.join(tables.schemas(dataflow))} CASCADE "
        "there and DELETE its rows from headrace.ledger and headrace.merged."
    )
    if not arrived.fed_by(snapshot.core_id):
        raise LedgerMismatch(
            f"{dataflow} in {warehouse} is fed by the core {arrived.core}, and this one is "
            f"{snapshot.core_id}: its batches would double or hide the other's rows",
            hint="Push from the data folder that fed it before; or give this one a warehouse of "
            f"its own; {anew}",
        )
    committed, forgotten = snapshot.batch(dataflow), snapshot.forgotten(dataflow)
    if arrived.batch > committed:
        raise LedgerMismatch(
            f"the warehouse {warehouse} has {dataflow} through batch {arrived.batch}, and the core "
            f"has committed {committed} only: it was restored to an older state, and its next "
            "batches would be taken for those that have arrived",
            hint="Bring back the core's file as it was; or start over with `headrace reset`; "
            + anew,
        )
    if arrived.batch < forgotten:
        raise Gap(
            f"the warehouse {warehouse} has {dataflow} through batch {arrived.batch}, and the core "
            f"has forgotten what it staged through batch {forgotten}: the rows in between are in "
            "neither",
            hint=f"{WENT_BACK if arrived.batch else IS_NEW} Or copy its tables from another "
            f"warehouse: `headrace migrate rebuild --warehouse {warehouse}`.",
        )
