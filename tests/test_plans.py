"""The plans: which can be, what they cost, which is taken, and what is said of it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import every
import pytest
import shop
from flows import HeldClock
from hypothesis import given
from hypothesis import strategies as st
from serving import Client, assert_problem, serving
from shop import HERE, Answering, Warehoused, ask, island_over
from waiting import until

from api import costs, plans
from api import few as few_rows
from api.calibrate import Calibration
from api.costs import Estimate, Rates, Staged
from api.cut import Freshness
from api.errors import NoLonger, Unfinished
from api.finish import quotient
from api.grant import Restriction
from api.island import Asked
from api.plans import Candidate, Plan
from api.question import LITTLE, LITTLE_BYTES, LITTLE_ROWS, NOTHING, WEIGHED_S
from api.resolve import Resolved, resolve
from api.shims.postgres import Postgres
from headrace.clock import SystemClock
from headrace.errors import ConfigError
from migrations import layout, warehouse
from migrations.warehouse import DEFAULT, Warehouse

STAGED = Freshness.STAGED


@pytest.fixture
def client(
    connection: warehouse.Connection, warehouse_url: str, store: shop.Shop
) -> Iterator[Client]:
    store.sell((1, 1.0, "a"), (2, -2.0, "b"))
    store.push(connection)
    store.sell((3, 3.0, "a"))
    with serving(island_over(warehouse_url, store.reader)) as made:
        yield made


def explained(client: Client, sql: str, **more: object) -> dict[str, Any]:
    reply = client.send("POST", "/v1/query/explain", json.dumps({"sql": sql, **more}))
    assert reply.status == 200, reply.body
    found: dict[str, Any] = reply.document
    return found


def test_explain_tells_each_plan_its_cost_and_what_engines_are_asked(client: Client) -> None:
    told = explained(client, "SELECT note, count(*) FROM sales WHERE id > 0 GROUP BY note")
    ship, split = told["candidates"]
    assert (ship["plan"], split["plan"]) == ("ship", "split")
    assert told["plan"] == min((ship, split), key=lambda one: one["cost_ms"])["plan"]
    assert told["because"] == LITTLE
    assert "unnest(" in ship["sql"]["default"]
    assert 'WHERE "sales"."id" > 0 GROUP BY "sales"."note"' in split["sql"]["default"]
    assert "GROUP BY c0" in split["sql"]["island"]
    assert told["as_of"] == {"shop": 2}
    (table,) = told["tables"]
    assert (table["table"], table["there"], table["staged_rows"]) == ("shop.sales", "live", 1)


def test_what_cannot_be_divided_says_why(client: Client) -> None:
    for sql, why in [
        ("SELECT a.id FROM sales a JOIN refunds b USING (id)", "USING and NATURAL"),
        ("SELECT id FROM (SELECT id FROM sales) s", "without subqueries"),
        ("SELECT upper(note) FROM sales", "UPPER(sales.note) is PostgreSQL's to compute"),
        ("SELECT price, count(*) FROM sales GROUP BY price", "groups by sales.price"),
        ("SELECT id FROM sales WHERE note ~ 'a'", "is PostgreSQL's to decide"),
        ("SELECT sum(id) / 2 FROM sales", "is PostgreSQL's to compute"),
    ]:
        told = explained(client, sql)
        assert told["plan"] == "ship"
        assert told["because"] == "it is the only one that can be"
        assert why in told["candidates"][1]["why_not"]


def test_where_nothing_is_staged_the_warehouse_answers_alone(client: Client) -> None:
    for more in ({"freshness": "delta"}, {"freshness": "main"}, {"as_of": {"shop": 1}}):
        told = explained(client, "SELECT count(*) FROM sales", **more)
        assert told["plan"] == "warehouse"
        assert told["because"] == NOTHING
    told = explained(client, "SELECT count(*) FROM sales WHERE id = 1")
    assert (told["plan"], told["because"]) == ("warehouse", NOTHING)
    assert told["candidates"][0]["cost_ms"] > 0
    assert told["tables"][0]["staged_rows"] == 1, "none of which can count"


def test_a_plan_that_is_asked_for_is_taken(client: Client) -> None:
    sql = "SELECT count(*), sum(id) FROM sales"
    for plan in ("ship", "split"):
        reply = client.send("POST", "/v1/query", json.dumps({"sql": sql, "plan": plan}))
        assert reply.document["plan"] == reply.headers["headrace-plan"] == plan
        assert reply.document["rows"] == [[3, "6"]]


def test_a_query_that_is_repeated_proposes_the_migration_that_pays(
    client: Client, store: shop.Shop, connection: warehouse.Connection
) -> None:
    of_few, sql = (f"SELECT count(*), max(upper(note)) FROM sales -- {n}" for n in range(2))
    for _ in range(3):
        client.send("POST", "/v1/query", json.dumps({"sql": of_few}))
    assert explained(client, of_few)["proposal"] is None, "a row costs less than moving it would"
    store.sell(*((id, 1.0, "a") for id in range(few_rows.FEW_ROWS)))
    assert explained(client, sql)["proposal"] is None
    client.send("POST", "/v1/query", json.dumps({"sql": sql}))
    assert explained(client, sql)["proposal"] is None, "asked once, it costs what moving would"
    for _ in range(2):
        client.send("POST", "/v1/query", json.dumps({"sql": sql}))
    found = explained(client, sql)["proposal"]
    assert (found["tables"], found["times"]) == (["shop.sales"], 3)
    read_ms = (few_rows.FEW_ROWS + 1) * Rates().shipped_us_per_row / 1_000
    assert found["spent_ms"] == pytest.approx(3 * (found["once_ms"] + read_ms))
    assert explained(client, "SELECT 1")["proposal"] is None
    store.push(connection)
    client.send("POST", "/v1/query", json.dumps({"sql": sql}))
    assert explained(client, sql)["proposal"] is None, "it was moved"


def test_a_refused_query_is_not_explained(client: Client) -> None:
    reply = client.send("POST", "/v1/query/explain", '{"sql": "SELECT 1; SELECT 2"}')
    assert_problem(reply, 400, "QueryRefused")


def test_a_batch_of_before_is_answered_until_it_is_merged(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    sql = "SELECT count(*), coalesce(sum(id), 0)::bigint FROM sales"
    store.sell((1, 1.0, "a"))
    store.push(connection)
    store.merge(connection)
    for number in (2, 3):
        store.sell((number, 1.0, "a"))
        store.push(connection)
    for number in (4, 5):
        store.sell((number, 1.0, "a"))
    for batch in (1, 2, 3, 4, 5):
        found = island.query(sql, as_of={"shop": batch})
        assert found.rows == ((batch, sum(range(batch + 1))),)
        assert found.as_of == {"shop": batch}


def test_of_a_key_a_state_that_no_push_brought_is_not_made_up(
    tmp_path: Path, warehouse_url: str
) -> None:
    """A push brings the last state of each key alone: what was before it nobody has any more."""
    store = Warehoused(tmp_path, every.flow)
    island = island_over(warehouse_url, store.reader, every.flow)
    sql = "SELECT sum(n) FROM states"
    every.GIVEN.clear()

    def states(n: int) -> None:
        rows = [((id, n, *[None] * 7), False) for id in (1, 2)]
        store.run(every.numbers, *every.batches([rows]))

    with warehouse.connect(warehouse_url, application="test") as connection:
        layout.prepare(connection, HERE, every.flow)
        states(1)
        store.push(connection)
        store.merge(connection)
        for n in (2, 3, 4):
            states(n)
        store.push(connection)
        states(5)
        found = {b: island.query(sql, as_of={"every": b}).rows[0][0] for b in (1, 4, 5)}
        for batch in (2, 3):
            with pytest.raises(NoLonger, match="the last state of each") as refused:
                island.query(sql, as_of={"every": batch})
            assert "{'every': 4}" in refused.value.hint
        rows = island.query("SELECT count(*) FROM facts", as_of={"every": 3}).rows
    assert found == {1: 2, 4: 8, 5: 10}
    assert rows == ((6,),)
    store.close()


def test_an_empty_text_may_end_a_query_with_parameters(island: Answering) -> None:
    sql = "SELECT $1 > 0 WHERE 'a' <> ''"  # with the $, sqlglot looks for the end of its text
    assert island.query(sql, STAGED, parameters=(1,)).rows == ((True,),)


def test_parameters_that_python_takes_for_the_same_are_different(island: Answering) -> None:
    for value, halved in [(2, 2), (2.0, 2.5), (2, 2)]:
        found = island.query("SELECT 5 / $1", Freshness.MAIN, parameters=(value,))
        assert found.rows == ((halved,),)
    kinds = [
        island.query("SELECT $1", Freshness.MAIN, parameters=(value,)).columns[0].type
        for value in (1, True, 1.0)
    ]
    assert kinds == ["integer", "boolean", "double precision"]


COMPARED = [
    "SELECT note, count(*) FROM sales WHERE id <= $1 AND note <> $2 GROUP BY 1 "
    "HAVING count(*) < $1 ORDER BY 1",
    "SELECT a.id, b.id FROM sales a JOIN refunds b ON a.id = b.id WHERE a.id < $1 AND a.note >= $2",
    "SELECT id, id = $1, note IN ('a', $2) FROM sales WHERE id BETWEEN 0 AND $1 OR note = $2",
]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The queries whose text is looked at."""
    found: list[str] = []

    def looking(sql: str, *more: Any) -> Resolved:
        found.append(sql)
        return resolve(sql, *more)

    monkeypatch.setattr("api.island.resolve", looking)
    return found


def test_a_query_that_comes_with_other_values_to_compare_with_is_not_looked_at_again(
    island: Answering, store: shop.Shop, connection: warehouse.Connection, looked: list[str]
) -> None:
    store.sell((1, 1.0, "a"), (2, -2.0, "it's"))
    store.push(connection)
    store.sell((3, 3.0, "a"), (4, -4.0, "\\"))
    for sql in COMPARED:
        for most, text in [(3, "it's"), (2, "\\"), (9, "a"), (1, "$1"), (9, "")]:
            written = "'" + text.replace("'", "''") + "'"
            plain = sql.replace("$1", str(most)).replace("$2", written)
            for plan in (Plan.SHIP, None):
                found = island.query(sql, parameters=(most, text), plan=plan)
                expected = island.query(plain, plan=plan)
                assert sorted(found.rows, key=repr) == sorted(expected.rows, key=repr)
    assert [looked.count(sql) for sql in COMPARED] == [1, 1, 1]


def test_what_may_depend_on_a_value_is_looked_at_for_each(
    island: Answering, store: shop.Shop, connection: warehouse.Connection, looked: list[str]
) -> None:
    asked: list[tuple[str, Any, Any]] = [
        ("SELECT id FROM sales ORDER BY id LIMIT $1", 1, 2),
        ("SELECT id FROM sales WHERE id < $1", 1, 2**40),
        ("SELECT id FROM sales WHERE note > $1", "2026-01-01", "2026-01-02"),
        ("SELECT id + $1 FROM sales WHERE id < $1", 1, 2),
        ("SELECT id FROM sales WHERE note LIKE $1", "a", "\\a"),
    ]
    for sql, *values in asked:
        looked.clear()
        for value in values:
            island.query(sql, parameters=(value,))
        assert looked == [sql, sql], values


def test_the_island_writes_the_zero_of_a_fraction(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell((1, 1.0, "a"))
    store.push(connection)
    store.sell((2, 1.0, "b"))
    sql = "SELECT 0.5 AS half, id * 0.25 AS part FROM sales ORDER BY id"
    rows = {
        plan: [[str(value) for value in row] for row in island.query(sql, plan=plan).rows]
        for plan in (Plan.SHIP, Plan.SPLIT)
    }
    assert rows[Plan.SHIP] == rows[Plan.SPLIT] == [["0.5", "0.25"], ["0.5", "0.50"]]


def test_sums_of_doubles_are_left_to_postgresql(client: Client) -> None:
    told = explained(client, "SELECT sum(price) FROM sales")
    assert "PostgreSQL's to compute" in told["candidates"][1]["why_not"]


def test_where_much_is_staged_plans_are_weighed(
    client: Client, store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell(*((id, 1.0, "a") for id in range(10, 10 + LITTLE_ROWS)))
    told = explained(client, "SELECT note, count(*) FROM sales WHERE id > 0 GROUP BY note")
    cheapest = min(told["candidates"], key=lambda one: one["cost_ms"])
    assert told["plan"] == cheapest["plan"]
    assert "are less than" in told["because"]
    of_one = explained(client, "SELECT note, count(*) FROM sales WHERE id = 17 GROUP BY note")
    assert (of_one["plan"], of_one["because"]) == ("ship", LITTLE)
    assert all(one["cost_ms"] > 0 for one in of_one["candidates"])
    wanted = explained(client, "SELECT count(*) FROM sales WHERE id = 17", plan="ship")
    assert (wanted["plan"], wanted["because"]) == ("ship", "it was asked for")


def test_plans_are_not_weighed_again_for_a_minute_while_about_as_much_is_staged(
    warehouse_url: str,
    store: shop.Shop,
    connection: warehouse.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    estimates: list[str] = []
    estimate = Postgres.estimate

    def counted(session: Postgres, query: str) -> Estimate:
        estimates.append(query)
        return estimate(session, query)

    monkeypatch.setattr(Postgres, "estimate", counted)
    clock = HeldClock()
    island = island_over(warehouse_url, store.reader, clock=clock)
    store.push(connection)

    def weighed(value: int = 0) -> bool:
        estimates.clear()
        island.query(
            "SELECT note, count(*) FROM sales WHERE id >= $1 GROUP BY 1", parameters=(value,)
        )
        return bool(estimates)

    rows = [(id, 1.0, "a") for id in range(LITTLE_ROWS * 3)]
    store.sell(*rows)
    assert (weighed(), weighed()) == (True, False)
    assert weighed(5), "of other values, other rows may be expected"
    store.sell(*rows[:10])
    assert not weighed(5), "there are a few more"
    store.sell(*rows)
    assert (weighed(5), weighed(5)) == (True, False)
    clock.advance(WEIGHED_S)
    assert (weighed(5), weighed(5)) == (True, False)
    store.push(connection)
    assert island.query("SELECT count(*) FROM sales WHERE id >= 5").rows
    assert weighed(5) is False
    assert island.plan is Plan.WAREHOUSE


def test_a_few_rows_of_many_bytes_are_weighed(client: Client, store: shop.Shop) -> None:
    store.sell(*((id, 1.0, "x" * LITTLE_BYTES) for id in range(10, 12)))
    told = explained(client, "SELECT count(*), max(id) FROM sales")
    assert "are less than" in told["because"]


def test_how_many_hidden_rows_meet_a_condition_does_not_choose_the_plan(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.push(connection)
    store.sell(*((id, 9.0, "secret") for id in range(few_rows.FEW_ROWS)))
    for where, expected in (("", {"warehouse", "split"}), ("price < 3", {"split"})):
        island.tables = (("shop.sales", Restriction(("id", "note"), where)),)
        found = set()
        for note in ("secret", "other"):
            sql = f"SELECT count(*), max(id) FROM sales WHERE note = '{note}'"
            found.add(island.explain(Asked(sql, tables=island.tables))["plan"])
        assert found == expected


def test_how_much_can_count_says_how_it_is_sent(tmp_path: Path, warehouse_url: str) -> None:
    store = Warehoused(tmp_path, every.flow)
    island = island_over(warehouse_url, store.reader, every.flow)
    every.GIVEN.clear()
    with warehouse.connect(warehouse_url, application="test") as connection:
        layout.prepare(connection, HERE, every.flow)
    rows = [((id, 1, *[None] * 7), False) for id in range(few_rows.FEW_ROWS + 1)]
    store.run(every.numbers, *every.batches([rows]))
    sql = "SELECT n, count(*) FROM states WHERE id >= {} GROUP BY n"
    for least, is_written in ((0, False), (900, True)):
        for one in island.explain(Asked(sql.format(least)))["candidates"]:
            assert ("pg_temp." in one["sql"][DEFAULT]) is not is_written
        for plan in (Plan.SHIP, Plan.SPLIT):
            found = island.query(sql.format(least), plan=plan).rows
            assert found == ((1, len(rows) - least),)
    store.close()


def test_what_is_joined_in_a_warehouse_is_what_costs_less_so(
    tmp_path: Path, warehouse_url: str
) -> None:
    store = Warehoused(tmp_path, every.flow)
    island = island_over(warehouse_url, store.reader, every.flow)
    every.GIVEN.clear()

    def give(count: int, *, only_facts: bool) -> None:
        rows = [((id, 1, *[None] * 7), None if only_facts else False) for id in range(count)]
        store.run(every.numbers, *every.batches([rows]))

    with warehouse.connect(warehouse_url, application="test") as connection:
        layout.prepare(connection, HERE, every.flow)
        give(2_000, only_facts=False)
        store.push(connection)
        store.merge(connection)
        connection.execute("ANALYZE")
        give(5, only_facts=True)
        sql = "SELECT count(*) FROM facts x JOIN states y ON x.id = y.id JOIN states z ON "
        asked = {}
        for on in ("y.id = z.id AND z.id = 7", "y.n = z.n"):
            gather = island.explain(Asked(sql + on))["candidates"][-1]
            asked[on] = gather["sql"][DEFAULT]
            assert island.query(sql + on, plan=Plan.GATHER).rows == ask_plain(island, sql + on)
    few, many = asked.values()
    assert few.count("; ") == 1
    assert "CROSS JOIN" in few
    assert many.count("; ") == 2
    store.close()


def ask_plain(island: Answering, sql: str) -> tuple[tuple[Any, ...], ...]:
    return island.query(sql, plan=Plan.SHIP).rows


# Costs

estimates = st.builds(Estimate, st.floats(1, 1e7), st.floats(1, 200), st.floats(1, 1e6))


@given(estimates, st.integers(1, 10**6), st.booleans())
def test_more_that_is_staged_costs_more_to_ship_than_to_keep(
    query: Estimate, rows: int, is_written: bool
) -> None:
    few = Staged(rows, rows * 50, 3, 3, 0, 0.0, is_written)
    many = replace(few, rows=rows * 2, size=rows * 100)
    by_ship = [costs.shipped(Rates(), query, [staged], adds_rows=True) for staged in (few, many)]
    by_split = [costs.split(Rates(), query, staged) for staged in (few, many)]
    assert by_ship[1] - by_ship[0] > by_split[1] - by_split[0] > 0


def test_the_cheapest_that_can_be_is_taken() -> None:
    ship, split = Candidate(Plan.SHIP, 2.0), Candidate(Plan.SPLIT, 1.0)
    cannot = Candidate(Plan.SPLIT, why_not="no")
    assert plans.decide((ship, split), None).chosen is split
    assert plans.decide((ship, split), Plan.SHIP).chosen is ship
    assert plans.decide((ship, cannot), Plan.SPLIT).chosen is ship


def test_rates_are_kept_in_a_file_and_a_broken_one_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "rates.json"
    assert costs.load(path) == Rates()
    path.write_text(json.dumps(dict(costs.written(Rates(unit_us=7.0)))))
    assert costs.load(path).unit_us == 7.0
    path.write_text('{"unit_us": 6.0, "of_another_version": 1}')
    assert costs.load(path) == Rates(), "what the others mean is not known"
    assert "run `headrace calibrate` anew" in caplog.text
    for wrong in ("7", "[]", '"unit_us"', '{"unit_us": null}'):
        path.write_text(wrong)
        with pytest.raises(ConfigError, match="does not hold the rates"):
            costs.load(path)


def test_calibrating_measures_every_rate_and_leaves_nothing(
    connection: warehouse.Connection, warehouse_url: str
) -> None:
    calibration = Calibration(Warehouse(DEFAULT, warehouse_url), SystemClock())
    found = costs.written(calibration.rates())
    calibration.close()
    assert all(value >= 0 for value in found.values())
    assert all(found[name] > 0 for name in ("unit_us", "ship_ms", "island_ms"))
    for way in ("fetch", "ship", "write"):  # of a slow round, it may all seem due to the bytes
        assert sum(value for name, value in found.items() if name.startswith(f"{way}_us_")) > 0
    left = connection.execute("SELECT 1 FROM pg_class WHERE relname IN ('narrow', 'wide')")
    until(lambda: not left.fetchall(), 10, lambda: "its tables are still there")


def test_a_few_staged_rows_keep_a_warehouse_from_neither_its_order_nor_its_processes(
    island: Answering, connection: warehouse.Connection, tmp_path: Path, warehouse_url: str
) -> None:
    """Those of a temporary table would, and so would a condition on a member of the union."""
    store = Warehoused(tmp_path / "of-every", every.flow)
    of_every = island_over(warehouse_url, store.reader, every.flow)
    layout.prepare(connection, HERE, every.flow)
    every.GIVEN.clear()
    texts = ["it's", 'a "b"', "\\", "{NULL}", "", None]
    rows: list[tuple[every.Row, bool | None]] = [
        ((id, id, None, texts[id % 6], *[None] * 5), False) for id in range(12)
    ]
    store.run(every.numbers, *every.batches([rows[:6]]))
    store.push(connection)
    store.merge(connection)
    gone: list[tuple[every.Row, bool | None]] = [(rows[0][0], True)]
    store.run(every.numbers, *every.batches([rows[6:], gone]))
    sql = "SELECT id, t FROM states ORDER BY id LIMIT 9"
    found = of_every.query(sql, plan=Plan.SHIP).rows
    assert found == tuple((id, texts[id % 6]) for id in range(1, 10))
    (ship, *_) = of_every.explain(Asked(sql))["candidates"]
    written = ship["sql"][HERE.name].replace("'...'", "'{1,2}'")
    assert '"w"' not in written, "no query needs it"
    connection.execute("SET enable_seqscan TO off; SET enable_sort TO off")
    plan = "".join(str(line) for (line,) in connection.execute(b"EXPLAIN " + written.encode()))
    assert "Merge Append" in plan
    assert "Index Scan" in plan
    connection.execute("RESET enable_sort; SET parallel_setup_cost TO 0")
    connection.execute("SET parallel_tuple_cost TO 0; SET min_parallel_table_scan_size TO 0")
    count = written.replace(' ORDER BY "id" LIMIT 9', "")
    plan = "".join(str(line) for (line,) in connection.execute(b"EXPLAIN " + count.encode()))
    assert "Parallel Append" in plan
    store.close()


def test_what_was_shipped_does_not_stay_behind(
    island: Answering, store: shop.Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of a transaction that was rolled back would stay in a temporary table's file."""
    monkeypatch.setattr(few_rows, "FEW_ROWS", 1_000)
    store.sell(*[(number, 1.0, "x" * 100) for number in range(2_000)])
    for _ in range(3):
        assert island.query("SELECT count(*) FROM sales", plan=Plan.SHIP).rows == ((2_000,),)
    ((size,),) = island.query_of_session(
        "SELECT sum(pg_relation_size(oid))::bigint FROM pg_class WHERE relname ~ '^staged_'"
    )
    assert size == 0


@pytest.mark.parametrize(
    ("total", "count", "expected"),
    [
        ("6", 3, "2.0000000000000000"),
        ("1", 3, "0.33333333333333333333"),
        ("-2", 3, "-0.66666666666666666667"),
        ("100000", 3, "33333.333333333333"),
        ("0", 5, "0.00000000000000000000"),
        ("12.34", 7, "1.7628571428571429"),
    ],
)
def test_a_quotient_has_the_digits_that_postgresql_gives_it(
    connection: warehouse.Connection, total: str, count: int, expected: str
) -> None:
    ((said,),) = connection.execute(
        "SELECT (%s::numeric / %s::bigint)::text", [total, count]
    ).fetchall()
    assert quotient(Decimal(total), count) == said == expected


def test_what_the_island_cannot_compute_is_asked_of_the_warehouse_as_a_whole(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    """DuckDB's decimals end at 38 digits, and PostgreSQL's do not."""
    store.sell((1, 1.0, None))
    store.push(connection)
    store.sell(*[(9 * 10**18, 1.0, None)] * 3)
    digits = "9" * 19
    sql = f"SELECT sum(id * 0.{digits}) FROM sales"
    with pytest.raises(Unfinished):
        island.query(sql, plan=Plan.SPLIT)
    expected = Context(prec=60).multiply(Decimal(f"0.{digits}"), Decimal(27 * 10**18 + 1))
    assert ask(island, sql, STAGED) == [(expected,)]
    assert island.plan is Plan.SHIP
