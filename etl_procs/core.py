"""The core: one SQLite database, one writer at a time, and the dataflows that run on it."""

import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from importlib.resources import files
from pathlib import Path

from etl_procs import ledger, pending, staging, tables
from etl_procs.access import Access
from etl_procs.batch import Arrived, Input, Round
from etl_procs.dataflow import Dataflow
from etl_procs.dead_letters import DeadLetters
from etl_procs.errors import DefinitionChanged, Passing
from etl_procs.execution import Plan, joined
from etl_procs.fitting import Part
from etl_procs.flow import Committed, Flow
from etl_procs.group import Group, TakenDown
from etl_procs.intake import Intake
from etl_procs.metrics import Metrics
from etl_procs.model import Stream
from etl_procs.rules import rule_of
from etl_procs.store import STEPS_BETWEEN_LOOKS, Store, Write, connected, translated
from headrace.clock import Clock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints

QUEUES_WAIT_S = 0.5


def core_path(home: Path, partition: int = 0) -> Path:
    """Name the file of a partition's core in a data folder."""
    return home / "core" / f"partition-{partition}.db"


def core_paths(home: Path) -> list[Path]:
    """Name the files of all partitions' cores in a data folder: at least the first."""
    most = len(list(home.glob("core/partition-*.db")))
    return [core_path(home, partition) for partition in range(max(most, 1))]


class Core:
    """The engine of one partition. Its methods may be called from any thread, one at a time."""

    def __init__(
        self,
        path: Path,
        *,
        settings: Settings,
        clock: Clock,
        crash: CrashPoints,
        partition: int = 0,
    ) -> None:
        self._partition = partition
        self._settings = settings
        self._clock = clock
        self._store = Store(path, settings, crash)
        self._access = Access(connected(path))
        self._lock = threading.RLock()
        self._plans: dict[str, Plan] = {}
        self._flows: dict[str, Flow] = {}
        self._fence = 0
        self._letters_size = 0
        self._group: Group | None = None
        self.metrics = Metrics()
        self._store.connection.set_progress_handler(self._is_overdue, STEPS_BETWEEN_LOOKS)

    def prepare(self, dataflows: Iterable[Dataflow]) -> list[str]:
        """Take the core over, make what is missing, and say what changed since it was last open.

        Definitions under which something would be lost are refused.
        """
        statements = files("etl_procs").joinpath("schema.sql").read_text(encoding="utf-8")
        said: list[str] = []
        plans = {dataflow.name: Plan(dataflow) for dataflow in dataflows}
        store = self._store
        with self._lock, store.without_references(), store.commit(Write.OPEN) as connection:
            for statement in statements.split(";\n"):
                connection.execute(statement)
            if connection.execute("SELECT 1 FROM headrace_core").fetchone() is None:
                new_id = str(uuid.uuid4())
                connection.execute("INSERT INTO headrace_core VALUES (?, 0, '')", [new_id])
                DeadLetters(connection).number_from(self._partition)
            self._fence = ledger.hold(connection, f"process {os.getpid()}")
            for plan in plans.values():
                ledger.divide(connection, plan.dataflow.name, plan.dataflow.partitions)
                said += tables.make(connection, plan)
                said += self._enter(connection, plan)
                staging.check(connection, plan.dataflow)
            self._letters_size = DeadLetters(connection).size()
        self._plans.update(plans)
        return said

    def claim(self, dataflow: str, stream: str, topic_id: str) -> None:
        """Make sure that a stream's topic is the one that was read before."""
        with self._lock, self._store.commit(Write.OPEN) as connection:
            ledger.claim(connection, dataflow, stream, topic_id)

    def positions(self, stream: Stream) -> dict[int, int]:
        """Tell the next offset of each partition of a stream's topic."""
        with self._lock:
            return ledger.positions(self._store.connection, stream.dataflow, stream.name)

    def open(self, dataflow: str, partitions: Mapping[str, Collection[int]]) -> None:
        """Begin to run a dataflow where it was left; `partitions` are its topics', by stream."""
        plan, connection = self._plans[dataflow], self._store.connection
        with self._lock:
            done = ledger.done(connection, dataflow)
            waiting = pending.all_of(connection, plan.dataflow)
            held = {(batch.stream.name, batch.id): batch for batch in waiting}
            # Who was furthest may be gone; what waits is of the round that is still open.
            last = max([*done.values(), *(batch for _, batch in held)], default=0)
            intake = Intake(
                plan.dataflow,
                batch=last,
                epoch=ledger.epoch(connection, dataflow),
                positions={
                    stream.name: ledger.positions(connection, dataflow, stream.name)
                    for stream in plan.dataflow.borders
                },
                partitions=partitions,
                clock=self._clock,
                rows_max=self._settings.batch_rows_max,
                me=self._partition,
            )
            latencies = {u.name: self.metrics.units[f"{dataflow}.{u.name}"] for u in plan.units}
            self._flows[dataflow] = Flow(plan, intake, done, last, held, latencies)

    def feed(self, arrived: Arrived) -> None:
        """Take in what has arrived on a border stream."""
        with self._lock:
            self._flows[arrived.stream.dataflow].intake.add(arrived)

    def enqueue(self, dataflow: str, parts: Mapping[Stream, Part]) -> None:
        """Let these tuples be the next batches of their streams, whatever their batch rules say."""
        inputs = [Input(joined(stream, 0, [part]), None, {}) for stream, part in parts.items()]
        with self._lock:
            self._flows[dataflow].queue.append(Round(0, tuple(inputs)))

    def commit_next(self) -> Committed | None:
        """Run one group of batches that are complete; the dataflows take turns."""
        with self._lock:
            for name, flow in list(self._flows.items()):
                committed = self._commit_group(flow)
                if committed is not None:
                    self._flows[name] = self._flows.pop(name)
                    return committed
        return None

    def drain(self) -> list[Committed]:
        """Run all batches that are complete, group after group."""
        return list(iter(self.commit_next, None))

    def move_on(self) -> None:
        """Move positions over what belongs to other partitions, where no batch would."""
        with self._lock:
            for flow in self._flows.values():
                passed = {} if flow.queue else flow.intake.passed()
                if passed:
                    with self._store.commit(Write.GROUP) as connection:
                        ledger.check_held(connection, self._fence)
                        ledger.move_positions(connection, flow.name, passed)
                    flow.intake.move(passed)

    def waiting(self, stream: Stream) -> int:
        """Tell how many complete batches of a border stream wait for their turn."""
        with self._lock:
            return self._flows[stream.dataflow].intake.waiting_batches()[stream.name]

    def deadline(self) -> float | None:
        """Tell when a batch is due that is not complete now, by the clock's monotonic time."""
        with self._lock:
            found = [flow.intake.deadline() for flow in self._flows.values()]
        return min((moment for moment in found if moment is not None), default=None)

    def queues(self) -> dict[str, dict[str, float]] | None:
        """Tell, for each border stream, how many tuples wait, and the age of the oldest.

        None while a long group runs: whoever only measures does not wait for it.
        """
        now = self._clock.monotonic()
        found = {}
        if not self._lock.acquire(timeout=QUEUES_WAIT_S):
            return None
        try:
            for flow in self._flows.values():
                oldest = flow.intake.oldest()
                age = 0.0 if oldest is None else now - oldest
                for stream, tuples in flow.intake.waiting().items():
                    found[f"{flow.name}.{stream}"] = {"tuples": tuples, "oldest_s": age}
        finally:
            self._lock.release()
        return found

    def close(self) -> None:
        """Close the file; what was committed stays."""
        with self._lock:
            self._access.close()
            self._store.close()

    def _commit_group(self, flow: Flow) -> Committed | None:
        replay_waits = self._replay_waits(flow)
        if not (flow.is_amid_a_round or replay_waits or flow.round(0, flow.last)):
            return None
        began = time.perf_counter()
        try:
            with self._store.commit(Write.GROUP) as connection:
                ledger.check_held(connection, self._fence)
                group = self._group = Group(
                    flow,
                    connection,
                    self._access,
                    self._settings,
                    self._clock,
                    self.metrics,
                    self._letters_size,
                )
                self._fill(flow, group, connection)
                committed = group.write()
        except TakenDown:
            self.metrics.rollbacks += 1
            return self._commit_group(flow)
        except Passing:
            self.metrics.rollbacks += 1
            raise
        finally:
            self._group = None
        group.become()
        self._letters_size = group.letters_size
        self.metrics.group(group.batches, time.perf_counter() - began)
        return committed

    def _fill(self, flow: Flow, group: Group, connection: sqlite3.Connection) -> None:
        """Run what fits into one group: the open round, dead letters to replay, new rounds."""
        if group.is_amid_a_round and not group.finish_round():
            return
        replay = DeadLetters(connection).take_replay(flow.plan.dataflow, group.last + 1)
        if replay is not None:
            group.begin_replay(replay)
            if not group.finish_round():
                return
        while not group.is_full:
            waiting = flow.round(group.begun, group.last)
            if waiting is None:
                return
            group.begin(waiting)
            if not group.finish_round():
                return

    def _replay_waits(self, flow: Flow) -> bool:
        if flow.queue:
            return False  # it is found when the group begins
        with translated():
            return DeadLetters(self._store.connection).replay_waits(flow.name)

    def _is_overdue(self) -> bool:
        """Tell SQLite whether to interrupt the statement that it runs."""
        return self._group is not None and self._clock.monotonic() > self._group.overdue_at

    def _enter(self, connection: sqlite3.Connection, plan: Plan) -> list[str]:
        """Bring the ledger to the procedures that are declared now; say what changes."""
        dataflow = plan.dataflow
        name, said = dataflow.name, []
        done = ledger.done(connection, name)
        renamed = [p for p in dataflow.procedures.values() if p.was]
        while now := next((p for p in renamed if p.was in done and p.name not in done), None):
            ledger.rename(connection, name, now.was, now.name)
            DeadLetters(connection).rename(name, now.was, now.name)
            done[now.name] = done.pop(now.was)  # and so its old name is free for another
            said.append(f"procedure {name}.{now.was} is {now.name} now")
        last = max(done.values(), default=0)
        for procedure in dataflow.procedures.values():
            if procedure.name not in done:
                ledger.enter(connection, name, procedure.name, last)
                if last:
                    said.append(
                        f"procedure {name}.{procedure.name} is new: it begins with batch {last + 1}"
                    )
        for gone in done.keys() - dataflow.procedures.keys():
            ledger.leave(connection, name, gone)
            said.append(f"procedure {name}.{gone} is gone, after batch {done[gone]}")
        said += ledger.keep_epoch(connection, name, rule_of(dataflow.borders))
        said += self._set_orphans_aside(connection, plan, done)
        nested = ledger.nests(connection, name)
        ledger.take(connection, name, plan.units)
        if last:
            now_nested = ledger.nests(connection, name)
            said += [f"{nest} of {name} are nested" for nest in sorted(now_nested - nested)]
            said += [f"{nest} of {name} are nested no more" for nest in sorted(nested - now_nested)]
        done = ledger.done(connection, name)
        for unit in plan.units:
            if len({done[procedure.name] for procedure in unit.procedures}) > 1:
                places = " and ".join(f"{p.name} at batch {done[p.name]}" for p in unit.procedures)
                raise DefinitionChanged(
                    f"dataflow {name} nests procedures that are not at the same batch: {places}",
                    hint="Bring the old definition back until the batches in flight are done.",
                )
        return said

    def _set_orphans_aside(
        self, connection: sqlite3.Connection, plan: Plan, was: Mapping[str, int]
    ) -> list[str]:
        """Make dead letters of pending batches that nobody is left to take."""
        dataflow, said = plan.dataflow, []
        done = ledger.done(connection, dataflow.name)
        for batch in list(pending.all_of(connection, dataflow)):
            takers = plan.consumers.get(batch.stream.name, ())
            if all(done[taker] >= batch.id for taker in takers):
                what = f"batch {batch.id} of {batch.stream.full_name}"
                reason = "the procedure that was to take it is gone"
                took = ledger.takers(connection, dataflow.name, batch.stream.name)
                names = "+".join(name for name in took if was.get(name, batch.id) < batch.id)
                at = self._clock.now().isoformat()
                DeadLetters(connection).add_batch(names, batch, reason, 0, at)
                pending.drop(connection, dataflow.name, [(batch.stream.name, batch.id)])
                said.append(f"{what} is a dead letter now: {reason}")
        return said
