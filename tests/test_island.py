"""The island: one SELECT over what is staged and what has arrived, each row exactly once."""

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
import shop
from adbc_driver_postgresql import dbapi
from flows import EXAMPLE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from meanwhile import repeating
from psycopg.conninfo import conninfo_to_dict
from shop import HERE, Answering, Whole, ask, island_over

from api import cut, grammar
from api.answer import Column
from api.cut import Freshness
from api.errors import NotReady, TooSlow
from api.parse import parse
from api.plans import Plan
from etl_procs import loader, reader
from etl_procs.reader import Lasting, Reader, Snapshot
from headrace.errors import NotRunning
from migrations import layout, warehouse
from migrations.errors import Away, LedgerMismatch, WarehouseError

QUERYING = Path(__file__).parent.parent / "docs" / "querying.md"
MAIN, DELTA, STAGED = Freshness


def half_pushed(store: shop.Shop, connection: warehouse.Connection) -> None:
    """Two sales in main, one in delta, two more staged."""
    store.sell((1, 1.0, "a"), (2, -2.0, "b"))
    store.push(connection)
    store.merge(connection)
    store.sell((3, 3.0, None))
    store.push(connection)
    store.sell_all([[(4, -4.0, "d")], [(5, 5.0, "a")]])


def test_each_freshness_tells_its_rows_and_its_batch(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    half_pushed(store, connection)
    assert island.query("SELECT id, note FROM sales WHERE price > 0 ORDER BY id", STAGED) == Whole(
        columns=(Column("id", "bigint"), Column("note", "text")),
        rows=((1, "a"), (3, None), (5, "a")),
        as_of={"shop": 4},
        freshness=STAGED,
    )
    for freshness, rows, batch in [(DELTA, 3, 2), (MAIN, 2, 1)]:
        assert island.query("SELECT count(*) FROM shop.sales", freshness) == Whole(
            columns=(Column("count", "bigint"),),
            rows=((rows,),),
            as_of={"shop": batch},
            freshness=freshness,
        )


def test_a_query_of_no_table_is_as_of_nothing(island: Answering) -> None:
    assert island.query("SELECT 1 + 1 AS two", STAGED).as_of == {}


QUERIES = [
    "SELECT * FROM sales",
    "SELECT s.* FROM shop.sales AS s (a, b) WHERE a > 1",
    "TABLE sales",
    "SELECT count(*), sum(id), avg(price), min(note), max(price), stddev(price) FROM sales",
    "SELECT note, count(*) AS n FROM sales GROUP BY note HAVING count(*) > 1 ORDER BY n DESC",
    "SELECT coalesce(note, '?') || '!', price / 2, id % 2, id / 2, id ^ 2 FROM sales",
    "SELECT a.id, b.id FROM sales a JOIN refunds b USING (id)",
    "SELECT a.id FROM sales a LEFT JOIN refunds b ON a.id = b.id WHERE b.id IS NULL",
    "SELECT * FROM (sales a JOIN refunds b ON a.id = b.id) JOIN sales c ON c.id = b.id",
    "SELECT id FROM sales WHERE id IN (SELECT id FROM refunds) AND EXISTS (SELECT FROM refunds)",
    "SELECT id FROM sales UNION ALL SELECT id FROM refunds EXCEPT SELECT 4",
    "(SELECT id FROM sales LIMIT 2) INTERSECT (SELECT id FROM sales)",
    "SELECT id, rank() OVER w, lag(id, 1, 0) OVER w FROM sales WINDOW w AS (ORDER BY price)",
    "SELECT id, sum(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM sales",
    "WITH r AS (SELECT id FROM refunds), s AS (SELECT * FROM r) SELECT count(*) FROM s",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT * FROM t",
    "SELECT s.id, x.n FROM sales s, LATERAL (SELECT count(*) AS n FROM refunds r "
    "WHERE r.id <= s.id) x",
    "SELECT CASE WHEN price < 0 THEN 'back' ELSE 'sold' END, count(*) FROM sales GROUP BY 1",
    "SELECT DISTINCT ON (note) note, id FROM sales ORDER BY note, id DESC NULLS LAST OFFSET 1",
    "SELECT count(*) FILTER (WHERE price < 0), percentile_cont(0.5) WITHIN GROUP (ORDER BY id), "
    "string_agg(note, ',' ORDER BY note), bool_and(id > 0), array_agg(id ORDER BY id) FROM sales",
    "SELECT id FROM sales WHERE note LIKE 'a%' OR note ~ '^b' OR note ILIKE ANY (ARRAY['D'])",
    "SELECT id::text, price::numeric(10, 2), '2026-01-02'::date, "
    "TIMESTAMP '2026-01-02 03:04:05' FROM sales",
    "SELECT upper(note), length(note), substring(note FROM 1 FOR 1), replace(note, 'a', '%s'), "
    "split_part(note, ',', 1), trim(note), left(note, 1), strpos(note, 'a') FROM sales",
    "SELECT round(price), ceil(price), floor(price), abs(price), greatest(id, 2), nullif(id, 1), "
    "sqrt(id), ln(id), mod(id, 2), power(id, 2) FROM sales",
    "SELECT date_trunc('month', DATE '2026-05-06' + INTERVAL '1 day'), "
    "extract(year FROM DATE '2026-05-06')",
    "SELECT note, id % 2, count(*) FROM sales GROUP BY ROLLUP (note, id % 2)",
    "SELECT * FROM (VALUES (1, 'a'), (2, 'b')) AS v (id, name) JOIN sales USING (id)",
    "SELECT '--', '/*', 'it''s', '\\', '%s', '\U0001f30a' -- and a comment",
    'SELECT "id" AS "Mixed ""Case""" FROM "shop"."sales" AS "S"',
    "SELECT ID FROM Sales FETCH FIRST 2 ROWS ONLY;",
]


def test_answers_are_those_of_postgresql_over_plain_tables(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    half_pushed(store, connection)
    staged = {query: in_any_order(ask(island, query, STAGED)) for query in QUERIES}
    store.push(connection)
    delta = {query: in_any_order(ask(island, query, DELTA)) for query in QUERIES}
    store.merge(connection)
    main = {query: in_any_order(ask(island, query, MAIN)) for query in QUERIES}
    connection.execute("SET search_path TO shop; SET timezone TO 'UTC'")
    expected = {q: in_any_order(connection.execute(q.encode()).fetchall()) for q in QUERIES}
    assert staged == expected
    assert delta == expected
    assert main == expected


def in_any_order(found: Sequence[object]) -> list[str]:
    return sorted(map(repr, found))


def test_the_queries_of_the_documentation_work_and_use_every_function(
    warehouse_url: str, store: shop.Shop
) -> None:
    flow = loader.load([EXAMPLE])["leaderboard"]
    island = island_over(warehouse_url, store.reader, flow)
    queries = re.findall(r"```sql\n(.*?)```", QUERYING.read_text(), re.DOTALL)
    with warehouse.connect(warehouse_url, application="test") as connection:
        layout.prepare(connection, HERE, flow)
        connection.execute(
            "INSERT INTO leaderboard_main.votes "
            "VALUES ('555-01', 1, 'Edwina'), ('555-02', 2, 'Tab'), ('555-03', 1, 'Edwina'), "
            "('555-04', 3, NULL)"
        )
        connection.execute("SET search_path TO leaderboard; SET timezone TO 'UTC'")
        for query in queries:
            expected = connection.execute(query.encode()).fetchall()
            assert expected
            assert in_any_order(ask(island, query, MAIN)) == in_any_order(expected)
    used = {type(node) for query in queries for node in parse(query).walk()}
    assert not set(grammar.FUNCTIONS) - used


def test_a_cte_hides_a_table_of_its_name_from_all_but_itself(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    half_pushed(store, connection)
    hides = "WITH sales AS (SELECT 7 AS id) SELECT id FROM sales"
    reads = "WITH sales AS (SELECT * FROM sales WHERE id = 5) SELECT id FROM sales"
    inner = "SELECT id FROM sales WHERE id IN (WITH sales AS (SELECT 2 AS id) SELECT * FROM sales)"
    qualified = "WITH sales AS (SELECT 7 AS id) SELECT count(*) FROM shop.sales"
    forward = "WITH RECURSIVE a AS (SELECT * FROM sales), sales AS (SELECT 7) SELECT * FROM a"
    assert ask(island, hides) == [(7,)]
    assert ask(island, reads) == [(5,)]
    assert ask(island, inner) == [(2,)]
    assert ask(island, qualified) == [(5,)]
    assert ask(island, forward) == [(7,)]
    assert island.query(hides, STAGED).as_of == {}


def test_values_at_their_limits_are_answered_as_they_were(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    sales = [(-(2**63), 5e-324, "\\N"), (2**63 - 1, float("inf"), ""), (0, -0.0, None)]
    store.sell(*sales)
    before = ask(island, "SELECT id, price, note FROM sales")
    store.push(connection)
    after = ask(island, "SELECT id, price, note FROM sales", DELTA)
    assert repr(before) == repr(after) == repr(sales)


def test_what_is_staged_is_on_the_cores_disk_before_an_answer_tells_it(
    warehouse_url: str,
    store: shop.Shop,
    connection: warehouse.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    durable: list[Path] = []

    monkeypatch.setattr(cut, "make_durable", durable.append)
    island = island_over(warehouse_url, store.reader)
    half_pushed(store, connection)
    ask(island, "SELECT * FROM sales", MAIN)
    assert durable == []
    ask(island, "SELECT count(*) FROM refunds", STAGED)
    assert durable == [store.reader.path]


def test_even_a_batch_without_rows_is_on_the_disk_before_an_answer_tells_it(
    warehouse_url: str,
    store: shop.Shop,
    connection: warehouse.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    durable: list[Path] = []
    monkeypatch.setattr(cut, "make_durable", durable.append)
    store.sell((1, 1.0, None))
    store.push(connection)
    island = island_over(warehouse_url, store.reader)
    ask(island, "SELECT count(*) FROM refunds", STAGED)
    assert durable == []
    store.sell((2, 1.0, None))
    ask(island, "SELECT count(*) FROM refunds", STAGED)
    assert durable == [store.reader.path]


# One cut


def test_while_pushes_and_merges_go_on_no_row_is_missing_or_doubled(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    """Each batch sells and takes back: the sum is 0 at every cut, and counts never fall."""
    ids, some = itertools.count(), itertools.cycle([1, 4, 2, 3, 1])

    def sell_and_push() -> None:
        for _ in range(next(some)):
            store.sell((next(ids), 5.0, "x"), (next(ids), -5.0, "y"))
        store.push(connection, batches_max=next(some))
        if next(some) > 2:
            store.merge(connection)

    last = dict.fromkeys(Freshness, (0, 0))
    with repeating(sell_and_push):
        for turn in range(200):
            freshness = (MAIN, DELTA, STAGED)[turn % 3]
            answer = island.query(
                "SELECT count(*), count(DISTINCT id), coalesce(sum(price), 0)::bigint, "
                "(SELECT count(*) FROM refunds) FROM sales",
                freshness,
            )
            ((count, distinct, total, refunds),) = answer.rows
            batch = answer.as_of["shop"]
            assert (count, distinct, total, refunds) == (2 * batch, 2 * batch, 0, batch)
            assert (batch, count) >= last[freshness]
            last[freshness] = (batch, count)
    assert last[STAGED][0] > 20
    assert last[MAIN][0] > 0


def test_by_every_plan_a_query_sees_one_cut_while_pushes_and_merges_go_on(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    """Batch b brings the ids 2b - 2 and 2b - 1: of all, each plan must make the same sums."""
    ids, some = itertools.count(), itertools.cycle([2, 1, 3])

    def sell_and_push() -> None:
        for _ in range(3):
            store.sell((next(ids), 1.0, "x"), (next(ids), -1.0, "y"))
        store.push(connection, batches_max=next(some))
        if next(some) > 2:
            store.merge(connection)

    taken = set()
    alone = "SELECT count(*), sum(id), min(id), max(id), avg(id) FROM sales"
    joined = f"{alone.replace('id)', 's.id)').replace('FROM sales', 'FROM sales s')} JOIN sales t "
    joined += "ON s.id = t.id"
    with repeating(sell_and_push):
        for turn, plan in enumerate(itertools.islice(itertools.cycle(Plan), 120)):
            found = island.query(joined if turn % 3 == 2 else alone, STAGED, plan=plan)
            taken.add(island.plan)
            count = 2 * found.as_of["shop"]
            ((number, total, least, most, mean),) = found.rows
            assert (number, total or 0) == (count, count * (count - 1) // 2)
            assert count == 0 or (least, most) == (0, count - 1)
            assert count == 0 or mean == Decimal(count - 1) / 2
    assert {Plan.SHIP, Plan.SPLIT, Plan.GATHER} <= taken


def test_a_push_between_the_two_snapshots_is_seen_once(
    store: shop.Shop,
    connection: warehouse.Connection,
    warehouse_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half_pushed(store, connection)
    opened = reader.cut

    @contextmanager
    def pushes_after(paths: Sequence[Lasting]) -> Iterator[list[Snapshot]]:
        with opened(paths) as snapshots:
            store.push(connection)  # moves and forgets what these snapshots hold staged
            yield snapshots

    monkeypatch.setattr(reader, "cut", pushes_after)
    island = island_over(warehouse_url, store.reader)
    assert ask(island, "SELECT id FROM sales ORDER BY id") == [(1,), (2,), (3,), (4,), (5,)]


sales_of_a_batch = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(-1e9, 1e9),
        st.none() | st.sampled_from(["a", "b", "\\", "'"]),
    ),
    min_size=1,
    max_size=4,
)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batches=st.lists(sales_of_a_batch, min_size=1, max_size=6), data=st.data())
def test_any_split_between_staged_delta_and_main_gives_the_same_answers(
    warehouse_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    batches: Sequence[Sequence[shop.Sale]],
    data: st.DataObject,
) -> None:
    store = shop.Shop(tmp_path_factory.mktemp("core"))
    island = island_over(warehouse_url, store.reader)
    queries = [
        "SELECT * FROM sales",
        "SELECT note, count(*), min(id), max(price) FROM sales GROUP BY note",
        "SELECT s.id, r.id FROM sales s FULL JOIN refunds r ON r.id = s.id",
    ]
    with warehouse.connect(warehouse_url, application="test") as connection:
        connection.execute("DROP SCHEMA IF EXISTS shop, shop_main, shop_delta, headrace CASCADE")
        layout.prepare(connection, HERE, shop.flow)
        merged, arrived = sorted(data.draw(st.integers(0, len(batches))) for _ in range(2))
        store.sell_all(batches[:merged])
        store.push(connection)
        store.merge(connection)
        store.sell_all(batches[merged:arrived])
        store.push(connection)
        store.sell_all(batches[arrived:])
        staged = [in_any_order(ask(island, query)) for query in queries]
        store.push(connection)
        delta = [in_any_order(ask(island, query, DELTA)) for query in queries]
        store.merge(connection)
        main = [in_any_order(ask(island, query, MAIN)) for query in queries]
    store.close()
    assert staged == delta == main


# As fresh as is asked for


def test_the_cheapest_place_that_lags_little_enough_answers(
    warehouse_url: str, store: shop.Shop, connection: warehouse.Connection
) -> None:
    island = island_over(warehouse_url, store.reader, clock=store.clock)
    store.sell((1, 1.0, "a"))
    store.push(connection)
    store.merge(connection)
    store.clock.advance(10)
    store.sell((2, 1.0, "b"))
    store.push(connection)
    store.clock.advance(10)
    store.sell((3, 1.0, "c"))
    store.clock.advance(10)
    count = "SELECT count(*) FROM sales"
    for max_lag_s, freshness, batch in [
        (21, MAIN, 1),  # it lacks batch 2, which is 20 seconds old
        (19, DELTA, 2),
        (11, DELTA, 2),
        (9, STAGED, 3),
    ]:
        found = island.query(count, max_lag_s=max_lag_s)
        assert (found.freshness, found.as_of) == (freshness, {"shop": batch})
    store.push(connection)
    store.merge(connection)
    assert island.query(count, max_lag_s=0).freshness is MAIN


# Limits and failures


def test_a_query_that_takes_too_long_is_ended(
    warehouse_url: str, store: shop.Shop, connection: warehouse.Connection
) -> None:
    island = island_over(warehouse_url, store.reader, timeout_ms=200)
    endless = "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n FROM t) SELECT count(*) FROM t"
    with pytest.raises(TooSlow, match="longer than 200 ms"):
        island.query(endless, MAIN)


def test_a_transaction_may_be_idle_for_as_long_as_rows_go_out(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    ask(island, "SELECT count(*) FROM sales", MAIN)
    limit = "SELECT current_setting('idle_in_transaction_session_timeout')"
    assert island.query_of_session(limit) == [("0",)]


def test_a_warehouse_that_vanished_without_a_word_is_noticed_by_both_connections(
    island: Answering, store: shop.Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls: list[str] = []
    for connects in (dbapi, psycopg):

        def connect(url: str, *, real: Any = connects.connect, **more: Any) -> Any:
            urls.append(url)
            return real(url, **more)

        monkeypatch.setattr(connects, "connect", connect)
    ask(island, "SELECT count(*) FROM sales")
    assert [conninfo_to_dict(url)["tcp_user_timeout"] for url in urls] == ["30000"] * 2


def test_a_ledger_that_cannot_be_read_is_not_the_querys_fault(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    connection.execute("ALTER TABLE headrace.ledger RENAME COLUMN partition TO part")
    with pytest.raises(WarehouseError, match="the ledger of default cannot be read"):
        ask(island, "SELECT count(*) FROM sales")


def test_a_warehouse_fed_by_another_core_is_refused_when_staged_rows_are_asked_for(
    island: Answering, store: shop.Shop, connection: warehouse.Connection, tmp_path: Path
) -> None:
    other = shop.Shop(tmp_path / "other")
    other.sell((1, 1.0, None))
    other.push(connection)
    other.close()
    with pytest.raises(LedgerMismatch, match="is fed by the core"):
        island.query("SELECT * FROM sales", STAGED)
    assert len(ask(island, "SELECT * FROM sales", DELTA)) == 1


def test_without_a_core_main_still_answers(
    connection: warehouse.Connection, warehouse_url: str, tmp_path: Path
) -> None:
    island = island_over(warehouse_url, Reader(tmp_path / "nothing.db"))
    assert ask(island, "SELECT * FROM sales", MAIN) == []
    with pytest.raises(NotRunning, match="no core to read"):
        island.query("SELECT * FROM sales", STAGED)


def test_a_warehouse_without_tables_is_not_ready(warehouse_url: str, store: shop.Shop) -> None:
    store.sell((1, 1.0, None))
    for freshness in Freshness:
        with pytest.raises(NotReady, match="no tables of shop yet"):
            island_over(warehouse_url, store.reader).query("SELECT * FROM sales", freshness)


def test_a_warehouse_that_is_gone_is_away(store: shop.Shop) -> None:
    with pytest.raises(Away):
        island_over("postgresql://postgres@127.0.0.1:1/postgres", store.reader).query(
            "SELECT 1", MAIN
        )


def test_what_a_query_left_behind_ends_with_it(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    half_pushed(store, connection)
    ask(island, "SELECT count(*) FROM sales")
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT * FROM pg_temp.staged_0")
