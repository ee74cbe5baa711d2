"""Dead letters that run again: in a batch of their own, in order of the ledger, and never lost."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from trial import Trial, dump, named

from etl_procs import Batch, Dataflow, Transaction, by_punctuation
from etl_procs.core import core_path
from etl_procs.errors import LettersFull
from etl_procs.letter import DeadLetter
from headrace.errors import Refused

COLUMNS = "n INTEGER NOT NULL, note TEXT"


class Ledger(Trial):
    """first, which may fail or reject, gives to second and third; aside takes the source too."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.mended = False
        self.flow = self.declared()
        self.source = self.flow.streams["source"]
        super().__init__(path, self.flow, **settings)

    def declared(
        self, columns: str = COLUMNS, first: str = "first", was: str = "", *, nest: bool = False
    ) -> Dataflow:
        flow = Dataflow("replayed")
        source = flow.stream("source", columns, batches=by_punctuation())
        inner, out = flow.stream("inner", columns), flow.outlet("out", columns)
        self.ran: list[tuple[str, int, list[Any]]] = []

        def begin(tx: Transaction, batch: Batch) -> None:
            self._note("first", batch)
            good = []
            for row in batch.rows():
                if row["n"] == 0 and not self.mended:
                    tx.abort("a nought")
                if row["n"] < 0 and not self.mended:  # type: ignore[operator]
                    tx.reject(row, "below nought")
                else:
                    good.append(row)
            tx.emit(inner, good)

        def go_on(name: str) -> Callable[..., None]:
            def body(tx: Transaction, batch: Batch) -> None:
                self._note(name, batch)
                if name == "third" and (100,) in [t[:1] for t in batch.tuples] and not self.mended:
                    tx.abort("a hundred")
                for row in batch.rows():
                    if name == "third" and row["n"] == 200 and not self.mended:
                        tx.reject(row, "two hundred")
                if name == "second":
                    tx.emit(out, batch.table)

            return named(name, body)

        bodies = named(first, begin), go_on("second"), go_on("third")
        flow.procedure(takes=source, gives=[inner], was=was)(bodies[0])
        flow.procedure(takes=inner, gives=[out])(bodies[1])
        flow.procedure(takes=inner)(bodies[2])
        if nest:
            flow.nest(*bodies)
        flow.procedure(takes=source)(go_on("aside"))
        return flow

    def _note(self, name: str, batch: Batch) -> None:
        self.ran.append((name, batch.id, [values[0] for values in batch.tuples]))

    def ask(self, *numbers: int) -> None:
        """Ask for letters to be run again, all if none are named."""
        with self.changing() as dead:
            dead.replay(numbers or [letter.id for letter in dead])

    def numbers(self, name: str) -> list[Any]:
        return [n for of, _, numbers in self.ran for n in numbers if of == name]

    def out(self) -> list[tuple[Any, ...]]:
        return self.staged(self.flow.outlets["out"])


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Ledger]]:
    made: list[Ledger] = []

    def _make(**settings: Any) -> Ledger:
        made.append(Ledger(core_path(tmp_path), attempts_max=1, **settings))
        return made[-1]

    yield _make
    for each in made:
        each.close()


Make = Callable[..., Ledger]


def test_a_dead_batch_that_runs_again_is_a_new_batch_of_its_procedure_alone(make: Make) -> None:
    trial = make()
    trial.run(trial.source, [(0, "a"), (5, None)], [(6, None)])
    assert trial.out() == [(2, 6, None)]
    trial.mended = True
    trial.ran.clear()
    trial.ask()
    trial.core.drain()
    assert sorted(trial.ran) == [
        ("aside", 3, []),
        ("first", 3, [0, 5]),
        ("second", 3, [0, 5]),
        ("third", 3, [0, 5]),
    ]
    assert trial.out()[1:] == [(3, 0, "a"), (3, 5, None)]
    assert trial.letters() == []
    assert set(trial.ledger().values()) == {3}


def test_a_rejected_tuple_runs_again_and_keeps_its_place_if_it_is_rejected_again(
    make: Make,
) -> None:
    trial = make()
    trial.run(trial.source, [(1, "a"), (-1, "b"), (-2, None)])
    (first, second) = trial.letters()
    trial.ask(second.id)
    trial.core.drain()
    again = trial.letters()
    assert [letter.id == first.id for letter in again] == [True, False]
    assert (again[1].batch, again[1].offset, again[1].value, again[1].fields) == (
        2,
        2,
        b"(-2, None)",
        "[-2, null]",
    )
    trial.mended = True
    trial.ask()
    trial.core.drain()
    assert trial.letters() == []
    assert [n for _, n, _ in trial.out()] == [1, -1, -2]


def test_letters_of_one_procedure_and_batch_run_again_together_oldest_first(make: Make) -> None:
    trial = make()
    trial.run(trial.source, [(0, "a"), (1, None)], [(-3, None)], [(0, "b")])
    trial.mended = True
    trial.ask()
    trial.core.drain()
    assert [r for r in trial.ran if r[0] == "first"][-3:] == [
        ("first", 4, [0, 1]),
        ("first", 5, [-3]),
        ("first", 6, [0]),
    ]


@pytest.mark.parametrize("step", [0.0, 1.0])
def test_however_groups_end_a_replay_loses_nothing(make: Make, step: float) -> None:
    trial = make()
    trial.run(trial.source, [(0, "a"), (7, None)])
    trial.clock.step = step
    trial.mended = True
    trial.ask()
    while trial.core.commit_next():
        trial.reopen()
    assert trial.out() == [(2, 0, "a"), (2, 7, None)]
    assert trial.letters() == []
    assert trial.pending() == []
    assert set(trial.ledger().values()) == {2}


def test_a_replay_is_not_taken_for_a_batch_of_the_source_after_a_restart(make: Make) -> None:
    trial = make()
    trial.run(trial.source, [(0, "a")], [(1, None)])
    trial.mended = True
    trial.ask()
    trial.core.drain()
    for n in (2, 3):
        trial.reopen()
        trial.run(trial.source, [(n, None)])
    assert [n for _, n, _ in trial.out()] == [1, 0, 2, 3]
    assert trial.numbers("aside") == [0, 1, 2, 3]
    assert set(trial.ledger().values()) == {5}


def test_a_replay_waits_for_the_open_round(make: Make) -> None:
    trial = make()
    trial.run(trial.source, [(0, "a")])
    trial.clock.step = 1.0
    trial.end(trial.source, [(1, None)])
    trial.core.commit_next()
    trial.mended = True
    trial.ask()
    trial.core.drain()
    assert trial.out() == [(2, 1, None), (3, 0, "a")]


def test_a_replay_is_not_split_from_the_units_that_run_before_its_own(make: Make) -> None:
    trial = make()
    trial.run(trial.source, [(100, "a"), (7, None)])
    trial.clock.step = 1.0
    trial.mended = True
    trial.ran.clear()
    trial.ask()
    while trial.core.commit_next():
        trial.reopen()
    assert ("third", 2, [100, 7]) in trial.ran
    assert trial.letters() == []


@pytest.mark.parametrize("columns", ["n INTEGER NOT NULL", "n TEXT NOT NULL, note TEXT"])
@pytest.mark.parametrize("rows", [[(0, "a")], [(-1, "a")]])
def test_letters_that_no_longer_fit_stay_and_stop_nothing(
    make: Make, columns: str, rows: list[tuple[int, str]]
) -> None:
    trial = make()
    trial.run(trial.source, rows)
    before = trial.letters()
    trial.ask()
    trial.reopen(trial.declared(columns), read_again=False)
    trial.core.drain()
    assert trial.letters() == before
    with pytest.raises(Refused, match=r"cannot run again: .*(other columns now|does not fit)"):
        trial.ask()


@pytest.mark.parametrize(("nest_before", "nest_after"), [(True, False), (False, True)])
def test_letters_go_to_their_procedure_whether_it_is_nested_or_not(
    make: Make, nest_before: bool, nest_after: bool
) -> None:
    trial = make()
    trial.reopen(trial.declared(nest=nest_before))
    trial.run(trial.source, [(0, "a"), (1, None)], [(-2, None), (3, None)], [(100, None)])
    units = [("first", [0, 1]), ("first", [-2]), ("third", [100])]
    if nest_before:
        units = [("first+second+third", [0, 1]), units[1], ("first+second+third", [100])]
    assert [(x.unit, numbers_of(x)) for x in trial.letters()] == units
    trial.mended = True
    trial.reopen(trial.declared(nest=nest_after), read_again=False)
    trial.ran.clear()
    trial.ask()
    trial.core.drain()
    assert trial.letters() == []
    again = [0, 1, -2] + [100] * nest_before
    assert (trial.numbers("first"), trial.numbers("second")) == (again, again)
    assert trial.numbers("third") == [0, 1, -2, 100]


def numbers_of(letter: DeadLetter) -> list[Any]:
    return [row["n"] for row in letter.rows()] or json.loads(letter.fields or "")[:1]


def test_a_tuple_of_an_inner_stream_of_a_group_runs_again_through_the_one_that_rejected_it(
    make: Make,
) -> None:
    trial = make()
    trial.reopen(trial.declared(nest=True))
    trial.run(trial.source, [(200, "a"), (1, None)])
    (letter,) = trial.letters()
    assert (letter.unit, letter.stream, letter.fields) == ("third", "inner", '[200, "a"]')
    trial.mended = True
    trial.ran.clear()
    trial.ask()
    trial.core.drain()
    assert [entry for entry in trial.ran if entry[2]] == [("third", 2, [200])]
    assert trial.letters() == []


def test_letters_go_with_a_procedure_that_is_renamed(make: Make) -> None:
    trial = make()
    trial.run(trial.source, [(0, "a")])
    trial.reopen(trial.declared(first="renamed", was="first"))
    trial.mended = True
    trial.ask()
    trial.core.drain()
    assert trial.out() == [(2, 0, "a")]


def test_when_the_dead_letters_are_full_the_core_waits_and_goes_on_when_there_is_room(
    make: Make,
) -> None:
    trial = make(dead_letters_mb_max=1)
    much = "x" * 150_000
    trial.run(trial.source, *([(-n, much)] for n in (1, 2)))
    before = dump(trial.path)
    trial.end(trial.source, [(-3, much), (-4, much)])
    for _ in range(2):
        with pytest.raises(LettersFull, match="1 MB"):
            trial.core.drain()
        assert dump(trial.path) == before
    with trial.changing() as dead:
        dead.drop([letter.id for letter in dead])
    trial.core.drain()
    assert [letter.fields[:3] for letter in trial.letters() if letter.fields] == ["[-3", "[-4"]
