"""A key that is for some tables, columns and rows: a query sees these, wherever they are."""

from pathlib import Path

import every
import pytest
import shop
from restricting import asked_by_restricted
from serving import KEY, front, serving
from shop import HERE, Answering, Warehoused, ask, island_over

from api.cut import Freshness, Moment
from api.errors import QueryRefused
from api.grant import Restriction, Scope
from api.guard import Entrance
from api.island import Asked
from api.keyring import Keyring
from api.plans import Plan
from api.predicate import normal
from headrace.clock import SystemClock
from migrations import layout, warehouse


def restricted(island: Answering, **tables: Restriction) -> None:
    island.tables = tuple((name.replace("__", "."), of) for name, of in tables.items())


@pytest.fixture
def half(island: Answering, store: shop.Shop, connection: warehouse.Connection) -> Answering:
    """Rows in main, in delta and staged; only what costs less than 3 is to be seen of them."""
    store.sell((1, 1.0, "a"), (2, 5.0, "b"))
    store.push(connection)
    store.merge(connection)
    store.sell((3, 2.0, "b"))
    store.push(connection)
    store.sell((4, 9.0, "c"), (5, -1.0, "c"))
    cheap = normal("price < 3", shop.sales.columns)
    restricted(island, shop__sales=Restriction(("id", "note"), cheap))
    return island


@pytest.mark.parametrize("plan", [Plan.SHIP, Plan.SPLIT])
def test_only_its_columns_and_rows_are_there(half: Answering, plan: Plan) -> None:
    found = half.query("SELECT * FROM sales ORDER BY id", plan=plan)
    assert half.plan is plan
    assert [column.name for column in found.columns] == ["id", "note"]
    assert found.rows == ((1, "a"), (3, "b"), (5, "c"))
    assert half.query("SELECT count(*) FROM shop.sales", plan=plan).rows == ((3,),)
    assert half.query("SELECT max(id) FROM sales", Freshness.DELTA, plan=plan).rows == ((3,),)
    assert half.query("SELECT max(id) FROM sales", Freshness.MAIN, plan=plan).rows == ((1,),)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT price FROM sales",
        "SELECT id FROM sales WHERE price > 3",
        "SELECT id FROM sales ORDER BY price",
        "SELECT s.price FROM sales s",
        "SELECT count(price) FROM sales",
        "SELECT x.price FROM (SELECT * FROM sales) x",
        "SELECT id FROM refunds",
        "SELECT id FROM shop.refunds",
        "SELECT id FROM sales WHERE id IN (SELECT id FROM refunds)",
    ],
)
def test_nothing_else_is_told_or_known(half: Answering, sql: str) -> None:
    with pytest.raises(QueryRefused) as refused:
        ask(half, sql)
    assert "shop.refunds" not in refused.value.hint


def test_an_error_tells_nothing_of_a_row_that_is_hidden(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    """What a query computes is cheaper than what restricts it, and must not come first."""
    store.sell((1, 1.0, "7"), (2, 1.0, "secret"))
    store.push(connection)
    store.merge(connection)
    notes = ", ".join(f"'{n}'" for n in range(8))
    only = normal(f"note IN ({notes})", shop.sales.columns)
    restricted(island, shop__sales=Restriction(None, only))
    sql = "SELECT count(*) FROM sales WHERE CAST(note AS integer) = 7"
    for freshness in Freshness:
        assert island.query(sql, freshness).rows == ((1,),)


def test_explain_tells_a_restricted_caller_neither_of_that_nor_of_others_rows(
    half: Answering,
) -> None:
    moment = Moment(Freshness.STAGED)
    told = half.explain(Asked("SELECT id FROM sales", moment=moment, tables=half.tables))
    assert not any(candidate["sql"] for candidate in told["candidates"])
    assert [table["staged_rows"] for table in told["tables"]] == [0]
    assert {candidate["cost_ms"] for candidate in told["candidates"]} == {0.0}
    assert " ms " not in told["because"]
    told = half.explain(Asked("SELECT id FROM sales", moment=moment))
    assert all(candidate["sql"] for candidate in told["candidates"])


def test_what_was_prepared_for_one_is_not_given_to_another(half: Answering) -> None:
    assert ask(half, "SELECT count(*) FROM sales") == [(3,)]
    half.tables = None
    assert ask(half, "SELECT count(*) FROM sales") == [(5,)]


def test_a_condition_that_the_island_cannot_decide_is_left_to_the_warehouse(
    half: Answering,
) -> None:
    restricted(half, shop__sales=Restriction(None, normal("note ~ '^b'", shop.sales.columns)))
    assert ask(half, "SELECT id FROM sales ORDER BY id") == [(2,), (3,)]
    assert half.plan is Plan.SHIP


@pytest.mark.parametrize("plan", [Plan.SHIP, Plan.SPLIT])
def test_a_row_that_comes_or_goes_by_its_latest_state_does_so(
    tmp_path: Path, warehouse_url: str, plan: Plan
) -> None:
    store = Warehoused(tmp_path, every.flow)
    island = island_over(warehouse_url, store.reader, every.flow)
    few = normal("n < 5", every.states.columns)
    restricted(island, every__states=Restriction(("t",), few))
    row = (1, None, None, None, None, None, None, None)

    def states(*of: tuple[int, int, str]) -> None:
        rows = [((id, n, None, text, *row[4:], None), False) for id, n, text in of]
        store.run(every.numbers, *every.batches([rows]))

    with warehouse.connect(warehouse_url, application="test") as connection:
        layout.prepare(connection, HERE, every.flow)
        every.GIVEN.clear()
        states((1, 1, "stays"), (2, 1, "goes"), (3, 9, "comes"))
        store.push(connection)
        states((2, 9, "hidden"), (3, 1, "came"))
        found = island.query("SELECT t FROM states ORDER BY 1", plan=plan)
    assert found.rows == (("came",), ("stays",))
    store.close()


def test_a_key_of_the_api_is_held_to_its_tables(
    half: Answering, store: shop.Shop, tmp_path: Path
) -> None:
    keyring = Keyring(tmp_path / "keys.db", SystemClock())
    tables = {"shop.sales": Restriction(("id",), normal("id < 4", shop.sales.columns))}
    _, key = keyring.create("ann", frozenset({Scope.QUERY}), tables=tables)
    with serving(half, before=front(Entrance(KEY, keyring))) as client:
        body = '{"sql": "SELECT * FROM sales"}'
        reply = client.send("POST", "/v1/query", body, key=f"Bearer {key}")
        assert sorted(reply.document["rows"]) == [[1], [2], [3]]
        body = '{"sql": "SELECT id FROM refunds"}'
        assert client.send("POST", "/v1/query", body, key=f"Bearer {key}").status == 400
        told = client.send("POST", "/v1/query/explain", body, key=f"Bearer {key}")
        assert told.status == 400


def test_whatever_is_asked_under_whatever_restriction_nothing_hidden_is_told(
    tmp_path: Path, warehouse_url: str
) -> None:
    found = asked_by_restricted(tmp_path, warehouse_url, seed=2, rounds=6, count=10)
    assert found["answered"] > 10, found
    assert found["refused"] > 10, found
