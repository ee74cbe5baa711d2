"""Migrations that are cancelled, cut off or not told at the worst moment, and what is said then."""

import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
import shop
from moving import api_over, jobs_on
from waiting import until
from wire import Wire

from api.migrations import Moved
from migrations import job, ledger, load, warehouse
from migrations.errors import Away
from migrations.registry import Asked, Idle, Kind, Migration, Outcome, State
from migrations.warehouse import DEFAULT, Connection, Warehouse

PULL = Asked(Kind.PULL, DEFAULT)


@contextmanager
def running(store: shop.Shop, url: str, **settings: float) -> Iterator[Moved]:
    moved = jobs_on(store, Warehouse(DEFAULT, url), **settings)
    try:
        yield moved
    finally:
        moved.jobs.close()


@contextmanager
def held(connection: Connection) -> Iterator[None]:
    """Let a push wait."""
    with connection.transaction():
        ledger.lock(connection, "shop", 0)
        yield


def until_running(moved: Moved, id_: str = "x") -> None:
    """Wait until it waits for the lock."""
    until(lambda: moved.registry.find(id_).state is State.RUNNING, 30, lambda: "it has not begun")


def is_waited_for(connection: Connection) -> bool:
    """Tell whether anybody waits for a lock."""
    return connection.execute("SELECT FROM pg_locks WHERE NOT granted").fetchone() is not None


def end(moved: Moved, id_: str = "x") -> Migration:
    until(
        lambda: moved.registry.find(id_).ended_at is not None,
        30,
        lambda: str(moved.registry.find(id_)),
    )
    return moved.registry.find(id_)


@pytest.mark.parametrize("number", ["1e999", '"5"', "true"])
def test_what_is_no_number_or_one_without_an_end_is_refused_and_spoils_no_list(
    store: shop.Shop, warehouse_url: str, number: str
) -> None:
    with api_over(store, warehouse_url) as client:
        asked = f'{{"kind": "pull", "idle": {{"deadline_s": {number}}}}}'
        assert client.send("PUT", "/v1/migrations/x", asked).status == 422
        assert client.send("GET", "/v1/migrations").document == {"migrations": []}


def test_what_was_cancelled_does_not_come_back_with_the_next_api(
    store: shop.Shop, connection: Connection, warehouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API is told to stop before the statement at hand has ended."""
    store.sell((1, 1.0, "a"))
    with held(connection), running(store, warehouse_url) as moved:
        moved.jobs.put("x", PULL)
        until_running(moved)
        moved.jobs._running["x"].interrupted_by(lambda: None)
        moved.jobs.cancel("x")
        ending = threading.Thread(target=moved.jobs.close)
        ending.start()
        until(moved.jobs._stopping.is_set, 30, lambda: "it does not stop")
        connection.execute("SELECT pg_cancel_backend(pid) FROM pg_locks WHERE NOT granted")
        ending.join()
        assert end(moved).state is State.CANCELLED


def test_what_another_process_has_cancelled_is_not_moved(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, "a"))
    with running(store, warehouse_url) as one, running(store, warehouse_url) as other:
        with held(connection):
            one.jobs.put("x", PULL)
            until_running(one)
            other.jobs.cancel("x")
        assert end(one).state is State.CANCELLED
    assert ledger.read(connection, ["shop"])["shop", 0].batch == 0


def test_a_server_that_cannot_be_asked_to_cancel_keeps_nobody_from_stopping(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    def gone() -> None:
        raise psycopg.OperationalError("cancellation failed: Connection refused")

    store.sell((1, 1.0, "a"))
    with running(store, warehouse_url) as moved:
        with held(connection):
            moved.jobs.put("x", PULL)
            until_running(moved)
            moved.jobs._running["x"].interrupted_by(gone)
            moved.jobs.cancel("x")
        assert end(moved).state is State.CANCELLED


def test_a_server_that_does_not_answer_who_cancels_is_not_waited_for(
    store: shop.Shop, connection: Connection, warehouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warehouse, "CANCEL_TIMEOUT_S", 0.2)
    store.sell((1, 1.0, "a"))
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Wire(warehouse_url).open() as wire,
        running(store, wire.url) as moved,
        held(connection),
    ):
        moved.jobs.put("x", PULL)
        until(lambda: is_waited_for(connection), 30, lambda: "it has not begun")
        wire.server = silent.getsockname()
        began = time.monotonic()
        moved.jobs.cancel("x")
        assert time.monotonic() - began < 5
        connection.execute("SELECT pg_cancel_backend(pid) FROM pg_locks WHERE NOT granted")
        assert end(moved).state is State.CANCELLED


def test_one_that_was_cut_off_goes_on_when_there_are_more_dataflows(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, "a"))
    with running(store, warehouse_url) as moved:
        moved.registry.put("x", PULL)
        moved.registry.aim("x", {"older": 7})
        moved.jobs.resume()
        assert (end(moved).state, end(moved).reached) == (State.SUCCEEDED, {"shop": 1})


def test_what_is_known_is_the_same_though_its_warehouse_is_gone(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    gone = Asked(Kind.PULL, "gone")
    with running(store, warehouse_url) as moved:
        moved.registry.put("x", gone)
        found, is_new = moved.jobs.put("x", gone)
        assert (found.id, is_new) == ("x", False)


def test_the_time_in_which_a_migration_waited_until_a_warehouse_was_idle_does_not_count(
    store: shop.Shop, connection: Connection, warehouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load.Load, "holds_back", lambda *_: "busy")
    attempt, attempts = job.Job._attempt, iter([Away("gone for a moment", hint="")])

    def fails_once(one: job.Job) -> object:
        for error in attempts:
            raise error
        return attempt(one)

    monkeypatch.setattr(job.Job, "_attempt", fails_once)
    store.sell((1, 1.0, "a"))
    with running(store, warehouse_url, give_up_s=1.0) as moved:
        moved.jobs.put("x", Asked(Kind.PULL, DEFAULT, idle=Idle(60.0, 4, 1.5)))
        assert end(moved).state is State.SUCCEEDED, end(moved).error


def test_a_registry_whose_disk_was_full_tells_the_end_later(
    store: shop.Shop, connection: Connection, warehouse_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = iter([sqlite3.OperationalError("database or disk is full")] * 6)
    with running(store, warehouse_url) as moved:
        for name in ("tell", "end"):
            write = getattr(moved.registry, name)

            def fails_first(*values: object, write: object = write) -> object:
                for error in full:
                    raise error
                assert callable(write)
                return write(*values)

            monkeypatch.setattr(moved.registry, name, fails_first)
        store.sell((1, 1.0, "a"))
        moved.jobs.put("x", PULL)
        assert end(moved).state is State.SUCCEEDED, end(moved).error
        assert end(moved).rows == 1


@pytest.mark.parametrize(("kind", "last"), [("pull", "move"), ("merge", "merge")])
def test_rows_that_were_rolled_back_do_not_count(
    store: shop.Shop,
    connection: Connection,
    warehouse_url: str,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    last: str,
) -> None:
    """An attempt fails when all of its rows are there, and the next one does not."""
    store.sell((1, -1.0, "a"), (2, 1.0, "b"))
    if kind == "merge":
        store.push(connection)
    step, failures = getattr(ledger, last), iter([Away("gone for a moment", hint="")] * 2)

    def fails_at_first(*of: object, **more: object) -> None:
        for failure in failures:
            raise failure
        step(*of, **more)

    monkeypatch.setattr(ledger, last, fails_at_first)
    with running(store, warehouse_url, give_up_s=0.0) as moved:
        moved.jobs.put("a", Asked(Kind(kind), DEFAULT))
        assert (end(moved, "a").state, end(moved, "a").rows) == (State.FAILED, 0)
        assert end(moved, "a").size == 0
    with running(store, warehouse_url) as moved:
        moved.jobs.put("b", Asked(Kind(kind), DEFAULT))
        assert (end(moved, "b").state, end(moved, "b").rows) == (State.SUCCEEDED, 3)


def test_what_was_committed_before_the_api_died_counts_too(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, "a"))
    with running(store, warehouse_url) as moved:
        moved.registry.put("x", PULL)
        moved.registry.begin("x")
        moved.registry.tell("x", "", 5, 50)
        moved.jobs.resume()
        assert (end(moved).state, end(moved).rows) == (State.SUCCEEDED, 6)
        assert end(moved).size > 50


@pytest.mark.parametrize("unforeseen", [RuntimeError("unthought-of"), SystemExit("unthought-of")])
def test_what_nobody_foresaw_fails_the_migration_and_the_next_goes_on(
    store: shop.Shop,
    connection: Connection,
    warehouse_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    unforeseen: BaseException,
) -> None:
    store.sell((1, 1.0, "a"))
    with running(store, warehouse_url) as moved:
        write, bugs = moved.registry.end, iter([unforeseen])

        def fails_once(id_: str, outcome: Outcome) -> bool:
            for bug in bugs:
                raise bug
            return write(id_, outcome)

        monkeypatch.setattr(moved.registry, "end", fails_once)
        moved.jobs.put("x", PULL)
        failed = end(moved)
        assert (failed.state, failed.rows, failed.stage) == (State.FAILED, 1, "")
        assert failed.error
        assert failed.error["what"] == f"a bug: {unforeseen!r}"
        assert "headrace logs api" in failed.error["hint"]
        assert "unthought-of" in caplog.text
        assert moved.jobs._running == {}
        store.sell((2, 1.0, "b"))
        moved.jobs.put("y", PULL)
        assert (end(moved, "y").state, end(moved, "y").rows) == (State.SUCCEEDED, 1)
    assert ledger.read(connection, ["shop"])["shop", 0].rows == 2
