"""Rows that cannot be read become dead letters alone: their batch goes on without them."""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import audited
import phased
import pyarrow as pa
import pytest
from digen import Digen, Field
from phased import rows, waiting

from etl_procs import Trial
from etl_procs.wire import Xml
from ingest.decoding.elements import Reader
from tpcdi import schema
from tpcdi.dataflow.sources import actions
from tpcdi.flow import flow

HUGE = 1e300
"""A price that no column of the warehouse has room for."""
FACT: dict[str, list[Any]] = {"cdc_flag": ["D", "x"]}

SPOILED: dict[str, dict[str, list[Any]]] = {
    "dates": {"datevalue": ["2017-02-30", "20170228", "0000-01-01", "x"], "holidayflag": ["maybe"]},
    "times": {"markethoursflag": ["maybe"], "officehoursflag": ["2"]},
    "tax_rates": {"tx_rate": ["x", "0.123456", "12", "NaN"]},
    "actions": {
        "actiontype": ["DELETE", "new", "x"],
        "actionts": ["2017-02-30T10:00:00", "2017-02-28", "x", ""],
        "c_tier": ["x", "1.5", "9" * 30],
        "c_dob": ["2017-02-30", "19800506", "1980-W05-1", "x"],
        "ca_tax_st": ["x", "9" * 30],
        "ca_b_id": ["x", "7 "],
    },
    "customers": {
        "cdc_flag": ["D", "x"],
        "c_tier": ["x", "9" * 30],
        "c_dob": ["2017-02-30", "x"],
    },
    "accounts": FACT,
    "trades": {
        "t_dts": ["2017-02-30 10:00:00", "2017-02-28", "2017-02-28 10:00:61", "x"],
        "t_bid_price": [HUGE, -1.0, 1_000_000.0],
        "t_trade_price": [HUGE],
        "t_chrg": [HUGE],
        "t_comm": [-HUGE],
        "t_tax": [HUGE],
    },
    "trade_events": {"th_dts": ["2017-02-30 10:00:00", "x"]},
    "trade_changes": {
        **FACT,
        "t_dts": ["2017-07-08", "2017-02-30 10:00:00", "x"],
        "t_trade_price": [HUGE],
        "t_tax": [HUGE],
    },
    "cash": {
        "ct_dts": ["2017-02-30 10:00:00", "x"],
        "ct_amt": [HUGE, -HUGE],
        "ct_ca_id": [-1, 2**62],
    },
    "cash_changes": {**FACT, "ct_dts": ["x"], "ct_amt": [HUGE]},
    "holding_changes": FACT,
    "watches": {
        "w_dts": ["2017-02-30 10:00:00", "x"],
        "w_action": ["x", "actv"],
        "w_c_id": [-1, 2**62],
    },
    "watch_changes": {**FACT, "w_action": ["x"]},
    "market": {
        "dm_date": ["2017-02-30", "2017-07-06 10:00:00", "x"],
        "dm_close": [HUGE, -1.0],
        "dm_high": [HUGE, -1.0],
        "dm_low": [HUGE, -1.0],
    },
    "market_changes": {**FACT, "dm_date": ["x"]},
    "answers": {
        "dataset": [" "],
        "batchid": ["x"],
        "date": ["2017-02-30"],
        "attribute": [" "],
        "value": ["1.5", "x"],
        "dvalue": ["x", "1" * 11],
    },
}
"""By stream and column: what no row of it should have."""


def put(first: int, text: str) -> Callable[[str], str]:
    """Write over a line from a position on, which counts from 1."""
    return lambda line: line[: first - 1] + text + line[first - 1 + len(text) :]


RECORDS: dict[str, list[Callable[[str], str]]] = {
    "CMP": [
        put(1, "20170230"),
        put(1, "x"),
        put(16, "ABC"),
        put(79, "    number"),
        put(79, " " * 10),
        put(19, " " * 60),
        put(89, " " * 4),
        put(93, "  "),
        put(99, "20170230"),
        lambda line: line[:80],
        lambda line: line[:10],
    ],
    "SEC": [
        put(19, " " * 15),
        put(120, "     many    "),
        put(133, "20170230"),
        put(141, "        "),
        put(149, "  none      "),
        put(149, "       1.234"),
        lambda line: line[:160],
        lambda line: line[:120],
    ],
    "FIN": [
        put(19, "year"),
        put(23, "5"),
        put(24, "20170230"),
        put(40, " " * 17),
        put(74, "         NaN"),
        put(74, "          x "),
        put(174, " " * 13),
        lambda line: line[:186],
    ],
}
"""By kind of record: what makes it unreadable."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return audited.files().write(tmp_path_factory.mktemp("whole"))


def spoiled(feed: phased.Feed) -> dict[str, phased.Rows]:
    """Make unreadable rows of readable ones."""
    made: dict[str, phased.Rows] = {
        stream: [
            {**feed.rows[stream][0], column: value}
            for column, values in columns.items()
            for value in values
        ]
        for stream, columns in SPOILED.items()
        if feed.rows.get(stream)
    }
    lines = [row["line"] for row in feed.rows.get("finwire", [])]
    made["finwire"] = [
        {"line": spoil(next(line for line in lines if line[15:18] == kind))}
        for kind, spoils in RECORDS.items()
        for spoil in spoils
        if lines
    ]
    return made


@pytest.mark.parametrize("seed", [None, 1])
def test_unreadable_rows_are_dead_letters_and_all_others_are_loaded(
    folder: Path, audited_rows: dict[str, bytes], seed: int | None
) -> None:
    wanted: Counter[tuple[object, ...]] = Counter()
    with Trial(flow) as trial:
        for batch in (1, 2, 3):
            feed = phased.Feed(folder, batch)
            for stream, bad in spoiled(feed).items():
                half, good = len(bad) // 2, feed.rows.get(stream, [])
                feed.rows[stream] = [*bad[:half], *good, *bad[half:]]
                wanted.update(tuple(row.values()) for row in bad)
            if seed is None:
                phased.in_order(trial, feed)
            else:
                phased.interleaved(trial, feed, random.Random(seed))  # noqa: S311
        found = phased.exported(trial)
        letters = Counter(tuple(one) for letter in trial.dead_letters() for one in letter["tuples"])
    assert letters == wanted
    assert [table for table in schema.TABLES if found[table] != audited_rows[table]] == []


def some() -> Digen:
    """Gather a company, a security and a customer with an account."""
    made = Digen()
    made.company("20150101-090000", "ACME", 1)
    made.security("20150102-090000", "S1", 1)
    made.new("2015-02-01T09:00:00", 1, 1001)
    return made


PLACED: tuple[Field, ...] = (
    "2016-05-01 10:00:00",
    "CMPT",
    "TMB",
    1,
    "S1",
    10,
    "5.00",
    1001,
    "executor",
)
PAID = ("5.01", "1.00", "1.00", "0.10")


def test_rows_with_ids_that_nobody_knows_wait_and_are_told(tmp_path: Path) -> None:
    made = some()
    made.company("20150101-090000", "Odd", 2, status="ODD")
    made.company("20150101-090000", "Other", 3, industry="XX")
    made.security("20150102-090000", "S2", 1, status="ODD")
    made.security("20150102-090000", "S3", 2)
    made.security("20150102-090000", "S4", "Nobody")
    made.report("20160102-090000", "2015Q4", 3)
    odd: Mapping[int, Field]
    for n, odd in ((1, {1: "ODD"}), (2, {2: "ODD"}), (3, {})):
        made.row(1, "Trade.txt", n, *(odd.get(i, field) for i, field in enumerate(PLACED)), *PAID)
        for hour, status in ((10, "SBMT"), (11, odd.get(1, "CMPT"))):
            made.row(1, "TradeHistory.txt", n, f"2016-05-01 {hour}:00:00", status)
    for n, odd in ((4, {1: "ODD"}), (5, {2: "ODD"}), (6, {})):
        fields = (odd.get(i, field) for i, field in enumerate(PLACED))
        made.cdc(2, "Trade.txt", "I", n, *fields, *PAID)
    made.customer(2, "I", 7, status="ODD")
    made.customer(2, "I", 8)
    made.cdc(2, "Account.txt", "I", 1007, 7, 8, "Odd", 1, "ODD")
    made.cdc(2, "Account.txt", "I", 1008, 7, 8, "Good", 1, "ACTV")
    folder = made.write(tmp_path)
    with Trial(flow) as trial:
        phased.load(trial, folder, 2)
        assert waiting(trial, 1) == {"DimSecurity": "6", "DimTrade": "2", "TradeHistory": "4"}
        both = {"DimCustomer": "1", "DimAccount": "1", "Trade": "2"}
        assert waiting(trial, 2) == waiting(trial, 1) | both
        assert rows(trial, "dimtrade", "tradeid") == [(3,), (6,)]
        assert rows(trial, "dimcustomer", "customerid") == [(1,), (8,)]
        assert rows(trial, "dimaccount", "accountid") == [(1001,), (1008,)]
        assert trial.dead_letters() == []


def test_an_account_without_a_broker_a_customer_or_a_number_is_told_and_others_are_entered(
    tmp_path: Path,
) -> None:
    made = some()
    made.new("2015-02-01T10:00:00", 2, 1002)
    made.action("NEW", "2015-02-02T09:00:00", 3)
    nobodys: dict[str, Field] = {
        "CA_ID": 1003,
        "CA_TAX_ST": 1,
        "CA_B_ID": 99,
        "CA_NAME": "Nobody's",
    }
    made.action("ADDACCT", "2015-02-02T09:00:00", 2, account=nobodys)
    made.action("ADDACCT", "2015-02-02T09:00:00", 66, account=nobodys | {"CA_ID": 1005})
    made.action("ADDACCT", "2015-02-02T09:00:00", 2)
    made.action("UPDACCT", "2015-02-02T09:00:00", 2, account={"CA_ID": 1066})
    made.action("INACT", "2015-02-02T09:00:00", 66)
    made.cdc(2, "Account.txt", "I", 1004, 99, 2, "Nobody's", 1, "ACTV")
    folder = made.write(tmp_path)
    with Trial(flow) as trial:
        phased.load(trial, folder, 2)
        told = [(batch, text, data) for batch, _, text, data in phased.messages(trial)]
        told = [one for one in told if one[1].startswith(("Unknown", "No "))]
        assert sorted(told) == [
            (1, "No account", "C_ID = 2, ADDACCT"),
            (1, "Unknown account", "CA_ID = 1066"),
            (1, "Unknown broker", "CA_ID = 1003, B_ID = 99"),
            (1, "Unknown customer", "CA_ID = 1005, C_ID = 66"),
            (1, "Unknown customer", "C_ID = 66"),
            (2, "Unknown broker", "CA_ID = 1004, B_ID = 99"),
        ]
        assert rows(trial, "dimaccount", "accountid") == [(1001,), (1002,)]
        assert rows(trial, "dimcustomer", "customerid") == [(1,), (2,), (3,)]


def test_an_action_with_several_accounts_is_a_dead_letter_with_the_reason() -> None:
    assert isinstance(actions.wire.format, Xml)
    reader = Reader(actions.wire.format, actions.columns.columns)
    (whole,) = some().files["Batch1/CustomerMgmt.xml"]
    account = whole[whole.index("<Account") : whole.index("</Customer>")]
    read = reader.fields(pa.array([whole, whole.replace(account, account * 2)]))
    # All that is broken becomes a dead letter, whatever its format.
    assert read.broken == {1: "Customer/Account/@CA_ID is there 2 times"}


def test_a_closed_trade_without_a_price_is_entered_and_its_holding_waits(tmp_path: Path) -> None:
    made = some()
    made.row(1, "Trade.txt", 1, *PLACED, None, *PAID[1:])
    for hour, status in ((10, "SBMT"), (11, "CMPT")):
        made.row(1, "TradeHistory.txt", 1, f"2016-05-01 {hour}:00:00", status)
    made.row(1, "HoldingHistory.txt", 1, 1, 0, 10)
    with Trial(flow) as trial:
        phased.load(trial, made.write(tmp_path), 1)
        assert rows(trial, "dimtrade", "tradeid", "tradeprice") == [(1, None)]
        assert waiting(trial, 1) == {"FactHoldings": "1"}
        assert trial.outlet("factholdings") == []


def test_a_mark_that_says_nothing_is_a_dead_letter(tmp_path: Path) -> None:
    folder = some().write(tmp_path)
    bad = [{"batch": 1, "source": "BatchDate", "day": day} for day in (None, "", "x", "2017-02-30")]
    with Trial(flow) as trial:
        trial.batch(marks=[*bad, {"batch": 9, "source": "Phase", "day": None}])
        assert len(trial.dead_letters()) == len(bad) + 1
        phased.load(trial, folder, 1)
        trial.batch(marks=phased.Feed(folder, 1).begins)  # said again, it does nothing
        assert len(trial.dead_letters()) == len(bad) + 1
        assert trial.query("SELECT is_open FROM phases") == [{"is_open": 0}]


def test_what_is_beyond_a_ratios_room_does_not_take_its_batch_with_it(tmp_path: Path) -> None:
    made = some()
    made.security("20150102-090000", "S2", 1, dividend="99999999.99")
    made.report("20170102-090000", "2016Q4", 1, eps="0.01")
    for symbol, price in (("S1", "999999.99"), ("S2", "0.01")):
        made.row(1, "DailyMarket.txt", "2017-07-06", symbol, price, price, price, 100)
    with Trial(flow) as trial:
        phased.load(trial, made.write(tmp_path), 1)
        assert len(trial.outlet("factmarkethistory")) == 2
