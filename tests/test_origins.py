"""What a core remembers of its commits: when they were, and where in the log their tuples are."""

import os
import signal
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cutting import DETERMINISTIC, MARKED, TIMED, Bench, feed, for_any, logs, moved, ways
from flows import NOON, HeldClock, arrived
from hypothesis import strategies as st
from trial import Trial

from etl_procs import (
    Batch,
    Dataflow,
    Transaction,
    by_count,
    by_interval,
    by_punctuation,
    history,
)
from etl_procs.batch import Arrived, place_of
from etl_procs.core import Core
from etl_procs.errors import Superseded
from etl_procs.history import Origins, Taken
from etl_procs.reader import Reader
from etl_procs.rules import Rule
from headrace.config import Core as Settings
from headrace.crash import CrashPoints, Point

ROUND_TIME_S = 0.02


def flow_of(rule: Rule) -> Dataflow:
    """Declare two procedures, one after the other, of which the second refuses 13."""
    flow = Dataflow("shop")
    orders = flow.stream("orders", "id INTEGER NOT NULL", batches=rule)
    checked = flow.stream("checked", "id INTEGER NOT NULL")
    sold = flow.outlet("sold", "id INTEGER NOT NULL")

    @flow.procedure(takes=orders, gives=[checked])
    def check(tx: Transaction, batch: Batch) -> None:
        tx.emit(checked, batch.table)

    @flow.procedure(takes=checked, gives=[sold])
    def sell(tx: Transaction, batch: Batch) -> None:
        if any(values == (13,) for values in batch.tuples) and tx.batch < 4:
            raise ValueError("unlucky")
        tx.emit(sold, batch.table)

    return flow


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(tmp_path / "core.db", flow_of(by_punctuation()), group_batches_max=2)
    yield made
    made.close()


def origins(of: Trial, batch: int) -> Origins | None:
    with of.reader.snapshot() as core:
        return core.origins("shop", batch)


def committed_at(of: Trial, batch: int) -> float | None:
    with of.reader.snapshot() as core:
        at = core.committed_at("shop", batch)
    return None if at is None else (at - NOON).total_seconds()


def taken(first: int, after: int, partition: int = 0) -> Taken:
    return Taken("orders", partition, place_of(first), place_of(after - 1) + 1)


@DETERMINISTIC
@for_any
def test_a_batch_takes_from_its_first_tuple_on_and_before_those_of_the_next(
    rule: Rule, partitions: int, data: st.DataObject
) -> None:
    check_places(rule, partitions, data)


@pytest.mark.parametrize("rule", [TIMED, MARKED])
@for_any
def test_so_it_does_where_a_timeout_closes_it(rule: Rule, data: st.DataObject) -> None:
    check_places(rule, 2, data)


def check_places(rule: Rule, partitions: int, data: st.DataObject) -> None:
    log = data.draw(logs(partitions))
    cuts = feed(Bench(rule, partitions=partitions), log, data.draw(ways(partitions)))
    reached: dict[int, int] = {}
    for cut in cuts:
        places: dict[int, list[int]] = {}
        for name in cut.names:
            partition, place = map(int, name.split(":"))
            places.setdefault(partition, []).append(place)
        (firsts,), (positions,) = cut.firsts, cut.positions
        assert firsts == {partition: min(found) for partition, found in places.items()}
        for partition, found in places.items():
            assert reached.get(partition, 0) <= firsts[partition]
            assert max(found) < positions[partition]
        reached |= positions
    assert reached == (moved(cuts)[0] if cuts else {})


def test_each_batch_is_where_it_was_produced_and_was_committed_with_its_group(
    trial: Trial,
) -> None:
    trial.run(trial.flows[0].streams["orders"], [(1,), (2,)], [], [(3,)])
    assert origins(trial, 1) == Origins((Taken("orders", 0, place_of(0), place_of(2) + 1),), None)
    assert origins(trial, 2) == Origins((), None)
    assert origins(trial, 3) == Origins((Taken("orders", 0, place_of(4), place_of(5) + 1),), None)
    assert [committed_at(trial, batch) for batch in (1, 2, 3)] == [0, 0, 0]
    trial.clock.advance(5)
    trial.run(trial.flows[0].streams["orders"], [(4,)])
    assert [committed_at(trial, batch) for batch in (3, 4)] == [0, 5]


def test_of_what_is_not_committed_nothing_is_said(trial: Trial) -> None:
    trial.run(trial.flows[0].streams["orders"], [(1,)])
    for batch in (0, 2):
        assert (origins(trial, batch), committed_at(trial, batch)) == (None, None)
    with trial.reader.snapshot() as core:
        assert (core.origins("nobody", 1), core.committed_at("nobody", 1)) == (None, None)


def test_the_tuples_of_a_batch_may_be_in_several_partitions_and_amid_a_frame(
    tmp_path: Path,
) -> None:
    flow = flow_of(by_count(3))
    made = Trial(tmp_path / "core.db", flow)
    orders = flow.streams["orders"]
    made.feed(orders, [(1,)], partition=1)
    made.feed(orders, [(2,), (3,), (4,), (5,)])
    frame = arrived(orders, [(6,), (7,)], first=4).tuples
    at = frame.schema.get_field_index("_place")
    of_frame = frame.set_column(at, frame.schema.field(at), [[place_of(4, 0), place_of(4, 1)]])
    made.give(Arrived(orders, of_frame))
    made.core.drain()
    assert origins(made, 1) == Origins((taken(0, 2), taken(0, 1, partition=1)), None)
    assert origins(made, 2) == Origins((Taken("orders", 0, place_of(2), place_of(4, 0) + 1),), None)
    made.close()


def test_a_batch_that_is_committed_by_two_groups_is_so_with_the_second(trial: Trial) -> None:
    trial.clock.step = ROUND_TIME_S
    orders = trial.flows[0].streams["orders"]
    trial.end(orders, [(1,)])
    assert trial.core.commit_next() is not None
    assert trial.ledger() == {"check": 1, "sell": 0}
    assert origins(trial, 1) == Origins((Taken("orders", 0, place_of(0), place_of(1) + 1),), None)
    assert committed_at(trial, 1) is None
    trial.clock.step = 0.0
    trial.clock.advance(9)
    trial.core.drain()
    assert committed_at(trial, 1) == trial.clock.seconds
    assert origins(trial, 1) == Origins((Taken("orders", 0, place_of(0), place_of(1) + 1),), None)


def test_dead_letters_that_run_again_are_traced_to_the_batch_that_took_them(trial: Trial) -> None:
    trial.run(trial.flows[0].streams["orders"], [(1,)], [(13,)], [(3,)])
    with trial.changing() as letters:
        letters.replay([letter.id for letter in trial.letters()])
    trial.core.drain()
    assert trial.staged(trial.flows[0].outlets["sold"])[-1] == (4, 13)
    assert origins(trial, 4) == Origins((), 2)
    assert origins(trial, 2) == Origins((Taken("orders", 0, place_of(2), place_of(3) + 1),), None)


@pytest.mark.parametrize(("group", "count"), [(1, 500), (64, 10_000)])
def test_the_oldest_is_forgotten_and_no_more_than_must_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int, count: int
) -> None:
    monkeypatch.setattr(history, "MB", 2_000)
    made = Trial(
        tmp_path / "core.db", flow_of(by_count(1)), group_batches_max=group, history_mb_max=3
    )
    orders = made.flows[0].streams["orders"]
    made.feed(orders, [(n,) for n in range(100, 100 + count)])
    made.core.drain()
    with made.reader.snapshot() as core:
        known = [n for n in range(1, count + 1) if core.origins("shop", n) is not None]
        assert known == [n for n in range(1, count + 1) if core.committed_at("shop", n)]
    ((size, total),) = made.query("SELECT sum(length(data) + 32), max(total) FROM headrace_history")
    assert 3 * 2_000 - 1_000 <= size <= 4 * 2_000 < total
    assert known == list(range(known[0], count + 1))
    assert known[0] > 1
    assert origins(made, known[0]) == Origins((taken(known[0] - 1, known[0]),), None)
    made.reopen()
    made.feed(orders, [(n,) for n in range(20 * group)])
    made.core.drain()
    assert origins(made, count + 1) == Origins((taken(count, count + 1),), None)
    ((after,),) = made.query("SELECT max(total) FROM headrace_history")
    assert after > total
    made.close()


def test_dataflows_are_remembered_apart(tmp_path: Path) -> None:
    first, second = flow_of(by_count(1)), Dataflow("bank")
    deposits = second.stream("deposits", "id INTEGER", batches=by_count(2))

    @second.procedure(takes=deposits)
    def keep(tx: Transaction, batch: Batch) -> None:
        pass

    made = Trial(tmp_path / "core.db", first, second)
    made.feed(first.streams["orders"], [(n,) for n in range(5)])
    made.feed(deposits, [(n,) for n in range(4)])
    made.core.drain()
    with made.reader.snapshot() as core:
        found = core.origins("bank", 2)
        assert (core.origins("bank", 3), core.committed_at("bank", 3)) == (None, None)
        assert core.origins("shop", 5) == Origins((taken(4, 5),), None)
    assert found == Origins((Taken("deposits", 0, place_of(2), place_of(3) + 1),), None)
    made.close()


def test_what_was_killed_before_its_commit_is_forgotten_for_the_run_that_commits(
    tmp_path: Path,
) -> None:
    """The first engine closes a batch of two by time; the second one, a batch of three."""
    path, flow = tmp_path / "core.db", flow_of(by_count(10, linger_s=1.0))

    def run(count: int, crash_at: str) -> None:
        clock = HeldClock()
        core = Core(path, settings=Settings(), clock=clock, crash=CrashPoints(crash_at))
        core.prepare([flow])
        core.open("shop", {"orders": [0]})
        core.feed(arrived(flow.streams["orders"], [(n,) for n in range(count)]))
        clock.advance(60.0 * count)
        core.drain()
        core.close()

    child = os.fork()
    if child == 0:
        try:
            run(2, Point.CORE_COMMIT_BEFORE.value)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    run(3, "")
    with Reader(path).snapshot() as core:
        assert core.origins("shop", 1) == Origins((taken(0, 3),), None)
        assert core.committed_at("shop", 1) == datetime(2026, 1, 1, 12, 3, tzinfo=UTC)
        assert core.committed_at("shop", 1) == NOON + timedelta(seconds=180)
        assert core.origins("shop", 2) is None


def test_a_core_of_before_begins_to_remember(trial: Trial) -> None:
    orders = trial.flows[0].streams["orders"]
    trial.run(orders, [(1,)])
    for gone in (
        "DROP TABLE headrace_history",
        "DROP TABLE headrace_histories",
        "ALTER TABLE headrace_epochs DROP COLUMN recent",
    ):
        trial.core._store.connection.execute(gone)
    trial.reopen()
    trial.run(orders, [(2,)])
    assert (origins(trial, 1), committed_at(trial, 1)) == (None, None)
    assert origins(trial, 2) == Origins((Taken("orders", 0, place_of(2), place_of(3) + 1),), None)


def test_what_was_recent_is_not_forgotten_with_the_rule_that_counted_it(tmp_path: Path) -> None:
    made = Trial(tmp_path / "core.db", flow_of(by_count(1)))
    made.feed(made.flows[0].streams["orders"], [(1,), (2,)])
    made.core.drain()
    rules: list[Rule] = [by_interval("id", 10), by_interval("id", 5), by_count(1)]
    for number, rule in enumerate(rules):
        made.reopen(flow_of(rule))
        assert any("is cut by" in said for said in made.said)
        made.clock.advance(1)
        begin = 100 * (number + 1)
        made.feed(made.flows[0].streams["orders"], [(begin,), (begin + 50,)])
        made.core.drain()
    at = [committed_at(made, batch) for batch in range(1, made.batch(made.flows[0]) + 1)]
    assert at == [0, 0, 1, 2, 2, 3, 3, 3]
    first = [places.taken[0].first for n in range(1, 9) if (places := origins(made, n))]
    assert first == [place_of(n) for n in range(8)]
    made.close()


def test_who_moved_a_procedure_of_several_is_told_by_its_name(trial: Trial) -> None:
    trial.end(trial.flows[0].streams["orders"], [(1,)])
    trial.core._store.connection.execute(
        "UPDATE headrace_ledger SET batch = 7 WHERE procedure = 'sell'"
    )
    with pytest.raises(Superseded, match=r"shop\.sell is not at batch 0: another engine"):
        trial.core.drain()
    assert trial.ledger() == {"check": 0, "sell": 7}
