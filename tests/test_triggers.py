"""Triggers: work inside a transaction, when a stream is given tuples and when a window slides."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trial import Trial, named, nothing, pass_on

from etl_procs import Batch, Dataflow, Transaction, by_punctuation, last_batches, last_tuples
from etl_procs.core import core_path

N = "n INTEGER NOT NULL"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return core_path(tmp_path)


@pytest.fixture
def flow() -> Dataflow:
    made = Dataflow("f")
    made.stream("source", N, batches=by_punctuation())
    made.table("notes", "what TEXT NOT NULL, batch INTEGER, n INTEGER")
    made.outlet("out", N)
    return made


def note(what: str) -> Callable[..., None]:
    """Make a body that writes down that it ran, with the numbers it was given."""

    def body(tx: Transaction, *batches: Batch) -> None:
        numbers = [n for batch in batches for (n,) in batch.tuples] or [None]
        rows = [(what, tx.batch, n) for n in numbers]
        tx.executemany("INSERT INTO notes VALUES (?, ?, ?)", rows)

    return named(what, body)


def emitting(name: str, *targets: Any, times: int = 1) -> Callable[..., None]:
    """Make a body that emits one row into each target, `times` over."""

    def body(tx: Transaction, *_batches: Batch) -> None:
        for n in range(times):
            for target in targets:
                tx.emit(target, [{"n": n}])

    return named(name, body)


def notes(trial: Trial) -> list[tuple[Any, ...]]:
    return trial.query("SELECT * FROM notes ORDER BY rowid")


def test_a_trigger_on_a_stream_runs_with_what_was_just_given(path: Path, flow: Dataflow) -> None:
    inner = flow.stream("inner", N)
    notes_table = flow.tables["notes"]

    @flow.procedure(takes=flow.streams["source"], writes=[notes_table], gives=[inner])
    def giver(tx: Transaction, batch: Batch) -> None:
        tx.execute("INSERT INTO notes VALUES ('before', ?, NULL)", [tx.batch])
        tx.emit(inner, [{"n": 1}, {"n": 2}])
        tx.emit(inner, [])
        tx.emit(inner, batch.table)
        tx.execute("INSERT INTO notes VALUES ('after', ?, NULL)", [tx.batch])

    flow.procedure(takes=inner, writes=[notes_table])(note("taker"))
    flow.trigger(on=inner, writes=[notes_table])(note("trigger"))
    trial = Trial(path, flow)
    trial.run(flow.streams["source"], [(3,)])
    assert notes(trial) == [
        ("before", 1, None),
        ("trigger", 1, 1),
        ("trigger", 1, 2),
        ("trigger", 1, 3),
        ("after", 1, None),
        ("taker", 1, 1),
        ("taker", 1, 2),
        ("taker", 1, 3),
    ]
    trial.close()


def test_a_trigger_on_a_window_runs_after_each_slide_and_sees_it(
    path: Path, flow: Dataflow
) -> None:
    window = flow.window("recent", N, last_tuples(3, slide=2))
    flow.procedure(takes=flow.streams["source"], gives=[window])(named("fills", pass_on(window)))

    @flow.trigger(on=window, writes=[flow.tables["notes"]])
    def slid(tx: Transaction) -> None:
        tx.execute("INSERT INTO notes SELECT 'slid', ?, n FROM recent", [tx.batch])

    trial = Trial(path, flow)
    trial.run(flow.streams["source"], [(1,)], [(2,), (3,), (4,), (5,)], [])
    assert notes(trial) == [("slid", 2, n) for n in (1, 2, 2, 3, 4)]
    trial.close()


def test_triggers_set_off_triggers(path: Path, flow: Dataflow) -> None:
    inner, window = flow.stream("inner", N), flow.window("recent", N, last_tuples(2))
    last = flow.stream("last", N)
    table, out = flow.tables["notes"], flow.outlets["out"]
    flow.procedure(takes=flow.streams["source"], gives=[inner])(named("giver", pass_on(inner)))
    flow.trigger(on=inner, gives=[window])(named("one", pass_on(window)))

    @flow.trigger(on=window, gives=[last, out])
    def two(tx: Transaction) -> None:
        rows = tx.query("SELECT sum(n) AS n FROM recent")
        tx.emit(last, rows)
        tx.emit(out, rows)

    flow.procedure(takes=inner)(named("idle", nothing))
    flow.procedure(takes=last, writes=[table])(note("taker"))
    trial = Trial(path, flow)
    trial.run(flow.streams["source"], [(1,), (2,)], [(3,)])
    assert notes(trial) == [("taker", 1, 1), ("taker", 1, 3), ("taker", 2, 5)]
    assert trial.staged(out) == [(1, 1), (1, 3), (2, 5)]
    trial.close()


def test_what_a_trigger_does_is_rolled_back_with_its_procedure(path: Path, flow: Dataflow) -> None:
    inner, window = flow.stream("inner", N), flow.window("recent", N, last_tuples(2))
    table, out = flow.tables["notes"], flow.outlets["out"]

    @flow.procedure(takes=flow.streams["source"], gives=[inner])
    def giver(tx: Transaction, batch: Batch) -> None:
        tx.emit(inner, batch.table)
        if (2,) in batch.tuples:
            raise RuntimeError("after the trigger")

    @flow.trigger(on=inner, writes=[table], gives=[window, out])
    def works(tx: Transaction, batch: Batch) -> None:
        tx.execute("INSERT INTO notes VALUES ('worked', ?, NULL)", [tx.batch])
        tx.emit(window, batch.table)
        tx.emit(out, batch.table)

    flow.procedure(takes=inner)(named("idle", nothing))
    trial = Trial(path, flow)
    trial.run(flow.streams["source"], [(1,)], [(2,)], [(3,)])
    assert [batch for _, batch, _ in notes(trial)] == [1, 3]
    assert trial.query("SELECT n FROM recent") == [(1,), (3,)]
    assert trial.staged(out) == [(1, 1), (3, 3)]
    trial.close()


@pytest.mark.parametrize("caught", [False, True])
def test_a_trigger_that_fails_fails_its_procedure_even_one_that_catches_it(
    path: Path, flow: Dataflow, *, caught: bool
) -> None:
    inner = flow.stream("inner", N)
    table = flow.tables["notes"]

    @flow.procedure(takes=flow.streams["source"], writes=[table], gives=[inner])
    def giver(tx: Transaction, batch: Batch) -> None:
        try:
            tx.emit(inner, batch.table)
        except ZeroDivisionError:
            if not caught:
                raise

    @flow.trigger(on=inner, writes=[table])
    def fails(tx: Transaction, batch: Batch) -> None:
        tx.execute("INSERT INTO notes VALUES ('half', ?, NULL)", [tx.batch])
        raise ZeroDivisionError("in the trigger")

    flow.procedure(takes=inner, writes=[table])(note("taker"))
    trial = Trial(path, flow)
    trial.run(flow.streams["source"], [(1,)])
    (letter,) = trial.letters()
    assert (letter.unit, letter.stream) == ("giver", "source")
    assert "ZeroDivisionError: in the trigger" in letter.reason
    assert notes(trial) == [("taker", 1, None)]
    trial.close()


def test_a_trigger_has_the_rights_that_it_declares_itself(path: Path, flow: Dataflow) -> None:
    inner, window = flow.stream("inner", N), flow.window("recent", N, last_tuples(2))
    table, out = flow.tables["notes"], flow.outlets["out"]
    attempts: dict[str, Callable[[Transaction], object]] = {
        "writes": lambda tx: tx.execute("DELETE FROM notes"),
        "reads": lambda tx: tx.query("SELECT n FROM recent"),
        "emits": lambda tx: tx.emit(out, [{"n": 1}]),
    }
    said: dict[str, str] = {}

    @flow.procedure(takes=flow.streams["source"], writes=[table], gives=[inner, window, out])
    def giver(tx: Transaction, batch: Batch) -> None:
        tx.emit(inner, batch.table)

    @flow.trigger(on=inner)
    def curious(tx: Transaction, batch: Batch) -> None:
        for name, attempt in attempts.items():
            with pytest.raises(Exception, match=r"trigger f\.curious") as raised:
                attempt(tx)
            said[name] = str(raised.value)

    @flow.trigger(on=window)
    def looks(tx: Transaction) -> None:
        tx.query("SELECT n FROM recent")

    flow.procedure(takes=inner)(named("idle", nothing))
    trial = Trial(path, flow)
    trial.run(flow.streams["source"], [(1,)])
    assert trial.letters() == []
    assert "deletes from notes" in said["writes"]
    assert "writes=[..., notes]" in said["writes"]
    assert "reads recent" in said["reads"]
    assert "gives=[..., out]" in said["emits"]
    trial.close()


def test_a_trigger_rejects_no_tuple_and_neither_does_it_its_procedures(
    path: Path, flow: Dataflow
) -> None:
    inner = flow.stream("inner", N)
    flow.procedure(takes=flow.streams["source"], gives=[inner])(named("giver", pass_on(inner)))

    @flow.trigger(on=inner)
    def rejects(tx: Transaction, batch: Batch) -> None:
        tx.reject(batch.rows()[0], "no")

    flow.procedure(takes=inner)(named("idle", nothing))
    trial = Trial(path, flow)
    trial.run(flow.streams["source"], [(1,)])
    (reason,) = trial.reasons()
    assert "trigger f.rejects rejects a tuple of inner" in reason
    trial.close()


def test_a_window_by_batches_that_a_trigger_fills_ages_with_each_batch(
    path: Path, flow: Dataflow
) -> None:
    inner, window = flow.stream("inner", N), flow.window("recent", N, last_batches(2))
    further = flow.window("further", N, last_batches(1, slide=2))
    table = flow.tables["notes"]
    flow.procedure(takes=flow.streams["source"], gives=[inner])(named("giver", pass_on(inner)))
    flow.trigger(on=inner, gives=[window])(named("fills", pass_on(window)))

    @flow.trigger(on=window, writes=[table], gives=[further])
    def slid(tx: Transaction) -> None:
        (of,) = tx.query("SELECT count(*) AS n FROM recent")
        tx.execute("INSERT INTO notes VALUES ('slid', ?, ?)", [tx.batch, of["n"]])
        tx.emit(further, [{"n": tx.batch}])

    flow.procedure(takes=inner)(named("idle", nothing))
    trial = Trial(path, flow)
    trial.run(flow.streams["source"], [(1,)], [], [])
    assert notes(trial) == [("slid", 1, 1), ("slid", 2, 1), ("slid", 3, 0)]
    assert trial.query("SELECT n FROM further") == [(2,)]
    trial.close()


def test_a_trigger_may_stand_between_two_procedures_of_a_nested_group(
    path: Path, flow: Dataflow
) -> None:
    inner, beyond = flow.stream("inner", N), flow.stream("beyond", N)
    table = flow.tables["notes"]
    giver, taker = named("giver", pass_on(inner)), note("taker")
    flow.procedure(takes=flow.streams["source"], gives=[inner])(giver)
    flow.trigger(on=inner, gives=[beyond])(emitting("between", beyond, times=2))
    flow.procedure(takes=[inner, beyond], writes=[table])(taker)
    flow.nest(giver, taker)
    trial = Trial(path, flow)
    trial.clock.step = 1.0
    (committed,) = trial.run(flow.streams["source"], [(7,)])
    assert committed.through == 1
    assert notes(trial) == [("taker", 1, 7), ("taker", 1, 0), ("taker", 1, 1)]
    trial.close()
