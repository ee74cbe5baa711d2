"""What users do without meaning harm, and what a changed definition meets amid a round."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trial import Trial, named

from etl_procs import (
    Batch,
    Dataflow,
    Row,
    Transaction,
    by_interval,
    by_punctuation,
    last_batches,
    last_tuples,
)
from etl_procs.core import core_path
from etl_procs.errors import OutOfRoom
from etl_procs.rules import Rule
from headrace.errors import DefinitionError

N = "n INTEGER NOT NULL"
T = "at INTEGER NOT NULL"


class Keeper(Trial):
    """Keeps the numbers of its source; a test puts in its own body."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.body: Callable[[Transaction, Batch], object] = self.keep
        flow = Dataflow("keeper")
        self.source = flow.stream("source", N, batches=by_punctuation())
        self.kept = flow.table("kept", N)
        flow.procedure(takes=self.source, writes=[self.kept])(
            named("keep", lambda tx, batch: self.body(tx, batch))
        )
        super().__init__(path, flow, **settings)

    def keep(self, tx: Transaction, batch: Batch) -> None:
        tx.executemany("INSERT INTO kept VALUES (?)", batch.tuples)

    def numbers(self) -> list[int]:
        return [n for (n,) in self.query("SELECT n FROM kept ORDER BY rowid")]


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    made = Keeper(core_path(tmp_path))
    yield made
    made.close()


def two_takers(*names: str) -> Dataflow:
    flow = Dataflow("pair")
    source = flow.stream("source", N, batches=by_punctuation())
    for name in names:
        kept = flow.table(f"kept_{name}", N)

        def keep(tx: Transaction, batch: Batch, table: str = kept.name) -> None:
            tx.executemany(f"INSERT INTO {table} VALUES (?)", batch.tuples)

        flow.procedure(takes=source, writes=[kept])(named(name, keep))
    return flow


def test_who_stays_takes_the_open_batch_when_who_was_ahead_is_gone(tmp_path: Path) -> None:
    flow = two_takers("first", "second")
    trial = Trial(core_path(tmp_path), flow)
    trial.end(flow.streams["source"], [(1,)])
    trial.clock.step = 1.0  # so that the group ends between the two
    assert trial.core.commit_next()
    ahead, behind = sorted(trial.ledger(), key=lambda name: -trial.ledger()[name])
    assert trial.ledger() == {ahead: 1, behind: 0}
    trial.clock.step = 0.0
    changed = two_takers(behind)
    trial.reopen(changed)
    trial.run(changed.streams["source"], [(2,)])
    assert trial.query(f"SELECT n FROM kept_{behind} ORDER BY n") == [(1,), (2,)]
    assert trial.letters() == []
    assert trial.pending() == []
    trial.close()


def test_a_body_that_exits_fails_its_batch_and_nothing_else(keeper: Keeper) -> None:
    def leave(_tx: Transaction, _batch: Batch) -> None:
        raise SystemExit(3)

    keeper.body = leave
    keeper.run(keeper.source, [(1,)])
    keeper.body = keeper.keep
    keeper.run(keeper.source, [(2,)])
    assert keeper.numbers() == [2]
    assert "SystemExit: 3" in keeper.reasons()[0]


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("unknown item \ud800"), r"unknown item \ud800"),
        (Wordless(), "Wordless: (it cannot be written)"),
    ],
)
def test_an_error_that_cannot_be_written_is_a_dead_letter_still(
    keeper: Keeper, error: Exception, told: str
) -> None:
    def fail(_tx: Transaction, _batch: Batch) -> None:
        raise error

    keeper.body = fail
    keeper.run(keeper.source, [(1,)])
    assert told in keeper.reasons()[0]


def test_an_abort_with_half_a_surrogate_pair_is_a_dead_letter_still(keeper: Keeper) -> None:
    keeper.body = lambda tx, _batch: tx.abort("\ud800")
    keeper.run(keeper.source, [(1,)])
    assert r"\ud800" in keeper.reasons()[0]


def test_a_row_of_an_earlier_batch_is_not_rejected_in_a_later_one(keeper: Keeper) -> None:
    rows: list[Row] = []

    def remember(tx: Transaction, batch: Batch) -> None:
        rows.extend(batch.rows())
        tx.reject(rows[0], "the first one ever")

    keeper.body = remember
    keeper.run(keeper.source, [(1,), (2,)], [(3,)])
    tuples, batches = [
        [letter for letter in keeper.letters() if letter.is_batch is kind] for kind in (False, True)
    ]
    assert [(letter.batch, letter.fields) for letter in tuples] == [(1, "[1]")]
    assert [letter.batch for letter in batches] == [2]
    assert "not of its batch" in batches[0].reason


def test_what_an_attempt_does_to_its_tuples_is_not_seen_by_the_next(keeper: Keeper) -> None:
    attempts: list[int] = []

    def greedy(tx: Transaction, batch: Batch) -> None:
        tuples = batch.tuples
        attempts.append(len(tuples))
        tuples.clear()
        if len(attempts) == 1:
            raise ValueError("once")
        keeper.keep(tx, batch)

    keeper.body = greedy
    keeper.run(keeper.source, [(1,), (2,)])
    assert attempts == [2, 2]
    assert keeper.numbers() == [1, 2]


def test_no_memory_is_the_machines_fault_and_is_waited_for(keeper: Keeper) -> None:
    def hungry(_tx: Transaction, _batch: Batch) -> None:
        raise MemoryError

    keeper.body = hungry
    keeper.end(keeper.source, [(1,)])
    with pytest.raises(OutOfRoom, match="no memory"):
        keeper.core.drain()
    keeper.body = keeper.keep
    keeper.core.drain()
    assert keeper.numbers() == [1]
    assert keeper.core.metrics.aborts == {}, "what was rolled back is not counted"


def yielding(_tx: Transaction, _batch: Batch) -> Iterator[int]:
    yield 1


async def waiting(_tx: Transaction, _batch: Batch) -> None:
    pass


async def both(_tx: Transaction, _batch: Batch) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("body", [yielding, waiting, both])
def test_a_body_that_would_not_run_is_refused(keeper: Keeper, body: Callable[..., Any]) -> None:
    flow = Dataflow("lazy")
    source = flow.stream("source", N, batches=by_punctuation())
    if body is not both:
        with pytest.raises(DefinitionError, match="would not run"):
            flow.procedure(takes=source)(body)
    keeper.body = body
    keeper.run(keeper.source, [(1,)])
    assert "has not run" in keeper.reasons()[0]


def test_a_column_that_fills_up_is_refused_because_it_looks_like_a_full_disk() -> None:
    with pytest.raises(DefinitionError, match="AUTOINCREMENT"):
        Dataflow("f").table("t", "id INTEGER PRIMARY KEY AutoIncrement, n INTEGER")


def test_a_punctuation_far_ahead_is_a_dead_letter_and_ends_nothing(keeper: Keeper) -> None:
    keeper.run(keeper.source, [(1,)])
    keeper.mark(keeper.source, 1_700_000_000_000)
    keeper.run(keeper.source, [(2,)])
    assert keeper.numbers() == [1, 2]
    assert keeper.batch(keeper.flows[0]) == 2
    assert "too far ahead" in keeper.reasons()[0]


def test_a_window_by_batches_slides_late_where_the_batch_of_the_slide_has_died(
    tmp_path: Path,
) -> None:
    flow = Dataflow("panes")
    source = flow.stream("source", N, batches=by_punctuation())
    panes = flow.window("panes", N, last_batches(2, slide=2))
    seen = flow.table("seen", "batch INTEGER NOT NULL, numbers TEXT")

    def fill(tx: Transaction, batch: Batch) -> None:
        if (2,) in batch.tuples:
            tx.abort("no twos")
        tx.emit(panes, batch.rows())

    flow.procedure(takes=source, gives=[panes])(named("fill", fill))

    def note(tx: Transaction) -> None:
        (found,) = tx.query("SELECT group_concat(n) AS numbers FROM panes")
        tx.execute("INSERT INTO seen VALUES (?, ?)", [tx.batch, found["numbers"]])

    flow.trigger(on=panes, writes=[seen])(named("note", note))
    trial = Trial(core_path(tmp_path), flow)
    trial.run(source, *([(n,)] for n in range(1, 5)))
    assert trial.query("SELECT numbers FROM seen") == [("1",), ("3,4",)]
    trial.close()


def cut(rule: Rule) -> Dataflow:
    flow = Dataflow("cut")
    source = flow.stream("source", T, batches=rule)
    kept = flow.table("kept", T)

    def keep(tx: Transaction, batch: Batch) -> None:
        tx.executemany("INSERT INTO kept VALUES (?)", batch.tuples)

    flow.procedure(takes=source, writes=[kept])(named("keep", keep))
    return flow


def test_a_dataflow_goes_on_when_its_intervals_become_longer(tmp_path: Path) -> None:
    flow = cut(by_interval("at", 10))
    trial = Trial(core_path(tmp_path), flow)
    trial.feed(flow.streams["source"], [(995,), (1_005,), (1_015,), (1_025,)])
    trial.core.drain()
    assert len(trial.query("SELECT * FROM kept")) == 3
    changed = cut(by_interval("at", 100))
    assert "intervals of 100" in " ".join(trial.reopen(changed))
    trial.feed(changed.streams["source"], [(1_099,), (1_100,)])
    trial.core.drain()
    assert [at for (at,) in trial.query("SELECT at FROM kept ORDER BY at")] == [
        995,
        1_005,
        1_015,
        1_025,
        1_099,
    ]
    trial.close()


def test_a_dataflow_goes_on_when_another_kind_of_rule_cuts_it(tmp_path: Path) -> None:
    flow = cut(by_interval("at", 10))
    trial = Trial(core_path(tmp_path), flow)
    trial.feed(flow.streams["source"], [(995,), (1_005,)])
    trial.core.drain()
    changed = cut(by_punctuation())
    assert "it counts anew" in " ".join(trial.reopen(changed))
    trial.run(changed.streams["source"], [(7,)])
    assert trial.query("SELECT at FROM kept ORDER BY at") == [(7,), (995,), (1_005,)]
    trial.close()


def test_an_aggregate_that_is_no_longer_declared_is_gone(tmp_path: Path) -> None:
    def declared(*, summed: bool) -> Dataflow:
        flow = Dataflow("sums")
        source = flow.stream("source", N, batches=by_punctuation())
        recent = flow.window("recent", N, last_tuples(9))
        if summed:
            flow.aggregate("total", recent, total="sum(n)")

        def fill(tx: Transaction, batch: Batch) -> None:
            tx.emit(recent, batch.rows())

        flow.procedure(takes=source, gives=[recent])(named("fill", fill))
        return flow

    flow = declared(summed=True)
    trial = Trial(core_path(tmp_path), flow)
    trial.run(flow.streams["source"], [(2**62,)], [(2**62,)])
    assert len(trial.letters()) == 1, "the sum is beyond 64 bits"
    changed = declared(summed=False)
    assert trial.reopen(changed) == ["aggregate total is gone"]
    trial.run(changed.streams["source"], [(2**62,)])
    assert len(trial.letters()) == 1
    trial.close()
