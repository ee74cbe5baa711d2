"""The worker: runs the core by itself, waits visibly for what may pass, holds back who feeds."""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flows import arrived, ended
from laboring import PATIENCE_S, Laboring
from trial import Trial, named, nothing

from etl_procs import Batch, Dataflow, Transaction, by_count, by_punctuation
from etl_procs.core import core_path
from etl_procs.errors import OutOfRoom, Superseded
from etl_procs.flow import Committed

N = "n INTEGER NOT NULL"


class Running(Trial):
    """A core with a worker of its own, and what that has told."""

    def __init__(self, path: Path, flow: Dataflow, **more: Any) -> None:
        super().__init__(path, flow, **more)
        self.worker = Laboring(self.core, [flow], clock=self.clock)

    def take(self, rows: list[tuple[int]], *, first: int) -> None:
        (stream,) = self.flows[0].borders
        self.worker.say(arrived(stream, rows, first=first))


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
    running.worker.until_batch(2)
    assert running.query("SELECT n FROM kept") == [(1,), (2,)]


def test_what_was_there_before_the_start_is_run(make: Make) -> None:
    running = make(keep)
    running.take([(1,)], first=0)
    running.worker.start()
    running.worker.until_batch(1)


def test_a_batch_that_lingers_is_closed_in_its_time(tmp_path: Path) -> None:
    flow = Dataflow("lingering")
    source = flow.stream("source", N, batches=by_count(10, linger_s=0.05))
    kept = flow.table("kept", N)
    flow.procedure(takes=source, writes=[kept])(named("keep", keep))
    running = Running(core_path(tmp_path), flow)
    running.clock.step = 0.001  # time goes by as it is looked at
    running.worker.start()
    running.take([(1,)], first=0)
    running.worker.until_batch(1)
    running.worker.stop()
    running.close()


def test_room_is_said_when_no_more_batches_wait_than_may(make: Make) -> None:
    running = make(keep, pending_batches_max=3, group_batches_max=1)
    worker = running.worker
    running.take([(n,) for n in range(10)], first=0)
    worker.start()
    worker.until_batch(10)
    before = [isinstance(one, Committed) for one in worker.said].index(False)
    assert before == 10 - 3
    assert worker.rooms("source") == 1


@pytest.mark.parametrize(("tuples", "is_full"), [(1_000, True), (90_000, False)])
def test_room_is_kept_by_size_but_for_what_completes_no_batch(
    tmp_path: Path, tuples: int, is_full: bool
) -> None:
    flow = Dataflow("one")
    stream = flow.stream("s", N, batches=by_count(tuples))
    flow.procedure(takes=stream)(named("take", nothing))
    running = Running(core_path(tmp_path), flow, pending_mb_max=1)
    running.feed(stream, [(n,) for n in range(80_000)])
    assert running.core.has_room(stream) is not is_full
    running.core.drain()
    assert running.core.has_room(stream)
    running.close()


def test_stopping_lets_the_batch_at_hand_finish_and_runs_no_other(
    make: Make, gate: threading.Event
) -> None:
    entered = threading.Event()

    def slow(tx: Transaction, batch: Batch) -> None:
        entered.set()
        assert gate.wait(PATIENCE_S)
        keep(tx, batch)

    running = make(slow, pending_batches_max=1, group_batches_max=1)
    running.worker.start()
    running.take([(n,) for n in range(9)], first=0)
    assert entered.wait(PATIENCE_S)
    stopper = threading.Thread(target=running.worker.stop)
    stopper.start()
    gate.set()
    stopper.join(PATIENCE_S)
    assert not stopper.is_alive()
    assert running.batch(running.flows[0]) == 1
    assert running.worker.failures == []


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
        running.worker.until_batch(1)
    assert "trying again in 0.1 s: the disk is full" in caplog.text
    assert running.worker.failures == []


def test_what_does_not_pass_ends_it_and_is_told(make: Make) -> None:
    running = make(keep)
    other = Trial(running.path, *running.flows)
    running.take([(1,)], first=0)
    running.worker.start()
    running.worker.until(lambda: bool(running.worker.failures))
    assert isinstance(running.worker.failures[0], Superseded)
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
    running.worker.until_batch(1)
    bad.clear()
    with running.changing() as dead:
        dead.replay([letter.id for letter in dead])
    running.worker.until_batch(2)
    assert running.query("SELECT n FROM kept") == [(7,)]


def test_a_stream_that_is_ahead_does_not_keep_the_other_from_coming(tmp_path: Path) -> None:
    flow = Dataflow("two")
    left, right = (flow.stream(s, N, batches=by_punctuation()) for s in ("left", "right"))
    seen: list[int] = []
    flow.procedure(takes=[left, right])(named("join", lambda tx, *_: seen.append(tx.batch)))
    running = Running(core_path(tmp_path), flow, pending_batches_max=2)
    worker = running.worker
    worker.start()
    for n in (1, 2):
        worker.say(ended(left, [(n,)], batch=n, first=2 * n))
        worker.until(lambda n=n: worker.rooms("left") == n)
    worker.say(ended(left, [(3,)], batch=3, first=6))
    worker.until(lambda: running.core._flows["two"].intake.backlogs["left"].ready == 3)
    assert worker.rooms("left") == 2, "it has no room for more"
    for n in range(1, 4):
        worker.say(ended(right, [(n,)], batch=n, first=2 * n))
    worker.until_batch(3)
    worker.until(lambda: worker.rooms("left") == 3)
    assert seen == [1, 2, 3]
    worker.stop()
    running.close()
