"""The threads beside the engine: when the pusher sends what waits, and what the merger merges."""

from collections.abc import Callable
from contextlib import closing

import pytest
import shop
from waiting import until

from etl_procs.origin import Origin
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints
from migrations.merger import Merger
from migrations.push import Push
from migrations.pusher import Limits, Pusher
from migrations.warehouse import DEFAULT, LOCK_TIMEOUT_MS, Connection, Warehouse

AN_HOUR_S = 3600.0
MAIN = "SELECT count(*) FROM shop_main.sales"
LIVE = "SELECT count(*) FROM shop.sales"


def counts(connection: Connection, query: str, wanted: int) -> Callable[[], bool]:
    return lambda: connection.execute(query.encode()).fetchall() == [(wanted,)]


@pytest.mark.parametrize("limits", [Limits(AN_HOUR_S, 3, 10**9), Limits(AN_HOUR_S, 10**6, 300)])
def test_so_many_rows_or_bytes_are_sent_before_their_time(
    store: shop.Shop, connection: Connection, warehouse_url: str, limits: Limits
) -> None:
    with closing(Origin(store.path, config.Core(), CrashPoints())) as origin:
        push = Push(0, shop.HERE, origin, CrashPoints(), 10)
        pusher = Pusher(
            Warehouse(DEFAULT, warehouse_url),
            [push],
            [shop.flow],
            limits=limits,
            clock=SystemClock(),
        )
        store.sell((1, 1.0, None))
        pusher.start()
        until(counts(connection, LIVE, 1), 30, lambda: "what was there is not sent at once")
        for number in (2, 3, 4):
            store.sell((number, 1.0, None))
            pusher.notify(rows=1, size=100)
        until(counts(connection, LIVE, 4), 30, lambda: "a limit is reached, and nothing is sent")
        assert pusher.stop(timeout_s=10)


def test_the_merger_merges_what_arrives_and_tries_again_what_fails(
    store: shop.Shop,
    connection: Connection,
    warehouse_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    merger = Merger(
        Warehouse(DEFAULT, warehouse_url), [shop.flow], every_s=0.05, crash=CrashPoints()
    )
    merger.start()
    store.sell((1, 1.0, None))
    store.push(connection)
    until(counts(connection, MAIN, 1), 30, lambda: "nothing is merged")
    connection.execute("ALTER TABLE shop_main.sales ADD CONSTRAINT odd CHECK (id <> 2)")
    store.sell((2, 1.0, None))
    store.push(connection)
    until(lambda: 'violates check constraint "odd"' in caplog.text, 30, lambda: caplog.text)
    connection.execute("ALTER TABLE shop_main.sales DROP CONSTRAINT odd")
    until(counts(connection, MAIN, 2), 30, lambda: "it is not tried again")
    assert merger.stop(timeout_s=10)


def test_a_merger_that_is_stopped_takes_back_the_merge_at_hand(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.0, None))
    store.push(connection)
    merger = Merger(
        Warehouse(DEFAULT, warehouse_url), [shop.flow], every_s=0.01, crash=CrashPoints()
    )
    waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with connection.transaction():
        connection.execute("LOCK TABLE shop_main.sales")
        merger.start()
        until(counts(connection, waits, 1), 30, lambda: "nobody waits for the table")
        assert merger.stop(timeout_s=LOCK_TIMEOUT_MS / 2000)  # it would wait for longer
    assert counts(connection, MAIN, 0)()
