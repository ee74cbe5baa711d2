"""Trades into DimTrade on PostgreSQL: a client sends each step as a statement, and waits.

A step is a transaction on a whole batch, and leaves it in the table that the next one empties.
"""

from collections.abc import Sequence

from bench.postgres import connect
from bench.trades_data import DIMENSIONS, DIMTRADE, Rows, Trades
from bench.trades_steps import CLEANED, HISTORICAL, PLACED, SECURED
from etl_procs.columns import parse_tuple

TABLES = {**DIMENSIONS, "cleaned": CLEANED, "secured": SECURED, "placed": PLACED}
DIMTRADE_NAMES = ", ".join(parse_tuple(DIMTRADE, "dimtrade").names)

CLEAN = f"""\
INSERT INTO cleaned
SELECT t_id, to_char(created, 'YYYYMMDD')::bigint, to_char(created, 'HH24MISS')::bigint,
    CASE WHEN is_over THEN to_char(changed, 'YYYYMMDD')::bigint END,
    CASE WHEN is_over THEN to_char(changed, 'HH24MISS')::bigint END,
    statuses.name, types.name, t_is_cash, t_s_symb, t_qty, round(100 * t_bid_price), t_ca_id,
    t_exec_name, round(100 * t_trade_price), round(100 * t_chrg), round(100 * t_comm),
    round(100 * t_tax), {HISTORICAL}
FROM unnest(%s::bigint[], %s::timestamp[], %s::text[], %s::text[], %s::bigint[], %s::text[],
    %s::bigint[], %s::numeric[], %s::bigint[], %s::text[], %s::numeric[], %s::numeric[],
    %s::numeric[], %s::numeric[], %s::timestamp[])
    AS trade (t_id, changed, t_st_id, t_tt_id, t_is_cash, t_s_symb, t_qty, t_bid_price, t_ca_id,
        t_exec_name, t_trade_price, t_chrg, t_comm, t_tax, created)
CROSS JOIN LATERAL (SELECT t_st_id IN ('CMPT', 'CNCL') AS is_over) AS ended
JOIN statuses ON statuses.id = t_st_id
JOIN types ON types.id = t_tt_id"""  # noqa: S608 - a number
SECURE = """\
WITH taken AS (DELETE FROM cleaned RETURNING *)
INSERT INTO secured
SELECT taken.*, sk_securityid, sk_companyid
FROM taken
CROSS JOIN LATERAL (
    SELECT sk_securityid, sk_companyid FROM securities
    WHERE symbol = taken.symbol AND since <= sk_createdateid
    ORDER BY since DESC LIMIT 1) AS version"""
PLACE = """\
WITH taken AS (DELETE FROM secured RETURNING *)
INSERT INTO placed
SELECT taken.*, sk_accountid, sk_customerid, sk_brokerid
FROM taken
CROSS JOIN LATERAL (
    SELECT sk_accountid, sk_customerid, sk_brokerid FROM accounts
    WHERE accountid = taken.accountid AND since <= sk_createdateid
    ORDER BY since DESC LIMIT 1) AS version"""
ENTER = f"""\
WITH taken AS (DELETE FROM placed RETURNING *)
INSERT INTO dimtrade SELECT {DIMTRADE_NAMES} FROM taken"""  # noqa: S608 - names of columns
STEPS = tuple(step.encode() for step in (SECURE, PLACE, ENTER))


class PostgresTrades:
    """A client, with its tables in an empty PostgreSQL."""

    def __init__(self, conninfo: str, trades: Trades) -> None:
        self._connection = connect(conninfo)
        execute = self._connection.execute
        execute(b"DROP SCHEMA public CASCADE")
        execute(b"CREATE SCHEMA public")
        for name, columns in {**TABLES, "dimtrade": f"{DIMTRADE}, PRIMARY KEY (tradeid)"}.items():
            execute(f"CREATE TABLE {name} ({columns.replace('INTEGER', 'BIGINT')})".encode())
        for name, rows in trades.dimensions.items():
            places = ", ".join("%s" for _ in rows[0])
            with self._connection.cursor() as cursor:
                cursor.executemany(f"INSERT INTO {name} VALUES ({places})".encode(), rows)  # noqa: S608
        execute(b"ANALYZE")

    def run(self, batches: Sequence[list[list[object]]]) -> None:
        """Take batches, each as its columns; when it returns they are committed."""
        for columns in batches:
            self._connection.execute(CLEAN.encode(), columns)
            for step in STEPS:
                self._connection.execute(step)

    def entered(self) -> Rows:
        """Read DimTrade."""
        return self._connection.execute(
            f"SELECT {DIMTRADE_NAMES} FROM dimtrade".encode()  # noqa: S608 - names of columns
        ).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
