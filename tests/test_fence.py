"""The fence: of several engines on one core one goes on; the others change nothing and say why."""

import os
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest
from trial import Trial, dump

from etl_procs import Batch, Dataflow, Transaction, by_punctuation, ledger
from etl_procs.core import core_path
from etl_procs.errors import Superseded

SPAWN = get_context("spawn")
BATCHES = 40


def counting() -> Dataflow:
    flow = Dataflow("counting")
    source = flow.stream("source", "n INTEGER NOT NULL", batches=by_punctuation())
    totals = flow.table("totals", "n INTEGER PRIMARY KEY, times INTEGER NOT NULL")
    out = flow.outlet("out", "n INTEGER NOT NULL")

    @flow.procedure(takes=source, writes=[totals], gives=[out])
    def count(tx: Transaction, batch: Batch) -> None:
        tx.executemany(
            "INSERT INTO totals VALUES (?, 1) ON CONFLICT DO UPDATE SET times = times + 1",
            batch.tuples,
        )
        tx.emit(out, batch.table)

    return flow


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Trial]:
    trial = Trial(core_path(tmp_path), counting())
    yield trial
    trial.close()


@pytest.fixture
def second(first: Trial) -> Iterator[Trial]:
    """A second engine, which opens the core of the first."""
    trial = Trial(first.path, counting())
    yield trial
    trial.close()


def end(trial: Trial, *numbers: int) -> None:
    trial.end(trial.flows[0].streams["source"], [(n,) for n in numbers])


def test_an_engine_that_was_overtaken_changes_nothing_and_names_the_holder(
    first: Trial, second: Trial
) -> None:
    before = dump(first.path)
    end(first, 1, 2)
    for _ in range(2):
        with pytest.raises(Superseded, match=rf"held by process {os.getpid()}, which opened it"):
            first.core.drain()
    assert dump(first.path) == before
    end(second, 1, 2)
    second.core.drain()
    assert second.query("SELECT * FROM totals") == [(1, 1), (2, 1)]


def test_a_zombie_that_wakes_up_after_others_have_done_its_batches_changes_nothing(
    first: Trial,
) -> None:
    end(first, 1)
    first.core.drain()
    end(first, 2)
    second = Trial(first.path, counting())
    for part in first.log:
        second.core.feed(part)
    second.core.drain()
    before = dump(first.path)
    with pytest.raises(Superseded):
        first.core.drain()
    assert dump(first.path) == before
    assert first.query("SELECT * FROM totals") == [(1, 1), (2, 1)]
    second.close()


def test_without_the_fence_the_ledger_still_lets_only_one_of_two_do_a_batch(
    first: Trial, second: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "check_held", lambda *_: None)
    end(first, 1)
    end(second, 1)
    first.core.drain()
    before = dump(first.path)
    with pytest.raises(Superseded, match=r"procedure counting\.count is not at batch 0"):
        second.core.drain()
    assert dump(first.path) == before


def test_an_engine_that_takes_the_core_back_goes_on(first: Trial, second: Trial) -> None:
    end(second, 1)
    second.core.drain()
    first.reopen()
    end(first, 1)
    assert first.core.drain() == []  # the second has done it
    end(first, 2)
    first.core.drain()
    assert first.query("SELECT * FROM totals") == [(1, 1), (2, 1)]
    end(second, 2)
    with pytest.raises(Superseded):
        second.core.drain()


def test_a_definition_that_is_refused_takes_the_core_from_nobody(first: Trial) -> None:
    changed = counting()
    changed.tables.clear()
    changed.table("totals", "n TEXT PRIMARY KEY, times INTEGER NOT NULL")
    with pytest.raises(Exception, match="the core holds"):
        Trial(first.path, changed)
    end(first, 1)
    assert first.core.drain()


def _engine(path: Path) -> None:
    """Open the core and run the whole log, batch after batch, until another engine takes it."""
    trial = Trial(path, counting(), group_batches_max=2)
    for n in range(1, BATCHES + 1):
        end(trial, n, n)
    try:
        while trial.core.commit_next():
            pass
    except Superseded:
        raise SystemExit(3) from None
    trial.close()


def test_engines_that_race_for_one_core_do_every_batch_once(tmp_path: Path) -> None:
    path = core_path(tmp_path)
    trial = Trial(path, counting())
    trial.close()
    engines = [SPAWN.Process(target=_engine, args=(path,)) for _ in range(3)]
    for engine in engines:
        engine.start()
    for engine in engines:
        engine.join(120)
    codes = [engine.exitcode for engine in engines]
    assert set(codes) <= {0, 3}
    assert 0 in codes  # the last to open it is overtaken by nobody
    (flow,) = trial.flows
    assert trial.query("SELECT n, times FROM totals") == [(n, 2) for n in range(1, BATCHES + 1)]
    expected = [(n, n) for n in range(1, BATCHES + 1) for _ in range(2)]
    assert trial.staged(flow.outlets["out"]) == expected
