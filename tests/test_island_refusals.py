"""What the island refuses: before anything is asked, or in PostgreSQL's own words."""

import re
from dataclasses import replace
from pathlib import Path

import hostile_sql
import pytest
import shop
from psycopg import sql
from shop import Answering, ask, island_over

from api.cut import Freshness
from api.errors import NotReady, QueryRefused
from api.island import Asked
from api.parse import SQL_CHARS_MAX
from etl_procs.dataflow import Dataflow
from etl_procs.reader import Reader
from headrace.errors import HeadraceError
from migrations import warehouse
from migrations.errors import Away

MAIN, STAGED = Freshness.MAIN, Freshness.STAGED

REFUSED = [
    ("SELECT 1; DROP TABLE shop.sales", "2 statements"),
    ("SELECT 1; SELECT 2", "2 statements"),
    ("", "0 statements"),
    ("-- nothing", "0 statements"),
    ("DELETE FROM sales", "not a SELECT"),
    ("INSERT INTO sales VALUES (1)", "not a SELECT"),
    ("UPDATE sales SET id = 1", "not a SELECT"),
    ("DROP TABLE sales", "not a SELECT"),
    ("COPY sales TO '/tmp/x'", "not a SELECT"),
    ("COPY (SELECT 1) TO PROGRAM 'id'", "not"),
    ("EXPLAIN SELECT 1", "not a SELECT"),
    ("SET statement_timeout = 0", "not a SELECT"),
    ("SHOW ALL", "not a SELECT"),
    ("DO $$ BEGIN END $$", "not a SELECT"),
    ("CALL p()", "not a SELECT"),
    ("BEGIN", "not a SELECT"),
    ("VALUES (1)", "not a SELECT"),
    ("LOCK TABLE sales", "not a SELECT"),
    ("PREPARE p AS SELECT 1", "not a SELECT"),
    ("LISTEN x", "not"),
    ("SELEC 1", "not"),
    ("SELECT FROM WHERE", "not SQL"),
    ("SELECT * INTO stolen FROM sales", "INTO"),
    ("SELECT * FROM sales FOR UPDATE", "row lock"),
    ("SELECT * FROM sales FOR SHARE SKIP LOCKED", "row lock"),
    ("WITH x AS (DELETE FROM sales RETURNING *) SELECT * FROM x", "DELETE"),
    ("WITH x AS (INSERT INTO sales VALUES (1) RETURNING id) SELECT * FROM x", "INSERT"),
    ("WITH x AS (UPDATE sales SET id = 1 RETURNING id) SELECT * FROM x", "UPDATE"),
    ("SELECT pg_sleep(10)", "function pg_sleep"),
    ("SELECT PG_CATALOG.pg_sleep(10)", "DOT"),
    ('SELECT "pg_sleep"(10)', "pg_sleep"),
    ("SELECT pg_read_file('/etc/passwd')", "pg_read_file"),
    ("SELECT pg_ls_dir('/')", "pg_ls_dir"),
    ("SELECT * FROM pg_ls_dir('/')", "pg_ls_dir"),
    ("SELECT * FROM ROWS FROM (pg_ls_dir('/')) AS r", "pg_ls_dir"),
    ("SELECT set_config('statement_timeout', '0', false)", "set_config"),
    ("SELECT current_setting('data_directory')", "current_setting"),
    ("SELECT * FROM dblink('host=x', 'SELECT 1') AS t(a int)", "not allowed"),
    ("SELECT lo_import('/etc/passwd')", "lo_import"),
    ("SELECT lo_export(1, '/tmp/x')", "lo_export"),
    ("SELECT query_to_xml('DROP TABLE sales', true, true, '')", "query_to_xml"),
    ("SELECT table_to_xml('sales', true, true, '')", "table_to_xml"),
    ("SELECT nextval('s')", "nextval"),
    ("SELECT repeat('x', 1000000000)", "repeat"),
    ("SELECT lpad('x', 1000000000)", "not allowed"),
    ("SELECT generate_series(1, 1000000000)", "function generate_series is not allowed"),
    ("SELECT 'é', * FROM Generate_Series(1, 9)", "function generate_series is not allowed"),
    ("SELECT pg_terminate_backend(1)", "pg_terminate_backend"),
    ("SELECT version()", "version"),
    ("SELECT current_user", "current_user"),
    ("SELECT * FROM json_each('{}')", "not allowed"),
    ("SELECT s.pg_restore_relation_stats FROM sales s", "no column pg_restore_relation_stats"),
    ("SELECT s.row_to_json FROM sales s", "no column row_to_json"),
    ("SELECT (s).id FROM sales s", "DOT"),
    ("SELECT * FROM unknown", "no table unknown"),
    ("SELECT * FROM information_schema.tables", "no table information_schema.tables"),
    ("SELECT * FROM pg_catalog.pg_authid", "no table pg_catalog.pg_authid"),
    ("SELECT * FROM pg_stat_activity", "no table pg_stat_activity"),
    ("SELECT * FROM headrace.ledger", "no table headrace.ledger"),
    ("SELECT * FROM pg_temp.staged_0", "no table pg_temp.staged_0"),
    ("SELECT * FROM staged_0", "no table staged_0"),
    ("SELECT * FROM LATERAL sales", "LATERAL"),
    ("SELECT * FROM postgres.shop.sales", "not a plain table"),
    ("SELECT * FROM sales WITH ORDINALITY", "not a plain table"),
    ('SELECT * FROM "Sales"', "no table Sales"),
    ("SELECT * FROM sales TABLESAMPLE SYSTEM (1)", "TABLESAMPLE"),
    ("SELECT 'sales'::regclass", "catalogue type"),
    ("SELECT 'x'::xml", "type xml"),
    ("SELECT CAST('x' AS pg_catalog.regclass)", "not allowed"),
    ("SELECT $1", "parameter"),
    ("SELECT :x", "parameter"),
    ("SELECT E'a\\'b'", "E'...'"),
    ("SELECT $$a$$", r"\$\$"),
    ("SELECT U&'\\0041'", "not allowed"),
    ("SELECT id OPERATOR(pg_catalog.+) 1 FROM sales", "not"),
    ("SELECT shop.sales.id FROM shop.sales", "named with its schema"),
    ("SELECT 1 \0", "NUL"),
    ("SELECT '\ud800'", "surrogate"),
    ("SELECT " + "(" * 5_000 + "1" + ")" * 5_000, "nested too deeply"),
    ("SELECT '" + "x" * SQL_CHARS_MAX + "'", "characters"),
]


@pytest.mark.parametrize(("query", "reason"), REFUSED, ids=[query[:40] for query, _ in REFUSED])
def test_what_is_not_a_known_select_is_refused_before_anything_is_asked(
    query: str, reason: str
) -> None:
    nowhere = island_over("", Reader(Path()))
    with pytest.raises(QueryRefused, match=reason):
        nowhere.query(query, STAGED)


REFUSED_BY_POSTGRESQL = [
    ("SELECT xmin FROM sales", "PostgreSQL refuses the query"),
    ("SELECT ctid FROM sales", "PostgreSQL refuses the query"),
    ("SELECT nothing FROM sales", 'column "nothing" does not exist'),
    ("SELECT 1 / 0", "division by zero"),
    ("SELECT 'a'::bigint", "invalid input syntax"),
    ("SELECT 1 FROM sales a, sales b JOIN sales c ON a.id = c.id", "FROM-clause entry"),
    ("SELECT " + "1 + " * 5_000 + "1", "nested too deeply|stack depth"),
]


def test_what_postgresql_refuses_is_told(island: Answering) -> None:
    for query, reason in REFUSED_BY_POSTGRESQL:
        with pytest.raises(QueryRefused, match=reason):
            island.query(query, STAGED)


def test_a_refusal_tells_the_place(island: Answering) -> None:
    with pytest.raises(QueryRefused) as caught:
        island.query("SELECT id,\n  pg_sleep(1) FROM sales", MAIN)
    assert (caught.value.line, caught.value.column) == (2, 3)
    with pytest.raises(QueryRefused, match=r"line 1, column 15"):
        island.query("SELECT * FROM nowhere", MAIN)
    for query in ("SELECT $1, pg_sleep(1)", "SELECT\n$1, 'a\nb',\n  pg_sleep(1), ''"):
        with pytest.raises(QueryRefused) as caught:
            island.query(query, MAIN, parameters=(1,))
        at = query.index("pg_sleep")
        line, at = query.count("\n", 0, at) + 1, at - query.rfind("\n", 0, at)
        assert (caught.value.line, caught.value.column) == (line, at)
    for query, line, column in (
        ("SELECT id,\n  Nothing FROM sales", 2, 3),
        ("SELECT id, $1 FROM sales\nWHERE x.id = 1", 2, 7),
        ("SELECT id + count(*) FROM sales", 1, 8),
        ("SELECT DISTINCT id FROM sales ORDER BY id\n, note", 2, 3),
        ("SELECT (id + 1) * 2, count(*) FROM sales WHERE id > 0", 1, 9),
        ("SELECT id, count(*) FROM sales WHERE id > 0\nGROUP BY note HAVING id > 1", 1, 8),
        ("SELECT id FROM sales\nWHERE note + 1 > 0", 2, 12),
        ("SELECT id, max(price),\n  sum(note) FROM sales GROUP BY id", 2, 3),
        (f"SELECT {'id::text, ' * 900}\n  nothing FROM sales", 2, 3),
        (f"SELECT {'id::text, ' * 50}sum(note){', id::text' * 50} FROM sales", 1, 508),
        ("SELECT id FROM sales UNION\nSELECT note FROM sales", 2, 8),
    ):
        with pytest.raises(QueryRefused, match="PostgreSQL refuses the query") as caught:
            island.query(query, MAIN, parameters=(1,) * query.count("$"))
        assert (caught.value.line, caught.value.column) == (line, column), query
    with pytest.raises(QueryRefused, match=r"neither ON nor USING \(line 2, column 6\)"):
        island.query("SELECT * FROM sales a\nJOIN sales b", MAIN)


PLACES = [
    ("SELECT 1;\n DROP TABLE sales", "DROP"),
    ("; SELECT 1;; SELECT 2; SELECT 3", "SELECT 2"),
    ("SELECT 1; -- and no more", ";"),
    (";", ";"),
    ("/* and */\n  DELETE FROM sales", "DELETE"),
    ("WITH x AS (SELECT 1) DELETE FROM sales", "WITH"),
    ("SELECT id::bigint,\n note::json FROM sales", "json"),
    ("SELECT id::varchar(9), CAST(note AS jsonb) FROM sales", "jsonb"),
    ("SELECT 'sales' :: regclass", "regclass"),
    ("SELECT id::bigint[] FROM sales", "bigint[]"),
    ("SELECT 'x'::public.mine", "public"),
    ("SELECT * FROM sales\nFOR NO KEY UPDATE NOWAIT", "FOR"),
    ("SELECT * FROM sales FOR SHARE OF sales SKIP LOCKED", "FOR"),
    ("SELECT id, session_user FROM sales", "session_user"),
    ("SELECT 1 WHERE 'a' = current_catalog", "current_catalog"),
    ("SELECT 1, current_time(0)", "current_time"),
    ("SELECT id, :x FROM sales", ":x"),
    ("SELECT id, ? FROM sales", "?"),
    ("SELECT id, @ x FROM sales", "@"),
    ("SELECT id + $12 FROM sales", "$12"),
    ("SELECT id FROM sales QUALIFY true", "true"),
    ("SELECT id FROM sales GROUP BY ALL", "ALL"),
    ("SELECT 1 & 2", "1"),
    ("SELECT 1,\n 'a\0'", "\0"),
    ("SELECT $1, 'a', 'no end", "'no"),
    ('SELECT "no end', '"no'),
    ("SELECT\n  $a$ no end", "$a$"),
    ("SELECT 1, E'no end", "E'no"),
    ("SELECT 1\n  /* no end", "/*"),
    ("SELECT X'no'", "X'"),
    ("SELECT id FROM WHERE id = 1", "WHERE"),
    ("SELECT (id\n FROM sales", "FROM"),
]


@pytest.mark.parametrize(("query", "at"), PLACES, ids=[query for query, _ in PLACES])
def test_the_place_is_where_what_is_refused_begins(query: str, at: str) -> None:
    error = refusal(query)
    assert error is not None
    offset = query.index(at)
    line, column = query.count("\n", 0, offset) + 1, offset - query.rfind("\n", 0, offset)
    assert (error.line, error.column) == (line, column)
    assert f"(line {line}, column {column})" in str(error)


def test_a_value_that_is_none_of_postgresqls_is_refused_with_the_place_of_its_parameter() -> None:
    with pytest.raises(QueryRefused, match=r"the value of \$2 .* \(line 2, column 3\)"):
        island_over("", Reader(Path())).query("SELECT $1,\n  $2", STAGED, parameters=("a", "\0"))


NOWHERE = {
    r"there are 0 statements in the text": "it has no word",
    r"the query has \d+ characters, and \d+ are allowed": "none of it is read",
    r"the query is nested too deeply": "it is refused because it is not read to its end",
}
"""What may be refused without a place, and why."""


def test_every_refusal_tells_a_place_within_the_text() -> None:
    hostile = [*hostile_sql.refused(), *hostile_sql.HARMLESS, *hostile_sql.LARGE]
    refused, unplaced, outside = 0, [], []
    for query in [*(query for query, _ in REFUSED), *hostile]:
        error = refusal(query)
        if error is None:
            continue
        refused += 1
        if error.line is None or error.column is None:
            if not any(re.fullmatch(reason, error.what) for reason in NOWHERE):
                unplaced.append((query[:80], error.what))
        elif not 1 <= error.column <= len(query.split("\n")[error.line - 1]):
            outside.append((query[:80], error.what))
    assert refused > 600
    assert not unplaced
    assert not outside


def refusal(query: str) -> QueryRefused | None:
    """Give the refusal of a query, if it is refused before anything is asked."""
    try:
        island_over("", Reader(Path())).query(query, STAGED)
    except QueryRefused as error:
        return error
    except Away:
        return None
    raise AssertionError(f"{query} has found PostgreSQL")


def test_a_table_that_no_warehouse_has_is_refused_at_its_place() -> None:
    setting = island_over("", Reader(Path())).setting
    elsewhere = (warehouse.Warehouse("elsewhere", "", ("shop.refunds",)),)
    with pytest.raises(QueryRefused, match=r"no warehouse has shop\.sales") as caught:
        Answering(replace(setting, warehouses=elsewhere)).query("SELECT id\nFROM sales", STAGED)
    assert (caught.value.line, caught.value.column) == (2, 6)


def test_a_table_of_two_dataflows_must_be_named_with_its_schema(
    connection: warehouse.Connection, warehouse_url: str, store: shop.Shop
) -> None:
    other = Dataflow("mall")
    other.outlet("sales", "id INTEGER")
    island = island_over(warehouse_url, store.reader, other)
    with pytest.raises(QueryRefused, match="in 2 dataflows"):
        island.query("SELECT * FROM sales", MAIN)
    assert ask(island, "SELECT * FROM shop.sales", MAIN) == []
    with pytest.raises(NotReady, match="no tables of mall yet"):
        island.query("SELECT * FROM mall.sales", MAIN)


def test_nothing_can_be_written_even_if_it_got_past_the_lists(
    island: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "api.resolve.render", lambda _: "SELECT pg_catalog.lo_from_bytea(0, 'x'::bytea)"
    )
    with pytest.raises(QueryRefused, match="read-only transaction"):
        island.query("SELECT 1", MAIN)
    monkeypatch.setattr("api.shims.postgres.EXPLAIN", b"EXPLAIN (ANALYZE, FORMAT JSON) ")
    with pytest.raises(QueryRefused, match="read-only transaction"):
        island.explain(Asked("SELECT 1"))


def test_queries_run_as_a_role_that_can_only_read_the_tables(
    island: Answering, connection: warehouse.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(island, "SELECT count(*) FROM sales")
    assert island.query_of_session("SELECT current_user::text") == [("headrace_island",)]
    for asked, what in [
        ("SELECT pg_catalog.pg_read_file('/etc/passwd')", "permission denied for function"),
        ("SELECT rolpassword FROM pg_catalog.pg_authid", "permission denied for table"),
    ]:
        monkeypatch.setattr("api.resolve.render", lambda _, asked=asked: asked)
        with pytest.raises(HeadraceError, match=what):
            island.query(f"SELECT '{what}'", MAIN)


def test_settings_and_functions_of_the_warehouse_do_not_change_the_meaning(
    island: Answering, store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell((5, 1.0, None))
    connection.execute("CREATE FUNCTION public.round(bigint) RETURNS bigint RETURN 42")
    database = sql.Identifier(connection.info.dbname)
    alter = "ALTER DATABASE {} SET "
    connection.execute(sql.SQL(alter + "timezone TO 'Asia/Tokyo'").format(database))
    connection.execute(sql.SQL(alter + "standard_conforming_strings TO off").format(database))
    ((rounded, at, text),) = ask(island, r"SELECT round(id), to_timestamp(0), '\' FROM sales")
    assert (rounded, at.isoformat(), text) == (5, "1970-01-01T00:00:00+00:00", "\\")
