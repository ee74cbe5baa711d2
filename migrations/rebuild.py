"""A rebuild: a dataflow's tables in one warehouse, copied from another, at one point of that.

    lock the ledger of the warehouse that lacks rows, and keep merges out
    have the core keep for this warehouse whatever it has not forgotten yet
    open a snapshot of the other: its ledger, at batch m, and its live views
    replace each table by what its live view shows
    write m into the ledger; commit

From m on the core has every batch: what it had forgotten before, the other warehouse had confirmed,
and from then on it forgets nothing. So pushes go on from there, without a gap or an overlap; the
first tells the core how far this warehouse is, and it forgets again.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from psycopg import IsolationLevel

from etl_procs.dataflow import Dataflow
from etl_procs.origin import Origin
from headrace.crash import CrashPoints, Point
from migrations import drift, layout, ledger, merge
from migrations.errors import Away, Gap, LedgerMismatch, NotFed, translated
from migrations.plan import Adopt, Plan, Refill, StepMerged
from migrations.progress import Progress
from migrations.push import check_continues, lacks
from migrations.runner import Runner
from migrations.warehouse import Connection, Warehouse

log = logging.getLogger(__name__)

Arrived = Mapping[ledger.Place, ledger.Migrated]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Rebuilds dataflows in one warehouse from another one."""

    warehouse: Warehouse
    source: Warehouse
    origins: Sequence[Origin]
    """The core of each partition."""
    crash: CrashPoints
    migration: str = "rebuild"
    progress: Progress = field(default_factory=Progress)

    def run(self, connection: Connection, dataflow: Dataflow) -> int:
        """Replace what the warehouse has of a dataflow; tell how many rows that is."""
        with (
            translated(f"rebuilding {dataflow.name} in {self.warehouse.name}"),
            self.source.connect(application="headrace rebuild") as source,
        ):
            source.isolation_level = IsolationLevel.REPEATABLE_READ
            source.read_only = True
            runner = Runner(connection, self.crash, self.migration, self.progress, source=source)
            with self.progress.counting(), connection.transaction():
                for partition in range(dataflow.partitions):
                    ledger.lock(connection, dataflow.name, partition)
                merge.lock(connection, self.warehouse.outlets(dataflow))
                drift.require(connection, self.warehouse, dataflow)
                # Not before: a push that still had the ledger would tell the core what it moved.
                for origin in self.origins[: dataflow.partitions]:
                    origin.hold(dataflow.name, self.warehouse.name)
                with source.transaction():
                    arrived = ledger.read(source, [dataflow.name])
                    self._check_continues(dataflow, arrived)
                    runner.run(self.decide(dataflow, arrived).together)
                self.crash.reached(Point.REBUILD_COMMIT_BEFORE)
            self.crash.reached(Point.REBUILD_COMMIT_AFTER)
        return self.progress.rows

    def decide(self, dataflow: Dataflow, arrived: Arrived) -> Plan:
        """Plan to copy what the other warehouse has."""
        return Plan(
            (
                *map(Refill, self.warehouse.outlets(dataflow)),
                *(Adopt(place, self._of_ours(dataflow, row)) for place, row in arrived.items()),
                StepMerged(dataflow.name),
            )
        )

    def _check_continues(self, dataflow: Dataflow, arrived: Arrived) -> None:
        """Refuse a source from which pushes could not go on: it is behind, or another core's."""
        for partition, origin in enumerate(self.origins[: dataflow.partitions]):
            row = arrived.get((dataflow.name, partition))
            if row is None:
                raise LedgerMismatch(
                    f"the warehouse {self.source.name} has no {dataflow.place(partition)}",
                    hint="Copy another warehouse: --source NAME.",
                )
            with origin.snapshot() as snapshot:
                if self.warehouse.name not in snapshot.confirmed(dataflow.name):
                    raise NotFed(
                        f"the core keeps nothing of {dataflow.name} for the warehouse "
                        f"{self.warehouse.name}: pushes could not go on from what is copied",
                        hint="It is new in the configuration: restart the engine first.",
                    )
                check_continues(row, snapshot, dataflow.name, self.source.name)

    def _of_ours(self, dataflow: Dataflow, row: ledger.Migrated) -> ledger.Migrated:
        """Leave out what the other warehouse has of tables that this one does not take."""
        names = {outlet.name for outlet in self.warehouse.outlets(dataflow)}
        left = sum(tally.rows for name, tally in row.tables.items() if name not in names)
        ours = {name: tally for name, tally in row.tables.items() if name in names}
        return replace(row, tables=ours, rows=row.rows - left)


@dataclass(frozen=True, slots=True)
class Filling:
    """What a warehouse lacks of a dataflow, and the others that may have it."""

    place: Warehouse
    others: Sequence[Warehouse]
    dataflow: Dataflow
    origins: Sequence[Origin]

    def begin(self, connection: Connection, partition: int, crash: CrashPoints) -> None:
        """Fill a warehouse that lacks rows because it is new, or a table is new to it; refuse one
        that has gone back. A table of which it has missed nothing only comes into its ledger.
        """
        dataflow, place = self.dataflow, self.place
        arrived = ledger.read(connection, [dataflow.name])
        lacking = self._lacking(arrived)
        if lacking and self.enroll(connection):
            return
        if not lacking and arrived[dataflow.name, partition].batch:
            raise Gap(
                f"the warehouse {place.name} lacks batches of {dataflow.name} that the core has "
                "forgotten: it has gone back to an older state",
                hint="Restore a newer one, or copy its tables from another warehouse: "
                f"`headrace migrate rebuild --warehouse {place.name}`.",
            )
        source = self.source()
        log.info("copying %s from %s to %s, which lacks it", dataflow.name, source.name, place.name)
        rows = Rebuild(place, source, self.origins, crash).run(connection, dataflow)
        log.info("copied %s to %s: %d rows", dataflow.name, place.name, rows)

    def enroll(self, connection: Connection) -> bool:
        """Take on the tables of which the warehouse's ledger does not know, if it has missed
        nothing of them; tell whether it knows of all of them now.
        """
        arrived = ledger.read(connection, [self.dataflow.name])
        lacking = self._lacking(arrived)
        if lacking and self._has_missed(arrived, lacking):
            return False
        if lacking:
            ledger.enroll(connection, self.dataflow.name, lacking)
        return True

    def source(self) -> Warehouse:
        """Find a warehouse that has all that this one takes of the dataflow, and that the cores
        have forgotten: one that is new as well has nothing of it.
        """
        away: Away | None = None
        for other in self.others:
            takes_all = all(map(other.takes, self.place.outlets(self.dataflow)))
            if other.name != self.place.name and takes_all:
                try:
                    if self._has_what_is_forgotten(other):
                        return other
                except Away as error:
                    away = error
        if away is not None:
            raise away
        raise LedgerMismatch(
            f"the core has forgotten batches of {self.dataflow.name} that the warehouse "
            f"{self.place.name} lacks, and no other warehouse has them for all of its tables",
            hint="Route to it what another one has, or keep batches for longer (core.keep_s) and "
            "restore a backup of it.",
        )

    def _lacking(self, arrived: Arrived) -> set[str]:
        return {name for row in arrived.values() for name in lacks(self.place, self.dataflow, row)}

    def _has_missed(self, arrived: Arrived, names: set[str]) -> bool:
        """Tell whether another warehouse has rows of some tables from batches that this one is
        past: more than the core has staged for them since.
        """
        for other in self.others:
            if other.name != self.place.name and other.outlets(self.dataflow):
                for at, theirs in self._ledger_of(other).items():
                    with self.origins[at[1]].snapshot() as core:
                        for name in theirs.tables.keys() & names:
                            outlet, after = self.dataflow.outlets[name], arrived[at].batch
                            since = core.staged(outlet, after, theirs.batch)
                            if theirs.tables[name].rows != sum(some.num_rows for some in since):
                                return True
        return False

    def _has_what_is_forgotten(self, other: Warehouse) -> bool:
        arrived = self._ledger_of(other)
        for partition, origin in enumerate(self.origins[: self.dataflow.partitions]):
            there = arrived.get((self.dataflow.name, partition))
            with origin.snapshot() as snapshot:
                if there is None or there.batch < snapshot.forgotten(self.dataflow.name):
                    return False
        return True

    def _ledger_of(self, other: Warehouse) -> Arrived:
        """Read what another warehouse has of the dataflow; nothing, where there are no tables yet.

        One that is away is waited for, and the whole dataflow waits: its tables arrive together,
        under one number, and the ledger must not come past batches of which a table may have missed
        rows.
        """
        try:
            with (
                translated(f"looking at {other.name}"),
                other.connect(application="headrace rebuild") as connection,
            ):
                if layout.version(connection) != layout.VERSION:
                    return {}
                return ledger.read(connection, [self.dataflow.name])
        except Away as error:
            raise Away(
                f"{self.dataflow.name} waits for the warehouse {other.name}, which may have rows "
                f"of it that are lacking here: {error.what}",
                hint=f"Bring {other.name} back, or take it out of the configuration and restart "
                "the engine. Other dataflows go on.",
            ) from error
