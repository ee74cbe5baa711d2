"""Which warehouse takes what: tables that are routed to one later, and to a new one."""

import pytest
import shop
from routed import SALES, check, connected, ids, push, sell

from headrace import config
from headrace.crash import CrashPoints
from headrace.errors import ConfigError
from migrations import layout, ledger, rebuild, warehouse
from migrations.errors import Gap, Unfilled
from migrations.warehouse import Connection, Warehouse


def filling(store: shop.Shop, place: Warehouse, other: Warehouse) -> rebuild.Filling:
    return rebuild.Filling(place, [other], shop.flow, [store.origin])


def begin(store: shop.Shop, place: Warehouse, other: Warehouse, connection: Connection) -> None:
    filling(store, place, other).begin(connection, 0, CrashPoints())


def test_a_table_that_is_routed_to_a_warehouse_later_is_filled_from_another_one(
    store: shop.Shop, warehouse_url: str, second_url: str
) -> None:
    first, second = Warehouse("first", warehouse_url), Warehouse("second", second_url, SALES)
    store.origin.feed("shop", ["first", "second"])
    with connected(first) as here, connected(second) as there:
        sell(store, 1, 2)
        assert push(store, first, here) == push(store, second, there) == 2
        check(store, second, there, 2)
        more = Warehouse("second", second_url)
        layout.prepare(there, more, shop.flow)
        sell(store, 3)
        with pytest.raises(Unfilled, match=r"nothing of refunds: that was routed to it later"):
            push(store, more, there)
        assert not filling(store, more, first).enroll(there)
        begin(store, more, first, there)
        check(store, more, there, 2)
        assert push(store, first, here) == push(store, more, there) == 3
        check(store, first, here, 3)
        check(store, more, there, 3)


def test_a_table_that_is_new_everywhere_needs_no_filling(
    store: shop.Shop, warehouse_url: str, second_url: str
) -> None:
    first, second = Warehouse("first", warehouse_url), Warehouse("second", second_url)
    store.origin.feed("shop", ["first", "second"])
    with connected(first) as here, connected(second) as there:
        sell(store, 1)
        for place, connection in [(first, here), (second, there)]:
            push(store, place, connection)
            connection.execute("UPDATE headrace.ledger SET tables = tables - 'refunds'")
            connection.execute("DELETE FROM shop_delta.refunds")
        for place, other, connection in [(first, second, here), (second, first, there)]:
            begin(store, place, other, connection)
            assert ledger.read(connection, ["shop"])["shop", 0].tables["refunds"].rows == 0
        sell(store, 2)
        assert push(store, first, here) == 2


def test_a_table_of_which_a_warehouse_that_was_away_has_missed_nothing_needs_no_filling(
    store: shop.Shop, warehouse_url: str, second_url: str
) -> None:
    """Another one has rows of it, all from batches that this one has still to come to."""
    first = Warehouse("first", warehouse_url)
    second = Warehouse("second", second_url, ("shop.refunds",))
    store.origin.feed("shop", ["first", "second"])
    with connected(first) as here, connected(second) as there:
        sell(store, 1)
        push(store, first, here)
        push(store, second, there)
        here.execute("UPDATE headrace.ledger SET tables = tables - 'refunds'")
        here.execute("DELETE FROM shop_delta.refunds")
        there.execute("UPDATE headrace.ledger SET tables = '{\"refunds\": [0, 0]}', rows = 0")
        there.execute("DELETE FROM shop_delta.refunds")
        sell(store, 2, 3)
        push(store, second, there)
        assert filling(store, first, second).enroll(here)
        assert push(store, first, here) == 3
        assert ids(here, "refunds") == ids(there, "refunds") == [2, 3]


def test_while_a_warehouse_is_filled_the_core_forgets_nothing_that_it_will_lack(
    store: shop.Shop, warehouse_url: str, second_url: str
) -> None:
    """The one that is filled was ahead of the one that it is filled from, which moves meanwhile."""
    first, second = Warehouse("first", warehouse_url), Warehouse("second", second_url)
    store.origin.feed("shop", ["first", "second"])
    with connected(first) as here, connected(second) as there:
        sell(store, 1)
        push(store, first, here)
        sell(store, 2, 3)
        assert push(store, second, there) == 3

        class Moving(CrashPoints):
            def reached(self, point: object) -> None:
                push(store, first, here)

        filling = rebuild.Rebuild(second, first, [store.origin], Moving())
        filling.run(there, shop.flow)
        assert ledger.read(there, ["shop"])["shop", 0].batch == 1
        assert push(store, second, there) == 3
        check(store, second, there, 3)


def test_a_warehouse_that_went_back_is_not_filled_by_itself(
    store: shop.Shop, warehouse_url: str, second_url: str
) -> None:
    first, second = Warehouse("first", warehouse_url), Warehouse("second", second_url)
    store.origin.feed("shop", ["second"])
    with connected(first), connected(second) as there:
        for number in (1, 2, 3):
            sell(store, number)
            push(store, second, there)
        there.execute("UPDATE headrace.ledger SET batch = 1")
        with pytest.raises(Gap, match="forgotten what it staged through batch 3"):
            push(store, second, there)
        with pytest.raises(Gap, match="has gone back to an older state"):
            begin(store, second, first, there)


def test_an_outlet_that_no_warehouse_takes_is_refused() -> None:
    only = config.load({"warehouse.tables": "shop.sales"}, environment={}).config
    with pytest.raises(ConfigError, match=r"no warehouse takes shop\.refunds"):
        warehouse.check_routes(only, [shop.flow])
    both = {"warehouse.tables": "shop.sales", "warehouses.b.url": "postgresql://b/b"}
    warehouse.check_routes(config.load(both, environment={}).config, [shop.flow])
