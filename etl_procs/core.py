"""The core: one SQLite database, one writer at a time, and the dataflows that run on it."""

import logging
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from etl_procs import (
    changes,
    evolution,
    ledger,
    own_tables,
    pending,
    published,
    sources,
    staging,
)
from etl_procs.asking import Connects
from etl_procs.batch import Arrived, Input, Round
from etl_procs.dataflow import Dataflow
from etl_procs.dead_letters import DeadLetters
from etl_procs.errors import Passing, StagedFull, Unanswered
from etl_procs.execution import Plan, joined
from etl_procs.fitting import Part
from etl_procs.flow import Committed, Flow
from etl_procs.group import Group, TakenDown
from etl_procs.history import History
from etl_procs.intake import Intake
from etl_procs.metrics import Metrics
from etl_procs.model import Stream
from etl_procs.published import Published
from etl_procs.reader import Parking
from etl_procs.store import GuardedStore, Write, translated
from headrace.clock import Clock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints

QUEUES_WAIT_S = 0.5
REST_S, REST_S_MAX = 1.0, 60.0
"""How long a dataflow rests, at least and at most, to which a warehouse has not answered."""
REST = 10
"""So many times as long as that took, if that is longer: while it fails, all others wait."""
PUBLISHED_LEFT = 0.9
"""So much is left of what is kept of published streams when it is too much: not every group has
to forget something.
"""
MB = 2**20

log = logging.getLogger(__name__)


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
        warehouses: Connects | None = None,
    ) -> None:
        self._partition = partition
        self._settings = settings
        self._clock = clock
        self._store = GuardedStore(path, settings, crash, clock, warehouses)
        self._lock = threading.RLock()
        self._plans: dict[str, Plan] = {}
        self._flows: dict[str, Flow] = {}
        self._fence = 0
        self._letters_size = self._staged_size = 0
        self._published = Published()
        self._parking = Parking(path, clock)
        self.metrics = Metrics(lookups=self._store.lookups.figures)

    def prepare(
        self,
        dataflows: Iterable[Dataflow],
        agreed: Callable[[list[str]], None] = lambda _said: None,
    ) -> list[str]:
        """Take the core over, make what is missing, and say what changed since it was last open.

        Definitions under which something would be lost are refused. `agreed` is told before that
        is committed; if it raises, nothing has changed.
        """
        said: list[str] = []
        plans = {dataflow.name: Plan(dataflow) for dataflow in dataflows}
        store = self._store
        with self._lock, store.without_references(), store.commit(Write.OPEN) as connection:
            own_tables.make(connection)
            if connection.execute("SELECT 1 FROM headrace_core").fetchone() is None:
                new_id = str(uuid.uuid4())
                connection.execute("INSERT INTO headrace_core VALUES (?, 0, '', 0)", [new_id])
                DeadLetters(connection).number_from(self._partition)
            self._fence = ledger.hold(connection, f"process {os.getpid()}")
            changes.drop(connection)  # and the indexes of all processes begin anew
            for plan in plans.values():
                at, most = self._clock.now().isoformat(), self._settings.history_mb_max
                said += evolution.bring_over(connection, plan, at, most)
            known = {**self._plans, **plans}.values()
            changes.make(connection, (one for p in known for one in p.dataflow.lookups.values()))
            self._letters_size = DeadLetters(connection).size()
            self._staged_size = staging.size(connection)
            self._published.see(connection, ledger.check_held(connection, self._fence))
            agreed(said)
        self._plans.update(plans)
        return said

    def claim(
        self, dataflow: str, stream: str, topic_id: str, begins: Mapping[int, int] | None = None
    ) -> None:
        """Make sure that a stream's topic is the one that was read before; if none was, it is read
        from where its partitions begin now.
        """
        with self._lock, self._store.commit(Write.OPEN) as connection:
            ledger.claim(connection, dataflow, stream, topic_id, begins or {})

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
                finished={
                    stream.name: ledger.finished(connection, dataflow, stream.name)
                    for stream in plan.dataflow.borders
                },
                partitions=partitions,
                clock=self._clock,
                rows_max=self._settings.batch_rows_max,
                known=partial(sources.known, connection, dataflow),
                me=self._partition,
            )
            latencies = {u.name: self.metrics.units[f"{dataflow}.{u.name}"] for u in plan.units}
            past, tuples = History.of(connection, dataflow), self.metrics.tuples
            self._flows[dataflow] = Flow(plan, intake, done, last, held, latencies, past, tuples)

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
        """Run one group of batches that are complete; the dataflows take turns.

        One to which a warehouse does not answer keeps no others back: while they have something
        to do, it rests.
        """
        unanswered: dict[str, tuple[Unanswered, float]] = {}
        with self._lock:
            for name, flow in list(self._flows.items()):
                began = self._clock.monotonic()
                if began < flow.rests_until:
                    continue
                try:
                    committed = self._commit_group(flow)
                except Unanswered as error:
                    unanswered[name] = error, self._clock.monotonic() - began
                    continue
                if committed is not None:
                    self._flows[name] = self._flows.pop(name)
                    self._let_rest(unanswered)
                    return committed
        for first, _ in unanswered.values():
            raise first
        return None

    def _let_rest(self, unanswered: Mapping[str, tuple[Unanswered, float]]) -> None:
        for name, (error, took_s) in unanswered.items():
            rest_s = min(max(REST_S, REST * took_s), REST_S_MAX)
            log.warning("%s waits for %.0f s, and others go on: %s", name, rest_s, error)
            self._flows[name].rests_until = self._clock.monotonic() + rest_s

    def drain(self) -> list[Committed]:
        """Run all batches that are complete, group after group."""
        return list(iter(self.commit_next, None))

    def move_on(self) -> None:
        """Move positions where no batch would: over what belongs to other partitions, and over
        the marks of those that are finished, which the ledger then has. And forget what of
        published streams is too old.
        """
        with self._lock:
            self._forget_published()
            for flow in self._flows.values():
                passed = {} if flow.queue else flow.intake.passed()
                if passed:
                    with self._store.commit(Write.GROUP) as connection:
                        ledger.check_held(connection, self._fence)
                        finished = flow.intake.finished()
                        ledger.move_positions(connection, flow.name, passed, finished)
                    flow.intake.move(passed)

    def has_room(self, stream: Stream) -> bool:
        """Whether more of a border stream may come; always while it has no batch that is complete,
        for more may be what completes it.
        """
        with self._lock:
            backlog = self._flows[stream.dataflow].intake.backlogs[stream.name]
            batches, size = backlog.ready, backlog.bytes
        settings = self._settings
        few = batches <= settings.pending_batches_max and size <= settings.pending_mb_max * MB
        return few or not batches

    def deadline(self) -> float | None:
        """Tell when a batch is due that is not complete now, by the clock's monotonic time."""
        with self._lock:
            found = [flow.intake.deadline() for flow in self._flows.values()]
        return min((moment for moment in found if moment is not None), default=None)

    def queues(self) -> dict[str, dict[str, float]] | None:
        """Tell, for each border stream, how many tuples wait, the age of the oldest, and how many
        were repeats.

        None while a long group runs: whoever only measures does not wait for it.
        """
        now = self._clock.monotonic()
        found = {}
        if not self._lock.acquire(timeout=QUEUES_WAIT_S):
            return None
        try:
            for flow in self._flows.values():
                oldest = flow.intake.oldest(tuples=True)
                age = 0.0 if oldest is None else now - oldest
                for stream, backlog in flow.intake.backlogs.items():
                    repeats = backlog.sources.repeats
                    of = {"tuples": backlog.waiting, "oldest_s": age, "repeats": repeats}
                    found[f"{flow.name}.{stream}"] = of
        finally:
            self._lock.release()
        return found

    def count_parked(self) -> None:
        """Count the rows that are parked, for the metrics; nobody waits for it."""
        self.metrics.parked = self._parking.count(p.dataflow for p in list(self._plans.values()))

    def close(self) -> None:
        """Close the file; what was committed stays."""
        with self._lock:
            self._store.close()

    def _commit_group(self, flow: Flow) -> Committed | None:
        while flow.is_amid_a_round or self._replay_waits(flow) or flow.round(0, flow.last):
            if self._published.size > self._settings.published_mb_max * MB:
                self._forget_published()
            began = time.perf_counter()
            try:
                with self._store.commit(Write.GROUP) as connection:
                    version = ledger.check_held(connection, self._fence)
                    self._published.see(connection, version)
                    self._check_room(connection)
                    group = Group(
                        flow,
                        self._store,
                        self._settings,
                        self._clock,
                        self.metrics,
                        self._letters_size,
                        self._published.of(flow.name),
                    )
                    group.run()
                    committed = group.write()
            except TakenDown:
                self.metrics.rollbacks += 1
            except Passing:
                self.metrics.rollbacks += 1
                raise
            else:
                group.become()
                self._letters_size = group.letters_size
                self._staged_size += committed.staged_bytes
                self._published.size += group.published_bytes
                self.metrics.group(group.batches, time.perf_counter() - began)
                return committed
        return None

    def _forget_published(self) -> None:
        """Forget what of published streams is too old, or too much."""
        size_max = self._settings.published_mb_max * MB
        before = self._clock.now().timestamp() - self._settings.published_keep_s
        with translated():
            is_due = published.is_older(self._store.connection, before)
        if is_due or self._published.size > size_max:
            with self._store.commit(Write.FORGET) as connection:
                least = int(size_max * PUBLISHED_LEFT)
                left = published.forget(connection, before=before, size_max=least)
            self._published.size = left

    def _check_room(self, connection: sqlite3.Connection) -> None:
        """Wait, rather than stage without end for a warehouse that is away."""
        size_max = self._settings.staged_mb_max * MB
        if self._staged_size > size_max:  # or was: a warehouse may have confirmed some
            # What is only kept may go now: nothing is pushed while the dataflows wait.
            at, keep_s = self._clock.now().timestamp(), self._settings.keep_s
            for name in self._flows:
                staging.forget(connection, name, at=at, keep_s=keep_s)
            self._staged_size = staging.size(connection)
        if self._staged_size > size_max:
            raise StagedFull(
                f"what is staged has reached {self._staged_size // MB} MB",
                hint="A warehouse is away, or slow, or what it has is kept for long: `headrace "
                "warehouse status` tells. Or raise core.staged_mb_max. Until then the dataflows "
                "wait.",
            )

    def _replay_waits(self, flow: Flow) -> bool:
        if flow.queue:
            return False  # it is found when the group begins
        with translated():
            return DeadLetters(self._store.connection).replay_waits(flow.name)
