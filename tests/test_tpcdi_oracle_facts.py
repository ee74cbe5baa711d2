"""The oracle knows the rules for accounts and facts: what is expected here was written by hand."""

from pathlib import Path

import pytest
from consulting import Consult, consulted
from digen import Digen, Field

ALERTS = "SELECT messagetext, messagedata, batchid FROM dimessages WHERE messagetype = 'Alert' "


@pytest.fixture
def consult(tmp_path: Path) -> Consult:
    return consulted(tmp_path)


@pytest.fixture
def made() -> Digen:
    """A customer with an account since 2010, and a company with a security since 2000."""
    made = Digen()
    made.company("20000101-090000", "ACME", 5)
    made.security("20000101-090000", "S", 5)
    made.new("2010-01-01T09:00:00", 1, 10)
    return made


ACCOUNTS = """
    SELECT accountid, account.status, accountdesc, taxstatus, tier, account.batchid,
        account.effectivedate, account.enddate
    FROM dimaccount AS account JOIN dimcustomer USING (sk_customerid)
    ORDER BY accountid, account.effectivedate"""
"""The tier tells which version of the customer is meant."""


def test_an_account_has_a_version_for_each_day_on_which_it_or_its_customer_changed(
    consult: Consult, made: Digen
) -> None:
    second: dict[str, Field] = {"CA_ID": 11, "CA_TAX_ST": 2, "CA_B_ID": 7, "CA_NAME": "Second"}
    made.action("ADDACCT", "2011-01-01T09:00:00", 1, account=second)
    made.action("UPDCUST", "2012-01-01T09:00:00", 1, attributes={"C_TIER": 3})
    made.action("UPDACCT", "2012-01-01T10:00:00", 1, account={"CA_ID": 11, "CA_NAME": "2nd"})
    made.action("UPDACCT", "2013-01-01T09:00:00", 1, account={"CA_ID": 11, "CA_NAME": None})
    made.action("UPDACCT", "2014-01-01T09:00:00", 1, account={"CA_ID": 11, "CA_TAX_ST": None})
    made.action("CLOSEACCT", "2015-01-01T09:00:00", 1, account={"CA_ID": 10})
    made.action("UPDCUST", "2016-01-01T09:00:00", 1, attributes={"C_TIER": 1})
    assert consult(made)(ACCOUNTS) == [
        (10, "Active", "Savings", 1, 2, 1, "2010-01-01", "2012-01-01"),
        (10, "Active", "Savings", 1, 3, 1, "2012-01-01", "2015-01-01"),
        (10, "Inactive", "Savings", 1, 3, 1, "2015-01-01", "2016-01-01"),
        (10, "Inactive", "Savings", 1, 1, 1, "2016-01-01", "9999-12-31"),
        (11, "Active", "Second", 2, 2, 1, "2011-01-01", "2012-01-01"),
        (11, "Active", "2nd", 2, 3, 1, "2012-01-01", "2013-01-01"),
        (11, "Active", None, 2, 3, 1, "2013-01-01", "2014-01-01"),
        (11, "Active", None, None, 3, 1, "2014-01-01", "2016-01-01"),
        (11, "Active", None, None, 1, 1, "2016-01-01", "9999-12-31"),
    ]


def test_what_comes_after_an_inactivation_leaves_the_accounts_inactive(
    consult: Consult, made: Digen
) -> None:
    made.action("INACT", "2011-01-01T09:00:00", 1)
    made.action("UPDACCT", "2012-01-01T09:00:00", 1, account={"CA_ID": 10, "CA_NAME": "2nd"})
    made.action("CLOSEACCT", "2013-01-01T09:00:00", 1, account={"CA_ID": 10})
    ask = consult(made)
    assert ask(ACCOUNTS) == [
        (10, "Active", "Savings", 1, 2, 1, "2010-01-01", "2011-01-01"),
        (10, "Inactive", "Savings", 1, 2, 1, "2011-01-01", "2012-01-01"),
        (10, "Inactive", "2nd", 1, 2, 1, "2012-01-01", "2013-01-01"),
        (10, "Inactive", "2nd", 1, 2, 1, "2013-01-01", "9999-12-31"),
    ]
    assert ask("SELECT count(*) FROM dimcustomer") == [(2,)]


def test_in_an_increment_an_account_changes_once_for_itself_and_its_customer(
    consult: Consult, made: Digen
) -> None:
    made.customer(2, "U", 1, tier=3)
    made.cdc(2, "Account.txt", "U", 10, 7, 1, "First", 0, "ACTV")
    made.cdc(2, "Account.txt", "U", 10, 7, 1, None, 0, "ACTV")
    made.cdc(2, "Account.txt", "I", 11, 7, 1, "New", 2, "ACTV")
    made.customer(3, "U", 1, tier=1)
    assert consult(made)(ACCOUNTS) == [
        (10, "Active", "Savings", 1, 2, 1, "2010-01-01", "2017-07-08"),
        (10, "Active", None, 0, 3, 2, "2017-07-08", "2017-07-09"),
        (10, "Active", None, 0, 1, 3, "2017-07-09", "9999-12-31"),
        (11, "Active", "New", 2, 3, 2, "2017-07-08", "2017-07-09"),
        (11, "Active", "New", 2, 1, 3, "2017-07-09", "9999-12-31"),
    ]


def test_an_account_filed_as_active_in_the_batch_that_inactivates_its_customer_ends_inactive(
    consult: Consult, made: Digen
) -> None:
    made.new("2010-01-01T09:00:00", 2, 20)
    made.customer(2, "U", 1, status="INAC")
    made.customer(2, "U", 2, status="INAC")
    made.cdc(2, "Account.txt", "U", 10, 7, 1, "Filed", 1, "ACTV")
    made.cdc(3, "Account.txt", "U", 10, 7, 1, "Again", 1, "ACTV")
    assert consult(made)(ACCOUNTS)[1:] == [
        (10, "Inactive", "Filed", 1, 2, 2, "2017-07-08", "2017-07-09"),
        (10, "Active", "Again", 1, 2, 3, "2017-07-09", "9999-12-31"),
        (20, "Active", "Savings", 1, 2, 1, "2010-01-01", "2017-07-08"),
        (20, "Inactive", "Savings", 1, 2, 2, "2017-07-08", "9999-12-31"),
    ]


def test_an_account_follows_the_customer_whose_it_is_now(consult: Consult, made: Digen) -> None:
    made.new("2010-01-01T09:00:00", 2, 20, C_TIER=1)
    made.cdc(2, "Account.txt", "U", 10, 7, 2, "Moved", 1, "INAC")
    made.customer(3, "U", 1, tier=3)
    made.customer(3, "U", 2, tier=9)
    assert consult(made)(ACCOUNTS)[:3] == [
        (10, "Active", "Savings", 1, 2, 1, "2010-01-01", "2017-07-08"),
        (10, "Inactive", "Moved", 1, 1, 2, "2017-07-08", "2017-07-09"),
        (10, "Inactive", "Moved", 1, 9, 3, "2017-07-09", "9999-12-31"),
    ]


def trade(made: Digen, number: int, kind: str, status: str, *events: str, **of: Field) -> None:
    """Add a trade of batch 1 with its history, each event as `PNDG 2015-01-01 10:00:00`."""
    prices = (of.get(name) for name in ("price", "fee", "commission", "tax"))
    placed = (number, "2017-07-07 00:00:00", status, kind, 1, "S", 10, "5.00", 10, "someone")
    made.row(1, "Trade.txt", *placed, *prices)
    for event in events:
        what, _, when = event.partition(" ")
        made.row(1, "TradeHistory.txt", number, when, what)


def more(made: Digen, batch: int, flag: str, number: int, status: str, **of: Field) -> None:
    """Add an event of a trade in an increment."""
    prices = (of.get(name) for name in ("price", "fee", "commission", "tax"))
    when = of.get("when", f"2017-07-0{batch + 6} 10:00:00")
    symbol, account = of.get("symbol", "S"), of.get("account", 10)
    placed = (number, when, status, of.get("kind", "TLB"), 0, symbol, 10, "6.00", account, "other")
    made.cdc(batch, "Trade.txt", flag, *placed, *prices)


TRADES = """
    SELECT tradeid, status, sk_createdateid, sk_createtimeid, sk_closedateid, sk_closetimeid
    FROM dimtrade ORDER BY tradeid"""


def test_a_trade_is_created_and_closed_by_the_events_of_its_kind(
    consult: Consult, made: Digen
) -> None:
    trade(made, 1, "TMB", "CMPT", "SBMT 2015-01-01 00:00:09", "CMPT 2015-01-02 10:11:12")
    pending, submitted = "PNDG 2015-02-01 10:00:00", "SBMT 2015-02-02 10:00:00"
    trade(made, 2, "TLS", "CMPT", pending, submitted, "CMPT 2015-02-03 10:00:00")
    trade(made, 3, "TLB", "CNCL", pending, "CNCL 2015-02-02 10:00:00")
    trade(made, 4, "TLB", "SBMT", pending, submitted)
    trade(made, 5, "TMS", "SBMT", "SBMT 2015-02-02 10:00:00")
    trade(made, 6, "TMB", "CMPT", "CMPT 2015-02-03 10:00:00")
    trade(made, 7, "TLB", "PNDG", "SBMT 2015-02-01 09:00:00", pending)
    trade(made, 8, "TLB", "CMPT", pending, submitted)
    trade(made, 9, "TLB", "CMPT", pending, "CMPT 2015-02-03 10:00:00", "CNCL 2015-02-04 10:00:00")
    assert consult(made)(TRADES) == [
        (1, "Completed", 20150101, 9, 20150102, 101112),
        (2, "Completed", 20150201, 100000, 20150203, 100000),
        (3, "Canceled", 20150201, 100000, 20150202, 100000),
        (4, "Submitted", 20150201, 100000, None, None),
        (5, "Submitted", 20150202, 100000, None, None),
        (7, "Pending", 20150201, 100000, None, None),
        (9, "Completed", 20150201, 100000, 20150203, 100000),
    ]


def test_a_trade_belongs_to_what_was_valid_when_it_was_created(
    consult: Consult, made: Digen
) -> None:
    made.company("20150102-000000", "ACME", 5, ceo="Ann")
    made.action("UPDCUST", "2015-01-03T00:00:00", 1, attributes={"C_TIER": 3})
    events = ["PNDG 2015-01-01 10:00:00", "SBMT 2015-01-02 10:00:00", "CMPT 2015-01-03 10:00:00"]
    trade(made, 1, "TLB", "CMPT", *events, price="5.01", fee="0.10", commission="0.20", tax="0.30")
    trade(made, 2, "TMB", "CMPT", "SBMT 1999-01-01 10:00:00", "CMPT 2015-01-03 10:00:00")
    trade(made, 3, "TLB", "PNDG", "SBMT 2015-01-01 10:00:00", "PNDG 2015-01-03 10:00:00")
    query = """
        SELECT tradeid, brokerid, security.effectivedate, company.effectivedate,
            account.effectivedate, customer.effectivedate
        FROM dimtrade JOIN dimbroker USING (sk_brokerid)
        JOIN dimsecurity AS security USING (sk_securityid)
        JOIN dimcompany AS company ON company.sk_companyid = dimtrade.sk_companyid
        JOIN dimaccount AS account USING (sk_accountid)
        JOIN dimcustomer AS customer ON customer.sk_customerid = dimtrade.sk_customerid
        ORDER BY tradeid"""
    ask = consult(made)
    firsts = ("2000-01-01", "2000-01-01", "2010-01-01", "2010-01-01")
    seconds = ("2015-01-02", "2015-01-02", "2015-01-03", "2015-01-03")
    assert ask(query) == [(1, 7, *firsts), (2, 7, *firsts), (3, 7, *seconds)]
    values = """SELECT type, cashflag, quantity, bidprice, executedby, tradeprice, fee, commission,
        tax, batchid FROM dimtrade WHERE tradeid = 1"""
    assert ask(values) == [
        ("Limit Buy", True, 10, "5.00", "someone", "5.01", "0.10", "0.20", "0.30", 1)
    ]


def test_several_events_of_a_trade_in_one_batch_leave_it_as_the_last_says(
    consult: Consult, made: Digen
) -> None:
    trade(made, 1, "TLB", "PNDG", "PNDG 2017-07-07 10:00:00")
    trade(made, 2, "TLB", "PNDG", "PNDG 2017-07-07 10:00:00")
    made.customer(2, "U", 1, tier=3)
    more(made, 2, "U", 1, "SBMT")
    more(made, 2, "U", 1, "CMPT", when="2017-07-08 11:00:00", price="6.01", fee="1.00")
    more(made, 2, "U", 2, "SBMT")
    more(made, 2, "I", 3, "SBMT", kind="TMB")
    more(made, 2, "U", 3, "CMPT", kind="TMB", when="2017-07-08 10:00:09")
    more(made, 2, "I", 4, "PNDG")
    more(made, 3, "U", 4, "CNCL")
    more(made, 3, "U", 5, "CMPT")
    ask = consult(made)
    assert ask(TRADES) == [
        (1, "Completed", 20170707, 100000, 20170708, 110000),
        (2, "Submitted", 20170707, 100000, None, None),
        (3, "Completed", 20170708, 100000, 20170708, 100009),
        (4, "Canceled", 20170708, 100000, 20170709, 100000),
    ]
    query = """SELECT tradeid, bidprice, tradeprice, fee, tier, dimtrade.batchid
        FROM dimtrade JOIN dimcustomer USING (sk_customerid) ORDER BY tradeid"""
    assert ask(query) == [
        (1, "6.00", "6.01", "1.00", 2, 2),
        (2, "6.00", None, None, 2, 2),
        (3, "6.00", None, None, 3, 2),
        (4, "6.00", None, None, 3, 3),
    ]


def test_a_commission_or_fee_above_what_the_trade_is_worth_raises_an_alert(
    consult: Consult, made: Digen
) -> None:
    day = ("SBMT 2015-01-01 00:00:00", "CMPT 2015-01-01 00:00:01")
    trade(made, 1, "TMB", "CMPT", *day, price="5.00", fee="50.00", commission="50.01", tax="0")
    trade(made, 2, "TMB", "CMPT", *day, price="5.00", fee="50.01", commission="50.00", tax="0")
    trade(made, 3, "TMB", "CMPT", *day, fee="50.01", commission="50.01")
    more(made, 2, "I", 4, "SBMT", kind="TMB")
    more(made, 3, "U", 4, "SBMT", kind="TMB")
    more(made, 3, "U", 4, "CMPT", kind="TMB", price="1.00", fee="99.00", commission="99.00")
    assert sorted(consult(made)(ALERTS)) == [
        ("Invalid trade commission", "T_ID = 1, T_COMM = 50.01", 1),
        ("Invalid trade commission", "T_ID = 4, T_COMM = 99.00", 3),
        ("Invalid trade fee", "T_ID = 2, T_CHRG = 50.01", 1),
        ("Invalid trade fee", "T_ID = 4, T_CHRG = 99.00", 3),
    ]


def test_cash_goes_on_across_versions_with_one_row_a_day_and_later_one_a_batch(
    consult: Consult, made: Digen
) -> None:
    made.action("UPDCUST", "2015-01-02T00:00:00", 1, attributes={"C_TIER": 3})
    for when, amount in (("01 10", "10.50"), ("01 11", "-0.25"), ("02 10", "5.00")):
        made.row(1, "CashTransaction.txt", 10, f"2015-01-{when}:00:00", amount, "x")
    made.cdc(2, "CashTransaction.txt", "I", 10, "2017-07-07 10:00:00", "1.00", "x")
    made.cdc(2, "CashTransaction.txt", "I", 10, "2017-07-08 10:00:00", "2.00", "x")
    made.cdc(3, "CashTransaction.txt", "I", 10, "2017-07-09 10:00:00", "-100", "x")
    query = """
        SELECT sk_dateid, cash, cash.batchid, account.effectivedate, customer.effectivedate
        FROM factcashbalances AS cash JOIN dimaccount AS account USING (sk_accountid)
        JOIN dimcustomer AS customer ON customer.sk_customerid = cash.sk_customerid
        ORDER BY sk_dateid"""
    assert consult(made)(query) == [
        (20150101, "10.25", 1, "2010-01-01", "2010-01-01"),
        (20150102, "15.25", 1, "2015-01-02", "2015-01-02"),
        (20170708, "18.25", 2, "2015-01-02", "2015-01-02"),
        (20170709, "-81.75", 3, "2015-01-02", "2015-01-02"),
    ]


def test_a_holding_is_dated_priced_and_placed_as_the_trade_that_made_it(
    consult: Consult, made: Digen
) -> None:
    day = ("SBMT 2015-01-01 10:00:00", "CMPT 2015-01-02 11:00:00")
    trade(made, 1, "TMB", "CMPT", *day, price="5.01")
    made.action("UPDCUST", "2015-01-02T00:00:00", 1, attributes={"C_TIER": 3})
    made.row(1, "HoldingHistory.txt", 1, 1, 0, 10)
    more(made, 2, "I", 2, "CMPT", price="6.01")
    made.cdc(2, "HoldingHistory.txt", "I", 1, 2, 10, 4)
    made.cdc(2, "HoldingHistory.txt", "I", 9, 9, 0, 1)
    query = """
        SELECT tradeid, currenttradeid, tier, symbol, sk_dateid, sk_timeid, currentprice,
            currentholding, factholdings.batchid
        FROM factholdings JOIN dimcustomer USING (sk_customerid)
        JOIN dimsecurity USING (sk_securityid) ORDER BY ALL"""
    assert consult(made)(query) == [
        (1, 1, 2, "S", 20150102, 110000, "5.01", 10, 1),
        (1, 2, 3, "S", 20170708, 100000, "6.01", 4, 2),
    ]


def price(made: Digen, batch: int, day: str, high: str, low: str, close: str = "5.00") -> None:
    flag = ("I", batch) if batch > 1 else ()
    made.row(batch, "DailyMarket.txt", *flag, day, "S", close, high, low, 100)


YEAR = """
    SELECT sk_dateid, fiftytwoweekhigh, sk_fiftytwoweekhighdate,
        fiftytwoweeklow, sk_fiftytwoweeklowdate
    FROM factmarkethistory ORDER BY sk_dateid"""


def test_a_year_ends_on_the_day_and_begins_after_the_same_day_of_the_year_before(
    consult: Consult, made: Digen
) -> None:
    price(made, 1, "2016-07-05", "9.00", "1.00")
    price(made, 1, "2016-07-06", "8.00", "2.00")
    price(made, 1, "2017-07-05", "8.00", "2.00")
    price(made, 1, "2017-07-06", "7.00", "3.00")
    price(made, 2, "2017-07-07", "6.00", "3.50")
    assert consult(made)(YEAR) == [
        (20160705, "9.00", 20160705, "1.00", 20160705),
        (20160706, "9.00", 20160705, "1.00", 20160705),
        (20170705, "8.00", 20160706, "2.00", 20160706),
        (20170706, "8.00", 20170705, "2.00", 20170705),
        (20170707, "8.00", 20170705, "2.00", 20170705),
    ]


def test_the_year_before_29_february_ends_on_28_february(consult: Consult, made: Digen) -> None:
    price(made, 1, "2015-02-28", "9.00", "1.00")
    price(made, 1, "2015-03-01", "8.00", "2.00")
    price(made, 1, "2016-02-29", "7.00", "3.00")
    price(made, 1, "2017-02-28", "6.00", "4.00")
    price(made, 1, "2017-03-01", "5.00", "4.50")
    assert [row[:2] for row in consult(made)(YEAR)] == [
        (20150228, "9.00"),
        (20150301, "9.00"),
        (20160229, "8.00"),
        (20170228, "7.00"),
        (20170301, "6.00"),
    ]


def test_a_year_is_of_the_symbol_and_not_of_one_version_of_the_security(
    consult: Consult, made: Digen
) -> None:
    made.company("20170101-000000", "ACME", 5, ceo="Ann")
    price(made, 1, "2016-12-31", "9.00", "1.00")
    price(made, 1, "2017-01-01", "8.00", "2.00")
    query = """
        SELECT sk_dateid, security.effectivedate, company.effectivedate, fiftytwoweekhigh
        FROM factmarkethistory AS market JOIN dimsecurity AS security USING (sk_securityid)
        JOIN dimcompany AS company ON company.sk_companyid = market.sk_companyid
        ORDER BY sk_dateid"""
    assert consult(made)(query) == [
        (20161231, "2000-01-01", "2000-01-01", "9.00"),
        (20170101, "2017-01-01", "2017-01-01", "9.00"),
    ]


def test_earnings_are_of_the_four_quarters_before_and_those_without_a_report_are_skipped(
    consult: Consult, made: Digen
) -> None:
    made.company("20160501-000000", "ACME", 5, ceo="Ann")
    made.company("20000101-090000", "Other", 6)
    made.report("20170401-000000", "2017Q1", 6, eps="9.00")
    made.report("20150701-000000", "2015Q2", 5, eps="0.10")
    made.report("20160401-000000", "2016Q1", 5, eps="0.20")
    made.report("20170701-000000", "2016Q2", 5, eps="0.40")
    made.report("20170701-000000", "2017Q2", 5, eps="-1.00")
    for day in ("2015-07-06", "2016-06-30", "2016-07-01", "2017-06-30", "2017-07-06"):
        price(made, 1, day, "6.00", "4.00")
    price(made, 1, "2015-06-30", "6.00", "4.00")
    price(made, 2, "2017-07-07", "6.00", "4.00")
    ask = consult(made)
    assert ask("SELECT sk_dateid, peratio FROM factmarkethistory ORDER BY sk_dateid") == [
        (20150630, None),
        (20150706, "50.00"),  # of 2014Q3 to 2015Q2
        (20160630, "16.67"),  # of 2015Q2 to 2016Q1: 5.00 / 0.30
        (20160701, "8.33"),  # of 2015Q3 to 2016Q2: 5.00 / 0.60
        (20170630, "12.50"),  # of 2016Q2 to 2017Q1
        (20170706, "-5.00"),  # of 2016Q3 to 2017Q2
        (20170707, "-5.00"),
    ]
    assert ask(ALERTS) == [("No earnings for company", "DM_S_SYMB = S", 1)]


def test_a_sum_of_earnings_that_is_nothing_gives_no_ratio_and_no_alert(
    consult: Consult, made: Digen
) -> None:
    made.report("20170401-000000", "2017Q1", 5, eps="0.00")
    price(made, 1, "2017-07-06", "6.00", "4.00", close="8.00")
    ask = consult(made)
    assert ask("SELECT peratio, yield FROM factmarkethistory") == [(None, "18.75")]
    assert ask(ALERTS) == []


def test_a_half_is_rounded_away_from_zero(consult: Consult, made: Digen) -> None:
    made.report("20170401-000000", "2017Q1", 5, eps="-8.00")
    price(made, 1, "2017-07-06", "6.00", "4.00", close="1.00")
    assert consult(made)("SELECT peratio FROM factmarkethistory") == [("-0.13",)]


def watch(made: Digen, batch: int, when: str, what: str, symbol: str = "S") -> None:
    flag = ("I", batch) if batch > 1 else ()
    made.row(batch, "WatchHistory.txt", *flag, 1, symbol, f"{when} 10:00:00", what)


WATCHES = """
    SELECT symbol, sk_dateid_dateplaced, sk_dateid_dateremoved, factwatches.batchid
    FROM factwatches JOIN dimsecurity USING (sk_securityid) ORDER BY ALL"""


def test_a_cancellation_closes_the_oldest_watch_that_is_open(consult: Consult, made: Digen) -> None:
    made.security("20000101-090000", "T", 5)
    watch(made, 1, "2015-01-01", "CNCL")
    watch(made, 1, "2015-01-02", "ACTV")
    watch(made, 1, "2015-01-03", "ACTV", symbol="T")
    watch(made, 1, "2015-01-04", "CNCL")
    watch(made, 1, "2015-01-05", "CNCL")
    watch(made, 1, "2015-01-06", "ACTV")
    watch(made, 1, "2015-01-07", "ACTV")
    watch(made, 2, "2017-07-08", "CNCL")
    watch(made, 3, "2017-07-09", "ACTV")
    assert consult(made)(WATCHES) == [
        ("S", 20150102, 20150104, 1),
        ("S", 20150106, 20170708, 2),
        ("S", 20150107, None, 1),
        ("S", 20170709, None, 3),
        ("T", 20150103, None, 1),
    ]


def test_a_watch_refers_to_what_was_valid_when_it_was_placed_or_to_the_first_there_was(
    consult: Consult, made: Digen
) -> None:
    made.action("UPDCUST", "2015-01-02T00:00:00", 1, attributes={"C_TIER": 3})
    made.customer(2, "U", 1, tier=1)
    watch(made, 1, "1999-01-01", "ACTV")
    watch(made, 1, "2015-01-01", "ACTV")
    watch(made, 1, "2015-01-02", "ACTV")
    watch(made, 2, "2017-07-08", "ACTV")
    watch(made, 2, "2017-07-08", "CNCL")
    query = """SELECT sk_dateid_dateplaced, tier, sk_dateid_dateremoved IS NULL
        FROM factwatches JOIN dimcustomer USING (sk_customerid) ORDER BY ALL"""
    assert consult(made)(query) == [
        (19990101, 2, False),
        (20150101, 2, True),
        (20150102, 3, True),
        (20170708, 1, True),
    ]


def test_missing_files_are_empty_others_are_ignored_and_lines_may_end_in_two_ways(
    tmp_path: Path,
) -> None:
    found = []
    for newline in ("\n", "\r\n"):
        made = Digen(newline)
        made.company("20000101-090000", "ACME", 5)
        made.security("20000101-090000", "S", "ACME")
        made.row(1, "FINWIRE2000Q1_audit.csv", "DataSet, BatchID ,Date , Attribute , Value, DValue")
        made.row(1, "FINWIRE2000Q1_audit.csv", "DimCompany", 1, None, "FW_CMP", 1, None)
        made.row(1, "Other.txt", "what", "ever")
        made.files["Generator_audit.csv"] = ["Generator,1,,SF,,3.5"]
        made.files["Batch3_audit.csv"] = ["Batch,3,2017-07-09,FirstDay,,"]
        ask = consulted(tmp_path / str(len(newline)))(made)
        tables = ("dimsecurity", "dimcustomer", "dimtrade", "factwatches", "audit")
        found.append([ask(f"FROM {table} ORDER BY ALL") for table in tables])
    assert found[0] == found[1]
    security, *empty, audit = found[0]
    assert len(security) == 1
    assert empty == [[], [], []]
    assert audit == [
        ("Batch", 3, "2017-07-09", "FirstDay", None, None),
        ("DimCompany", 1, None, "FW_CMP", 1, None),
        ("Generator", 1, None, "SF", None, "3.50000"),
    ]


def test_after_a_batch_there_is_nothing_of_the_next(consult: Consult, made: Digen) -> None:
    trade(made, 1, "TLB", "PNDG", "PNDG 2017-07-07 10:00:00")
    more(made, 2, "U", 1, "SBMT")
    more(made, 3, "U", 1, "CMPT")
    watch(made, 1, "2015-01-01", "ACTV")
    watch(made, 3, "2017-07-09", "CNCL")
    made.customer(2, "U", 1, tier=3)
    made.files["Batch3_audit.csv"] = ["Batch,3,2017-07-09,FirstDay,,"]
    query = """SELECT (SELECT status FROM dimtrade), (SELECT count(*) FROM dimcustomer),
        (SELECT max(batchid) FROM factwatches), (SELECT count(*) FROM audit)"""
    assert consult(made, 1)(query) == [("Pending", 1, 1, 0)]
    assert consult(made, 2)(query) == [("Submitted", 2, 1, 0)]
    assert consult(made, 3)(query) == [("Completed", 2, 3, 1)]
