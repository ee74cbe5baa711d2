"""Optimistic groups: no savepoints while nothing fails; what fails is tried again with care."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from trial import Trial, named

from etl_procs import Batch, Dataflow, Transaction, by_punctuation
from etl_procs.core import core_path
from etl_procs.dead_letters import DeadLetters
from etl_procs.errors import LettersFull
from etl_procs.flow import CAREFUL_GROUPS, Flow

N = "n INTEGER NOT NULL"


class Counted(Trial):
    """keep -> tell: numbers go to a table and to an outlet; those in `bad` fail in `keep`."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.bad: set[int] = set()
        self.ran: Counter[int] = Counter()
        flow = Dataflow("counted")
        self.source = flow.stream("source", N, batches=by_punctuation())
        self.kept, inner = flow.table("kept", N), flow.stream("inner", N)
        self.out = flow.outlet("out", N)

        def keep(tx: Transaction, batch: Batch) -> None:
            tx.executemany("INSERT INTO kept VALUES (?)", batch.tuples)
            tx.emit(inner, batch.rows())
            for (n,) in batch.tuples:
                self.ran[int(n)] += 1  # type: ignore[arg-type]
                self.meanwhile(int(n))  # type: ignore[arg-type]
                if n in self.bad:
                    tx.abort(f"{n} is bad")

        def tell(tx: Transaction, batch: Batch) -> None:
            tx.emit(self.out, batch.rows())

        flow.procedure(takes=self.source, writes=[self.kept], gives=[inner])(named("keep", keep))
        flow.procedure(takes=inner, gives=[self.out])(named("tell", tell))
        self.meanwhile: Callable[[int], None] = lambda _n: None
        super().__init__(path, flow, **settings)

    def numbers(self) -> list[int]:
        return [n for (n,) in self.query("SELECT n FROM kept ORDER BY rowid")]

    def told(self) -> list[int]:
        return [n for _, n in self.staged(self.out)]

    def take(self, *numbers: int) -> None:
        """Run these numbers, each a batch, together."""
        self.run(self.source, *([(n,)] for n in numbers))

    @contextmanager
    def savepoints(self) -> Iterator[list[str]]:
        """Listen to what is said to SQLite of savepoints."""
        said: list[str] = []
        connection = self.core._store.connection
        connection.set_trace_callback(lambda sql: said.append(sql) if sql[-2:] == "te" else None)
        yield said
        connection.set_trace_callback(None)

    def between(self, action: Callable[[], None]) -> None:
        """Do something once, when the next group has been taken down and runs again."""
        once, replay_waits = [action], self.core._replay_waits

        def looks(flow: Flow) -> bool:
            if flow.failures and once:
                once.pop()()
            return replay_waits(flow)

        self.core._replay_waits = looks  # type: ignore[method-assign]


Make = Callable[..., Counted]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Counted] = []

    def _make(**settings: Any) -> Counted:
        made.append(Counted(core_path(tmp_path / str(len(made))), **settings))
        return made[-1]

    yield _make
    for each in made:
        each.close()


def test_while_nothing_fails_there_are_no_savepoints(make: Make) -> None:
    trial = make()
    with trial.savepoints() as said:
        trial.take(1, 2, 3)
    assert said == []
    assert trial.numbers() == trial.told() == [1, 2, 3]


def test_a_failure_amid_a_group_keeps_all_the_others_in_one_commit(make: Make) -> None:
    trial = make(attempts_max=3)
    trial.bad = {3}
    trial.take(1, 2, 3, 4)
    assert trial.numbers() == trial.told() == [1, 2, 4]
    assert trial.ran == {1: 2, 2: 2, 3: 3, 4: 1}
    (letter,) = trial.letters()
    assert (letter.batch, letter.attempts) == (3, 3)
    metrics = trial.core.metrics
    assert (metrics.commits, metrics.rollbacks) == (1, 1)
    assert metrics.batches == {"counted": 4}
    assert metrics.aborts == {"counted.keep": 3}
    assert metrics.dead_batches == {"counted.keep": 1}
    assert metrics.units["counted.keep"].as_dict()["count"] == 4


def test_one_attempt_is_one_attempt(make: Make) -> None:
    trial = make(attempts_max=1)
    trial.bad = {1, 3}
    trial.take(1, 2, 3)
    trial.take(4)
    assert trial.ran[1] == trial.ran[3] == 1
    assert trial.numbers() == trial.told() == [2, 4]
    assert [letter.attempts for letter in trial.letters()] == [1, 1]
    assert trial.core.metrics.aborts == {"counted.keep": 2}


def test_care_is_taken_for_a_while_and_ends(make: Make) -> None:
    trial = make(attempts_max=1)
    trial.bad = {0}
    trial.take(0)
    for n in range(1, CAREFUL_GROUPS + 3):
        with trial.savepoints() as said:
            trial.take(n)
        assert bool(said) is (n <= CAREFUL_GROUPS), n
    trial.bad = {100}
    trial.take(100, 101)
    with trial.savepoints() as said:
        trial.take(102)
    assert said, "and it begins anew with the next failure"


def test_a_stream_that_fails_often_does_not_run_twice(make: Make) -> None:
    trial = make(attempts_max=1, group_batches_max=4)
    count = 40 * CAREFUL_GROUPS
    trial.bad = set(range(0, count, 4 * CAREFUL_GROUPS - 1))
    trial.take(*range(count))
    assert trial.core.metrics.rollbacks == 1, "only the first failure is met without savepoints"
    assert sum(trial.ran.values()) <= count + 4
    assert trial.numbers() == [n for n in range(count) if n not in trial.bad]


def test_a_stream_that_fails_now_and_then_runs_little_twice(make: Make) -> None:
    trial = make(attempts_max=1, group_batches_max=4)
    count = 40 * CAREFUL_GROUPS
    trial.bad = set(range(0, count, 5 * CAREFUL_GROUPS))
    trial.take(*range(count))
    assert trial.core.metrics.rollbacks == len(trial.bad)
    assert sum(trial.ran.values()) < count * (1 + 1 / CAREFUL_GROUPS)


def test_a_group_that_runs_again_has_all_of_its_time(make: Make) -> None:
    trial = make(group_ms_max=1_000)

    def dawdle(n: int) -> None:
        if n == 2 and trial.ran[2] == 1:
            trial.clock.advance(60)
            raise RuntimeError("too slow")

    trial.meanwhile = dawdle
    trial.take(1, 2, 3)
    assert trial.numbers() == [1, 2, 3]
    assert trial.core.metrics.commits == 1


def test_attempts_are_remembered_while_the_core_waits_for_room(make: Make) -> None:
    trial = make(attempts_max=2, dead_letters_mb_max=1)
    trial.bad = {2}
    trial.core._letters_size = 2 * 2**20
    trial.take(1)
    for n in (2, 3):
        trial.end(trial.source, [(n,)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeadLetters, "size", lambda _letters: 2 * 2**20)
        for _ in range(3):
            with pytest.raises(LettersFull):
                trial.core.drain()
    assert trial.ran[2] == 1 + 3, "the first attempt was noted, the others were never committed"
    trial.core.drain()
    (letter,) = trial.letters()
    assert letter.attempts == 2
    assert trial.core.metrics.aborts == {"counted.keep": 2}
    assert trial.numbers() == trial.told() == [1, 3]


def replay_all(trial: Counted) -> None:
    with trial.changing() as letters:
        letters.replay([letter.id for letter in trial.letters()])


def test_dead_letters_that_fail_once_more_are_letters_once_more(make: Make) -> None:
    trial = make(attempts_max=1)
    trial.bad = {1, 2}
    trial.take(1, 2)
    for n in range(10, 10 + CAREFUL_GROUPS):
        trial.take(n)
    trial.bad = {2}
    trial.ran.clear()
    replay_all(trial)
    with trial.savepoints() as said:
        trial.take(50)
    assert said, "the second failed"
    assert trial.ran[2] == 1
    assert sorted(trial.numbers()[-2:]) == [1, 50]
    assert [letter.reason for letter in trial.letters()] == [
        "procedure counted.keep aborts: 2 is bad"
    ]


@pytest.mark.parametrize("drop", [True, False])
def test_a_replay_that_comes_or_goes_meanwhile_is_charged_to_nobody(make: Make, drop: bool) -> None:
    trial = make(attempts_max=1)
    trial.bad = {1}
    trial.take(1)
    for n in range(10, 10 + CAREFUL_GROUPS):
        trial.take(n)
    trial.bad = {52}

    def meanwhile() -> None:
        if drop:
            with trial.changing() as letters:
                letters.drop([letter.id for letter in trial.letters()])
        else:
            replay_all(trial)

    if drop:
        replay_all(trial)
    trial.between(meanwhile)
    trial.take(51, 52, 53)  # 52 has another batch id when it runs again
    assert trial.numbers()[CAREFUL_GROUPS:] == ([51, 53] if drop else [1, 51, 53])
    assert trial.ran[52] == 1
    assert trial.reasons() == ["procedure counted.keep aborts: 52 is bad"]


def test_a_batch_may_be_tried_as_often_as_one_likes(tmp_path: Path) -> None:
    """Each attempt that ends its transaction by itself takes the whole group with it."""
    flow = Dataflow("stubborn")
    source = flow.stream("source", N, batches=by_punctuation())
    kept = flow.table("kept", "n INTEGER PRIMARY KEY ON CONFLICT ROLLBACK", rows=[(1,)])

    def insert(tx: Transaction, batch: Batch) -> None:
        tx.execute("INSERT INTO kept VALUES (1)")

    flow.procedure(takes=source, writes=[kept])(named("insert", insert))
    attempts = 2 * sys.getrecursionlimit()
    trial = Trial(core_path(tmp_path), flow, attempts_max=attempts)
    trial.run(source, [(1,)])
    (letter,) = trial.letters()
    assert letter.attempts == attempts
    trial.close()
