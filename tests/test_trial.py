"""The trial that users have for their own tests: it says what went wrong, and where to look."""

from collections.abc import Iterator

import pytest

from etl_procs import Batch, Dataflow, GivenUp, Transaction, Trial, by_punctuation
from etl_procs.errors import CoreError
from headrace.errors import DefinitionError

flow = Dataflow("tried")
numbers = flow.stream("numbers", "n INTEGER NOT NULL, note TEXT", batches=by_punctuation())
out = flow.outlet("out", "n INTEGER NOT NULL, note TEXT")


@flow.procedure(takes=numbers, gives=out)
def keep(tx: Transaction, batch: Batch) -> None:
    for row in batch.rows():
        if row["n"] == 0:
            tx.abort("a nought")
        if row["n"] == 1:
            tx.reject(row, "a one")
    tx.emit(out, batch.rows())


@pytest.fixture
def trial() -> Iterator[Trial]:
    with Trial(flow) as made:
        yield made


def test_a_batch_that_is_given_up_raises_and_is_a_dead_letter(trial: Trial) -> None:
    with pytest.raises(GivenUp, match=r"keep has given up batch 1: .*a nought"):
        trial.batch(numbers=[{"n": 0}])
    trial.batch(numbers=[{"n": 1}])
    assert [letter["tuples"] for letter in trial.dead_letters()] == [[[0, None]], [[1, None]]]
    assert trial.outlet("out") == [{"n": 1, "note": None}]


def test_an_outlet_is_asked_for_by_its_name_too(trial: Trial) -> None:
    trial.batch(numbers=[{"n": 2}, {"n": 3, "note": "three"}])
    expected = [{"n": 2, "note": None}, {"n": 3, "note": "three"}]
    assert trial.outlet(out) == trial.outlet("out") == expected
    with pytest.raises(DefinitionError, match=r"'nowhere' is no outlet of dataflow tried\n.*out"):
        trial.outlet("nowhere")


def test_rows_are_several_and_not_one(trial: Trial) -> None:
    with pytest.raises(CoreError, match=r"the trial gives numbers a row .*'n' is no dict"):
        trial.batch(numbers={"n": 1})
