"""A job: runs one migration that was asked for, and tells how it ended."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from etl_procs.dataflow import Dataflow
from etl_procs.errors import NoSuchDataflow, Passing
from etl_procs.origin import Origin
from etl_procs.reader import Reader
from headrace.clock import Clock
from headrace.config import Config
from headrace.crash import CrashPoints
from headrace.errors import Refused
from migrations import audit, layout, ledger, load, twins, warehouse
from migrations.errors import Away, translated
from migrations.merge import Merging
from migrations.progress import Progress
from migrations.push import Push
from migrations.rebuild import Filling, Rebuild
from migrations.registry import Asked, Kind, Migration, Outcome, Registry, State
from migrations.warehouse import Connection, Warehouse

BACKOFF_S_MIN, BACKOFF_S_MAX = 0.5, 10.0
GIVE_UP_S = 300.0
"""So long a migration waits for what may pass by itself."""
LOOK_EVERY_S = 1.0
"""How often it is looked whether a warehouse is idle."""


@dataclass(frozen=True, slots=True)
class Place:
    """What migrations move: from the cores of these dataflows, to these warehouses."""

    config: Config
    dataflows: Mapping[str, Dataflow]
    warehouses: Sequence[Warehouse]
    cores: Sequence[Path]
    clock: Clock
    crash: CrashPoints = field(default_factory=CrashPoints)
    give_up_s: float = GIVE_UP_S

    def warehouse(self, name: str) -> Warehouse:
        """Find a warehouse."""
        return warehouse.named(self.warehouses, name)

    def flows(self, asked: Asked) -> list[Dataflow]:
        """Find the dataflows that are meant."""
        named = self.dataflows if asked.dataflows is None else asked.dataflows
        unknown = sorted(set(named) - set(self.dataflows))
        if unknown:
            raise NoSuchDataflow(
                f"there is no dataflow {', '.join(unknown)}",
                hint=f"There are: {', '.join(self.dataflows)}.",
            )
        place, found = self.warehouse(asked.warehouse), [self.dataflows[name] for name in named]
        if asked.kind is Kind.RETENTION:  # it is the cores that forget, whatever goes where
            return found
        return [flow for flow in found if place.outlets(flow)]

    def check(self, asked: Asked) -> None:
        """Refuse what cannot be meant."""
        if asked.source:
            self.warehouse(asked.source)
        if asked.source == asked.warehouse:
            raise Refused(
                f"the warehouse {asked.warehouse} cannot be copied from itself",
                hint="Name another one as the source, or none.",
            )
        if asked.source and asked.kind is not Kind.REBUILD:
            raise Refused(
                f"a {asked.kind.value} has no source", hint="Only a rebuild copies a warehouse."
            )
        if not self.flows(asked):
            raise Refused(
                f"the warehouse {asked.warehouse} takes nothing of them",
                hint="See its `tables` in the configuration.",
            )


@dataclass(slots=True)
class Job:
    """Runs one migration."""

    place: Place
    registry: Registry
    migration: Migration
    progress: Progress
    reached: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """What is to be known of it, though it succeeds."""

    def run(self) -> Outcome:
        """Run it, and whatever may pass by itself, again; tell how it ended."""
        backoff_s, clock, before = BACKOFF_S_MIN, self.place.clock, dict(self.reached)
        until = clock.monotonic() + self.place.give_up_s
        while True:
            try:
                with translated(f"running {self.migration.id}"):
                    return self._attempt()
            except (Away, Passing) as error:
                if self.reached != before:  # it has come further since
                    backoff_s, until = BACKOFF_S_MIN, clock.monotonic() + self.place.give_up_s
                    before = dict(self.reached)
                if self.progress.is_cancelled or clock.monotonic() > until:
                    raise
                self.progress.at(f"tries again in {backoff_s:.1f} s: {error.what}")
                self.progress.wait(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)

    def _attempt(self) -> Outcome:
        match self.migration.asked.kind:
            case Kind.PULL:
                self._pull()
            case Kind.MERGE:
                self._merge()
            case Kind.RETENTION:
                self._forget()
            case Kind.REBUILD:
                self._rebuild()
            case Kind.AUDIT:
                if found := self._audit():
                    hint = "docs/operations.md tells what to do about each."
                    told, of = "; ".join(found), {"reached": self.reached, "findings": tuple(found)}
                    return Outcome.failed("AuditFailed", told, hint, **of)
                for flow in self._flows:
                    self.notes += audit.blind(self._warehouse, flow)
        return Outcome(State.SUCCEEDED, self.reached, tuple(self.notes))

    @property
    def _warehouse(self) -> Warehouse:
        return self.place.warehouse(self.migration.asked.warehouse)

    @property
    def _flows(self) -> list[Dataflow]:
        return self.place.flows(self.migration.asked)

    def _connected(self) -> Connection:
        connection = self._warehouse.connect(application="headrace migration")
        self.progress.interrupted_by(partial(warehouse.cancel, connection))
        return connection

    def wait_until_idle(self) -> None:
        """Let others finish, to a deadline: then it is done all the same."""
        idle, clock = self.migration.asked.idle, self.place.clock
        if idle is None:
            return
        until = clock.monotonic() + idle.deadline_s
        while clock.monotonic() < until:
            try:
                with translated("looking at its load"), self._connected() as connection:
                    self.notes[:] = load.blind(connection)
                    why = load.measure(connection).holds_back(idle)
            except Away as error:
                why = error.what
            if not why:
                return
            self.progress.at(f"waits until the warehouse is idle: {why}")
            self.progress.wait(min(LOOK_EVERY_S, idle.deadline_s))

    def _origins(self, opened: ExitStack, flow: Dataflow) -> list[Origin]:
        place, origins = self.place, []
        for path in place.cores[: flow.partitions]:
            Reader(path).check()  # the engine makes it, and nobody else
            origin = Origin(path, place.config.core, place.crash, place.clock)
            origins.append(opened.enter_context(closing(origin)))
        return origins

    def _pull(self) -> None:
        goal = self._aim()
        with ExitStack() as opened:
            connection = opened.enter_context(self._connected())
            twins.refuse(connection, self._warehouse, self.place.warehouses)
            for flow in self._flows:
                layout.prepare(connection, self._warehouse, flow)
                for partition, origin in enumerate(self._origins(opened, flow)):
                    push = Push(
                        partition,
                        self._warehouse,
                        origin,
                        self.place.crash,
                        self.place.config.push.batches_max,
                        self.migration.id,
                        self.progress,
                    )
                    upto = goal[flow.place(partition)]
                    while (pushed := push.run(connection, flow, upto)).more:
                        pass
                    self.reached[flow.place(partition)] = pushed.through

    def _aim(self) -> dict[str, int]:
        """Decide to which batches it goes: begun anew, it goes there and no further."""
        goal = dict(self.registry.find(self.migration.id).goal)
        for flow in self._flows:
            for partition, path in enumerate(self.place.cores[: flow.partitions]):
                if flow.place(partition) not in goal:
                    with Reader(path).snapshot() as snapshot:
                        goal[flow.place(partition)] = snapshot.batch(flow.name)
        self.registry.aim(self.migration.id, goal)
        return goal

    def _merge(self) -> None:
        with self._connected() as connection:
            twins.refuse(connection, self._warehouse, self.place.warehouses)
            for flow in self._flows:
                layout.prepare(connection, self._warehouse, flow)
                merging = Merging(
                    self._warehouse, self.place.crash, self.migration.id, self.progress
                )
                merging.run(connection, flow)
                self._note(connection, flow)

    def _rebuild(self) -> None:
        asked, place = self.migration.asked, self.place
        others = [place.warehouse(asked.source)] if asked.source else place.warehouses
        with ExitStack() as opened:
            connection = opened.enter_context(self._connected())
            twins.refuse(connection, self._warehouse, self.place.warehouses)
            for flow in self._flows:
                origins = self._origins(opened, flow)
                source = Filling(self._warehouse, others, flow, origins).source()
                layout.prepare(connection, self._warehouse, flow)
                rebuild = Rebuild(
                    self._warehouse, source, origins, place.crash, self.migration.id, self.progress
                )
                rebuild.run(connection, flow)
                self._note(connection, flow)

    def _forget(self) -> None:
        with ExitStack() as opened:
            for flow in self._flows:
                for partition, origin in enumerate(self._origins(opened, flow)):
                    self.progress.at(f"forget what all warehouses have of {flow.place(partition)}")
                    self.reached[flow.place(partition)] = origin.forget(flow.name)

    def _audit(self) -> list[str]:
        found: list[str] = []
        with self._connected() as connection:
            for flow in self._flows:
                self.progress.at(f"audit {flow.name}")
                found += self._findings(connection, flow)
                self._note(connection, flow)
        return found

    def _findings(self, connection: Connection, flow: Dataflow) -> list[str]:
        before = audit.arrived(connection, flow)
        with ExitStack() as opened:
            snapshots = [
                opened.enter_context(Reader(path).snapshot())
                for path in self.place.cores[: flow.partitions]
            ]
            return audit.findings(connection, self._warehouse, flow, snapshots, before)

    def _note(self, connection: Connection, flow: Dataflow) -> None:
        """Take note of how far main is."""
        for (_, partition), batch in ledger.merged(connection, [flow.name]).items():
            self.reached[flow.place(partition)] = batch
