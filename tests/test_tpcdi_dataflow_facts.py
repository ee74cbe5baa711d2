"""The special paths of TPC-DI's facts, made by hand: days out of order, watches that open again,
the year of prices after a restart, events before and after their trades.
"""

from decimal import Decimal
from pathlib import Path

import numpy as np
import phased
import pytest
from digen import Digen
from phased import latest, rows, waiting
from test_tpcdi_dataflow_cases import agrees, files

from etl_procs import Trial
from tpcdi.dataflow import market
from tpcdi.dataflow.watches import PLACED
from tpcdi.flow import flow


def some() -> Digen:
    """Gather a company, two securities and a customer with two accounts."""
    made = files()
    made.company("20150101-090000", "ACME", 1)
    made.security("20150102-090000", "S1", 1)
    made.security("20150102-090000", "S2", "ACME")
    made.report("20160102-090000", "2016Q4", 1)
    made.new("2015-02-01T09:00:00", 1, 1001)
    made.new("2015-02-01T09:00:00", 2, 1002)
    return made


def begun(trial: Trial, folder: Path, batch: int = 1) -> phased.Feed:
    """Load a phase but for its end; what is fed then comes one batch at a time."""
    feed = phased.Feed(folder, batch)
    ends, feed.ends = feed.ends, []
    phased.in_order(trial, feed)
    feed.ends = ends
    return feed


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_balances_are_right_in_whatever_order_the_days_come(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    moved = [
        [(1001, "2016-05-01", 10.10), (1002, "2016-05-02", -1.00)],
        [(1001, "2016-05-03", 0.01), (1001, "2016-05-01", 0.20)],
        [(1001, "2016-05-02", -30.0), (1002, "2016-05-01", 5.05)],
    ]
    with Trial(flow) as trial:
        begun(trial, some().write(tmp_path))
        for part in order:
            trial.batch(
                cash=[
                    {"ct_ca_id": id_, "ct_dts": f"{day} 10:00:00", "ct_amt": amount}
                    for id_, day, amount in moved[part]
                ]
            )
        accounts = {x["sk_accountid"]: x["accountid"] for x in latest(trial, "dimaccount")}
        balances = {
            (accounts[x["sk_accountid"]], x["sk_dateid"]): x["cash"]
            for x in latest(trial, "factcashbalances")
        }
    assert balances == {
        (1001, 20160501): Decimal("10.30"),
        (1001, 20160502): Decimal("-19.70"),
        (1001, 20160503): Decimal("-19.69"),
        (1002, 20160501): Decimal("5.05"),
        (1002, 20160502): Decimal("4.05"),
    }


def test_a_watch_that_is_opened_again_in_one_batch_is_another_one(tmp_path: Path) -> None:
    made = some()
    acts = [PLACED, "CNCL", PLACED, PLACED, "CNCL"]
    for day, act in enumerate(acts, start=1):
        made.row(1, "WatchHistory.txt", 1, "S1", f"2016-05-0{day} 10:00:00", act)
    made.row(1, "WatchHistory.txt", 1, "S2", "2016-05-01 10:00:00", PLACED)
    made.cdc(2, "WatchHistory.txt", "I", 1, "S1", "2017-07-08 10:00:00", "CNCL")
    made.cdc(2, "WatchHistory.txt", "I", 1, "S1", "2017-07-08 10:00:01", PLACED)
    agrees(made, tmp_path, 1)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path)
        watched = [
            (x["sk_dateid_dateplaced"], x["sk_dateid_dateremoved"])
            for x in latest(trial, "factwatches")
        ]
    assert watched == [
        (20160501, 20160502),
        (20160503, 20160505),
        (20160504, 20170708),
        (20160501, None),
        (20170708, None),
    ]


def test_a_watch_that_is_cancelled_before_it_is_placed_waits(tmp_path: Path) -> None:
    made = some()
    made.row(1, "WatchHistory.txt", 1, "S1", "2016-05-01 10:00:00", "CNCL")
    made.row(1, "WatchHistory.txt", 1, "S1", "2016-05-02 10:00:00", PLACED)
    with Trial(flow) as trial:
        phased.load(trial, made.write(tmp_path), 1)
        assert waiting(trial, 1) == {"FactWatches": "1"}
        assert rows(trial, "factwatches", "sk_dateid_dateremoved") == [(None,)]


DAYS = ("2016-02-29", "2016-03-01", "2016-07-07", "2016-07-08", "2017-02-28", "2017-07-06")


def days() -> Digen:
    """Gather days of two securities, over more than a year."""
    made = some()
    for n, day in enumerate(DAYS):
        for symbol, price in (("S1", 100 - n), ("S2", 10 + n % 2)):
            prices = (f"{price}.00", f"{price}.50", f"{price - 1}.25")
            made.row(1, "DailyMarket.txt", day, symbol, *prices, 100)
    for symbol in ("S1", "S2"):
        made.cdc(2, "DailyMarket.txt", "I", "2017-07-07", symbol, "9.00", "9.50", "8.50", 1)
        made.cdc(3, "DailyMarket.txt", "I", "2017-07-08", symbol, "9.00", "9.25", "8.75", 1)
    return made


def test_a_years_highs_and_lows_are_the_oracles(tmp_path: Path) -> None:
    agrees(days(), tmp_path, 1)


def test_a_price_of_nothing_yields_nothing(tmp_path: Path) -> None:
    made = some()
    made.row(1, "DailyMarket.txt", "2017-07-06", "S1", "0.00", "1.00", "0.00", 100)
    agrees(made, tmp_path, 1)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path, 1)
        assert rows(trial, "factmarkethistory", "peratio", "yield") == [
            (Decimal("0.00"), Decimal("0.00"))
        ]


@pytest.mark.parametrize("kept", ["nothing", "another's"])
def test_after_a_restart_the_year_is_made_anew_of_the_cores_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    folder = days().write(tmp_path)
    with Trial(flow) as trial:
        phased.load(trial, folder)
        expected = phased.exported(trial)
    with Trial(flow) as trial:
        for batch in (1, 2, 3):
            feed = phased.Feed(folder, batch)
            stream = "market" if batch == 1 else "market_changes"
            ticks, feed.rows[stream] = feed.rows[stream], []
            ends, feed.ends = feed.ends, []
            phased.in_order(trial, feed)
            for tick in ticks:
                year = market.Year("" if kept == "nothing" else "another's digest")
                if kept != "nothing":
                    year.days, year.oldest = [20160708], 0
                    year._rows, year._high, year._low = (
                        {"S1": 0, "S2": 1},
                        np.full((2, 1), 10**6),
                        np.full((2, 1), 1),
                    )
                monkeypatch.setattr(market, "_kept", year)
                trial.batch(**{stream: [tick]})
            trial.batch(marks=ends)
        assert phased.exported(trial)["factmarkethistory"] == expected["factmarkethistory"]


def test_a_day_that_comes_after_later_ones_has_its_own_year(tmp_path: Path) -> None:
    def tick(day: str, high: float, symbol: str = "S1") -> dict[str, object]:
        prices = {"dm_close": high, "dm_high": high, "dm_low": high, "dm_vol": 1}
        return {"dm_date": day, "dm_s_symb": symbol, **prices}

    with Trial(flow) as trial:
        begun(trial, some().write(tmp_path))
        trial.batch(market=[tick("2015-07-01", 70.0), tick("2015-07-02", 60.0)])
        trial.batch(market=[tick("2017-07-06", 50.0)])  # from here on, no other day is needed
        trial.batch(market=[tick("2015-07-03", 40.0)])
        found = rows(trial, "factmarkethistory", "sk_dateid", "sk_fiftytwoweekhighdate")
    assert found[-1] == (20150703, 20150701)


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_days_that_go_back_have_the_years_that_were_there_however_batches_are_cut(
    tmp_path: Path, at_once: int
) -> None:
    said = [("07-03", 50, "S1"), ("07-06", 40, "S1"), ("07-06", 9, "S2"), ("07-01", 70, "S1")]
    said += [("07-02", 60, "S1"), ("07-05", 8, "S2"), ("07-07", 30, "S1"), ("07-07", 7, "S2")]
    ticks = [
        {"dm_date": f"2015-{day}", "dm_s_symb": symbol, "dm_vol": 1}
        | dict.fromkeys(("dm_close", "dm_high", "dm_low"), float(price))
        for day, price, symbol in said
    ]
    with Trial(flow) as trial:
        begun(trial, some().write(tmp_path))
        for first in range(0, len(ticks), at_once):
            trial.batch(market=ticks[first : first + at_once])
        found = rows(trial, "factmarkethistory", "sk_dateid", "fiftytwoweekhigh")
    days = [int(f"2015{day.replace('-', '')}") for day, _, _ in said]
    highs = map(Decimal, (50, 50, 9, 70, 70, 8, 70, 9))
    assert found == list(zip(days, highs, strict=True))


TRADES = (
    (1, "TMB", "CMPT", ("SBMT", "CMPT")),
    (2, "TLB", "CMPT", ("PNDG", "SBMT", "CMPT")),
    (3, "TLS", "CNCL", ("PNDG", "CNCL")),
    (4, "TLB", "PNDG", ("PNDG",)),
    (5, "TLS", "CNCL", ("PNDG", "PNDG", "CNCL")),
)


@pytest.mark.parametrize("events_first", [True, False])
@pytest.mark.parametrize("at_once", [1, 100])
def test_a_trade_is_entered_once_its_row_and_its_events_are_there(
    tmp_path: Path, events_first: bool, at_once: int
) -> None:
    made = some()
    for id_, kind, status, events in TRADES:
        paid = ("5.01", "1.00", "1.00", "0.10") if status == "CMPT" else (None,) * 4
        placed = ("2016-05-01 10:00:00", status, kind, 1, "S1", 10, "5.00", 1001, "executor")
        made.row(1, "Trade.txt", id_, *placed, *paid)
        for hour, event in enumerate(events, start=10):
            made.row(1, "TradeHistory.txt", id_, f"2016-05-01 {hour}:00:00", event)
        if status == "CMPT":
            made.row(1, "HoldingHistory.txt", id_, id_, 0, 10)
    folder = made.write(tmp_path)
    with Trial(flow) as trial:
        phased.load(trial, folder)
        expected = phased.exported(trial)
    with Trial(flow) as trial:
        feed = phased.Feed(folder, 1)
        facts = ["trades", "trade_events", "holdings"]
        facts = facts[::-1] if events_first else facts
        given = {name: feed.rows.pop(name) for name in facts}
        ends, feed.ends = feed.ends, []
        phased.in_order(trial, feed)
        for name in facts:
            for at in range(0, len(given[name]), at_once):
                trial.batch(**{name: given[name][at : at + at_once]})
        trial.batch(marks=ends)
        assert waiting(trial, 1) == {}
        phased.load(trial, folder, 3, first=2)
        assert phased.exported(trial) == expected


def test_a_trade_is_placed_and_closed_within_one_batch_of_an_increment(tmp_path: Path) -> None:
    made = some()
    placed = ("SBMT", "TMB", 1, "S1", 10, "5.00", 1001, "executor")
    closed = ("CMPT", *placed[1:], "5.01", "99.00", "99.00", "0.10")
    made.cdc(2, "Trade.txt", "I", 1, "2017-07-08 10:00:00", *placed, *[None] * 4)
    made.cdc(2, "Trade.txt", "U", 1, "2017-07-08 10:00:09", *closed)
    made.cdc(2, "HoldingHistory.txt", "I", 1, 1, 0, 10)
    made.cdc(2, "Trade.txt", "I", 2, "2017-07-08 10:00:00", *placed, *[None] * 4)
    made.cdc(3, "Trade.txt", "U", 2, "2017-07-09 10:00:09", *closed)
    made.cdc(3, "HoldingHistory.txt", "I", 2, 2, 0, 10)
    agrees(made, tmp_path, 1, 2)


COSTS = ("5.00", "1.00", "1.00", "0.10")


def past(made: Digen, number: int, kind: str, *events: str) -> None:
    """Add a trade of the historical load, with its events, as `01-02 PNDG` in 2016."""
    status = events[-1].split()[1]
    placed = ("2016-01-01 10:00:00", status, kind, 1, "S1", 10, "5.00", 1001, "executor")
    made.row(1, "Trade.txt", number, *placed, *(COSTS if status == "CMPT" else [None] * 4))
    for event in events:
        day, what = event.split()
        made.row(1, "TradeHistory.txt", number, f"2016-{day} 10:00:00", what)


def test_a_trade_is_created_by_the_first_event_that_can_and_refers_to_what_is_valid_then(
    tmp_path: Path,
) -> None:
    made = some()
    made.action("UPDCUST", "2016-01-02T09:00:00", 1, attributes={"C_TIER": 3})
    past(made, 1, "TLB", "01-01 SBMT", "01-03 PNDG", "01-04 CMPT")
    past(made, 2, "TMB", "01-01 PNDG", "01-03 SBMT", "01-04 CMPT")
    past(made, 3, "TMS", "01-01 SBMT", "01-03 PNDG", "01-04 CMPT")
    past(made, 4, "TMB", "01-03 PNDG", "01-04 CNCL")
    past(made, 5, "TLS", "01-01 PNDG", "01-03 PNDG", "01-04 CNCL")
    agrees(made, tmp_path, 1, 2)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path)
        tiers = {x["sk_customerid"]: x["tier"] for x in latest(trial, "dimcustomer")}
        created = {
            x["tradeid"]: (x["sk_createdateid"], tiers[x["sk_customerid"]])
            for x in latest(trial, "dimtrade")
        }
    before, after = (20160101, 2), (20160103, 3)
    assert created == {1: after, 2: before, 3: before, 4: after, 5: before}


def test_a_trade_is_closed_by_an_event_of_its_own_status_and_waits_for_one(tmp_path: Path) -> None:
    made = some()
    past(made, 1, "TLB", "01-01 PNDG", "01-04 CNCL", "01-03 CMPT")
    past(made, 2, "TMB", "01-01 SBMT", "01-03 CMPT")
    made.files["Batch1/TradeHistory.txt"].pop()
    made.row(1, "HoldingHistory.txt", 1, 1, 0, 10)
    agrees(made, tmp_path, 1, 2, alone=6)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path, 1)
        assert waiting(trial, 1) == {"DimTrade": "1", "TradeHistory": "1"}
        assert rows(trial, "dimtrade", "tradeid", "sk_closedateid") == [(1, 20160103)]


def test_of_several_reports_of_a_quarter_the_latest_is_what_its_company_has_earned(
    tmp_path: Path,
) -> None:
    made = some()
    made.report("20160401-090000", "2016Q1", 1, eps="1.00")
    made.report("20160501-090000", "2016Q1", "ACME", eps="0.50")
    made.report("20160501-090000", "2016Q2", 1, eps="3.00")
    made.report("20160501-090000", "2016Q2", 1, eps="2.00")
    made.row(1, "DailyMarket.txt", "2016-12-30", "S1", "5.00", "6.00", "4.00", 100)
    made.cdc(2, "DailyMarket.txt", "I", "2016-12-31", "S1", "5.00", "6.00", "4.00", 100)
    agrees(made, tmp_path, 1)
    older = Digen()
    older.report("20160430-090000", "2016Q1", 1, eps="9.00")
    (line,) = older.files["Batch1/FINWIRE2016Q2"]
    with Trial(flow) as trial:
        phased.load(trial, tmp_path, 1)
        trial.batch(finwire=[{"line": line}])
        phased.load(trial, tmp_path, 2, first=2)
        assert rows(trial, "factmarkethistory", "peratio") == [(Decimal("2.00"),)] * 2
        assert len(trial.outlet("financial")) == 6


def test_a_trade_that_is_over_can_be_changed_and_its_close_stays(tmp_path: Path) -> None:
    made = some()
    past(made, 1, "TMB", "01-01 SBMT", "01-04 CMPT")
    past(made, 2, "TMB", "01-01 SBMT", "01-04 CNCL")
    made.row(1, "HoldingHistory.txt", 1, 1, 0, 10)

    def change(batch: int, number: int, flag: str, status: str, hour: int, *costs: str) -> None:
        placed = (status, "TMB", 1, "S1", 10, "5.00", 1001, "executor")
        at = f"2017-07-0{batch + 6} {hour}:00:00"
        made.cdc(batch, "Trade.txt", flag, number, at, *placed, *(costs or [None] * 4))

    change(2, 1, "U", "CMPT", 10, "6.00", "99.00", "1.00", "0.20")
    change(2, 2, "U", "CMPT", 10, *COSTS)
    made.cdc(2, "HoldingHistory.txt", "I", 2, 2, 0, 10)
    change(2, 3, "I", "SBMT", 10)
    change(2, 3, "U", "CMPT", 11, "5.00", "99.00", "1.00", "0.10")
    change(2, 3, "U", "CMPT", 12, "7.00", "98.00", "2.00", "0.20")
    made.cdc(2, "HoldingHistory.txt", "I", 3, 3, 0, 10)
    change(3, 3, "U", "CNCL", 13)
    made.cdc(3, "HoldingHistory.txt", "I", 1, 3, 10, 4)
    agrees(made, tmp_path, 1, 2)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path)
        assert waiting(trial, 3) == {}
        found = {x["tradeid"]: x for x in latest(trial, "dimtrade")}
        names = ("status", "sk_closedateid", "sk_closetimeid", "tradeprice", "fee", "batchid")
        assert [tuple(found[id_][name] for name in names) for id_ in (1, 2, 3)] == [
            ("Completed", 20160104, 100000, Decimal("6.00"), Decimal("99.00"), 1),
            ("Completed", 20160104, 100000, Decimal("5.00"), Decimal("1.00"), 1),
            ("Canceled", 20170708, 110000, None, None, 2),
        ]
        of_holdings = ("currenttradeid", "sk_dateid", "sk_timeid", "currentprice", "batchid")
        assert sorted(rows(trial, "factholdings", *of_holdings)) == [
            (1, 20160104, 100000, Decimal("5.00"), 1),
            (2, 20160104, 100000, Decimal("5.00"), 2),
            (3, 20170708, 110000, Decimal("5.00"), 2),
            (3, 20170708, 110000, Decimal("5.00"), 3),
        ]
        warned = sorted(said for said in phased.messages(trial) if said[1] == "DimTrade")
        assert [data for *_, data in warned] == [
            "T_ID = 1, T_CHRG = 99.00",
            "T_ID = 3, T_CHRG = 98.00",
            "T_ID = 3, T_CHRG = 99.00",
        ]
