"""The worker: runs the core by itself, waits visibly for what may pass, holds back who feeds."""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flows import arrived, ended
from trial import Trial, named
from waiting import until

from etl_procs import Batch, Dataflow, Transaction, by_count, by_punctuation
from etl_procs.core import core_path
from etl_procs.errors import OutOfRoom, Superseded
from etl_procs.flow import Committed
from etl_procs.model import Stream
from etl_procs.worker import Worker

PATIENCE_S = 30.0
N = "n INTEGER NOT NULL"


class Running(Trial):
    """A core with a worker of its own, and what that has told."""

    def __init__(self, path: Path, flow: Dataflow, *, pending_max: int = 100, **more: Any) -> None:
        super().__init__(path, flow, **more)
        self.committed: list[Committed] = []
        self.failures: list[BaseException] = []
        self.worker = Worker(
            self.core,
            pending_max=pending_max,
            clock=self.clock,
            on_commit=self.committed.append,
            on_failure=self.failures.append,
        )

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, PATIENCE_S, lambda: f"{self.committed} {self.failures}")

    def until_batch(self, number: int) -> None:
        self.until(lambda: any(c.through >= number for c in self.committed))

    def take(self, rows: list[tuple[int]], *, first: int) -> None:
        (stream,) = self.flows[0].borders
        self.worker.take(arrived(stream, rows, first=first))


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What the body of the procedure waits for; open at the end, whatever happened."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def make(tmp_path: Path, gate: threading.Event) -> Iterator[Callable[..., Running]]:
    made: list[Running] = []

    def _make(body: Callable[..., Any], **more: Any) -> Running:
        flow = Dataflow("running")
        source = flow.stream("source", N, batches=by_count(1))
        kept = flow.table("kept", N)
        flow.procedure(takes=source, writes=[kept])(named("keep", body))
        made.append(Running(core_path(tmp_path), flow, **more))
        return made[-1]

    yield _make
    gate.set()
    for each in made:
        each.worker.stop()
        each.close()


Make = Callable[..., Running]


def keep(tx: Transaction, batch: Batch) -> None:
    tx.executemany("INSERT INTO kept VALUES (?)", batch.tuples)


def test_what_is_taken_is_run_without_further_words(make: Make) -> None:
    running = make(keep)
    running.worker.start()
    running.take([(1,), (2,)], first=0)
    running.until_batch(2)
    assert running.query("SELECT n FROM kept") == [(1,), (2,)]


def test_what_was_there_before_the_start_is_run(make: Make) -> None:
    running = make(keep)
    running.take([(1,)], first=0)
    running.worker.start()
    running.until_batch(1)


def test_a_batch_that_lingers_is_closed_in_its_time(tmp_path: Path) -> None:
    flow = Dataflow("lingering")
    source = flow.stream("source", N, batches=by_count(10, linger_s=0.05))
    kept = flow.table("kept", N)
    flow.procedure(takes=source, writes=[kept])(named("keep", keep))
    running = Running(core_path(tmp_path), flow)
    running.clock.step = 0.001  # time goes by as it is looked at
    running.worker.start()
    running.take([(1,)], first=0)
    running.until_batch(1)
    running.worker.stop()
    running.close()


def test_who_feeds_waits_while_too_many_batches_wait(make: Make, gate: threading.Event) -> None:
    entered = threading.Event()

    def slow(tx: Transaction, batch: Batch) -> None:
        entered.set()
        assert gate.wait(PATIENCE_S)

    running = make(slow, pending_max=3)
    running.worker.start()
    running.take([(0,)], first=0)
    assert entered.wait(PATIENCE_S)
    fed: list[int] = []

    def feed() -> None:
        running.take([(n,) for n in range(1, 10)], first=1)
        fed.append(running.core.waiting(running.flows[0].streams["source"]))

    feeder = threading.Thread(target=feed)
    feeder.start()
    assert fed == []
    gate.set()
    feeder.join(PATIENCE_S)
    assert fed[0] <= 3
    running.until_batch(10)


def test_stopping_lets_the_batch_at_hand_finish_and_frees_who_feeds(
    make: Make, gate: threading.Event
) -> None:
    entered = threading.Event()

    def slow(tx: Transaction, batch: Batch) -> None:
        entered.set()
        assert gate.wait(PATIENCE_S)
        keep(tx, batch)

    running = make(slow, pending_max=1, group_batches_max=1)
    running.worker.start()
    feeder = threading.Thread(target=lambda: running.take([(n,) for n in range(9)], first=0))
    feeder.start()
    assert entered.wait(PATIENCE_S)
    stopper = threading.Thread(target=running.worker.stop)
    stopper.start()
    running.until(lambda: running.worker._stopping)
    gate.set()
    stopper.join(PATIENCE_S)
    feeder.join(PATIENCE_S)
    assert not stopper.is_alive()
    assert not feeder.is_alive()
    assert running.batch(running.flows[0]) == 1
    running.take([(9,)], first=9)  # it is Kafka's still, and the next start's
    assert running.failures == []


def test_what_may_pass_is_waited_for_and_said(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = make(keep)
    left = [OutOfRoom("the disk is full", hint="Free some room."), None]
    commit_next = running.core.commit_next

    def full_at_first() -> Committed | None:
        error = left.pop(0) if left else None
        if error:
            raise error
        return commit_next()

    monkeypatch.setattr(running.core, "commit_next", full_at_first)
    with caplog.at_level(logging.WARNING):
        running.take([(1,)], first=0)
        running.worker.start()
        running.until_batch(1)
    assert "trying again in 0.1 s: the disk is full" in caplog.text
    assert running.failures == []


def test_what_does_not_pass_ends_it_and_is_told(make: Make) -> None:
    running = make(keep)
    other = Trial(running.path, *running.flows)
    running.take([(1,)], first=0)
    running.worker.start()
    running.until(lambda: bool(running.failures))
    assert isinstance(running.failures[0], Superseded)
    other.close()


def test_a_wish_of_another_process_is_seen_in_a_quiet_core(make: Make) -> None:
    bad = [True]

    def fails_once(tx: Transaction, batch: Batch) -> None:
        if bad:
            raise RuntimeError("not yet")
        keep(tx, batch)

    running = make(fails_once, attempts_max=1)
    running.worker.start()
    running.take([(7,)], first=0)
    running.until_batch(1)
    bad.clear()
    with running.changing() as dead:
        dead.replay([letter.id for letter in dead])
    running.until_batch(2)
    assert running.query("SELECT n FROM kept") == [(7,)]


def test_a_stream_that_is_ahead_does_not_keep_the_other_from_coming(tmp_path: Path) -> None:
    flow = Dataflow("two")
    left, right = (flow.stream(s, N, batches=by_punctuation()) for s in ("left", "right"))
    seen: list[int] = []
    flow.procedure(takes=[left, right])(named("join", lambda tx, *_: seen.append(tx.batch)))
    running = Running(core_path(tmp_path), flow, pending_max=2)
    running.worker.start()

    def feed(stream: Stream) -> None:  # each border stream has a batcher of its own
        for n in range(1, 9):
            running.worker.take(ended(stream, [(n,)], batch=n, first=2 * n))

    ahead, behind = (threading.Thread(target=feed, args=[s], daemon=True) for s in (left, right))
    ahead.start()
    running.until(lambda: running.core.waiting(left) == 3)
    assert running.core.waiting(left) == 3, "it waits for room, and takes no more"
    behind.start()
    for feeder in (ahead, behind):
        feeder.join(PATIENCE_S)
        assert not feeder.is_alive()
    running.until_batch(8)
    assert seen == list(range(1, 9))
    running.worker.stop()
    running.close()
