"""What the pushers do is told to operators, with the reason and what to do; and by nobody else."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import shop
from live import START_S, Parts
from live import Board as Engine
from moving import jobs_on
from serving import serving
from shop import island_over
from test_push import Watched
from trial import Trial
from waiting import until

from api.migrations import PusherOut
from etl_procs import Batch, Dataflow, Transaction
from etl_procs.core import core_path
from etl_procs.origin import Origin
from etl_procs.rules import by_punctuation
from headrace import config
from headrace.cli import figures, main, status
from headrace.cli.status import SupervisorView, View
from headrace.clock import SystemClock
from headrace.crash import CrashPoints
from headrace.errors import Exit
from headrace.local import lock
from headrace.local.home import Home
from headrace.local.state import State as Stack
from migrations import pusher
from migrations.push import Push
from migrations.pusher import Limits, Pusher
from migrations.pushing import NOT_YET, Board, Pushing, State, read, stopped_by
from migrations.warehouse import DEFAULT, Connection, Warehouse

FLOW = ["--flow", shop.__file__]
AWAY = "postgresql://postgres@127.0.0.1:1/postgres"


def test_a_pusher_tells_that_it_waits_that_it_pushes_and_why_it_has_stopped(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    away = Watched(store, AWAY).pusher
    assert away.pushing.state is State.WAITS
    away.start()
    until(lambda: "connecting to the" in away.pushing.what, 30, lambda: str(away.pushing))
    since = away.pushing.since
    until(lambda: away.stop(30), 40, lambda: "it does not stop")
    assert (away.pushing.state, away.pushing.since) == (State.WAITS, since)

    watched = Watched(store, warehouse_url)
    watched.pusher.start()
    until(lambda: watched.pusher.pushing.state is State.PUSHES, 30, lambda: "it does not push")
    connection.execute("UPDATE headrace.ledger SET core = %(core)s, batch = 1", {"core": uuid4()})
    store.sell((1, 1.0, None))
    watched.pusher.notify()
    told = watched.until_stopped()
    assert "is fed by the core" in told.what
    assert "Push from the data folder that fed it before" in told.hint
    assert told.hint.endswith("Then it goes on by itself.")
    assert watched.pusher.stop(30)


def test_a_pusher_goes_on_by_itself_when_what_stopped_it_is_mended(
    store: shop.Shop,
    connection: Connection,
    warehouse_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(pusher, "LOOK_AGAIN_S", 0.05)
    store.sell((1, 1.0, None))
    connection.execute("ALTER TABLE shop_delta.sales ADD CHECK (id <> 1)")
    watched = Watched(store, warehouse_url)
    watched.pusher.start()
    told = watched.until_stopped()
    looks = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headrace pusher'"
    until(lambda: connection.execute(looks).fetchall() == [(1,)], 30, lambda: "it does not look")
    assert watched.pusher.pushing == told
    connection.execute("ALTER TABLE shop_delta.sales DROP CONSTRAINT sales_id_check")
    rows = "SELECT id FROM shop.sales"
    until(lambda: connection.execute(rows).fetchall() == [(1,)], 30, lambda: "it does not go on")
    until(lambda: watched.pusher.pushing.state is State.PUSHES, 30, lambda: "it does not say so")
    assert watched.pusher.stop(30)
    assert caplog.text.count("pushing to default stops") == 1


def test_what_nobody_foresaw_is_told_with_the_log() -> None:
    told = stopped_by(KeyError("x"), "now")
    assert told.what == "a bug: KeyError('x')"
    assert "headrace logs engine" in told.hint


def test_only_the_engine_that_runs_is_believed(tmp_path: Path) -> None:
    path, told = tmp_path / "pushers.json", {"a": Pushing(State.STOPPED, "now", "what", "hint")}
    assert read(path, 7) == {}
    Board(path, 7).write(told)
    assert read(path, 7) == told
    assert read(path, 8) == read(path, None) == {}
    for text in ("", "[]", '{"pid": 7}', '{"pid": 7, "pushers": {"a": {"state": "odd"}}}'):
        path.write_text(text)
        assert read(path, 7) == {}


def test_what_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    path, told = tmp_path / "run" / "pushers.json", {"a": Pushing(State.PUSHES, "now")}
    board = Board(path, 7)
    board.write(told)
    path.parent.mkdir()
    board.write(told)
    assert read(path, 7) == told


def test_the_status_and_the_api_tell_it(
    store: shop.Shop, warehouse_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(store.home)
    home.run.mkdir()
    asked = ["warehouse", "status", "--home", str(store.home), *FLOW]
    asked += ["--set", f"warehouse.url={warehouse_url}"]
    assert main([*asked, "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)[0]["pusher"] is None
    held = lock.take(home.writer_lock)
    assert held is not None
    lock.sign_for(held, os.getpid())
    ended = Pushing(State.STOPPED, "2026-01-01", "its tables differ", "Mend them.")
    Board(home.pushers, os.getpid()).write({"default": ended})
    assert main(asked) == Exit.NOT_RUNNING
    said = capsys.readouterr().out
    assert "the pusher to default has stopped: its tables differ\n  Mend them.\n" in said
    assert main(["status", "--home", str(store.home), *FLOW]) == Exit.NOT_RUNNING
    assert "the pusher to default has stopped: its tables differ\n" in capsys.readouterr().out
    place = Warehouse(DEFAULT, warehouse_url)
    moved = jobs_on(store, place)
    places = replace(moved.places, pushers=lambda: figures.pushing(store.home))
    moved = replace(moved, places=places)
    with serving(island_over(warehouse_url, store.reader), moved=moved) as client:
        (told,) = client.send("GET", "/v1/warehouses").document["warehouses"]
    assert told["pusher"] == asdict(ended)
    assert told["pusher"].keys() == PusherOut.model_fields.keys()
    moved.jobs.close()
    os.close(held)


@pytest.mark.parametrize(
    ("pushing", "is_ready"),
    [
        (Pushing(State.PUSHES, ""), True),
        (Pushing(State.WAITS, "", NOT_YET), True),
        (Pushing(State.WAITS, "", "a server is away", "Start it."), False),
        (Pushing(State.STOPPED, "", "its tables differ", "Mend them."), False),
    ],
)
def test_a_stack_of_which_a_warehouse_is_not_fed_is_not_ready(
    tmp_path: Path, pushing: Pushing, is_ready: bool
) -> None:
    supervisor = SupervisorView(Stack.READY)
    view = View(supervisor, {}, tmp_path, pushers={"default": pushing})
    assert view.is_ready is is_ready
    told = [line for line in view.lines() if "the pusher to default" in line]
    assert bool(told) is not is_ready


def test_a_warehouse_of_others_that_is_away_is_told_by_the_status(
    tmp_path: Path, warehouse_url: str
) -> None:
    settings = {"warehouse.url": AWAY, "warehouses.good.url": warehouse_url}
    away = status._away(config.load(settings, environment={}).config)
    assert list(away) == ["default"]
    view = View(SupervisorView(Stack.READY), {}, tmp_path, away=away)
    assert not view.is_ready
    assert "the warehouse default cannot be used: connecting" in view.lines()[-1]
    assert status._away(config.load({}, environment={}).config) == {}


def test_an_engine_tells_of_the_warehouse_that_must_be_mended_while_it_feeds_the_other(
    running: Parts, tmp_path: Path, warehouse_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Engine(running, tmp_path, f"t{uuid4().hex[:8]}")
    with psycopg.connect(warehouse_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {engine.name}".encode())
        connection.execute(f"CREATE TABLE {engine.name}.votes (phone text)".encode())
    asked = ["warehouse", "status", "--json", "--home", str(engine.home), "--flow"]
    asked += [str(engine.file), "--set", f"warehouse.url={running.warehouse_url}"]
    asked += ["--set", f"warehouses.mended.url={warehouse_url}"]

    def pushers() -> list[dict[str, str] | None]:
        main(asked)
        return [found["pusher"] for found in json.loads(capsys.readouterr().out)]

    with engine.engine(warehouses__mended__url=warehouse_url):
        wanted = ["pushes", "has stopped"]
        until(lambda: states(pushers()) == wanted, START_S, lambda: str(pushers()))
        _, ended = pushers()
        assert ended
        assert "is not a view there" in ended["what"]
    assert pushers() == [None, None]


other = Dataflow("other")
things = other.stream("things", "id INTEGER NOT NULL", batches=by_punctuation())
kept = other.outlet("kept", "id INTEGER NOT NULL")


@other.procedure(takes=things, gives=[kept])
def keep(tx: Transaction, batch: Batch) -> None:
    tx.emit(kept, batch.table)


def test_a_table_that_is_new_waits_for_a_warehouse_that_is_away_and_other_dataflows_go_on(
    connection: Connection, warehouse_url: str, tmp_path: Path
) -> None:
    here, gone = Warehouse("here", warehouse_url), Warehouse("gone", AWAY, ("shop.*",))
    made = Trial(core_path(tmp_path), shop.flow, other)
    origin = Origin(made.path, config.Core(), CrashPoints())
    for flow in (shop.flow, other):
        origin.feed(flow.name, ["here"])
    push = Push(0, here, origin, CrashPoints(), 10)
    made.run(shop.orders, [(1, 1.0, None)])
    push.run(connection, shop.flow)
    connection.execute("UPDATE headrace.ledger SET tables = tables - 'refunds'")
    made.run(shop.orders, [(2, 1.0, None)])
    pusher = Pusher(
        here,
        [push],
        [shop.flow, other],
        limits=Limits(0.01, 10**6, 10**9),
        clock=SystemClock(),
        others=[here, gone],
    )
    pusher.start()
    until(lambda: "shop waits for the warehouse gone" in pusher.pushing.what, 30, str)
    made.run(things, [(7,)])
    pusher.notify()
    rows = "SELECT id FROM other.kept"
    until(lambda: connection.execute(rows).fetchall() == [(7,)], 30, lambda: "nothing arrives")
    assert connection.execute("SELECT id FROM shop.sales").fetchall() == [(1,)]
    assert pusher.pushing.state is State.WAITS
    assert "Bring gone back" in pusher.pushing.hint
    assert pusher.stop(30)
    origin.close()
    made.close()


def states(pushers: list[dict[str, str] | None]) -> list[str]:
    return [told["state"] for told in pushers if told]
