"""A warehouse is compared with the oracle row by row, and with another one byte by byte."""

import duckdb
import pytest

from tpcdi import oracle, schema
from tpcdi.oracle.canon import DIMENSIONS, canonical, columns
from tpcdi.oracle.computation import create
from tpcdi.snapshot import Connection

SURROGATES = {table: key for key, (table, _) in DIMENSIONS.items()}
OTHERS = schema.TABLES.keys() - SURROGATES.keys()


@pytest.fixture
def computed(audited_oracle: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    return audited_oracle


@pytest.fixture
def warehouse(audited_warehouse: Connection) -> Connection:
    return audited_warehouse


CHANGES = dict.fromkeys(schema.TABLES, "batchid = batchid + 1") | {
    "dimdate": "datedesc = 'Some day'",
    "dimtime": "secondid = 59",
    "industry": "in_name = 'Iron'",
    "statustype": "st_name = 'active'",
    "taxrate": "tx_rate = tx_rate + 0.00001",
    "tradetype": "tt_is_sell = NOT tt_is_sell",
    "dimcustomer": "email1 = ''",  # which is not NULL
    "dimtrade": "fee = fee + 0.01",
    "financial": "fi_assets = NULL",
    "factmarkethistory": "peratio = 0",
}

CHANGED = {"dimtrade": "tradeid = 1", "dimessages": "messagetype = 'Alert'"}
"""Which row is changed, where not any is."""


def change(warehouse: Connection, table: str, what: str) -> None:
    """Change the row of a table that a query finds."""
    warehouse.execute(f"SET LOCAL search_path = tpcdi; {what.format(table=table)}".encode())


def told(found: list[oracle.Difference]) -> dict[str, tuple[int, int]]:
    return {one.table: (one.missing, one.unexpected) for one in found}


def test_a_warehouse_with_what_the_oracle_says_does_not_differ(
    warehouse: Connection, computed: duckdb.DuckDBPyConnection
) -> None:
    assert oracle.compare(warehouse, computed) == []


def test_a_changed_row_is_found_in_every_table(
    warehouse: Connection, computed: duckdb.DuckDBPyConnection
) -> None:
    with warehouse.transaction(force_rollback=True):
        change(warehouse, "financial", "ALTER TABLE {table} ALTER fi_assets DROP NOT NULL")
        for table, what in CHANGES.items():
            row = f"(SELECT max(ctid) FROM {{table}} WHERE {CHANGED.get(table, True)})"
            change(warehouse, table, f"UPDATE {{table}} SET {what} WHERE ctid = {row}")
        found = told(oracle.compare(warehouse, computed))
    assert found == dict.fromkeys(schema.TABLES, (1, 1))


def test_another_value_in_any_column_is_found(computed: duckdb.DuckDBPyConnection) -> None:
    with computed.cursor() as cursor:
        create(cursor, "changed")
        for table in schema.TABLES:
            cursor.execute(f"INSERT INTO changed.{table} FROM oracle.{table}")
        unseen = {
            (table, column)
            for table in schema.TABLES
            for column, kind in columns(cursor, "changed", table).items()
            if column != SURROGATES.get(table) and column not in ("watchid", "messagedateandtime")
            if not _is_found(cursor, table, column, OTHER[kind.partition("(")[0]])
        }
        cursor.execute("DROP SCHEMA changed CASCADE")
    assert unseen == set()


OTHER = {
    "BIGINT": "-1 - coalesce({}, 0)",
    "INTEGER": "-1 - coalesce({}, 0)",
    "DECIMAL": "-0.01 - coalesce({}, 0)",
    "VARCHAR": "coalesce({}, '') || ' '",
    "DATE": "coalesce({}, '2000-01-01') + INTERVAL 1 DAY",
    "BOOLEAN": "NOT coalesce({}, false)",
}
"""By type: what is another value."""


def _is_found(cursor: duckdb.DuckDBPyConnection, table: str, column: str, other: str) -> bool:
    row = f"(SELECT max(rowid) FROM changed.{table} WHERE {CHANGED.get(table, True)})"
    cursor.execute("BEGIN")
    cursor.execute(
        f"UPDATE changed.{table} SET {column} = {other.format(column)} WHERE rowid = {row}"
    )
    held, wanted = (canonical(cursor, place, table) for place in ("changed", "oracle"))
    found = cursor.execute(f"{wanted} EXCEPT ALL {held}").fetchall()
    cursor.execute("ROLLBACK")
    return bool(found)


def test_a_missing_row_is_found_in_every_table(
    warehouse: Connection, computed: duckdb.DuckDBPyConnection
) -> None:
    remove = "DELETE FROM {table} WHERE ctid = (SELECT min(ctid) FROM {table})"
    with warehouse.transaction(force_rollback=True):
        for table in OTHERS:
            change(warehouse, table, remove)
        found = told(oracle.compare(warehouse, computed))
    assert found == dict.fromkeys(OTHERS, (1, 0))


def test_a_row_that_is_there_twice_is_found_in_every_table(
    warehouse: Connection, computed: duckdb.DuckDBPyConnection
) -> None:
    with warehouse.transaction(force_rollback=True):
        for table in OTHERS:
            change(warehouse, table, "INSERT INTO {table} SELECT * FROM {table} LIMIT 1")
        found = told(oracle.compare(warehouse, computed))
    assert found == dict.fromkeys(OTHERS, (0, 1))


@pytest.mark.parametrize("table", SURROGATES)
def test_a_version_that_is_missing_or_there_twice_under_another_key_is_found(
    warehouse: Connection, computed: duckdb.DuckDBPyConnection, table: str
) -> None:
    key = SURROGATES[table]
    with warehouse.transaction(force_rollback=True):
        copied = "CREATE TEMP TABLE of_one ON COMMIT DROP AS SELECT * FROM {table} LIMIT 1"
        again = "INSERT INTO {table} SELECT * FROM of_one"
        change(warehouse, table, f"{copied}; UPDATE of_one SET {key} = -1; {again}")
        found = told(oracle.compare(warehouse, computed))
    assert found == {table: (0, 1)}
    with warehouse.transaction(force_rollback=True):
        change(warehouse, table, "DELETE FROM {table} WHERE ctid = (SELECT max(ctid) FROM {table})")
        found = told(oracle.compare(warehouse, computed))
    assert found[table] == (1, 0)


def test_a_fact_that_refers_to_another_version_is_found(
    warehouse: Connection, computed: duckdb.DuckDBPyConnection
) -> None:
    other = """UPDATE {table} SET sk_securityid = (SELECT max(sk_securityid) FROM dimsecurity
        WHERE sk_securityid <> {table}.sk_securityid) WHERE tradeid = 1"""
    with warehouse.transaction(force_rollback=True):
        change(warehouse, "dimtrade", other)
        (found,) = oracle.compare(warehouse, computed)
    assert (found.table, found.missing, found.unexpected) == ("dimtrade", 1, 1)
    (was,), (is_,) = found.first_missing, found.first_unexpected
    assert {key for key in was if was[key] != is_[key]} <= {
        *("sk_securityid", "sk_securityid_effectivedate")
    }
    assert "dimtrade: 1 rows missing, 1 unexpected\n  - tradeid=1, " in str(found)


def test_two_warehouses_with_other_surrogate_keys_and_another_order_are_the_same_bytes(
    warehouse: Connection,
) -> None:
    before = oracle.digests(warehouse)
    with warehouse.transaction(force_rollback=True):
        for table, definition in schema.TABLES.items():
            for key in (*DIMENSIONS, "watchid"):
                if f"{key} " in definition.columns:
                    change(warehouse, table, f"UPDATE {{table}} SET {key} = {key} * 7 + 1")
        change(warehouse, "dimessages", "UPDATE {table} SET messagedateandtime = now()")
        pcr = "INSERT INTO {table} VALUES (now(), 1, NULL, 'Phase complete', 'PCR', NULL)"
        change(warehouse, "dimessages", pcr)
        assert oracle.digests(warehouse) == before
        change(warehouse, "dimtrade", "UPDATE {table} SET quantity = 11 WHERE tradeid = 1")
        after = oracle.digests(warehouse)
    assert {table for table in before if before[table] != after[table]} == {"dimtrade"}
