"""The group: consecutive executions in one physical transaction.

It works on a copy of where its dataflow is, which becomes the dataflow's own when the transaction
has committed. If that is rolled back, the copy is dropped, and the same rounds run again.

A savepoint for each execution costs a fifth of a small one, and few fail. So a group is run without
them; where one fails, that is noted as its attempt, and the group runs again carefully: with
savepoints, by which an execution that fails is rolled back alone.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import islice
from math import inf
from typing import NoReturn

from etl_procs import history, ledger, pending, published, sources, staging
from etl_procs.batch import Batch, Round, Run
from etl_procs.dead_letters import DeadLetters, Replay, size_of
from etl_procs.errors import CoreError, LettersFull, blamed, is_of_the_machine, reason_of
from etl_procs.execution import Execution
from etl_procs.flow import Committed, Flow, Key
from etl_procs.graph import Unit
from etl_procs.metrics import Metrics
from etl_procs.rules import rule_of
from etl_procs.staging import Staged
from etl_procs.store import GuardedStore
from headrace.clock import Clock
from headrace.config import Core as Settings
from headrace.errors import HeadraceError

log = logging.getLogger(__name__)

MB = 2**20


class TakenDown(Exception):
    """A unit's failure takes the whole transaction back; it is noted, and the group runs again."""


class Group:
    """What one physical transaction does for one dataflow."""

    def __init__(
        self,
        flow: Flow,
        store: GuardedStore,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        letters_size: int,
        publications: Mapping[str, int],
    ) -> None:
        self._flow = flow
        self._plan = flow.plan
        self._name = flow.name
        self._store = store
        self._connection = store.connection
        self._cursor = store.connection.cursor()
        self._letters = DeadLetters(store.connection)
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._moment = clock.monotonic()
        """When the last unit was done: to look at the clock for each thing costs more."""
        self._due = self._moment + settings.group_ms_max / 1000
        self._late = self._due + settings.group_ms_max / 1000
        self._statement_s = settings.statement_ms_max / 1000
        # What ends transactions by itself is kept apart, so that it cannot do it to others again.
        self._batches_max = 1 if flow.apart else settings.group_batches_max
        self._bytes_max = settings.group_mb_max * MB
        self._batch_bytes_max = settings.batch_mb_max * MB
        self.done = dict(flow.done)
        self.last = flow.last
        self.pending = flow.pending
        self._held = {stream: batch for (stream, _), batch in flow.pending.items()}
        """The batches of the round at hand that are given, by stream."""
        self._is_amid_a_round = flow.is_amid_a_round
        """Whether units are still to do the last round."""
        self._begun = 0
        """Rounds of the flow's queue that were begun."""
        self._round = flow.begun
        """The number of the round at hand, which stays the same when it runs again."""
        self._careful = flow.careful > 0 or bool(flow.failures)
        self.batches = 0
        self._ran = False
        self.letters_size = letters_size
        self._replay: Replay | None = None
        self._bytes = 0
        self._positions: dict[str, dict[int, int]] = defaultdict(dict)
        self._numbers: dict[str, list[Run]] = defaultdict(list)
        self._history, self._again = flow.history, dict[int, int]()
        self._epoch: int | None = None
        self._staged: dict[str, list[tuple[int, Staged]]] = {}
        self._publications = publications
        """After which batch each stream is kept for readers outside; others are not."""
        self._published: dict[str, list[Batch]] = defaultdict(list)
        self.published_bytes = 0
        self._took: dict[str, list[float]] = {unit.name: [] for unit in self._plan.units}
        self._tuples = 0
        self._dead = 0
        self._failed: dict[Key, int] = {}
        """How many attempts have failed, with rounds that units have done now."""
        self._given_up: Counter[str] = Counter()

    def run(self) -> None:
        """Run what fits: the open round, dead letters that run again, new rounds."""
        if self._is_amid_a_round:
            self._finish_round()
        if not self._is_amid_a_round:
            replay = self._letters.take_replay(self._plan.dataflow, self.last + 1)
            if replay is not None:
                self._begin_replay(replay)
                self._finish_round()
        while not self._is_amid_a_round and not self._is_full:
            waiting = self._flow.round(self._begun, self.last)
            if waiting is None:
                return
            self._begin(waiting)
            self._finish_round()

    @property
    def _is_full(self) -> bool:
        """Whether it is time to commit, between two rounds."""
        if not self._ran:
            return False  # however late it is: a group that does nothing brings nothing on
        return (
            self.batches >= self._batches_max
            or self._bytes >= self._bytes_max
            or self._moment >= self._due
        )

    def _begin(self, round_: Round) -> None:
        """Take the batches of the next round; its units are still to run."""
        self._next()
        self._begun += 1
        self._round = self._flow.begun + self._begun
        for batch, undecoded, positions, size, numbers, late, _ in round_.inputs:
            batch.id = self.last  # it may have been cut before dead letters took an id
            stream = batch.stream
            self._hold(batch)
            self._tuples += len(batch)
            self._positions[stream.name].update(positions)
            self._numbers[stream.name] += numbers
            if late is not None:
                late.id = self.last
                self._hold(late)
                self._tuples += len(late)
            if undecoded is not None:
                self._letters.add_undecoded(stream, self.last, undecoded, self._now())
                self._count_dead(undecoded.num_rows, undecoded.nbytes)
            self._bytes += size
            if size > self._batch_bytes_max:
                raise CoreError(
                    f"batch {self.last} of {stream.topic} has {size // MB} MB",
                    hint="Cut finer batches, or raise core.batch_mb_max "
                    f"(now {self._settings.batch_mb_max}).",
                )
        if round_.epoch is not None:
            self._epoch = round_.epoch

    def _begin_replay(self, replay: Replay) -> None:
        """Make a round of dead letters, which only their procedures see."""
        self._next()
        self._replay = replay
        self._again[self.last] = replay.batch
        self._round = -replay.first  # below all rounds of the queue
        names = "+".join(replay.procedures)
        log.info("%s.%s runs dead letters again as batch %d", self._name, names, self.last)

    def _next(self) -> None:
        assert not self._is_amid_a_round, "one round after the other"
        self.last += 1
        self.batches += 1
        self._held = {}
        self._replay = None  # that was another round
        self._is_amid_a_round = True

    def _finish_round(self) -> None:
        """Run the units that have not done the last round, if there is time for all."""
        batch, ran = self.last, False
        self._moment = self._clock.monotonic()
        for unit in self._plan.units:
            if self.done[unit.procedures[0].name] < batch:
                # Letters that run again are taken out, and lie nowhere else.
                if ran and self._moment >= self._late and self._replay is None:
                    return
                self._run(unit, batch)
                ran = True
        self._is_amid_a_round = False

    def _run(self, unit: Unit, batch: int) -> None:
        self._ran = True
        do = self._do_carefully if self._careful else self._do
        execution = do(unit, batch, self._inputs(unit, batch))
        for procedure in unit.procedures:
            self.done[procedure.name] = batch
        if execution is not None and (execution.given or execution.staged or execution.rejected):
            self._keep(execution)
        began, self._moment = self._moment, self._clock.monotonic()
        self._took[unit.name].append(self._moment - began)

    def _is_awaited(self, stream: str, batch: int) -> bool:
        """Whether somebody has still to take a batch of a stream."""
        for taker in self._plan.consumers[stream]:  # noqa: SIM110 - any() costs twice as much
            if self.done[taker] < batch:
                return True
        return False

    def _inputs(self, unit: Unit, batch: int) -> dict[str, Batch]:
        found = {}
        for stream in unit.takes:
            given = self._held.get(stream.name)
            found[stream.name] = Batch(stream, batch, tuples=[]) if given is None else given
        return found

    def _do(self, unit: Unit, batch: int, inputs: dict[str, Batch]) -> Execution:
        """Run a unit; if it fails, the group does."""
        done = self._attempt(unit, batch, inputs)
        if isinstance(done, HeadraceError):
            self._fail((unit.name, self._round), [done])
        return done

    def _do_carefully(self, unit: Unit, batch: int, inputs: dict[str, Batch]) -> Execution | None:
        """Run a unit until it succeeds; None if its attempts are used up."""
        connection, key = self._connection, (unit.name, self._round)
        failures = [*self._flow.failures.get(key, ())]
        done: Execution | None = None
        while done is None and len(failures) < self._settings.attempts_max:
            connection.execute("SAVEPOINT te")
            tried = self._attempt(unit, batch, inputs)
            if isinstance(tried, HeadraceError):
                failures.append(tried)
                if not connection.in_transaction:
                    self._fail(key, failures)
                connection.execute("ROLLBACK TO te")
                self._moment = self._clock.monotonic()
            else:
                done = tried
            connection.execute("RELEASE te")
        if failures:
            self._failed[key] = len(failures)
        if done is None:
            self._give_up(unit, batch, inputs, failures)
        return done

    def _fail(self, key: Key, failures: list[HeadraceError]) -> NoReturn:
        """Note what went wrong with a unit on the round at hand, and end the group."""
        self._flow.note(key, failures, ended=not self._connection.in_transaction)
        raise TakenDown from failures[-1]

    def _attempt(
        self, unit: Unit, batch: int, inputs: dict[str, Batch]
    ) -> Execution | HeadraceError:
        """Run a unit once; tell what it has done, or what went wrong."""
        access, lookups = self._store.access, self._store.lookups
        execution = Execution(
            self._plan, self._cursor, access, lookups, batch, inputs, self._replay
        )
        self._store.overdue_at = self._moment + self._statement_s
        try:
            execution.run(unit)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's code
            return self._judged(unit, batch, error, execution)
        finally:
            execution.end()
            self._store.overdue_at = inf
        return execution

    def _judged(
        self, unit: Unit, batch: int, error: BaseException, execution: Execution
    ) -> HeadraceError:
        """Say what an error of a unit's is, if it is its own fault."""
        cause = execution.broken or error
        if is_of_the_machine(cause):
            raise cause  # not the procedure's fault
        failed = (
            cause
            if isinstance(cause, HeadraceError)
            else blamed(
                f"procedure {self._name}.{unit.name} failed on batch {batch}",
                cause,
                [procedure.body for procedure in unit.procedures],
                "Nothing of that attempt was kept.",
            )
        )
        log.warning("%s.%s, batch %d: %s", self._name, unit.name, batch, reason_of(failed))
        return failed

    def _give_up(
        self, unit: Unit, batch: int, inputs: Mapping[str, Batch], failures: list[HeadraceError]
    ) -> None:
        reason, at = reason_of(failures[-1]), self._now()
        dead = [(unit.name, taken) for taken in inputs.values()]
        if self._replay is not None:
            dead = [*self._replay.of(unit), *((name, taken) for name, taken in dead if len(taken))]
        for name, taken in dead:
            self._letters.add_batch(name, taken, reason, len(failures), at)
            self._count_dead(len(taken), sum(map(size_of, taken.tuples)))
        self._given_up[unit.name] += 1
        log.error(
            "%s.%s has given up batch %d after %d attempts; it is a dead letter, and the dataflow "
            "goes on without it: %s",
            self._name,
            unit.name,
            batch,
            len(failures),
            reason,
        )

    def _keep(self, execution: Execution) -> None:
        """Count what a unit has emitted and rejected."""
        for name in execution.given:
            self._hold(execution.batch_of(name))
        for staged in execution.staged:
            kept = self._staged.setdefault(staged.outlet.name, [])
            kept.append((execution.batch, staged))
        for (name, taken, index), reason in execution.rejected.items():
            self._letters.add_rejected(name, taken, index, reason, self._now())
            self._count_dead(1, size_of(taken.tuples[index]))

    def _hold(self, batch: Batch) -> None:
        """Have a batch for those who take it, and for readers outside if they want its stream."""
        name = batch.stream.name
        self._held[name] = batch
        if self._publications and batch.id > self._publications.get(name, inf) and len(batch):
            self._published[name].append(batch)

    def _count_dead(self, tuples: int, size: int) -> None:
        self._dead += tuples
        self.letters_size += size
        size_max = self._settings.dead_letters_mb_max * MB
        if self.letters_size > size_max:  # or was: somebody may have dropped some
            self.letters_size = self._letters.size()
        if self.letters_size > size_max:
            raise LettersFull(
                f"the dead letters have reached {self.letters_size // MB} MB",
                hint="Look at them (`headrace dead-letters list`), replay or drop some, or raise "
                "core.dead_letters_mb_max. Until then the dataflows wait.",
            )

    def write(self) -> Committed:
        """Write down what is not yet in the database, and move the ledger."""
        connection, flow = self._connection, self._flow
        ledger.step(connection, self._name, flow.done, self.done)
        self.pending = {
            (stream, self.last): batch
            for stream, batch in self._held.items()
            if self._is_awaited(stream, self.last)
        }
        new = [batch for key, batch in self.pending.items() if key not in flow.pending]
        pending.add(connection, self._name, new)
        pending.drop(connection, self._name, flow.pending.keys() - self.pending.keys())
        staged = size = 0
        for name, rows in self._staged.items():
            size += staging.add(connection, self._plan.dataflow.outlets[name], rows)
            staged += sum(len(part.part) for _, part in rows)
        at = self._clock.now()
        self.published_bytes = published.add(connection, self._published.values(), at.timestamp())
        ledger.move_positions(connection, self._name, self._positions)
        for stream, runs in self._numbers.items():
            sources.see(connection, self._name, stream, runs)
        after, through = (min(done.values(), default=0) for done in (flow.done, self.done))
        was, now = history.number(flow.last, after), history.number(self.last, through)
        told = history.taken(islice(flow.queue, self._begun), self._again)
        most, closes = self._settings.history_mb_max, self._epoch is not None
        self._history = history.write(
            connection, flow.history, at, was, now, told, most, has_epoch=closes
        )
        if self._epoch is not None:
            rule, recent = rule_of(self._plan.dataflow.borders), self._history.recent
            ledger.close_epoch(connection, self._name, rule, self._epoch, recent)
        return Committed(self._name, after + 1, through, self._tuples, self._dead, staged, size)

    def become(self) -> None:
        """Make what has been committed the dataflow's own."""
        flow = self._flow
        self._count()
        flow.done, flow.last, flow.pending = self.done, self.last, self.pending
        flow.history = self._history
        flow.settle(self._begun, self._failed)

    def _count(self) -> None:
        """Count what has become true; what was rolled back never happened."""
        metrics = self._metrics
        metrics.batches[self._name] += self.batches
        for unit, seconds in self._took.items():
            self._flow.latencies[unit].add(seconds)
        metrics.dead_tuples[self._name] += self._dead
        for (unit, _), aborts in self._failed.items():
            metrics.aborts[f"{self._name}.{unit}"] += aborts
        for unit, batches in self._given_up.items():
            metrics.dead_batches[f"{self._name}.{unit}"] += batches
        if self._epoch is not None and rule_of(self._plan.dataflow.borders) != "count":
            metrics.epochs[self._name] = self._epoch  # a number of rounds is no watermark

    def _now(self) -> str:
        return self._clock.now().isoformat()
