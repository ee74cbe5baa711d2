"""Dataflows that look up in a warehouse: when it is away they wait, and nothing is lost."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trading
from abroad import TABLE, away, configured
from flows import HeldClock, arrived
from test_abroad import rows
from waiting import until

from etl_procs import Batch, Dataflow, GivenUp, Strategy, Transaction, Trial, by_count, measured
from etl_procs.calls import Caller
from etl_procs.core import Core, core_path
from etl_procs.errors import Unanswered
from etl_procs.flow import Committed
from etl_procs.partitions import Partitions, Start, Topic
from headrace.clock import SystemClock
from headrace.config import Config
from headrace.config import Core as Settings
from headrace.crash import CrashPoints
from headrace.errors import DefinitionError, Refused
from headrace.local.home import Home
from migrations import asking
from migrations.asking import Asker

DIM = "sk INTEGER NOT NULL, b TEXT NOT NULL, d TEXT NOT NULL, UNIQUE (b, d)"
PATIENCE_S = 30.0


@pytest.fixture
def crm(warehouse_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(warehouse_url, autocommit=True) as made:
        made.execute(TABLE)
        with made.cursor() as cursor:
            cursor.executemany("INSERT INTO crm.dim VALUES (%s, %s, %s, %s, %s, %s, %s)", rows(9))
        yield made


@pytest.mark.parametrize(
    "how", [{}, {"strategy": Strategy.REPLICA, "max_age_s": 1e-9}], ids=["warehouse", "replica"]
)
def test_a_batch_waits_for_a_warehouse_that_is_away_and_is_no_dead_letter(
    crm: psycopg.Connection[Any], warehouse_url: str, how: dict[str, Any]
) -> None:
    settings = Settings(durability="weak", attempts_max=1)
    connects = partial(Asker, configured(warehouse_url))
    with Trial(trading.trading(**how), settings, connects) as trial:
        trial.batch(traded=[{"b": "x1"}])
        with away(warehouse_url):
            with pytest.raises(Unanswered, match=r"looking up in crm\.dim of the warehouse"):
                trial.batch(traded=[{"b": "x2"}, {"b": "none"}])
            with pytest.raises(Unanswered):
                trial.batch(traded=[{"b": "x3"}])
        core = trial._cores[0]
        until(lambda: _drained(core), PATIENCE_S, lambda: "the warehouse does not answer")
        assert trial.query("SELECT b, sk FROM facts") == [
            {"b": "x1", "sk": 1},
            {"b": "x2", "sk": 2},
            {"b": "none", "sk": None},
            {"b": "x3", "sk": 3},
        ]
        assert trial.dead_letters() == []
        assert core.metrics.lookups["trading.found"].waits >= 2


def _drained(core: Core) -> bool:
    try:
        core.drain()
    except Unanswered:
        return False
    return True


def test_a_table_that_is_not_there_yet_is_waited_for(
    crm: psycopg.Connection[Any], warehouse_url: str
) -> None:
    crm.execute("ALTER TABLE crm.dim RENAME TO other")
    with Trial(trading.trading(), warehouses=partial(Asker, configured(warehouse_url))) as trial:
        with pytest.raises(Unanswered, match=r'relation "crm\.dim" does not exist'):
            trial.batch(traded=[{"b": "x1"}])
        crm.execute("ALTER TABLE crm.other RENAME TO dim")
        trial._cores[0].drain()
        assert trial.query("SELECT sk FROM facts") == [{"sk": 1}]


def test_a_dataflow_that_waits_for_a_warehouse_keeps_no_other_back(
    crm: psycopg.Connection[Any], warehouse_url: str, tmp_path: Path
) -> None:
    flow, other = trading.trading(), Dataflow("other")
    go = other.stream("go", "n INTEGER NOT NULL", batches=by_count(1))
    done = other.table("done", "n INTEGER NOT NULL")

    @other.procedure(takes=go, writes=done)
    def do(tx: Transaction, batch: Batch) -> None:
        tx.execute("INSERT INTO done VALUES (1)")

    core = Core(
        core_path(tmp_path),
        settings=Settings(durability="weak", group_batches_max=1),
        clock=SystemClock(),
        crash=CrashPoints(),
        warehouses=partial(Asker, configured(warehouse_url)),
    )
    core.prepare([flow, other])
    core.open("trading", {"traded": [0]})
    core.open("other", {"go": [0]})
    with away(warehouse_url):
        core.enqueue("trading", {flow.streams["traded"]: [("x1",)]})
        for n in range(5):
            core.enqueue("other", {go: [(n,)]})
        assert [one.dataflow for one in core.drain()] == ["other"] * 5
        assert core.metrics.lookups["trading.found"].waits == 1, "it rests while others run"
    until(lambda: _drained(core) and core.metrics.batches["trading"] == 1, PATIENCE_S, str)
    core.close()


def test_a_warehouse_that_fails_slowly_is_asked_more_rarely_while_others_run(
    tmp_path: Path,
) -> None:
    flow, other, clock = trading.trading(), Dataflow("other"), HeldClock()
    go = other.stream("go", "n INTEGER NOT NULL", batches=by_count(1))

    @other.procedure(takes=go)
    def do(tx: Transaction, batch: Batch) -> None:
        pass

    asked: list[float] = []

    class Slow:
        def ask(self, *_of: Any) -> None:
            asked.append(clock.monotonic())
            clock.advance(2)
            raise Unanswered("it is away", hint="")

        def close(self) -> None:
            pass

    slow: Any = Slow
    core = Core(
        core_path(tmp_path),
        settings=Settings(durability="weak"),
        clock=clock,
        crash=CrashPoints(),
        warehouses=slow,
    )
    core.prepare([flow, other])
    core.open("trading", {"traded": [0]})
    core.open("other", {"go": [0]})
    core.enqueue("trading", {flow.streams["traded"]: [("x1",)]})
    for n in range(10):
        core.enqueue("other", {go: [(n,)]})
        committed = core.commit_next()
        assert committed is not None
        assert committed.dataflow == "other"
        clock.advance(3)
    assert asked == [0, 23]
    core.close()


@pytest.mark.parametrize("then", ["aborts", "raises"])
def test_a_call_is_unanswered_whatever_its_body_makes_of_it(
    crm: psycopg.Connection[Any], warehouse_url: str, tmp_path: Path, then: str
) -> None:
    flow = Dataflow("calls")
    dim = flow.foreign("crm.dim", DIM)
    found = flow.lookup("found", dim, key="b", at="d", gives="sk", strategy=Strategy.WAREHOUSE)

    @flow.call(arguments="b TEXT NOT NULL", returns="sk INTEGER", looks=found)
    def ask(tx: Transaction, b: str) -> None:
        try:
            tx.lookup(found, [b], ["2026"])
        except Unanswered as error:
            if then == "aborts":
                tx.abort("it is not there")
            raise ValueError("it is not there") from error

    path, settings = core_path(tmp_path), Settings(durability="weak")
    core = Core(path, settings=settings, clock=SystemClock(), crash=CrashPoints())
    core.prepare([flow])
    core.close()
    connects = partial(Asker, configured(warehouse_url))
    caller = Caller(path, {"calls": flow}, settings, CrashPoints(), SystemClock(), connects)
    with away(warehouse_url), pytest.raises(Unanswered):
        caller.call("calls", "ask", {"b": "x1"})
    caller.close()


def test_a_worker_is_told_how_warehouses_are_reached_and_waits_visibly(
    crm: psycopg.Connection[Any], warehouse_url: str, tmp_path: Path
) -> None:
    home = Home(tmp_path)
    home.run.mkdir(parents=True)
    config = replace(configured(warehouse_url), home=tmp_path, flows=(trading.FILE,))
    failures: list[BaseException] = []
    committed: list[Committed] = []
    reached = asking.connects(config, [trading.flow])
    partitions = Partitions(
        [Start(config, 0, home.metrics(), reached)],
        on_commit=lambda _partition, what: committed.append(what),
        on_failure=failures.append,
    )
    partitions.start()
    partitions.open({"trading": {"traded": Topic("id", (0,))}})

    def waits() -> int:
        found = measured.read(home.metrics())
        looked = {} if found is None else found.figures["lookups"].get("trading.found", {})
        return int(looked.get("waits", 0))

    with away(warehouse_url):
        partitions.take(arrived(trading.flow.streams["traded"], [("x1",)]), 1)
        until(lambda: waits() > 0, PATIENCE_S, lambda: str(failures))
        assert not committed
    until(lambda: bool(committed), PATIENCE_S, lambda: str(failures))
    partitions.stop()
    assert not failures


def test_a_dataflow_that_looks_up_in_none_needs_no_connection() -> None:
    assert asking.connects(Config(), [Dataflow("alone")]) is None


def test_a_warehouse_that_is_not_configured_is_refused() -> None:
    flow = Dataflow("elsewhere")
    away = flow.foreign("crm.dim", DIM, warehouse="reports")
    flow.lookup("found", away, key="b", at="d", gives="sk", max_age_s=60)
    with pytest.raises(Refused, match="there is no warehouse 'reports'"):
        asking.connects(Config(), [flow])


def test_a_trial_that_reaches_no_warehouse_says_so() -> None:
    with (
        Trial(trading.trading(), Settings(attempts_max=1)) as trial,
        pytest.raises(GivenUp, match="nobody says how it is reached"),
    ):
        trial.batch(traded=[{"b": "x1"}])


@pytest.mark.parametrize(
    ("more", "how", "says"),
    [
        ({"name": "dim"}, {}, "names no schema"),
        ({"name": "Crm.dim"}, {}, "'Crm' is not a name"),
        ({"version": "x"}, {}, "has no column x"),
        ({}, {"strategy": Strategy.OWNED}, "answered as owned, and its table is a warehouse's"),
        ({}, {"strategy": Strategy.REPLICA}, "does not say how old a copy may be"),
        ({}, {"strategy": Strategy.AUTO}, "does not say how old a copy may be"),
        ({}, {"strategy": Strategy.WAREHOUSE, "max_age_s": 1}, "and has none"),
        ({}, {"strategy": "warehouse"}, "'warehouse', which is no Strategy"),
        ({}, {"key": "sk", "max_age_s": 1}, r"not UNIQUE \(sk, d\)"),
    ],
)
def test_a_lookup_abroad_that_could_not_answer_is_refused(
    more: dict[str, str], how: dict[str, Any], says: str
) -> None:
    flow = Dataflow("refused")
    of = {"key": "b", "at": "d", "gives": "sk", **how}
    with pytest.raises(DefinitionError, match=says):
        flow.lookup("found", flow.foreign(**{"name": "crm.dim", "columns": DIM, **more}), **of)


def test_a_table_of_the_core_is_owned() -> None:
    flow = Dataflow("home")
    table = flow.table("dim", DIM)
    for how, says in (
        ({"strategy": Strategy.REPLICA, "max_age_s": 1}, "its table is the core's"),
        ({"max_age_s": 1}, "and has none"),
    ):
        with pytest.raises(DefinitionError, match=says):
            flow.lookup("found", table, key="b", at="d", gives="sk", **how)
    assert flow.lookup("found", table, key="b", at="d", gives="sk", strategy=Strategy.OWNED)
