"""Facts of days that the calendar lacks are dead letters, or wait for it: none is entered."""

from collections.abc import Iterator
from pathlib import Path

import phased
import pytest
from digen import Digen
from phased import waiting
from test_tpcdi_dataflow_facts import begun, some

from etl_procs import Trial
from tpcdi.flow import flow

FACTS = ("dimtrade", "factcashbalances", "factholdings", "factwatches", "factmarkethistory")
LATER = "2018-01-01"
"""The first day that the calendar of `some` lacks."""
STREAMS = ("trades", "trade_events", "cash", "holdings", "watches", "market")
INCREMENTS = ("trade_changes", "cash_changes", "watch_changes", "market_changes")


@pytest.fixture
def made() -> Digen:
    """Gather a fact of each kind, of a day that the calendar lacks."""
    made, at = some(), f"{LATER} 10:00:00"
    paid = ("5.01", "1.00", "1.00", "0.10")
    placed = (at, "CMPT", "TMB", 1, "S1", 10, "5.00", 1001, "executor", *paid)
    made.row(1, "Trade.txt", 1, *placed)
    made.row(1, "TradeHistory.txt", 1, "2017-06-01 10:00:00", "SBMT")
    made.row(1, "TradeHistory.txt", 1, at, "CMPT")
    made.row(1, "CashTransaction.txt", 1001, at, "50.10", "sold")
    made.row(1, "HoldingHistory.txt", 1, 1, 0, 10)
    made.row(1, "WatchHistory.txt", 1, "S1", at, "ACTV")
    made.row(1, "DailyMarket.txt", LATER, "S1", "5.00", "6.00", "4.00", 100)
    made.cdc(2, "Trade.txt", "I", 2, *placed)
    made.cdc(2, "CashTransaction.txt", "I", 1001, at, "50.10", "sold")
    made.cdc(2, "WatchHistory.txt", "I", 1, "S1", at, "ACTV")
    made.cdc(2, "DailyMarket.txt", "I", LATER, "S1", "5.00", "6.00", "4.00", 100)
    return made


@pytest.fixture
def trial() -> Iterator[Trial]:
    with Trial(flow) as trial:
        yield trial


def entered(trial: Trial) -> dict[str, int]:
    return {table: len(rows) for table in FACTS if (rows := phased.latest(trial, table))}


def test_what_comes_after_the_calendar_and_is_of_no_day_of_it_is_a_dead_letter(
    tmp_path: Path, made: Digen, trial: Trial
) -> None:
    phased.load(trial, made.write(tmp_path), 2)
    assert entered(trial) == {}
    reasons = sorted(letter["reason"] for letter in trial.dead_letters())
    of_time = f"is not a time in the calendar: '{LATER} 10:00:00'"
    assert reasons == sorted(
        [
            f"th_dts {of_time}",
            f"t_dts {of_time}",
            *[f"ct_dts {of_time}", f"w_dts {of_time}"] * 2,
            *[f"dm_date is not a day in the calendar: '{LATER}'"] * 2,
        ]
    )
    # Of the first trade, the row and the event that is of a day wait for the other one.
    assert waiting(trial, 2) == {"DimTrade": "1", "TradeHistory": "1", "FactHoldings": "1"}


def test_what_comes_before_the_calendar_and_is_of_no_day_of_it_waits_until_that_has_it(
    tmp_path: Path, made: Digen, trial: Trial
) -> None:
    folder = made.write(tmp_path)
    feeds = [phased.Feed(folder, batch) for batch in (1, 2)]
    for feed, streams in zip(feeds, (STREAMS, INCREMENTS), strict=True):
        trial.batch(**{name: feed.rows.pop(name) for name in streams})
    phased.in_order(trial, feeds[0])
    assert entered(trial) == {}
    counts = {"FactCashBalances": "2", "FactWatches": "2", "FactMarketHistory": "2"}
    counts |= {"DimTrade": "1", "TradeHistory": "2", "Trade": "1", "FactHoldings": "1"}
    assert waiting(trial, 1) == counts

    calendar = Digen()
    calendar.row(1, "Date.txt", "20180101", LATER, *("x", 1) * 7, "x", "false")
    more = phased.Feed(calendar.write(tmp_path / "more"), 1).rows["dates"]
    trial.batch(dates=more)
    phased.in_order(trial, feeds[1])
    assert waiting(trial, 2) == {}
    two = dict.fromkeys(("dimtrade", "factwatches", "factmarkethistory"), 2)
    assert entered(trial) == dict.fromkeys(FACTS, 1) | two
    assert trial.dead_letters() == []


def test_on_the_day_of_a_phase_that_the_calendar_lacks_no_cash_is_entered(
    tmp_path: Path, trial: Trial
) -> None:
    made = some()
    made.files["Batch2/BatchDate.txt"] = [LATER]
    made.cdc(2, "CashTransaction.txt", "I", 1001, "2017-07-08 10:00:00", "50.10", "sold")
    phased.load(trial, made.write(tmp_path), 2)
    assert entered(trial) == {}
    assert waiting(trial, 2) == {"FactCashBalances": "1"}
    phased.load(trial, tmp_path, 3, first=3)
    assert entered(trial) == {"factcashbalances": 1}


def test_without_any_calendar_facts_are_entered(tmp_path: Path, made: Digen, trial: Trial) -> None:
    del made.files["Batch1/Date.txt"]
    begun(trial, made.write(tmp_path))
    assert entered(trial) == dict.fromkeys(FACTS, 1)
    assert trial.dead_letters() == []
