"""The jobs: runs the migrations that were asked for, each in a thread, until it has ended.

A migration that was asked for is run to its end by whoever has the registry open: after a restart
it begins again, to the batches that it went to before. What may pass by itself is tried again for
a while, visibly; then, and for all else, the migration has failed, and says why.
"""

import logging
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from etl_procs.dataflow import Dataflow
from etl_procs.errors import Passing
from etl_procs.origin import Origin
from etl_procs.reader import Reader
from headrace.clock import Clock
from headrace.config import Config
from headrace.crash import CrashPoints
from headrace.errors import HeadraceError, Refused
from migrations import audit, layout, ledger, load, twins, warehouse
from migrations.errors import Away, Cancelled, MigrationEnded, MigrationUnknown, translated
from migrations.merge import Merging
from migrations.progress import Progress
from migrations.push import Push
from migrations.rebuild import Rebuild, source_of
from migrations.registry import Asked, Kind, Migration, Outcome, Registry, State
from migrations.warehouse import Connection, Warehouse

log = logging.getLogger(__name__)

AT_ONCE, WAITING_AT_ONCE = 4, 32
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
            raise Refused(
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
        if asked.source and asked.kind is not Kind.REBUILD:
            raise Refused(
                f"a {asked.kind.value} has no source", hint="Only a rebuild copies a warehouse."
            )
        if not self.flows(asked):
            raise Refused(
                f"the warehouse {asked.warehouse} takes nothing of them",
                hint="See its `tables` in the configuration.",
            )


class Jobs:
    """Runs migrations."""

    def __init__(self, registry: Registry, place: Place) -> None:
        self._registry = registry
        self._place = place
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="migration")
        self._waiting = ThreadPoolExecutor(WAITING_AT_ONCE, thread_name_prefix="until idle")
        self._lock = threading.Lock()
        self._running: dict[str, Progress] = {}
        self._stopping = threading.Event()

    def resume(self) -> None:
        """Go on with what had not ended, and was not to stop."""
        self._registry.end_stopped()
        for migration in self._registry.open():
            self._start(migration)

    def put(self, id_: str, asked: Asked) -> tuple[Migration, bool]:
        """Take a migration on, unless it is known already; tell whether it is new."""
        try:
            self._registry.find(id_)
        except MigrationUnknown:  # what is known may have been meant under another configuration
            self._place.check(asked)
        found, is_new = self._registry.put(id_, asked)
        if is_new:
            self._start(found)
        return found, is_new

    def cancel(self, id_: str) -> Migration:
        """Have a migration stop; nothing of it is left half-done."""
        self._registry.find(id_)
        if not self._registry.stop(id_):
            raise MigrationEnded(
                f"the migration {id_} has ended", hint="What it has done stays done."
            )
        with self._lock:
            progress = self._running.get(id_)
        if not self._registry.withdraw(id_) and progress is not None:
            progress.cancel()  # or another process runs it, and sees it when it tells how far it is
        return self._registry.find(id_)

    def close(self) -> None:
        """Stop; what has not ended begins again when it is resumed."""
        self._stopping.set()
        with self._lock:
            running = list(self._running.values())
        for progress in running:
            progress.cancel()
        for threads in (self._waiting, self._threads):
            threads.shutdown(cancel_futures=True)
        self._registry.end_stopped()

    def _start(self, migration: Migration) -> None:
        id_ = migration.id
        progress = Progress(partial(self._tell, id_), migration.rows, migration.size)
        with self._lock:
            self._running[id_] = progress
        job = Job(self._place, self._registry, migration, progress)
        self._waiting.submit(self._wait, job).add_done_callback(partial(self._end_bug, job))

    def _tell(self, id_: str, at: Progress) -> None:
        try:
            goes_on = self._registry.tell(id_, at.stage, at.rows, at.size)
        except sqlite3.Error as error:  # that nobody can be told is no reason to move nothing
            log.warning("migration %s, %s: %s", id_, at.stage, error)
        else:
            if not goes_on:
                raise Cancelled(f"the migration {id_} was to stop", hint="What is done stays done.")

    def _wait(self, job: "Job") -> None:
        """Wait until it may run; who waits keeps no other from running."""
        if self._ended(job, job.wait_until_idle):
            self._threads.submit(self._run, job).add_done_callback(partial(self._end_bug, job))

    def _run(self, job: "Job") -> None:
        self._ended(job, job.run)

    def _ended(self, job: "Job", do: Callable[[], Outcome | None]) -> bool:
        """Do a part of a job, and say how it ended, if it has; tell whether it goes on."""
        id_ = job.migration.id
        goes_on = False
        try:
            if self._surely(partial(self._registry.begin, id_)):
                outcome = self._outcome(job, do)
                goes_on = outcome is None and not self._stopping.is_set()
                if outcome is not None:
                    self._end(job, outcome)
        finally:
            if not goes_on:
                with self._lock:
                    del self._running[id_]
        return goes_on

    def _end(self, job: "Job", outcome: Outcome) -> None:
        id_, at = job.migration.id, job.progress
        self._surely(partial(self._registry.tell, id_, at.stage, at.rows, at.size))
        self._surely(partial(self._registry.end, id_, outcome))
        log.info("migration %s %s", id_, outcome.state.value)

    def _end_bug(self, job: "Job", thread: Future[None]) -> None:
        """Say what nobody foresaw: a pool of threads keeps it to itself."""
        error = None if thread.cancelled() else thread.exception()
        if error is not None:
            log.critical("migration %s", job.migration.id, exc_info=error)
            if not self._stopping.is_set():
                self._end(job, Outcome.of_bug(error))

    def _surely(self, write: Callable[[], bool]) -> bool:
        """Write into the registry, as soon as its disk takes it; False if it does not before
        the end.
        """
        while True:
            try:
                return write()
            except sqlite3.Error as error:
                log.error("the registry of migrations cannot be written: %s", error)
                if self._stopping.wait(BACKOFF_S_MIN):
                    return False

    def _outcome(self, job: "Job", do: Callable[[], Outcome | None]) -> Outcome | None:
        """Do a part of a job; None if it is stopped, or goes on."""
        try:
            return do()
        except HeadraceError as error:
            if self._stopping.is_set():
                return None
            if isinstance(error, Cancelled) or job.progress.is_cancelled:
                return Outcome(State.CANCELLED)
            return Outcome.of_error(error)
        except Exception as error:
            log.exception("migration %s", job.migration.id)
            return Outcome.of_bug(error)


@dataclass(slots=True)
class Job:
    """Runs one migration."""

    place: Place
    registry: Registry
    migration: Migration
    progress: Progress
    reached: dict[str, int] = field(default_factory=dict)

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
                    return Outcome.of_findings(found, self.reached)
        return Outcome(State.SUCCEEDED, self.reached)

    @property
    def _warehouse(self) -> Warehouse:
        return self.place.warehouse(self.migration.asked.warehouse)

    @property
    def _flows(self) -> list[Dataflow]:
        return self.place.flows(self.migration.asked)

    def _connected(self) -> Connection:
        connection = warehouse.connect(self._warehouse.url, application="headrace migration")
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
                source = source_of(self._warehouse, others, flow, origins)
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
