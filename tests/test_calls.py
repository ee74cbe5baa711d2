"""Calls: transactions that clients make, from any process, serializable with every batch."""

import contextlib
import sqlite3
from collections.abc import Iterator
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest
from flows import HeldClock
from trial import Trial, dump

from etl_procs import Batch, Dataflow, Transaction, by_punctuation
from etl_procs.calls import Caller, Turn
from etl_procs.core import core_path
from etl_procs.errors import Aborted, AccessDenied, BadCall, CoreError, OutOfRoom, ProcedureFailed
from headrace import config
from headrace.crash import CrashPoints
from headrace.errors import NotRunning

SPAWN = get_context("spawn")
HEAVY = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300000) "
    "UPDATE accounts SET cents = (SELECT max(i) FROM n)"
)


def bank() -> Dataflow:
    """Declare accounts, deposits that arrive as tuples, and calls."""
    flow = Dataflow("bank")
    deposits = flow.stream("deposits", "id INTEGER NOT NULL", batches=by_punctuation())
    accounts = flow.table(
        "accounts", "id INTEGER PRIMARY KEY, cents INTEGER NOT NULL CHECK (cents >= 0)",
        rows=[(1, 100), (2, 100)],
    )  # fmt: skip
    flow.table("secrets", "n INTEGER", rows=[(1,)])

    @flow.procedure(takes=deposits, writes=[accounts])
    def deposit(tx: Transaction, batch: Batch) -> None:
        tx.executemany("UPDATE accounts SET cents = cents + 1 WHERE id = ?", batch.tuples)

    @flow.call(
        arguments="source INTEGER NOT NULL, target INTEGER NOT NULL, cents INTEGER NOT NULL",
        returns="id INTEGER NOT NULL, cents INTEGER NOT NULL",
        writes=[accounts],
    )
    def transfer(tx: Transaction, source: int, target: int, cents: int) -> Any:
        tx.execute("UPDATE accounts SET cents = cents + ? WHERE id = ?", [cents, target])
        tx.execute("UPDATE accounts SET cents = cents - ? WHERE id = ?", [cents, source])
        return tx.query("SELECT id, cents FROM accounts WHERE id IN (?, ?)", [source, target])

    @flow.call(arguments="id INTEGER NOT NULL", returns="cents INTEGER", reads=[accounts])
    def balance(tx: Transaction, id: int) -> Any:
        return tx.table("SELECT cents FROM accounts WHERE id = ?", [id])

    @flow.call(arguments="what TEXT NOT NULL, x REAL", returns="x REAL", writes=[accounts])
    def odd(tx: Transaction, what: str, x: float | None) -> Any:
        tx.execute("UPDATE accounts SET cents = cents + 1")
        match what:
            case "nothing":
                return None
            case "one row":
                return {"x": x}
            case "no row":
                return 5
            case "wrong row":
                return {"y": x}
            case "abort":
                return tx.abort("not today")
            case "raise":
                raise RuntimeError("not today")
            case "caught rollback":
                with contextlib.suppress(sqlite3.Error):
                    tx.execute("INSERT OR ROLLBACK INTO accounts VALUES (1, 1)")
                with contextlib.suppress(sqlite3.Error):
                    tx.execute("UPDATE accounts SET cents = 7")
                return None
            case "heavy":
                return tx.execute(HEAVY) and None
        return tx.query(what)

    return flow


def caller_of(path: Path, **more: Any) -> Caller:
    clock = more.pop("clock", HeldClock())
    return Caller(path, {"bank": bank()}, config.Core(**more), CrashPoints(), clock)


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    made = Trial(core_path(tmp_path), bank())
    yield made
    made.close()


@pytest.fixture
def caller(trial: Trial) -> Iterator[Caller]:
    made = caller_of(trial.path)
    yield made
    made.close()


def accounts(trial: Trial) -> list[tuple[Any, ...]]:
    return trial.query("SELECT * FROM accounts ORDER BY id")


def test_a_call_commits_and_gives_its_rows(trial: Trial, caller: Caller) -> None:
    result = caller.call("bank", "transfer", {"source": 1, "target": 2, "cents": 30})
    assert result == [{"id": 1, "cents": 70}, {"id": 2, "cents": 130}]
    assert accounts(trial) == [(1, 70), (2, 130)]
    assert caller.call("bank", "balance", {"id": 1}) == [{"cents": 70}]
    assert caller.call("bank", "balance", {"id": 9}) == []


def test_a_result_is_several_rows_one_or_none(caller: Caller) -> None:
    assert caller.call("bank", "odd", {"what": "nothing", "x": 1.5}) == []
    assert caller.call("bank", "odd", {"what": "one row", "x": 1}) == [{"x": 1.0}]
    assert caller.call("bank", "odd", {"what": "one row", "x": None}) == [{"x": None}]
    assert caller.call("bank", "odd", {"what": "one row"}) == [{"x": None}]


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("nothing", {}, r"there is no call bank\.nothing\n.*bank\.balance, bank\.odd, bank\.tran"),
        ("balance", {}, r"bank\.balance is given a row without id\n.*id INTEGER NOT NULL"),
        ("balance", {"id": None}, "without id"),
        ("balance", {"id": "1"}, "id is '1', no INTEGER"),
        ("balance", {"id": True}, "id is True, no INTEGER"),
        ("balance", {"id": 1.0}, "id is 1.0, no INTEGER"),
        ("balance", {"id": 2**63}, "beyond 64 bits"),
        ("balance", {"id": 1, "more": 2}, "has no argument more"),
        ("odd", {"what": "\ud800", "x": 1.0}, "surrogates not allowed"),
        ("odd", {"what": "nothing", "x": float("nan")}, "x is NaN"),
        ("odd", {"what": "nothing", "x": 10**400}, "x is an integer of 1329 bits, no REAL"),
        ("odd", {"what": "nothing", "x": 2**53 + 1}, "x is 9007199254740993, no REAL"),
    ],
)
def test_a_call_that_is_not_there_or_does_not_fit_is_refused_before_it_runs(
    trial: Trial, caller: Caller, name: str, arguments: dict[str, Any], message: str
) -> None:
    before = dump(trial.path)
    with pytest.raises(BadCall, match=message):
        caller.call("bank", name, arguments)
    assert dump(trial.path) == before


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("abort", Aborted, r"call bank\.odd aborts: not today"),
        ("raise", ProcedureFailed, r"call bank\.odd failed: RuntimeError: .*test_calls\.py:\d+"),
        ("no row", ProcedureFailed, r"call bank\.odd failed: TypeError"),
        (
            "wrong row",
            CoreError,
            r"call bank\.odd returns a row that does not fit: there is no column y",
        ),
        ("caught rollback", ProcedureFailed, "UNIQUE constraint failed"),
        ("SELECT n AS x FROM secrets", AccessDenied, r"reads secrets.*\n.*reads=\[\.\.\., secrets"),
        (
            "SELECT json_extract('no json', '$') AS x",
            ProcedureFailed,
            r"bank\.odd failed: .*malform",
        ),
        ("COMMIT", AccessDenied, "not a query or a change"),
    ],
)
def test_a_call_that_fails_changes_nothing_and_is_named(
    trial: Trial, caller: Caller, what: str, error: type[Exception], message: str
) -> None:
    before = dump(trial.path)
    with pytest.raises(error, match=message):
        caller.call("bank", "odd", {"what": what, "x": None})
    assert dump(trial.path) == before
    assert caller.call("bank", "balance", {"id": 1}) == [{"cents": 100}]


def test_a_call_that_breaks_a_constraint_leaves_both_accounts_as_they_were(
    trial: Trial, caller: Caller
) -> None:
    with pytest.raises(ProcedureFailed, match="CHECK constraint failed"):
        caller.call("bank", "transfer", {"source": 1, "target": 2, "cents": 101})
    assert accounts(trial) == [(1, 100), (2, 100)]


def test_a_call_that_takes_too_long_is_interrupted_and_changes_nothing(trial: Trial) -> None:
    class Hurrying(HeldClock):
        def monotonic(self) -> float:
            self.seconds += 0.6
            return self.seconds

    caller = caller_of(trial.path, clock=Hurrying(), statement_ms_max=1_000)
    before = dump(trial.path)
    with pytest.raises(ProcedureFailed, match="interrupted"):
        caller.call("bank", "odd", {"what": "heavy", "x": None})
    assert dump(trial.path) == before
    caller.close()


def test_a_call_with_a_key_runs_once_and_gives_the_same_result_again(trial: Trial) -> None:
    arguments = {"source": 1, "target": 2, "cents": 30}
    first = caller_of(trial.path)
    result = first.call("bank", "transfer", arguments, key="k1")
    first.close()
    second = caller_of(trial.path)
    assert second.call("bank", "transfer", arguments, key="k1") == result
    assert accounts(trial) == [(1, 70), (2, 130)]
    assert second.call("bank", "transfer", arguments, key="k2") != result
    assert accounts(trial) == [(1, 40), (2, 160)]
    second.close()


def test_a_key_names_one_call_with_its_arguments(trial: Trial, caller: Caller) -> None:
    caller.call("bank", "transfer", {"source": 1, "target": 2, "cents": 30}, key="k")
    with pytest.raises(BadCall, match=r"'k' was used for bank\.transfer with other arguments"):
        caller.call("bank", "transfer", {"source": 1, "target": 2, "cents": 31}, key="k")
    assert caller.call("bank", "balance", {"id": 1}, key="k") == [{"cents": 70}]
    with pytest.raises(BadCall, match="201 characters"):
        caller.call("bank", "balance", {"id": 1}, key="k" * 201)


def test_a_call_that_failed_may_be_made_again_with_its_key(trial: Trial, caller: Caller) -> None:
    arguments = {"source": 1, "target": 2, "cents": 150}
    with pytest.raises(ProcedureFailed):
        caller.call("bank", "transfer", arguments, key="k")
    caller.call("bank", "transfer", {"source": 2, "target": 1, "cents": 100})
    caller.call("bank", "transfer", arguments, key="k")
    assert accounts(trial) == [(1, 50), (2, 150)]


def test_only_so_many_results_are_kept(trial: Trial) -> None:
    caller = caller_of(trial.path, calls_kept_max=3)
    for n in range(6):
        caller.call("bank", "balance", {"id": 1}, key=f"k{n}")
    assert trial.query("SELECT key FROM headrace_calls ORDER BY number") == [
        ("k3",),
        ("k4",),
        ("k5",),
    ]
    caller.close()


def test_a_call_in_its_turn_is_made_once_however_many_were_made_since(trial: Trial) -> None:
    caller = caller_of(trial.path, calls_kept_max=1)
    arguments = {"source": 1, "target": 2, "cents": 1}
    first, second = Turn("alert", 7, 0), Turn("alert", 7, 1)
    for turn in (first, first, second, first, Turn("another", 1, 0), second):
        caller.call_once("bank", "transfer", arguments, turn)
    for n in range(3):
        caller.call("bank", "balance", {"id": 1}, key=f"k{n}")
    caller.call_once("bank", "transfer", arguments, second)
    assert accounts(trial) == [(1, 97), (2, 103)]
    too_much = {**arguments, "cents": 1_000}
    with pytest.raises(ProcedureFailed):
        caller.call_once("bank", "transfer", too_much, Turn("alert", 8, 0))
    caller.call_once("bank", "transfer", arguments, Turn("alert", 8, 0))
    assert accounts(trial) == [(1, 96), (2, 104)]
    caller.close()


def test_a_full_disk_is_not_the_calls_fault(trial: Trial, caller: Caller) -> None:
    connection = caller._store.connection
    ((pages,),) = connection.execute("PRAGMA page_count").fetchall()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    arguments = {"source": 1, "target": 2, "cents": 1}

    def many() -> None:
        for n in range(1_000):
            caller.call("bank", "transfer", arguments, key=f"{n:0200}")

    with pytest.raises(OutOfRoom, match="full"):
        many()
    connection.execute("PRAGMA max_page_count = 100000")
    done = len(trial.query("SELECT * FROM headrace_calls"))
    assert accounts(trial) == [(1, 100 - done), (2, 100 + done)]
    caller.call("bank", "transfer", arguments, key="more")


def test_without_a_core_there_is_nothing_to_call(tmp_path: Path) -> None:
    with pytest.raises(NotRunning, match="there is no core"):
        caller_of(tmp_path / "core.db")


def test_a_call_sees_batches_whole_and_batches_see_calls(trial: Trial, caller: Caller) -> None:
    source = trial.flows[0].streams["deposits"]
    trial.run(source, [(1,)] * 5, [(2,)] * 7)
    assert caller.call("bank", "balance", {"id": 1}) == [{"cents": 105}]
    caller.call("bank", "transfer", {"source": 1, "target": 2, "cents": 5})
    trial.run(source, [(1,)])
    assert accounts(trial) == [(1, 101), (2, 112)]


def _transfers(path: Path, worker: int, count: int) -> None:
    """Move a cent to and fro, each way with keys that every repetition shares."""
    caller = caller_of(path)
    for n in range(count):
        for _ in range(2):
            there = {"source": 1 + n % 2, "target": 2 - n % 2, "cents": 1}
            caller.call("bank", "transfer", there, key=f"{worker}-{n}")
    caller.close()


def _deposits(path: Path, ready: Event, stop: Event) -> None:
    """Run one batch after the other, with no pause, until somebody says stop."""
    trial = Trial(path, bank(), group_batches_max=1)
    source = trial.flows[0].streams["deposits"]
    ready.set()
    while not stop.is_set():
        trial.run(source, [(1,), (2,)])
    trial.close()


def test_callers_of_several_processes_are_serializable_with_an_engine_that_never_pauses(
    trial: Trial,
) -> None:
    trial.close()
    ready, stop = SPAWN.Event(), SPAWN.Event()
    engine = SPAWN.Process(target=_deposits, args=(trial.path, ready, stop))
    engine.start()
    callers = [SPAWN.Process(target=_transfers, args=(trial.path, n, 30)) for n in range(2)]
    try:
        assert ready.wait(60)
        for each in callers:
            each.start()
        for each in callers:
            each.join(120)
        assert [each.exitcode for each in callers] == [0, 0]
        assert engine.is_alive()  # nobody waited for it to be done
    finally:
        stop.set()
        engine.join(60)
    assert engine.exitcode == 0
    batches = trial.batch(trial.flows[0])
    assert accounts(trial) == [(1, 100 + batches), (2, 100 + batches)]
    assert len(trial.query("SELECT * FROM headrace_calls")) == 60
