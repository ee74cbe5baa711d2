"""The push: what is staged reaches the warehouse whole, once and in order, whoever dies when."""

import math
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
import shop
from shop import HERE
from waiting import until

from etl_procs.dataflow import Dataflow
from etl_procs.origin import Origin
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints, Point
from headrace.errors import ConfigError, NotRunning
from migrations import layout, ledger, push, warehouse
from migrations.errors import (
    Away,
    Drift,
    LedgerMismatch,
    NotFed,
    WarehouseError,
    translated,
)
from migrations.push import Push, Pushed
from migrations.pusher import Limits, Pusher
from migrations.pushing import Pushing, State
from migrations.warehouse import DEFAULT, Warehouse

PUSH_ONCE = Path(__file__).parent / "push_once.py"
SALES = "SELECT id, price, note FROM shop.sales ORDER BY id"


def rows(connection: warehouse.Connection, query: str = SALES) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()


def test_a_push_moves_every_row_once_and_the_core_forgets_it(
    store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell_all([[(1, 1.5, "a"), (2, -2.0, None)], [(3, None, "")]])
    assert store.push(connection) == Pushed(0, 2, 4, more=False)
    assert store.unsent() == 0
    assert store.push(connection) == Pushed(2, 2, 0, more=False)
    assert rows(connection) == [(1, 1.5, "a"), (2, -2.0, None), (3, None, "")]
    assert rows(connection, "SELECT id FROM shop.refunds") == [(2,)]
    assert ledger.read(connection, ["shop"])["shop", 0].rows == 4


def test_values_at_their_limits_arrive_as_they_were(
    store: shop.Shop, connection: warehouse.Connection
) -> None:
    text = "'\"\\\n\t\\N é \U0001f30a" + "x" * 100_000
    sales = [
        (-(2**63), 5e-324, text),
        (0, -0.0, "\\."),
        (1, -math.inf, "\x01"),
        (2, 0.5, ""),
        (2**63 - 1, 1.7976931348623157e308, None),
    ]
    store.sell(*sales)
    store.push(connection)
    assert repr(rows(connection)) == repr(sales)


def test_a_batch_that_staged_nothing_moves_the_ledger(
    store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell_all([[(1, 1.0, None)], [(2, 1.0, None)]])
    store.push(connection)
    assert rows(connection, "SELECT count(*) FROM shop.refunds") == [(0,)]
    assert ledger.read(connection, ["shop"])["shop", 0].batch == 2


def test_a_push_takes_no_more_batches_than_it_may_and_says_so(
    store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell_all([[(number, 1.0, None)] for number in range(5)])
    moved = [store.push(connection, batches_max=2) for _ in range(3)]
    assert [(p.after, p.through, p.more) for p in moved] == [
        (0, 2, True),
        (2, 4, True),
        (4, 5, False),
    ]
    assert len(rows(connection)) == 5


@pytest.mark.parametrize("point", [p for p in Point if p.value.startswith("push.")])
def test_a_push_killed_at_any_point_is_completed_by_the_next(
    store: shop.Shop, connection: warehouse.Connection, warehouse_url: str, point: Point
) -> None:
    store.sell_all([[(number, float(-number), str(number))] for number in range(1, 4)])
    command = [sys.executable, str(PUSH_ONCE), "shop", str(store.home), warehouse_url, point.value]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    store.sell((4, -4.0, "4"))
    store.push(connection)
    assert rows(connection) == [(number, -number, str(number)) for number in range(1, 5)]
    assert rows(connection, "SELECT id FROM shop.refunds ORDER BY id") == [(1,), (2,), (3,), (4,)]
    assert store.unsent() == 0
    assert ledger.read(connection, ["shop"])["shop", 0].rows == 8


def test_the_cores_disk_has_what_is_pushed_before_the_warehouse_tells_it(
    store: shop.Shop, connection: warehouse.Connection, warehouse_url: str
) -> None:
    told: list[int] = []

    class Recording(Origin):
        def make_durable(self) -> None:
            told.append(ledger.read(connection, ["shop"])["shop", 0].batch)

    store.sell((1, 1.0, None))
    push = Push(
        0, HERE, Recording(store.reader.path, config.Core(), CrashPoints()), CrashPoints(), 10
    )
    with warehouse.connect(warehouse_url, application="test") as own:
        assert push.run(own, shop.flow).through == 1
        assert push.run(own, shop.flow).rows == 0
    assert told == [0]


def test_a_failed_push_leaves_neither_rows_nor_ledger(
    store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell((1, -1.0, "a"))
    connection.execute("ALTER TABLE shop_delta.refunds ADD CHECK (id <> 1)")
    with pytest.raises(WarehouseError, match="violates check constraint"):
        store.push(connection)
    assert rows(connection) == []
    assert ledger.read(connection, ["shop"])["shop", 0].batch == 0
    assert store.unsent() == 1


def test_a_push_does_not_wait_for_ever_behind_a_forgotten_transaction(
    store: shop.Shop,
    connection: warehouse.Connection,
    warehouse_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.sell((1, 1.0, None))
    monkeypatch.setattr(warehouse, "LOCK_TIMEOUT_MS", 100)
    with warehouse.connect(warehouse_url, application="test") as own:
        with connection.transaction():
            connection.execute("SELECT FROM headrace.ledger FOR UPDATE")
            with pytest.raises(Away, match="lock timeout"):
                store.push(own)
        assert store.push(own).rows == 1


@pytest.mark.parametrize("setting", ["statement_timeout", "transaction_timeout"])
def test_a_limit_on_queries_of_its_role_ends_no_push(
    store: shop.Shop, connection: warehouse.Connection, warehouse_url: str, setting: str
) -> None:
    """It would look like a server that is away."""
    if connection.execute("SELECT FROM pg_settings WHERE name = %s", [setting]).fetchone() is None:
        pytest.skip("this PostgreSQL has no such setting")
    name = connection.info.dbname
    connection.execute(f'ALTER ROLE CURRENT_USER IN DATABASE "{name}" SET {setting} = 100'.encode())
    store.sell((1, 1.0, None))
    with warehouse.connect(warehouse_url, application="test") as own, ThreadPoolExecutor() as pool:
        with connection.transaction():
            ledger.lock(connection, "shop", 0)
            pushing = pool.submit(store.push, own)
            with pytest.raises(TimeoutError):
                pushing.result(0.5)
        assert pushing.result(10).rows == 1


def test_two_pushers_at_once_move_every_row_once(
    store: shop.Shop, connection: warehouse.Connection, warehouse_url: str
) -> None:
    failures: list[BaseException] = []
    done = threading.Event()

    def push_until_done() -> None:
        try:
            with (
                warehouse.connect(warehouse_url, application="test") as own,
                closing(Origin(store.path, config.Core(), CrashPoints())) as origin,
            ):
                while not done.is_set() or store.unsent():
                    Push(0, HERE, origin, CrashPoints(), 3).run(own, shop.flow)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    pushers = [threading.Thread(target=push_until_done) for _ in range(2)]
    for pusher in pushers:
        pusher.start()
    for number in range(100):
        store.sell((number, 1.0, None))
    done.set()
    for pusher in pushers:
        pusher.join()
    assert not failures
    assert [row[0] for row in rows(connection)] == list(range(100))
    arrived = ledger.read(connection, ["shop"])["shop", 0]
    assert (arrived.core, arrived.batch, arrived.rows) == (_core_id(store), 100, 100)


def _core_id(store: shop.Shop) -> UUID:
    with store.reader.snapshot() as snapshot:
        return UUID(snapshot.core_id)


def test_another_core_may_not_feed_the_same_tables(
    store: shop.Shop, connection: warehouse.Connection, tmp_path: Path
) -> None:
    store.sell((1, 1.0, None))
    store.push(connection)
    other = shop.Shop(tmp_path / "other")
    other.sell_all([[(2, 1.0, None)], [(3, 1.0, None)]])
    with pytest.raises(LedgerMismatch, match="is fed by the core"):
        other.push(connection)
    assert other.unsent() == 2
    assert len(rows(connection)) == 1
    other.close()


def test_a_core_that_is_behind_the_warehouse_may_not_feed_it(
    store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell((1, 1.0, None))
    store.push(connection)
    connection.execute("UPDATE headrace.ledger SET batch = 7")
    with pytest.raises(LedgerMismatch, match="through batch 7, and the core has committed 1"):
        store.push(connection)


def test_drift_is_refused_naming_each_column(connection: warehouse.Connection) -> None:
    connection.execute("DROP VIEW shop.sales")
    connection.execute("ALTER TABLE shop_main.sales DROP COLUMN note")
    connection.execute("ALTER TABLE shop_main.sales ALTER price TYPE real, ALTER id DROP NOT NULL")
    connection.execute("ALTER TABLE shop_main.sales ADD extra date")
    connection.execute("ALTER TABLE shop_delta.sales DROP COLUMN _partition")
    with pytest.raises(Drift) as caught:
        layout.prepare(connection, HERE, shop.flow)
    assert caught.value.what == (
        "the tables of the warehouse default are not those of dataflow shop: "
        "shop_main.sales.id is defined as bigint NOT NULL and is bigint; "
        "shop_main.sales.price is defined as double precision and is real; "
        "shop_main.sales.note is defined as text and is not there; "
        "shop_main.sales.extra is not declared and is date; "
        "shop_delta.sales._partition is defined as integer NOT NULL and is not there"
    )


def test_a_view_with_other_columns_is_drift(connection: warehouse.Connection) -> None:
    connection.execute("DROP VIEW shop.refunds")
    connection.execute("CREATE VIEW shop.refunds AS SELECT 1 AS id")
    with pytest.raises(Drift, match=r"shop\.refunds\.id is defined as bigint and is integer"):
        layout.prepare(connection, HERE, shop.flow)


@pytest.mark.parametrize(
    ("schema", "made", "told"),
    [
        ("shop_main", "VIEW shop_main.sales AS SELECT 1 AS id", r"main\.sales is not a table"),
        ("shop", "TABLE shop.sales AS SELECT 1 AS id", r"shop\.sales is not a view there"),
    ],
)
def test_a_view_in_the_place_of_a_table_and_a_table_in_that_of_a_view_are_drift(
    warehouse_url: str, schema: str, made: str, told: str
) -> None:
    with warehouse.connect(warehouse_url, application="test") as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(f"CREATE {made}".encode())
        with pytest.raises(Drift, match=told):
            layout.prepare(connection, HERE, shop.flow)


def test_many_engines_may_prepare_at_once(warehouse_url: str) -> None:
    failures: list[BaseException] = []
    ready = threading.Barrier(4)

    def prepare() -> None:
        try:
            with warehouse.connect(warehouse_url, application="test") as connection:
                ready.wait()
                layout.prepare(connection, HERE, shop.flow)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_names_are_taken_as_they_are(warehouse_url: str) -> None:
    flow = Dataflow("user")
    flow.outlet("order", '"select" INTEGER NOT NULL, "table" TEXT')
    with warehouse.connect(warehouse_url, application="test") as connection:
        layout.prepare(connection, HERE, flow)
        layout.prepare(connection, HERE, flow)
        assert rows(connection, 'SELECT "select", "table" FROM "user"."order"') == []


def test_failures_that_may_pass_are_told_from_those_that_will_not() -> None:
    may_pass: list[psycopg.Error] = [
        psycopg.errors.DeadlockDetected(),
        psycopg.errors.SerializationFailure(),
        psycopg.errors.AdminShutdown(),
        psycopg.errors.DiskFull(),
        psycopg.OperationalError("the connection is lost"),
        psycopg.errors.ReadOnlySqlTransaction(),
        psycopg.errors.IdleInTransactionSessionTimeout(),
    ]
    will_not = [psycopg.errors.InsufficientPrivilege(), psycopg.errors.CheckViolation()]
    for error in may_pass:
        with pytest.raises(Away), translated("testing"):
            raise error
    for error in will_not:
        with pytest.raises(WarehouseError), translated("testing"):
            raise error


def test_a_warehouse_that_is_not_there_is_away() -> None:
    with pytest.raises(NotRunning, match="connecting to the warehouse"):
        warehouse.connect("postgresql://postgres@127.0.0.1:1/postgres", application="test")


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u:s3cret@h/d",
        "postgresql://u:s3cret%zz@h/d",
        "postgresql://u:s3 cret@h/d",
        "postgresql://u:x@s3cret@127.0.0.1:1/d",
        "postgresql://127.0.0.1:s3cret/x@h/d",
        "postgresql://u:s3cret\udcff@h/d",
    ],
)
def test_a_url_that_is_none_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ConfigError, match=r"warehouse\.url is not") as caught:
        warehouse.connect(url, application="test")
    assert "s3" not in "".join(traceback.format_exception(caught.value))


# The pusher's thread


class Watched:
    """A pusher with what it told its owner."""

    def __init__(
        self, store: shop.Shop, url: str, *before: Dataflow, others: Sequence[Warehouse] = ()
    ) -> None:
        self.pusher = Pusher(
            Warehouse(DEFAULT, url),
            [store.a_push()],
            [*before, shop.flow],
            limits=Limits(0.01, rows=10**6, size=10**9),
            clock=SystemClock(),
            others=others,
        )

    def until_stopped(self) -> Pushing:
        """Wait until it waits for somebody who mends something; give what it tells then."""
        until(lambda: self.pusher.pushing.state is State.STOPPED, 30, lambda: "it does not stop")
        return self.pusher.pushing


def test_the_pusher_sends_what_was_left_behind_and_what_is_notified(
    store: shop.Shop, connection: warehouse.Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, None))
    watched = Watched(store, warehouse_url)
    watched.pusher.start()
    until(lambda: len(rows(connection)) == 1, 30, lambda: str(rows(connection)))
    store.sell((2, 1.0, None))
    watched.pusher.notify()
    until(lambda: len(rows(connection)) == 2, 30, lambda: str(rows(connection)))
    assert watched.pusher.stop(timeout_s=10)
    assert watched.pusher.pushing.state is not State.STOPPED


def test_the_pusher_outlives_lost_connections(
    store: shop.Shop, connection: warehouse.Connection, warehouse_url: str
) -> None:
    watched = Watched(store, warehouse_url)
    watched.pusher.start()
    for number in range(20):
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'headrace pusher' AND datname = current_database()"
        )
        store.sell((number, 1.0, None))
        watched.pusher.notify()
    until(lambda: len(rows(connection)) == 20, 30, lambda: str(rows(connection)))
    assert watched.pusher.stop(timeout_s=10)
    assert watched.pusher.pushing.state is not State.STOPPED
    assert [row[0] for row in rows(connection)] == list(range(20))


def test_a_push_that_failed_is_repeated_without_another_commit(
    store: shop.Shop,
    connection: warehouse.Connection,
    warehouse_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Push.run
    failures = iter([Away("a deadlock", hint=""), Away("a restart", hint="")])

    def fails_twice(*arguments: Any) -> Pushed:
        for failure in failures:
            raise failure
        return run(*arguments)

    monkeypatch.setattr(Push, "run", fails_twice)
    store.sell((1, 1.0, None))
    watched = Watched(store, warehouse_url)
    watched.pusher.start()
    until(lambda: len(rows(connection)) == 1, 30, lambda: str(rows(connection)))
    assert watched.pusher.stop(timeout_s=10)
    assert watched.pusher.pushing.state is not State.STOPPED


def test_a_dataflow_that_cannot_be_pushed_just_now_keeps_no_other_back(
    store: shop.Shop,
    connection: warehouse.Connection,
    warehouse_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Push.run

    def fails_for_the_first(push: Push, at: warehouse.Connection, flow: Dataflow) -> Pushed:
        if flow.name == "first":
            raise Away("a lock on its table", hint="")
        return run(push, at, flow)

    monkeypatch.setattr(Push, "run", fails_for_the_first)
    store.sell((1, 1.0, None))
    first = Dataflow("first")
    first.outlet("things", "id INTEGER NOT NULL")
    watched = Watched(store, warehouse_url, first)
    watched.pusher.start()
    until(lambda: len(rows(connection)) == 1, 30, lambda: str(rows(connection)))
    until(lambda: watched.pusher.pushing.what != "", 30, lambda: "nothing fails")
    assert watched.pusher.stop(timeout_s=10)


def test_the_pusher_waits_for_a_warehouse_that_is_away_and_can_be_stopped(
    store: shop.Shop,
) -> None:
    watched = Watched(store, "postgresql://postgres@127.0.0.1:1/postgres")
    watched.pusher.start()
    until(lambda: "connecting" in watched.pusher.pushing.what, 30, lambda: "it does not try")
    assert watched.pusher.stop(timeout_s=10)
    assert watched.pusher.pushing.state is not State.STOPPED


def test_tables_are_looked_at_before_anything_is_pushed_if_the_warehouse_is_there(
    store: shop.Shop, connection: warehouse.Connection, warehouse_url: str
) -> None:
    Watched(store, "postgresql://postgres@127.0.0.1:1/postgres").pusher.prepare()
    connection.execute("ALTER TABLE shop_main.sales ALTER note SET NOT NULL")
    with pytest.raises(Drift, match=r"shop_main\.sales\.note"):
        Watched(store, warehouse_url).pusher.prepare()


def test_a_warehouse_that_another_core_feeds_is_refused_before_anything_is_pushed(
    store: shop.Shop, connection: warehouse.Connection, warehouse_url: str
) -> None:
    connection.execute("UPDATE headrace.ledger SET core = %(core)s, batch = 1", {"core": uuid4()})
    with pytest.raises(LedgerMismatch, match="is fed by the core"):
        Watched(store, warehouse_url).pusher.prepare()


def test_a_warehouse_for_which_the_core_keeps_nothing_is_refused_before_anything_is_copied(
    store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell((1, 1.0, None))
    store.origin.feed("shop", ["another"])
    with pytest.raises(NotFed, match="keeps nothing of shop for the warehouse default"):
        store.push(connection)
    assert rows(connection) == []


def test_a_push_whose_process_hangs_amid_it_keeps_nobody_out_for_ever(
    store: shop.Shop,
    connection: warehouse.Connection,
    warehouse_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.sell((1, 1.0, None))
    monkeypatch.setattr(warehouse, "IDLE_TIMEOUT_MS", 100)
    with warehouse.connect(warehouse_url, application="test") as hanging:
        hanging.execute("BEGIN")
        ledger.lock(hanging, "shop", 0)
        assert store.push(connection).rows == 1  # it waits until the server ends the session
        with pytest.raises(Away, match="idle-in-transaction timeout"), translated("hanging"):
            hanging.execute("COMMIT")
    assert rows(connection) == [(1, 1.0, None)]


def test_a_push_takes_no_more_bytes_than_it_may(
    store: shop.Shop, connection: warehouse.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "BYTES_MAX", 5_000)
    for number in range(4):
        store.sell((number, 1.0, "x" * 3_000))
    moved = [store.push(connection) for _ in range(4)]
    assert [(p.through, p.more) for p in moved] == [(1, True), (2, True), (3, True), (4, False)]
    for number in range(4, 8):
        store.sell((number, 1.0, "x" * 1_000))
    assert store.push(connection) == Pushed(4, 7, 3, more=True)
    assert store.push(connection) == Pushed(7, 8, 1, more=False)
    assert len(rows(connection)) == 8
