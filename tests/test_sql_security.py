"""Hostile SQL is refused before any engine is asked, or means what PostgreSQL says it means."""

import json
from pathlib import Path

import hostile_sql
import psycopg
import pytest
import shop
from dividing import written
from serving import assert_problem, serving
from shop import Answering, Whole, island_over
from sql_fuzzing import fuzzed, prepare

from api.catalogue import Catalogue
from api.errors import QueryRefused
from api.parse import SQL_CHARS_MAX
from api.plans import Plan
from api.resolve import resolve
from etl_procs.reader import Reader
from headrace import config
from migrations import warehouse
from migrations.errors import Away

CATALOGUE = Catalogue.of({"shop": shop.flow})
FUZZED = 4_000
REFUSED = ["refused"]


def test_what_must_not_be_asked_is_refused_before_any_plan_is_made() -> None:
    accepted = []
    for sql in hostile_sql.refused():
        try:
            accepted.append((sql, resolve(sql, CATALOGUE).template().text))
        except QueryRefused:
            continue
    assert not accepted


@pytest.mark.parametrize("sql", hostile_sql.LARGE, ids=lambda sql: sql[:24])
def test_what_is_giant_or_deeply_nested_is_refused_or_small_work(sql: str) -> None:
    nowhere = island_over("", Reader(Path()))
    with pytest.raises((QueryRefused, Away)):  # what is let through finds no PostgreSQL
        nowhere.query(sql)


@pytest.fixture
def rows(island: Answering, store: shop.Shop, connection: warehouse.Connection) -> Answering:
    """Rows in main, in delta and staged, and the same in a plain table."""
    given = [(1, 1.5, "a"), (2, -2.0, "b"), (3, None, None), (4, 0.0, "aaaaaaaaaaaaaaaaaaaaaaaa!")]
    store.sell(*given[:2])
    store.push(connection)
    store.merge(connection)
    store.sell(given[2])
    store.push(connection)
    store.sell(given[3])
    connection.execute("CREATE SCHEMA plain")
    # A view, as what the island puts in a table's place: it has no columns of the system.
    connection.execute("CREATE TABLE plain.kept (id bigint, price float8, note text)")
    connection.execute("CREATE VIEW plain.sales AS SELECT * FROM plain.kept")
    with connection.cursor() as cursor:
        cursor.executemany("INSERT INTO plain.kept VALUES (%s, %s, %s)", given)
    connection.execute("SET search_path TO plain; SET timezone TO 'UTC'")
    return island


@pytest.mark.parametrize("plan", [Plan.SHIP, Plan.SPLIT])
def test_what_looks_hostile_and_is_not_has_the_answer_of_postgresql(
    rows: Answering, connection: warehouse.Connection, plan: Plan
) -> None:
    different = []
    for sql in hostile_sql.HARMLESS:
        try:
            found = written(sql, rows.query(sql, plan=plan).rows)
        except QueryRefused:
            found = REFUSED
        try:
            expected = written(sql, connection.execute(sql.encode()).fetchall())
        except psycopg.Error:
            expected = REFUSED
        if sql in hostile_sql.UNANSWERED:
            expected = REFUSED
        if found != expected:
            different.append((sql, found, expected))
    assert not different


@pytest.mark.parametrize("plan", [Plan.SHIP, Plan.SPLIT])
def test_a_parameter_with_sql_in_it_is_a_text(rows: Answering, plan: Plan) -> None:
    for text in [*hostile_sql.STATEMENTS, *hostile_sql.TABLES, "' OR true --", "$1", "\\'", '"']:
        if "\x00" in text:
            continue
        found: Whole = rows.query(
            "SELECT id FROM sales WHERE note = $1", parameters=(text,), plan=plan
        )
        assert found.rows == ()


def test_a_body_of_256_kib_is_judged_and_a_larger_one_is_not_read(
    rows: Answering,
) -> None:
    with serving(rows, limits=config.Api(query_workers=1)) as client:
        for length, status, code in [
            (SQL_CHARS_MAX + 1, 400, "QueryRefused"),
            (250_000, 400, "QueryRefused"),
            (300_000, 413, "RequestEntityTooLarge"),
        ]:
            body = json.dumps({"sql": f"SELECT '{'x' * length}'"})
            reply = client.send("POST", "/v1/query", body)
            assert reply.status == status
            assert code != "QueryRefused" or assert_problem(reply, status, code)
        deep = '{"sql": "SELECT 1", "parameters": ' + "[" * 100_000 + "]" * 100_000 + "}"
        assert client.send("POST", "/v1/query", deep).status in (400, 422)
        assert client.ask("SELECT 1").status == 200


def test_whatever_is_made_of_queries_reads_only_what_is_allowed(warehouse_url: str) -> None:
    with warehouse.connect(warehouse_url, application="test") as connection:
        prepare(connection)
        found = fuzzed(connection, seed=1, count=FUZZED)
    assert found["refused"] > FUZZED / 4, found
    assert found["run"] > FUZZED / 50, found
    assert found["divided"] > FUZZED / 200, found
