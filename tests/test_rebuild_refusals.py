"""What a rebuild may not copy, and how far a push may go: never beyond what the core has."""

import pytest
import shop
from pushing import pushing
from routed import check, connected, ids, push, sell
from waiting import until

from headrace.crash import CrashPoints
from migrations import layout, ledger, warehouse
from migrations.errors import Gap, LedgerMismatch, NotFed
from migrations.merge import Merging
from migrations.push import Push, decide
from migrations.pushing import State
from migrations.rebuild import Filling, Rebuild
from migrations.warehouse import DEFAULT, Connection, Warehouse


def test_a_push_goes_no_further_than_the_core_has_come(
    store: shop.Shop, connection: Connection
) -> None:
    """A goal outlives its core's last batches: those come again, under the same numbers."""
    sell(store, 1)
    pushed = store.a_push().run(connection, shop.flow, upto=5)
    assert (pushed.through, pushed.more) == (1, False)
    assert ledger.read(connection, ["shop"])["shop", 0].batch == 1
    sell(store, 2)
    store.push(connection)
    assert ids(connection, "sales") == [1, 2]


def test_what_a_narrower_merge_has_left_in_delta_is_merged_when_it_is_routed_here_again(
    store: shop.Shop, connection: Connection
) -> None:
    narrow = Warehouse(DEFAULT, "", ("shop.refunds",))
    sell(store, 1)
    push(store, shop.HERE, connection)
    Merging(narrow, CrashPoints()).run(connection, shop.flow)
    Merging(shop.HERE, CrashPoints()).run(connection, shop.flow)
    assert connection.execute("SELECT id FROM shop_main.sales").fetchall() == [(1,)]
    check(store, shop.HERE, connection, 1)


def test_a_warehouse_that_is_behind_what_the_core_has_is_never_copied(
    store: shop.Shop,
    connection: Connection,
    warehouse_url: str,
    second_url: str,
) -> None:
    """It would take the place of rows that are nowhere else."""
    first, empty = Warehouse(DEFAULT, warehouse_url), Warehouse("second", second_url)
    sell(store, 1)
    assert push(store, first, connection) == 1
    with connected(empty):
        rebuild = Rebuild(first, empty, [store.origin], CrashPoints())
        with pytest.raises(LedgerMismatch, match="forgotten what it staged through batch 1"):
            rebuild.run(connection, shop.flow)
    check(store, first, connection, 1)


def test_a_warehouse_that_no_other_can_fill_stops_its_pusher(
    store: shop.Shop,
    connection: Connection,
    warehouse_url: str,
    second_url: str,
) -> None:
    first, second = Warehouse(DEFAULT, warehouse_url), Warehouse("second", second_url)
    sell(store, 1)
    push(store, first, connection)
    connection.execute("DROP SCHEMA shop, shop_main, shop_delta, headrace CASCADE")
    layout.prepare(connection, first, shop.flow)
    push_to_it = Push(0, first, store.origin, CrashPoints(), 1_000)
    with connected(second), pushing(shop.flow, push_to_it, first, [first, second]) as it:
        until(lambda: it.pushing.state is State.STOPPED, 20, lambda: "it goes on")
        assert "no other warehouse has them for all of its tables" in it.pushing.what


def test_what_a_plan_says_of_a_warehouse_that_is_new_is_to_restart_the_engine(
    store: shop.Shop, connection: Connection, warehouse_url: str, second_url: str
) -> None:
    first, second = Warehouse(DEFAULT, warehouse_url), Warehouse("second", second_url)
    sell(store, 1)
    push(store, first, connection)
    with connected(second) as there, store.reader.snapshot() as snapshot:
        row = ledger.read(there, ["shop"])["shop", 0]
        with pytest.raises(NotFed) as caught:
            decide(second, shop.flow, 0, row, snapshot, 1)
        assert "restart the engine" in caught.value.hint
    store.origin.feed("shop", [DEFAULT, "second"])
    with store.reader.snapshot() as snapshot, pytest.raises(Gap) as gap:
        decide(second, shop.flow, 0, row, snapshot, 1)
    assert gap.value.hint.startswith("It is new: the engine copies its tables from another")


def test_a_rebuild_tells_how_many_rows_it_has_copied_and_the_first_copy_is_in_the_log(
    store: shop.Shop,
    connection: Connection,
    warehouse_url: str,
    second_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first, second = Warehouse(DEFAULT, warehouse_url), Warehouse("second", second_url)
    sell(store, 1, 2)
    push(store, first, connection)
    store.origin.feed("shop", [DEFAULT, "second"])
    caplog.set_level("INFO")
    with connected(second) as there:
        filling = Filling(second, [first, second], shop.flow, [store.origin])
        filling.begin(there, 0, CrashPoints())
        rebuild = Rebuild(second, first, [store.origin], CrashPoints())
        assert rebuild.run(there, shop.flow) == 4
    assert "copying shop from default to second" in caplog.text
    assert "copied shop to second: 4 rows" in caplog.text


def test_a_warehouse_that_is_not_fed_is_not_rebuilt(
    store: shop.Shop,
    connection: Connection,
    warehouse_url: str,
    second_url: str,
) -> None:
    """The core would forget what comes after that of which it is a copy."""
    first, second = Warehouse(DEFAULT, warehouse_url), Warehouse("second", second_url)
    sell(store, 1)
    push(store, first, connection)
    with connected(second) as there, pytest.raises(NotFed, match="for the warehouse second"):
        Rebuild(second, first, [store.origin], CrashPoints()).run(there, shop.flow)


def test_who_prepares_does_not_wait_for_a_push(
    store: shop.Shop, connection: Connection, warehouse_url: str
) -> None:
    """A merge that is asked for prepares the tables first, and a push may take long."""
    for _ in range(2):  # before the first batch, and after it
        with connection.transaction():
            ledger.lock(connection, "shop", 0)
            with warehouse.connect(warehouse_url, application="test") as another:
                another.execute("SET lock_timeout = 1000")
                layout.prepare(another, shop.HERE, shop.flow)
        sell(store, 1)
        push(store, shop.HERE, connection)
