"""Groups: several executions in one commit, each with a savepoint of its own; pending batches."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flows import arrived, joined, offsets, punctuation, undecoded
from trial import Trial, dump, named, pass_on

from etl_procs import Batch, Dataflow, Stream, Transaction, by_punctuation
from etl_procs.core import core_path
from etl_procs.errors import OutOfRoom

N = "n INTEGER NOT NULL"
ROUND_TIME_S = 1.0
"""With this step of the clock every group ends after the first unit that it runs."""

Hook = Callable[[Transaction, Batch], None]


def _no_hook(tx: Transaction, batch: Batch) -> None:
    """Do no more."""


class Chain(Trial):
    """first -> second -> third, which give on what they take; a test hangs its own in each."""

    NAMES = ("first", "second", "third")

    def __init__(self, path: Path, *, nest: str = "", **settings: Any) -> None:
        self.flow = Dataflow("chain")
        self.source = self.flow.stream("source", N, batches=by_punctuation())
        self.trace = self.flow.table("trace", "who TEXT NOT NULL, batch INTEGER, n INTEGER")
        self.out = self.flow.outlet("out", N)
        self.hooks: dict[str, Hook] = dict.fromkeys(self.NAMES, _no_hook)
        middle, last = self.flow.stream("middle", N), self.flow.stream("last", N)
        bodies = {
            "first": self._procedure("first", self.source, middle),
            "second": self._procedure("second", middle, last),
            "third": self._procedure("third", last, self.out),
        }
        if nest:
            self.flow.nest(*(bodies[name] for name in nest.split()))
        super().__init__(path, self.flow, **settings)

    def _procedure(self, name: str, takes: Stream, gives: Any) -> Any:
        def body(tx: Transaction, batch: Batch) -> None:
            rows = [(name, batch.id, n) for (n,) in batch.tuples] or [(name, batch.id, None)]
            tx.executemany("INSERT INTO trace VALUES (?, ?, ?)", rows)
            tx.emit(gives, batch.table)
            self.hooks[name](tx, batch)

        made = named(name, body)
        self.flow.procedure(takes=takes, writes=[self.trace], gives=[gives])(made)
        return made

    def traced(self) -> list[tuple[Any, ...]]:
        return self.query("SELECT * FROM trace ORDER BY rowid")


Make = Callable[..., Chain]


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Make]:
    made: list[Chain] = []

    def make(**more: Any) -> Chain:
        made.append(Chain(core_path(tmp_path / str(len(made))), **more))
        return made[-1]

    yield make
    for each in made:
        each.close()


def fails_on(number: int, error: Exception) -> Hook:
    def hook(tx: Transaction, batch: Batch) -> None:
        if (number,) in batch.tuples:
            raise error

    return hook


def test_batches_that_wait_commit_together_up_to_the_bound(chain: Make) -> None:
    trial = chain(group_batches_max=3)
    committed = trial.run(trial.source, *([(n,)] for n in range(1, 8)))
    assert [(c.first, c.through) for c in committed] == [(1, 3), (4, 6), (7, 7)]
    assert trial.core.metrics.commits == 3
    assert dict(trial.core.metrics.group_sizes) == {4: 2, 1: 1}


def test_a_group_of_many_bytes_ends_early(chain: Make) -> None:
    trial = chain(group_mb_max=1)
    rows = [(n,) for n in range(20_000)]
    committed = trial.run(trial.source, *([rows] * 5))
    assert len(committed) > 1


def test_a_group_that_takes_long_ends_between_two_rounds(chain: Make) -> None:
    trial = chain(group_ms_max=1_000)

    def third_takes_a_second(tx: Transaction, batch: Batch) -> None:
        trial.clock.advance(1.5)

    trial.hooks["third"] = third_takes_a_second
    committed = trial.run(trial.source, [(1,)], [(2,)])
    assert [(c.first, c.through) for c in committed] == [(1, 1), (2, 2)]
    assert trial.pending() == []


def test_between_two_groups_amid_a_round_batches_lie_on_the_disk(chain: Make) -> None:
    trial = chain()
    trial.clock.step = ROUND_TIME_S
    trial.end(trial.source, [(1,), (2,)])
    trial.end(trial.source, [(3,)])
    seen = []
    while trial.core.commit_next():
        seen.append((trial.ledger(), trial.pending()))
    done = [(1, 0, 0), (1, 1, 0), (1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2)]
    waiting = [
        [("middle", 1)],
        [("last", 1)],
        [],
        [("middle", 2)],
        [("last", 2)],
        [],
    ]
    assert [tuple(ledger[name] for name in Chain.NAMES) for ledger, _ in seen] == done
    assert [pending for _, pending in seen] == waiting
    assert trial.staged(trial.out) == [(1, 1), (1, 2), (2, 3)]
    assert trial.batch(trial.flow) == 2


def test_a_new_core_goes_on_amid_the_round_whether_the_log_is_there_or_not(chain: Make) -> None:
    for read_again in (True, False):
        trial = chain()
        trial.clock.step = ROUND_TIME_S
        trial.end(trial.source, [(1,), (2,)])
        assert trial.core.commit_next()
        for pending in ([("middle", 1)], [("last", 1)]):
            assert trial.pending() == pending
            trial.reopen(read_again=read_again)
            assert trial.core.commit_next()
        assert trial.core.commit_next() is None
        assert [who for who, _, _ in trial.traced()] == ["first"] * 2 + ["second"] * 2 + [
            "third"
        ] * 2
        assert trial.staged(trial.out) == [(1, 1), (1, 2)]
        assert trial.pending() == []


def test_a_tuple_that_is_rejected_after_a_restart_still_has_its_place_and_bytes(
    tmp_path: Path,
) -> None:
    flow = Dataflow("late")
    source = flow.stream("source", "n INTEGER NOT NULL, item TEXT", batches=by_punctuation())

    def early(tx: Transaction, batch: Batch) -> None:
        tx.reject(batch.rows()[0], "too early")

    def rejects(tx: Transaction, batch: Batch) -> None:
        for row in batch.rows():
            if row["item"] is None:
                tx.reject(row, "too late")

    flow.procedure(takes=source)(named("early", early))
    flow.procedure(takes=source)(named("late", rejects))
    trial = Trial(core_path(tmp_path), flow)
    trial.partitions = {"late.source": [0, 1]}
    trial.reopen()
    trial.clock.step = ROUND_TIME_S
    trial.give(
        joined(
            undecoded(source, b"\xff", "not UTF-8", offset=4),
            arrived(source, [(1, "a"), (2, None)], first=5),
            punctuation(source, 1, offset=7),
            arrived(source, [(3, None)], partition=1, first=9),
            punctuation(source, 1, offset=10, partition=1),
        )
    )
    assert trial.core.commit_next()
    assert trial.pending() == [("source", 1)]
    trial.reopen(read_again=False)
    trial.core.drain()
    assert [(x.reason, x.partition, x.offset, x.value) for x in trial.letters()] == [
        ("not UTF-8", 0, 4, b"\xff"),
        ("too early", 0, 5, b"(1, 'a')"),
        ("too late", 0, 6, b"(2, None)"),
        ("too late", 1, 9, b"(3, None)"),
    ]
    assert offsets(trial.core.positions(source)) == {0: 8, 1: 11}
    trial.close()


def test_one_outlet_that_two_procedures_give_is_staged_in_both_their_groups(tmp_path: Path) -> None:
    flow = Dataflow("shared")
    source, out = flow.stream("source", N, batches=by_punctuation()), flow.outlet("out", N)
    for name in ("one", "other"):
        flow.procedure(takes=source, gives=[out])(named(name, pass_on(out)))
    trial = Trial(core_path(tmp_path), flow)
    trial.clock.step = ROUND_TIME_S
    trial.run(source, [(1,)], [(2,)])
    assert trial.staged(out) == [(1, 1), (1, 1), (2, 2), (2, 2)]
    trial.close()


@pytest.mark.parametrize("step", [0.0, ROUND_TIME_S])
def test_a_nested_group_commits_as_one_and_is_never_split(chain: Make, step: float) -> None:
    trial = chain(nest="second third")
    trial.clock.step = step
    trial.end(trial.source, [(1,)])
    trial.end(trial.source, [(2,)])
    while trial.core.commit_next():
        ledger = trial.ledger()
        assert ledger["second"] == ledger["third"]
        assert all(stream == "middle" for stream, _ in trial.pending())
    assert [(who, n) for who, _, n in trial.traced()] == [
        (who, n) for n in (1, 2) for who in ("first", "second", "third")
    ]


def test_a_member_that_fails_rolls_back_all_of_its_nested_group(chain: Make) -> None:
    trial = chain(nest="second third")
    trial.hooks["third"] = fails_on(2, RuntimeError("no"))
    trial.run(trial.source, [(1,)], [(2,)], [(3,)])
    assert [(who, batch) for who, batch, _ in trial.traced()] == [
        ("first", 1),
        ("second", 1),
        ("third", 1),
        ("first", 2),
        ("first", 3),
        ("second", 3),
        ("third", 3),
    ]
    assert trial.staged(trial.out) == [(1, 1), (3, 3)]
    (letter,) = trial.letters()
    assert (letter.unit, letter.stream, letter.batch) == ("second+third", "middle", 2)
    assert "procedure chain.second+third failed on batch 2: RuntimeError: no" in letter.reason
    assert set(trial.ledger().values()) == {3}


def test_one_of_a_group_that_aborts_rolls_back_alone(chain: Make) -> None:
    trial = chain()

    def gives_up(tx: Transaction, batch: Batch) -> None:
        if (2,) in batch.tuples:
            tx.abort("two is too many")

    trial.hooks["first"] = gives_up
    (committed,) = trial.run(trial.source, [(1,)], [(2,)], [(3,)])
    assert (committed.first, committed.through, committed.dead_tuples) == (1, 3, 1)
    (letter,) = trial.letters()
    assert letter.reason == "procedure chain.first aborts: two is too many"
    assert trial.staged(trial.out) == [(1, 1), (3, 3)]


def test_after_a_dead_batch_an_empty_one_goes_downstream(chain: Make) -> None:
    trial = chain(attempts_max=1)
    trial.hooks["first"] = fails_on(1, RuntimeError("no"))
    trial.run(trial.source, [(1,)], [(2,)])
    assert [(who, batch, n) for who, batch, n in trial.traced() if batch == 1] == [
        ("second", 1, None),
        ("third", 1, None),
    ]
    (letter,) = trial.letters()
    assert letter.attempts == 1


def test_a_batch_is_tried_again_and_needs_no_dead_letter_if_it_succeeds_then(chain: Make) -> None:
    trial = chain(attempts_max=3)
    attempts = []

    def third_time_lucky(tx: Transaction, batch: Batch) -> None:
        attempts.append(batch.id)
        if len(attempts) < 3:
            raise RuntimeError("not yet")

    trial.hooks["second"] = third_time_lucky
    trial.run(trial.source, [(1,)])
    assert attempts == [1, 1, 1]
    assert [who for who, _, _ in trial.traced()] == ["first", "second", "third"]
    assert trial.letters() == []
    assert dict(trial.core.metrics.aborts) == {"chain.second": 2}


def test_what_a_failed_attempt_has_emitted_and_rejected_is_not_kept(chain: Make) -> None:
    trial = chain()
    attempts = []

    def once(tx: Transaction, batch: Batch) -> None:
        attempts.append(batch.id)
        if len(attempts) == 1:
            tx.reject(batch.rows()[0], "in vain")
            raise RuntimeError("not yet")

    trial.hooks["third"] = once
    trial.run(trial.source, [(1,)])
    assert trial.staged(trial.out) == [(1, 1)]
    assert trial.letters() == []


def test_each_stream_of_a_dead_batch_is_in_a_letter_of_its_own(tmp_path: Path) -> None:
    flow = Dataflow("two")
    streams = [flow.stream(name, N, batches=by_punctuation()) for name in ("left", "right")]

    @flow.procedure(takes=streams)
    def join(tx: Transaction, left: Batch, right: Batch) -> None:
        raise RuntimeError(f"{left.tuples} {right.tuples}")

    trial = Trial(core_path(tmp_path), flow)
    trial.end(streams[0], [(1,)])
    trial.run(streams[1], [(2,), (3,)])
    letters = trial.letters()
    assert [(x.stream, x.batch, x.row_count, x.unit) for x in letters] == [
        ("left", 1, 1, "join"),
        ("right", 1, 2, "join"),
    ]
    assert all("[(1,)] [(2,), (3,)]" in x.reason for x in letters)
    assert [row["n"] for row in letters[1].rows()] == [2, 3]
    trial.close()


def test_a_full_disk_amid_a_group_changes_nothing_and_all_of_it_runs_again(chain: Make) -> None:
    trial = chain()
    trial.run(trial.source, [(1,)])
    before = dump(trial.path)
    trial.disk_is_full()
    trial.end(trial.source, [(2,)])
    trial.end(trial.source, [(n,) for n in range(10_000)])
    for _ in range(3):
        with pytest.raises(OutOfRoom, match="full"):
            trial.core.drain()
        assert dump(trial.path) == before
    trial.disk_has_room()
    trial.core.drain()
    assert len(trial.traced()) == 3 * 10_002
    assert trial.letters() == []
    assert trial.core.metrics.rollbacks == 3


def test_a_statement_that_runs_too_long_is_a_failure_of_its_batch(chain: Make) -> None:
    trial = chain(statement_ms_max=1_000, attempts_max=2)
    heavy = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
        "SELECT max(i) AS m FROM n"
    )

    def slow(tx: Transaction, batch: Batch) -> None:
        if (2,) in batch.tuples:
            trial.clock.advance(0.9)
            tx.query("SELECT count(*) AS c FROM trace")
            trial.clock.step = 0.2
            tx.query(heavy)

    def hurried(tx: Transaction, batch: Batch) -> None:
        trial.clock.step = 0.0

    trial.hooks["second"], trial.hooks["third"] = slow, hurried
    trial.run(trial.source, [(1,)], [(2,)], [(3,)])
    (letter,) = trial.letters()
    assert (letter.unit, letter.batch, letter.attempts) == ("second", 2, 2)
    assert "interrupted" in letter.reason
    assert trial.staged(trial.out) == [(1, 1), (3, 3)]


def test_each_attempt_has_all_of_its_time(chain: Make) -> None:
    trial = chain(statement_ms_max=1_000)
    attempts: list[str] = []
    heavy = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
        "SELECT max(i) AS m FROM n"
    )

    def slow_at_first(tx: Transaction, batch: Batch) -> None:
        attempts.append("once more")
        trial.clock.advance(2.0 if len(attempts) == 1 else 0.5)
        tx.query(heavy)

    trial.hooks["second"] = slow_at_first
    trial.run(trial.source, [(1,)])
    assert len(attempts) == 2
    assert trial.letters() == []
    assert trial.staged(trial.out) == [(1, 1)]


def test_a_change_that_runs_too_long_takes_the_group_down_and_leaves_only_itself_out(
    chain: Make,
) -> None:
    trial = chain(statement_ms_max=1_000)
    heavy = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
        "UPDATE trace SET batch = (SELECT max(i) FROM n) + rowid"
    )

    def slow(tx: Transaction, batch: Batch) -> None:
        trial.clock.step = 0.0
        if (2,) in batch.tuples:
            trial.clock.step = 2.0
            tx.execute(heavy)

    def hurried(tx: Transaction, batch: Batch) -> None:
        trial.clock.step = 0.0

    trial.hooks["first"], trial.hooks["second"] = hurried, slow
    trial.run(trial.source, [(1,)], [(2,)], [(3,)])
    (letter,) = trial.letters()
    assert (letter.unit, letter.batch, letter.attempts) == ("second", 2, 3)
    assert "interrupted" in letter.reason
    assert trial.core.metrics.rollbacks == 3
    assert [(who, batch) for who, batch, _ in trial.traced()] == [
        ("first", 1),
        ("second", 1),
        ("third", 1),
        ("first", 2),
        ("third", 2),
        ("first", 3),
        ("second", 3),
        ("third", 3),
    ]
    assert set(trial.ledger().values()) == {3}


def test_how_batches_are_grouped_makes_no_difference(chain: Make) -> None:
    states = []
    for group, step in [(1, 0.0), (64, 0.0), (3, 0.0), (64, ROUND_TIME_S)]:
        trial = chain(group_batches_max=group)
        trial.clock.step = step
        trial.hooks["second"] = fails_on(4, RuntimeError("no"))
        trial.run(trial.source, *([(n,), (n + 100,)] for n in range(1, 9)))
        state = trial.state()
        state["headrace_dead_letters"] = [(x.batch, x.rows()) for x in trial.letters()]
        state["trace"] = sorted(state["trace"])
        states.append(state)
    assert states[1:] == states[:1] * 3
