"""Trades of TPC-DI: the historical file of our generator, each with the event that created it.

What they refer to is there, and what the warehouse must have of them, as the oracle computes both
from the same files; of an amount that is its hundredths, and of a flag 0 or 1.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tpcdi import oracle
from tpcdi.dataflow.sources import TRADE
from tpcdi.generate import generate
from tpcdi.schema import TABLES

SEED = 1
TUPLE = f"{TRADE}, t_created TEXT NOT NULL"
DIMTRADE = re.sub(r"BOOLEAN|NUMERIC\(\d+,\d\)", "INTEGER", TABLES["dimtrade"].columns)
DIMENSIONS = {
    "statuses": "id TEXT PRIMARY KEY, name TEXT NOT NULL",
    "types": "id TEXT PRIMARY KEY, name TEXT NOT NULL",
    "securities": "sk_securityid INTEGER PRIMARY KEY, symbol TEXT NOT NULL, "
    "since INTEGER NOT NULL, sk_companyid INTEGER NOT NULL, UNIQUE (symbol, since)",
    "accounts": "sk_accountid INTEGER PRIMARY KEY, accountid INTEGER NOT NULL, "
    "since INTEGER NOT NULL, sk_customerid INTEGER NOT NULL, sk_brokerid INTEGER, "
    "UNIQUE (accountid, since)",
}

TRADES = """\
SELECT CAST(t_id AS BIGINT), t_dts, t_st_id, t_tt_id, CAST(t_is_cash AS BIGINT), t_s_symb,
    CAST(t_qty AS BIGINT), CAST(t_bid_price AS DOUBLE), CAST(t_ca_id AS BIGINT), t_exec_name,
    CAST(t_trade_price AS DOUBLE), CAST(t_chrg AS DOUBLE), CAST(t_comm AS DOUBLE),
    CAST(t_tax AS DOUBLE), created
FROM raw.trade
JOIN (SELECT th_t_id, min(th_dts) AS created FROM raw.tradehistory GROUP BY th_t_id)
    ON th_t_id = t_id
ORDER BY trade.rowid"""
ENTERED = """\
SELECT dimtrade.* REPLACE (
    CAST(cashflag AS BIGINT) AS cashflag, CAST(bidprice * 100 AS BIGINT) AS bidprice,
    CAST(tradeprice * 100 AS BIGINT) AS tradeprice, CAST(fee * 100 AS BIGINT) AS fee,
    CAST(commission * 100 AS BIGINT) AS commission, CAST(tax * 100 AS BIGINT) AS tax)
FROM oracle.dimtrade
JOIN raw.trade ON tradeid = CAST(t_id AS BIGINT)
ORDER BY trade.rowid"""
FILLING = {
    "statuses": "SELECT st_id, st_name FROM oracle.statustype",
    "types": "SELECT tt_id, tt_name FROM oracle.tradetype",
    "securities": "SELECT sk_securityid, symbol, date_id(since), sk_companyid "
    "FROM steps.security_asof",
    "accounts": "SELECT sk_accountid, accountid, date_id(since), sk_customerid, sk_brokerid "
    "FROM steps.account_asof",
}

Rows = list[tuple[Any, ...]]


class Trades(NamedTuple):
    """Trades in the order of their file, and what they lead to."""

    tuples: Rows
    dimensions: dict[str, Rows]
    entered: Rows
    """The row of DimTrade of each."""


def trades(folder: Path, scale: float) -> Trades:
    """Generate the files of a scale in a folder, and read what there is of trades."""
    generate(folder / "tpcdi", scale, SEED)
    with oracle.compute(folder / "tpcdi", batches=1) as computed:
        found = [computed.execute(sql).fetchall() for sql in (TRADES, ENTERED, *FILLING.values())]
    tuples, entered, *filling = found
    assert [row[0] for row in tuples] == [row[0] for row in entered], "every trade is entered"
    return Trades(tuples, dict(zip(FILLING, filling, strict=True)), entered)


def digest(rows: Iterable[tuple[Any, ...]]) -> str:
    """Tell rows from others by one text, whatever their order."""
    return hashlib.sha256(repr(sorted(rows)).encode()).hexdigest()
