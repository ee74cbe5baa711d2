"""What the rules say of special rows, made by hand: TPC-DI's dataflow does it."""

from datetime import date
from pathlib import Path

import phased
import pytest
from digen import Digen, Field
from phased import rows, waiting

from etl_procs import Trial
from tpcdi import oracle
from tpcdi.dataflow import remains
from tpcdi.flow import flow
from tpcdi.oracle.comparison import differences


def files() -> Digen:
    """Begin a directory, with a calendar."""
    made = Digen()
    made.days(date(1950, 1, 1), date(1950, 1, 1))
    made.days(date(2015, 1, 1), date(2017, 12, 31))
    return made


def agrees(made: Digen, folder: Path, *seeds: int, alone: int = 0) -> None:
    """Load files in order, and interleaved: the oracle has the same rows, but for so many alerts
    of which the rules say nothing.
    """
    made.write(folder)
    for seed in (None, *seeds):
        with Trial(flow) as trial, oracle.compute(folder) as computed:
            phased.load(trial, folder, seed=seed)
            phased.fetch(trial, computed, "warehouse")
            found = differences(computed, "warehouse")
            counts = [(of.table, of.missing, of.unexpected) for of in found]
            expected = [("dimessages", 0, alone)] if alone else []
            assert counts == expected, "\n".join([f"seed {seed}", *map(str, found)])
            assert trial.dead_letters() == []


def test_records_of_a_company_that_differ_are_two_versions_even_if_their_rows_are_the_same(
    tmp_path: Path,
) -> None:
    made = files()
    made.row(1, "Industry.txt", "SM", "Steel", "BM")
    made.company("20150101-090000", "ACME", 1, rating="ABC")
    made.company("20160101-090000", "ACME", 1, rating="EE")
    made.company("20160201-090000", "ACME", 1, rating="EE", industry="SM")
    made.company("20160301-090000", "ACME", 1, rating="EE", industry="SM")
    agrees(made, tmp_path, 1)


def test_what_is_older_than_its_company_or_than_the_name_of_that_is_entered_on_the_day_of_it(
    tmp_path: Path,
) -> None:
    made = files()
    made.security("20150101-090000", "S1", 1)
    made.security("20150201-090000", "S1", 1, name="Two")
    made.security("20150101-090000", "S2", "ACME")
    made.report("20150401-090000", "2015Q1", "ACME")
    made.company("20150501-090000", "ACME", 1)
    made.security("20150601-090000", "S3", "Renamed")
    made.security("20150601-090000", "S2", 1, name="Of the former name")
    made.report("20150601-090000", "2015Q1", "Renamed")
    made.company("20150701-090000", "ACME", 1, ceo="Ann")
    made.company("20150801-090000", "Renamed", 1, ceo="Ann")
    made.company("20150901-090000", "Renamed", 1, ceo="Bob")
    agrees(made, tmp_path, 1)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path, 1)
        found = [(x["symbol"], x["effectivedate"]) for x in phased.latest(trial, "dimsecurity")]
        bought, renamed, chaired = date(2015, 5, 1), date(2015, 8, 1), date(2015, 9, 1)
        begun = {symbol: min(of for name, of in found if name == symbol) for symbol, _ in found}
        assert begun == {"S1": bought, "S2": bought, "S3": renamed}
        assert [of for symbol, of in found if symbol == "S3"] == [renamed, chaired]


def test_without_a_calendar_brokers_are_some_since_the_benchmarks_first_day(tmp_path: Path) -> None:
    with Trial(flow) as trial:
        phased.load(trial, Digen().write(tmp_path))
        assert [day for (day,) in rows(trial, "dimbroker", "effectivedate")] == [date(1950, 1, 1)]


def test_of_several_rows_of_one_broker_the_last_counts(tmp_path: Path) -> None:
    made = files()
    made.row(1, "HR.csv", "7,1,Ann,Renamed,B,314,Main,OFFICE2,(111) 111-1111")
    made.row(1, "HR.csv", "7,1,Ann,Promoted,B,315,Main,OFFICE3,(111) 111-1111")
    made.new("2015-02-01T09:00:00", 1, 1001)
    agrees(made, tmp_path, 1)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path, 1)
        found = phased.latest(trial, "dimbroker")
        assert [(x["brokerid"], x["lastname"]) for x in found] == [(7, "Renamed")]


def strangers() -> Digen:
    """Gather facts of an account, a customer and a security that the second phase brings, and of
    some that never come.
    """
    made = files()
    made.company("20150101-090000", "ACME", 1)
    made.security("20150102-090000", "S1", 1)
    made.new("2015-02-01T09:00:00", 1, 1001)
    for n, (account, symbol) in enumerate(((1009, "S1"), (1001, "S9"), (1066, "S1")), start=1):
        bought = ("2016-05-01 10:00:00", "CMPT", "TMB", 1, symbol, 10, "5.00", account, "executor")
        made.row(1, "Trade.txt", n, *bought, *("5.01", "1.00", "1.00", "0.10"))
        made.row(1, "TradeHistory.txt", n, "2016-05-01 10:00:00", "SBMT")
        made.row(1, "TradeHistory.txt", n, "2016-05-01 11:00:00", "CMPT")
        made.row(1, "HoldingHistory.txt", n, n, 0, 10)
    for account in (1009, 1066):
        made.row(1, "CashTransaction.txt", account, "2016-05-01 10:00:00", "50.10", "sold")
    for customer, symbol in ((5, "S1"), (1, "S9"), (66, "S1")):
        made.row(1, "WatchHistory.txt", customer, symbol, "2016-05-01 10:00:00", "ACTV")
    for symbol in ("S9", "S66"):
        made.row(1, "DailyMarket.txt", "2017-07-06", symbol, "5.00", "6.00", "4.00", 100)
    made.customer(2, "I", 5)
    made.cdc(2, "Account.txt", "I", 1009, 7, 5, "Late", 1, "ACTV")
    return made


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_fact_waits_for_what_a_later_phase_brings_and_what_never_comes_is_told(
    tmp_path: Path, seed: int | None
) -> None:
    folder = strangers().write(tmp_path)
    listed = Digen()
    listed.security("20150102-090000", "S9", 1)
    (line,) = listed.files["Batch1/FINWIRE2015Q1"]
    with Trial(flow) as trial:
        phased.load(trial, folder, 1, seed)
        counts = {"DimTrade": "3", "TradeHistory": "6", "FactHoldings": "3"}
        counts["FactCashBalances"] = "2"
        assert waiting(trial, 1) == counts | {"FactWatches": "3", "FactMarketHistory": "2"}
        facts = ("dimtrade", "factholdings", "factcashbalances", "factwatches", "factmarkethistory")
        assert not any(trial.outlet(table) for table in facts)

        trial.batch(finwire=[{"line": line}])
        phased.load(trial, folder, 2, seed, first=2)
        counts = dict.fromkeys(("DimTrade", "FactHoldings", "FactCashBalances"), "1")
        counts["TradeHistory"] = "2"
        assert waiting(trial, 2) == counts | {"FactWatches": "1", "FactMarketHistory": "1"}
        assert {id_ for (id_,) in rows(trial, "dimtrade", "tradeid")} == {1, 2}
        assert {id_ for (id_,) in rows(trial, "factholdings", "tradeid")} == {1, 2}
        assert len(trial.outlet("factwatches")) == 2
        assert len(trial.outlet("factmarkethistory")) == len(trial.outlet("factcashbalances")) == 1

        phased.load(trial, folder, 3, seed, first=3)
        assert waiting(trial, 3) == waiting(trial, 2)
        assert trial.dead_letters() == []


def test_a_change_of_a_trade_waits_for_its_account(tmp_path: Path) -> None:
    made = files()
    made.company("20150101-090000", "ACME", 1)
    made.security("20150102-090000", "S1", 1)
    made.new("2015-02-01T09:00:00", 1, 1001)
    placed = ("SBMT", "TMB", 1, "S1", 10, "5.00", 1009, "executor")
    made.cdc(2, "Trade.txt", "I", 7, "2017-07-08 10:00:00", *placed, *[None] * 4)
    sold = ("CMPT", *placed[1:], "5.00", "1.00", "1.00", "0.10")
    made.cdc(2, "Trade.txt", "U", 7, "2017-07-08 10:00:01", *sold)
    made.cdc(3, "Account.txt", "I", 1009, 7, 1, "Late", 1, "ACTV")
    folder = made.write(tmp_path)
    with Trial(flow) as trial:
        phased.load(trial, folder, 2)
        assert waiting(trial, 2) == {"Trade": "2"}
        phased.load(trial, folder, 3, first=3)
        assert waiting(trial, 3) == {}
        assert rows(trial, "dimtrade", "tradeid", "status", "batchid") == [(7, "Completed", 3)]


def test_what_comes_after_its_source_is_complete_is_taken_or_waits_for_the_next_phase(
    tmp_path: Path,
) -> None:
    made = strangers()
    folder = made.write(tmp_path / "files")
    late = files()
    late.company("20140101-090000", "ACME", 1, rating="BBB")
    late.security("20150102-090000", "S7", 1)
    late.new("2014-02-01T09:00:00", 1, 1001, C_TIER=3)
    late.new("2014-02-01T09:00:00", 9, 1066)
    late.prospect(1, "P1")
    late.row(1, "HR.csv", "8,1,Bob,Broker,B,314,Main,OFFICE1,(111) 111-1111")
    late.row(1, "CashTransaction.txt", 1001, "2016-05-01 10:00:00", "50.10", "sold")
    late.row(1, "DailyMarket.txt", "2017-07-06", "S1", "5.00", "6.00", "4.00", 100)
    late.row(1, "WatchHistory.txt", 1, "S1", "2016-05-01 10:00:00", "ACTV")
    of_late = phased.Feed(late.write(tmp_path / "late"), 1)
    names = ("finwire", "actions", "prospects", "employees", "cash", "market", "watches")
    with Trial(flow) as trial:
        feed = phased.Feed(folder, 1)
        ends, feed.ends = feed.ends, []
        phased.in_order(trial, feed)
        for name in names:
            trial.batch(**{name: of_late.rows[name]})
        facts = ("factcashbalances", "factmarkethistory", "factwatches", "dimbroker")
        assert [len(trial.outlet(table)) for table in facts] == [1, 1, 1, 3]
        assert trial.outlet("prospect") == []
        trial.batch(marks=ends)
        told = waiting(trial, 1)
        assert {n: told[n] for n in ("DimSecurity", "DimCustomer", "Prospect")} == {
            **dict.fromkeys(("DimSecurity", "DimCustomer"), "2"),
            "Prospect": "1",
        }

        phased.load(trial, folder, 2, first=2)
        assert not {"DimSecurity", "DimCustomer", "Prospect"} & waiting(trial, 2).keys()
        assert rows(trial, "prospect", "agencyid", "batchid") == [("P1", 2)]
        # History is not changed: from the next phase's day on, it is as the late rows say.
        second = date(2017, 7, 8)
        found = phased.latest(trial, "dimcompany")
        assert [(x["sprating"], x["effectivedate"], x["enddate"]) for x in found] == [
            ("A+", date(2015, 1, 1), second),
            ("BBB", second, date(9999, 12, 31)),
        ]
        tiers = {
            (x["customerid"], x["tier"], x["effectivedate"])
            for x in phased.latest(trial, "dimcustomer")
        }
        assert {(1, 2, date(2015, 2, 1)), (1, 3, second), (9, 2, second)} <= tiers
        assert trial.dead_letters() == []


def test_what_comes_between_two_phases_waits_for_the_next(tmp_path: Path) -> None:
    folder = strangers().write(tmp_path)
    with Trial(flow) as trial:
        phased.load(trial, folder, 1)
        feed = phased.Feed(folder, 2)
        trial.batch(**feed.rows)
        assert rows(trial, "dimcustomer", "customerid") == [(1,)]
        feed.rows = {"answers": []}
        phased.in_order(trial, feed)
        assert {id_ for (id_,) in rows(trial, "dimcustomer", "customerid")} == {1, 5}
        assert {id_ for (id_,) in rows(trial, "dimtrade", "tradeid")} == {1}


def test_every_table_in_which_rows_wait_is_counted() -> None:
    assert [table.name for table in remains.TABLES if not table.parks] == []


def test_of_a_prospect_that_a_file_has_several_times_the_last_counts_and_each_change_is_counted(
    tmp_path: Path,
) -> None:
    made = files()
    for agency in ("P1", "P2", "P3"):
        made.prospect(1, agency)
    made.prospect(2, "P1")
    made.prospect(2, "P1", age=41)
    made.prospect(2, "P2", age=41)
    made.prospect(2, "P2")
    made.prospect(2, "P3")
    made.prospect(2, "P4", age=41)
    made.prospect(2, "P4", age=42)
    folder = made.write(tmp_path)
    with Trial(flow) as trial:
        phased.load(trial, folder, 2)
        names = ("agencyid", "age", "sk_recorddateid", "sk_updatedateid", "batchid")
        first, second = 20170707, 20170708
        found = phased.latest(trial, "prospect")
        assert sorted(tuple(row[name] for name in names) for row in found) == [
            ("P1", 41, second, second, 2),
            ("P2", 40, second, second, 2),
            ("P3", 40, second, first, 1),
            ("P4", 42, second, second, 2),
        ]
        counted = trial.query("SELECT source, new, other FROM prospect_counts WHERE batch = 2")
        assert list(counted) == [{"source": 7, "new": 1, "other": 4}]


def test_an_account_of_a_customer_who_has_left_stays_inactive_until_a_later_file_says_otherwise(
    tmp_path: Path,
) -> None:
    made = files()
    for customer, account in ((1, 1001), (2, 1002)):
        made.new("2015-02-01T09:00:00", customer, account)
    made.action("INACT", "2016-02-01T09:00:00", 1)
    renamed: dict[str, Field] = {"CA_ID": 1001, "CA_NAME": "Renamed"}
    made.action("UPDACCT", "2016-03-01T09:00:00", 1, account=renamed)
    made.customer(2, "U", 2, status="INAC")
    for batch in (2, 3):
        made.cdc(batch, "Account.txt", "U", 1002, 7, 2, f"Filed in {batch}", 1, "ACTV")
    agrees(made, tmp_path, 1)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path)
        assert [
            (x["accountid"], x["accountdesc"], x["status"])
            for x in phased.latest(trial, "dimaccount")
        ] == [
            (1001, "Savings", "Active"),
            (1002, "Savings", "Active"),
            (1001, "Savings", "Inactive"),
            (1001, "Renamed", "Inactive"),
            (1002, "Filed in 2", "Inactive"),
            (1002, "Filed in 3", "Active"),
        ]


def test_an_account_that_is_opened_on_the_day_on_which_its_customer_leaves_ends_inactive(
    tmp_path: Path,
) -> None:
    made = files()
    made.new("2015-02-01T09:00:00", 1, 1001)
    made.action("INACT", "2016-02-01T09:00:00", 1)
    for account, day in ((1002, "2016-02-01"), (1003, "2016-02-02")):
        opened: dict[str, Field] = {"CA_ID": account, "CA_TAX_ST": 1, "CA_B_ID": 7}
        made.action("ADDACCT", f"{day}T10:00:00", 1, account=opened)
    made.new("2016-02-02T09:00:00", 2, 1004)
    made.action("INACT", "2016-02-02T10:00:00", 2)
    agrees(made, tmp_path, 1)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path, 1)
        found = {x["accountid"]: x["status"] for x in phased.latest(trial, "dimaccount")}
        assert found == {1001: "Inactive", 1002: "Inactive", 1003: "Active", 1004: "Inactive"}


def test_what_is_said_of_a_customer_or_account_before_it_is_there_changes_nobody(
    tmp_path: Path,
) -> None:
    made = files()
    made.new("2015-02-01T09:00:00", 1, 1001)
    made.action("UPDCUST", "2015-02-02T09:00:00", 5, attributes={"C_TIER": 3})
    made.action("INACT", "2015-02-03T09:00:00", 5)
    named: dict[str, Field] = {"CA_ID": 1009, "CA_NAME": "Named"}
    made.action("UPDACCT", "2015-02-04T09:00:00", 1, account=named)
    made.action("CLOSEACCT", "2015-02-05T09:00:00", 1, account={"CA_ID": 1009})
    opened: dict[str, Field] = {"CA_ID": 1010, "CA_TAX_ST": 1, "CA_B_ID": 7}
    made.action("ADDACCT", "2015-02-06T09:00:00", 5, account=opened)
    made.action("ADDACCT", "2015-02-07T09:00:00", 1)
    made.action("ADDACCT", "2015-03-01T09:00:00", 1, account=opened | {"CA_ID": 1009})
    made.new("2015-03-01T09:00:00", 5, 1005)
    made.action("NEW", "2015-03-02T09:00:00", 5, attributes={"C_TIER": 1})
    agrees(made, tmp_path, 1, alone=6)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path, 1)
        assert [(text, data) for _, _, text, data in phased.messages(trial)] == [
            ("Unknown customer", "C_ID = 5"),
            ("Unknown customer", "C_ID = 5"),
            ("Unknown account", "CA_ID = 1009"),
            ("Unknown account", "CA_ID = 1009"),
            ("Unknown customer", "CA_ID = 1010, C_ID = 5"),
            ("No account", "C_ID = 1, ADDACCT"),
        ]
        found = phased.latest(trial, "dimcustomer")
        assert [(x["customerid"], x["tier"], x["status"], x["lastname"]) for x in found] == [
            (1, 2, "Active", "Last1"),
            (5, 2, "Active", "Last5"),
            (5, 1, "Active", None),
        ]


def test_a_change_that_names_an_unknown_broker_or_anothers_account_leaves_it_as_it_was(
    tmp_path: Path,
) -> None:
    made = files()
    for customer, account in ((1, 1001), (2, 1002)):
        made.new("2015-02-01T09:00:00", customer, account)
    changes: tuple[tuple[str, int, dict[str, Field]], ...] = (
        ("UPDACCT", 1, {"CA_ID": 1001, "CA_NAME": "Of no broker", "CA_B_ID": 99}),
        ("UPDACCT", 1, {"CA_ID": 1001, "CA_NAME": "Of none", "CA_B_ID": ""}),
        ("UPDACCT", 2, {"CA_ID": 1001, "CA_NAME": "Of another"}),
        ("CLOSEACCT", 2, {"CA_ID": 1001}),
        ("ADDACCT", 2, {"CA_ID": 1001, "CA_TAX_ST": 1, "CA_B_ID": 99, "CA_NAME": "Of no broker"}),
        ("ADDACCT", 66, {"CA_ID": 1001, "CA_TAX_ST": 1, "CA_B_ID": 7, "CA_NAME": "Of nobody"}),
    )
    for hour, (kind, customer, of_account) in enumerate(changes, start=10):
        made.action(kind, f"2016-02-01T{hour}:00:00", customer, account=of_account)
    made.action("UPDCUST", "2016-02-01T20:00:00", 1, attributes={"C_TIER": 3})
    moved: dict[str, Field] = {"CA_ID": 1002, "CA_TAX_ST": 1, "CA_B_ID": 7, "CA_NAME": "Moved"}
    made.action("ADDACCT", "2016-03-01T09:00:00", 1, account=moved)
    made.cdc(2, "Account.txt", "U", 1001, 99, 1, "Of no broker", 1, "ACTV")
    made.cdc(2, "Account.txt", "U", 1002, 7, 66, "Of nobody", 1, "ACTV")
    made.customer(2, "U", 1)
    made.cdc(3, "Account.txt", "U", 1002, 7, 2, "Moved back", 1, "ACTV")
    agrees(made, tmp_path, 1, alone=len(changes) + 2)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path)
        assert [(text, data) for _, _, text, data in phased.messages(trial)] == [
            ("Unknown broker", "CA_ID = 1001, B_ID = 99"),
            ("Unknown broker", "CA_ID = 1001, B_ID = "),
            *[("Account of another customer", "CA_ID = 1001, C_ID = 2")] * 2,
            ("Unknown broker", "CA_ID = 1001, B_ID = 99"),
            ("Unknown customer", "CA_ID = 1001, C_ID = 66"),
            ("Unknown broker", "CA_ID = 1001, B_ID = 99"),
            ("Unknown customer", "CA_ID = 1002, C_ID = 66"),
        ]
        names = {(x["accountid"], x["accountdesc"]) for x in phased.latest(trial, "dimaccount")}
        assert names == {
            (1001, "Savings"),
            *((1002, x) for x in ("Savings", "Moved", "Moved back")),
        }


def test_of_a_customer_who_leaves_a_second_time_the_accounts_opened_since_end_inactive(
    tmp_path: Path,
) -> None:
    made = files()
    made.new("2015-02-01T09:00:00", 1, 1001)
    made.action("INACT", "2016-02-01T09:00:00", 1)
    opened: dict[str, Field] = {"CA_ID": 1002, "CA_TAX_ST": 1, "CA_B_ID": 7}
    made.action("ADDACCT", "2016-03-01T10:00:00", 1, account=opened)
    made.action("INACT", "2016-04-01T09:00:00", 1)
    made.action("ADDACCT", "2016-05-01T09:00:00", 1, account=opened | {"CA_ID": 1003})
    made.action("INACT", "2016-06-01T09:00:00", 1)
    made.new("2016-06-01T10:00:00", 1, 1004)
    agrees(made, tmp_path, 1)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path, 1)
        found = {x["accountid"]: x["status"] for x in phased.latest(trial, "dimaccount")}
        assert found == dict.fromkeys((1001, 1002), "Inactive") | dict.fromkeys(
            (1003, 1004), "Active"
        )


def test_a_record_of_no_known_status_or_industry_is_parked_and_those_around_it_are_entered(
    tmp_path: Path,
) -> None:
    made = files()
    made.company("20150101-090000", "ACME", 1)
    made.company("20150201-090000", "Lost", 1, status="NONE")
    made.company("20150201-080000", "ACME", 1, ceo="Ann")
    made.company("20150301-090000", "Lost", 1, industry="??")
    made.company("20150401-090000", "ACME", 1, ceo="Ann")
    made.security("20150501-090000", "S1", 1)
    made.security("20150601-090000", "S1", 1, name="Lost", status="NONE")
    made.security("20150601-080000", "S1", 1, name="Two")
    made.security("20150701-090000", "S1", "Lost", name="Lost")
    made.new("2015-02-01T09:00:00", 1, 1001)
    made.customer(2, "U", 1, C_TIER=3)
    made.customer(2, "U", 1, status="NONE")
    made.cdc(2, "Account.txt", "U", 1001, 7, 1, "Lost", 1, "NONE")
    agrees(made, tmp_path, 1, alone=1 + 3 + 3)


def test_of_companies_that_take_one_name_on_a_day_the_last_to_say_so_has_it(
    tmp_path: Path,
) -> None:
    made = files()
    made.company("20150101-090000", "ACME", 1)
    made.company("20150101-100000", "ACME", 2)
    made.company("20150101-110000", "ACME", 1, ceo="Ann")
    made.security("20150101-090000", "S1", "ACME")
    made.company("20150201-090000", "Beta", 1)
    made.company("20150201-090000", "Beta", 2)
    made.security("20150201-090000", "S2", "Beta")
    made.security("20150301-090000", "S3", "ACME")
    agrees(made, tmp_path, 1)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path, 1)
        companies = {x["sk_companyid"]: x["companyid"] for x in phased.latest(trial, "dimcompany")}
        found = phased.latest(trial, "dimsecurity")
        assert {x["symbol"]: companies[x["sk_companyid"]] for x in found} == {
            "S1": 1,
            "S2": 2,
            "S3": 1,
        }


def test_who_is_pending_and_leaves_takes_the_accounts_along(tmp_path: Path) -> None:
    made = files()
    for customer, account in ((1, 1001), (2, 1002)):
        made.new("2015-02-01T09:00:00", customer, account)
        made.customer(2, "U", customer, status="PNDG")
        made.customer(3, "U", customer, status="INAC")
    made.cdc(3, "Account.txt", "U", 1001, 7, 1, "Filed", 1, "ACTV")
    agrees(made, tmp_path, 1)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path)
        found = {x["accountid"]: x["status"] for x in phased.latest(trial, "dimaccount")}
        assert found == {1001: "Inactive", 1002: "Inactive"}


def test_an_account_within_an_action_on_a_customer_alone_is_not_taken(tmp_path: Path) -> None:
    made = files()
    made.new("2015-02-01T09:00:00", 1, 1001)
    named: dict[str, Field] = {"CA_ID": 1001, "CA_NAME": "Named"}
    made.action("UPDCUST", "2016-02-01T09:00:00", 1, account=named)
    made.action("INACT", "2016-03-01T09:00:00", 1, account=named)
    agrees(made, tmp_path, 1, alone=2)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path, 1)
        told = [(text, data) for _, _, text, data in phased.messages(trial)]
        assert told == [
            ("Account not taken", "CA_ID = 1001, UPDCUST"),
            ("Account not taken", "CA_ID = 1001, INACT"),
        ]
        assert {x["accountdesc"] for x in phased.latest(trial, "dimaccount")} == {"Savings"}


def test_actions_of_a_day_count_in_the_order_of_their_times(tmp_path: Path) -> None:
    made = files()
    made.new("2015-02-01T09:00:00", 1, 1001)
    for hour, name in ((12, "Last"), (10, "First"), (11, "Then")):
        named: dict[str, Field] = {"CA_ID": 1001, "CA_NAME": name}
        made.action("UPDACCT", f"2016-02-01T{hour}:00:00", 1, account=named)
    agrees(made, tmp_path, 1)
    with Trial(flow) as trial:
        phased.load(trial, tmp_path, 1)
        assert [x["accountdesc"] for x in phased.latest(trial, "dimaccount")] == ["Savings", "Last"]
