"""The generator of TPC-DI: companies, customers and prospects, with every odd case there is."""

from collections import Counter, defaultdict
from datetime import date, timedelta
from itertools import pairwise

import pytest
from tpcdi_files import (
    BATCH_DAYS,
    Action,
    Directory,
    Record,
    customer_key,
    is_too_old,
    is_unborn,
    prospect_key,
    repeated,
)

RATINGS = {"AAA", "CC", "C", "D"} | {
    letters + sign for letters in ("AA", "A", "BBB", "BB", "B", "CCC") for sign in ("", "+", "-")
}
PHONE = ("C_CTRY_CODE", "C_AREA_CODE", "C_LOCAL", "C_EXT")


def of(records: list[Record], kind: str) -> list[Record]:
    return [record for record in records if record.kind == kind]


def content(record: Record) -> str:
    return record.line[15:]


# Reference files


def test_the_files_that_are_the_same_at_every_scale_have_their_full_size(small: Directory) -> None:
    sizes = {"Date": 25_933, "Time": 86_400, "TaxRate": 320, "Industry": 102}
    sizes |= {"StatusType": 6, "TradeType": 5}
    found = {name: len(small.rows(1, f"{name}.txt")) for name in sizes}
    assert found == sizes


def test_the_calendar_is_that_of_the_specification(small: Directory) -> None:
    dates = {row[0]: "|".join(row[1:]) for row in small.rows(1, "Date.txt")}
    assert dates["20040707"] == (
        "2004-07-07|July 7, 2004|2004|2004|20043|2004 Q3|20047|2004 July|200428|2004-W28"
        "|3|Wednesday|2005|2005|20051|2005 Q1|false"
    )
    assert min(dates) == "19500101"
    assert max(dates) == "20201231"
    holidays = ["20170101", "20170116", "20170220", "20170529", "20170704", "20170904"]
    holidays += ["20171009", "20171111", "20171123", "20171225"]
    of_2017 = [day for day, row in dates.items() if day[:4] == "2017" and row.endswith("true")]
    assert of_2017 == holidays


def test_the_clock_is_that_of_the_specification(small: Directory) -> None:
    times = {row[0]: "|".join(row[1:]) for row in small.rows(1, "Time.txt")}
    assert times["012345"] == "01:23:45|01|01|23|01:23|45|01:23:45|false|false"
    opens = [time for time, row in times.items() if row.endswith("|true|true")]
    assert (min(opens), max(opens)) == ("093000", "160000")
    office = [time for time, row in times.items() if row.endswith("|true")]
    assert (min(office), max(office)) == ("080000", "170000")


def test_no_two_tax_rates_have_the_same_name_and_two_industries_have(small: Directory) -> None:
    assert not repeated([(row[1],) for row in small.rows(1, "TaxRate.txt")])
    assert repeated([(row[1],) for row in small.rows(1, "Industry.txt")])


# Companies, securities and reports


def test_there_is_a_file_for_each_quarter_in_the_order_of_time(small: Directory) -> None:
    files = [path.name for path in small.finwire()]
    assert len(files) == 203
    assert (files[0], files[-1]) == ("FINWIRE1967Q1", "FINWIRE2017Q3")
    for file in files:
        times = [record.at for record in small.records if record.file == file]
        assert times, file
        assert times == sorted(times)
        quarters = {f"{time[:4]}Q{(int(time[4:6]) + 2) // 3}" for time in times}
        assert quarters == {file.removeprefix("FINWIRE")}


def test_a_records_length_tells_its_kind_and_whether_its_filer_is_a_name(small: Directory) -> None:
    lengths = {
        kind: {len(r.line) for r in of(small.records, kind)} for kind in ("CMP", "SEC", "FIN")
    }
    assert lengths == {"CMP": {543}, "SEC": {170, 220}, "FIN": {196, 246}}


def test_each_filer_is_known_by_that_name_or_number_on_that_day(small: Directory) -> None:
    names: dict[str, dict[str, str]] = defaultdict(dict)
    by_name: dict[str, str] = {}
    for record in of(small.records, "CMP"):
        names[record.fields["CIK"]][record.day] = record.fields["CompanyName"]
        by_name[record.fields["CompanyName"]] = record.fields["CIK"]
    renamed = set()
    for record in small.records:
        filer = record.fields.get("CoNameOrCIK")
        if filer is None:
            continue
        cik = by_name[filer] if record.is_by_name else filer
        known = {day: name for day, name in names[cik].items() if day <= record.day}
        assert known, "a company files before it exists"
        if record.is_by_name:
            assert filer == known[max(known)]
            renamed |= {record.kind for name in known.values() if name != filer}
    assert renamed >= {"FIN"}, "no company is called by a new name"


def test_no_two_companies_have_ever_had_the_same_name(small: Directory) -> None:
    owners = {(r.fields["CompanyName"], r.fields["CIK"]) for r in of(small.records, "CMP")}
    assert not repeated([(name,) for name, _ in owners])


def test_companies_change_twice_a_day_and_back_and_into_what_they_were(small: Directory) -> None:
    histories: dict[str, list[Record]] = defaultdict(list)
    for record in of(small.records, "CMP"):
        histories[record.fields["CIK"]].append(record)
    found = set()
    for history in histories.values():
        for before, after in pairwise(history):
            if content(before) == content(after):
                found.add("identical")
            if before.day == after.day and content(before) != content(after):
                found.add("twice a day")
        for first, second, third in zip(history, history[1:], history[2:], strict=False):
            if second.day == third.day and content(first) == content(third) != content(second):
                found.add("back within a day")
    assert found == {"identical", "twice a day", "back within a day"}


def test_a_security_changes_on_its_companys_day_and_twice_on_one(small: Directory) -> None:
    companies = of(small.records, "CMP")
    days = {(r.fields["CIK"], r.day) for r in companies}
    days |= {(r.fields["CompanyName"], r.day) for r in companies}
    founded = {r.fields["CIK"]: r.day for r in reversed(companies)}
    securities = of(small.records, "SEC")
    together = [r for r in securities if (r.fields["CoNameOrCIK"], r.day) in days]
    assert any(founded.get(r.fields["CoNameOrCIK"]) != r.day for r in together)
    assert repeated([(r.fields["Symbol"], r.day) for r in securities])


def test_ratings_are_bad_and_elements_blank_now_and_then(small: Directory) -> None:
    companies = of(small.records, "CMP")
    assert {r.fields["SPrating"] for r in companies} - RATINGS
    assert sum(r.fields["SPrating"] in RATINGS for r in companies) > len(companies) / 2
    assert all(r.fields["CompanyName"] and r.fields["IndustryID"] for r in companies)
    assert any(not r.fields["FoundingDate"] for r in companies)
    assert {r.fields["Status"] for r in companies} == {"ACTV", "INAC"}
    securities = of(small.records, "SEC")
    assert {r.fields["ExID"] for r in securities} <= {"NYSE", "NASDAQ", "AMEX", "PCX"}
    issues = {r.fields["IssueType"] for r in securities}
    assert issues <= {"COMMON", "PREF_A", "PREF_B", "PREF_C", "PREF_D"}


def test_reports_agree_with_their_own_numbers(small: Directory) -> None:
    for record in of(small.records, "FIN"):
        told = {name: float(record.fields[name]) for name in ("Revenue", "Earnings", "EPS")}
        shares = float(record.fields["ShOut"])
        assert abs(round(told["Earnings"] / shares, 2) - told["EPS"]) <= 0.4
        diluted = told["Earnings"] / float(record.fields["DilutedShOut"])
        assert abs(round(diluted, 2) - float(record.fields["DilutedEPS"])) <= 0.4
        margin = round(told["Earnings"] / told["Revenue"], 2)
        assert abs(margin - float(record.fields["Margin"])) <= 0.4
        quarter, month = int(record.fields["Quarter"]), int(record.at[4:6])
        assert quarter == (month + 2) // 3
        assert record.fields["QtrStartDate"] == f"{record.at[:4]}{quarter * 3 - 2:02}01"
        assert record.fields["PostingDate"] == record.day


def test_some_quarters_lack_a_report_and_some_companies_end_without_earnings(
    small: Directory,
) -> None:
    by_name = {r.fields["CompanyName"]: r.fields["CIK"] for r in of(small.records, "CMP")}
    reported: dict[str, set[int]] = {cik: set() for cik in by_name.values()}
    for record in of(small.records, "FIN"):
        filer = record.fields["CoNameOrCIK"]
        quarter = int(record.fields["Year"]) * 4 + int(record.fields["Quarter"])
        cik = by_name.get(filer, filer)
        assert quarter not in reported[cik], "two reports of one quarter"
        reported[cik].add(quarter)
    year = set(range(2016 * 4 + 3, 2017 * 4 + 3))
    silent = {cik for cik, quarters in reported.items() if not quarters & year}
    issuers = {
        by_name.get(r.fields["CoNameOrCIK"], r.fields["CoNameOrCIK"])
        for r in of(small.records, "SEC")
    }
    assert silent & issuers
    assert any(max(q) - min(q) + 1 > len(q) for q in reported.values() if q)
    losses = [r for r in of(small.records, "FIN") if float(r.fields["EPS"]) < 0]
    assert losses


# Customers and accounts


def test_all_six_actions_come_in_the_order_of_time(small: Directory) -> None:
    kinds = Counter(action.kind for action in small.actions)
    assert set(kinds) == {"NEW", "ADDACCT", "UPDACCT", "UPDCUST", "CLOSEACCT", "INACT"}
    times = [action.at for action in small.actions]
    assert times == sorted(times)
    assert times[0] >= "2007-07-07T00:00:00"
    assert times[-1] <= "2017-07-07T23:59:59"


def test_an_action_is_of_a_customer_and_an_account_that_are_there(small: Directory) -> None:
    accounts: dict[str, str] = {}
    customers: set[str] = set()
    inactive: set[str] = set()
    for action in small.actions:
        if action.kind in {"NEW", "ADDACCT"}:
            assert action.account["CA_ID"] not in accounts
            accounts[action.account["CA_ID"]] = action.who
        if action.kind == "NEW":
            assert action.who not in customers
            customers.add(action.who)
        assert action.who in customers
        if action.account:
            assert accounts[action.account["CA_ID"]] == action.who
        if action.kind in {"UPDCUST", "INACT", "ADDACCT"}:
            assert action.who not in inactive
        if action.kind == "INACT":
            inactive.add(action.who)


@pytest.mark.parametrize("kind", ["UPDACCT", "CLOSEACCT"])
def test_accounts_change_after_their_customer_has_become_inactive(
    small: Directory, kind: str
) -> None:
    left: dict[str, str] = {}
    same_day = later = 0
    for action in small.actions:
        if action.kind == "INACT":
            left[action.who] = action.day
        elif action.kind == kind and action.who in left:
            same_day += action.day == left[action.who]
            later += action.day > left[action.who]
    assert same_day
    assert later


def test_a_customer_and_an_account_change_several_times_a_day(small: Directory) -> None:
    days: dict[tuple[str, str], list[str]] = defaultdict(list)
    for action in small.actions:
        days[action.who, action.day].append(action.kind)
    orders = {order for kinds in days.values() for order in pairwise(kinds)}
    assert orders >= {
        *(("UPDCUST", "UPDCUST"), ("NEW", "UPDCUST"), ("NEW", "UPDACCT"), ("ADDACCT", "UPDACCT")),
        *(("UPDACCT", "UPDACCT"), ("UPDACCT", "CLOSEACCT"), ("UPDACCT", "UPDCUST")),
        *(("UPDCUST", "UPDACCT"), ("UPDCUST", "INACT"), ("INACT", "UPDACCT")),
    }


def test_a_customers_change_is_taken_back_within_the_day(small: Directory) -> None:
    known: dict[str, dict[str, str]] = {}
    before: dict[str, tuple[str, dict[str, str]]] = {}
    reverted = 0
    for action in small.actions:
        now = {**known.get(action.who, {}), **action.customer}
        now = {key: value for key, value in now.items() if value}
        day, image = before.get(action.who, ("", {}))
        if day != action.day:
            before[action.who] = (action.day, known.get(action.who, {}))
        elif action.kind == "UPDCUST" and now == image:
            reverted += 1
        known[action.who] = now
    assert reverted


def updates(directory: Directory, kind: str) -> list[Action]:
    return [action for action in directory.actions if action.kind == kind]


def test_elements_are_absent_or_empty_or_there(small: Directory) -> None:
    new = [action.customer for action in updates(small, "NEW")]
    for name in ("C_M_NAME", "C_ADLINE2", "C_PHONE_1.C_EXT", "C_PHONE_2.C_CTRY_CODE"):
        states = {customer[name] != "" if name in customer else None for customer in new}
        assert states == {None, False, True}, name
    for name in ("C_ALT_EMAIL", "C_GNDR", "C_TIER"):
        assert any(customer.get(name) == "" for customer in new), name
    changed = [action.customer for action in updates(small, "UPDCUST")]
    assert all(0 < len(customer) - 1 < 12 for customer in changed)
    for name in ("C_M_NAME", "C_ADLINE2", "C_TIER", "C_ALT_EMAIL"):
        assert any(customer.get(name) == "" for customer in changed), name
    for name in ("C_L_NAME", "C_ZIPCODE", "C_LCL_TX_ID", "C_PHONE_1.C_LOCAL", "C_PRIM_EMAIL"):
        assert any(customer.get(name) for customer in changed), name
        assert any(name not in customer for customer in changed), name
    accounts = [action.account for action in updates(small, "UPDACCT")]
    assert any(account.get("CA_NAME") == "" for account in accounts)
    assert all(account.get("CA_B_ID", "there") for account in accounts)
    assert any("CA_B_ID" not in account for account in accounts)
    assert any("&" in action.account["CA_NAME"] for action in updates(small, "ADDACCT"))


def test_phones_have_every_form(small: Directory) -> None:
    forms = {
        tuple(bool(action.customer.get(f"C_PHONE_{n}.{part}")) for part in PHONE)
        for action in updates(small, "NEW")
        for n in (1, 2, 3)
    }
    no, yes = False, True
    assert forms >= {
        *((yes, yes, yes, yes), (yes, yes, yes, no), (no, yes, yes, no), (no, no, yes, no)),
        *((no, no, yes, yes), (yes, no, yes, no), (yes, yes, no, no), (no, no, no, no)),
    }


def test_tiers_genders_and_birth_dates_are_bad_now_and_then(small: Directory) -> None:
    new = [action.customer for action in updates(small, "NEW")]
    tiers = {customer.get("C_TIER") for customer in new}
    assert tiers >= {"1", "2", "3"}
    assert {tier for tier in tiers if tier} - {"1", "2", "3"}
    assert tiers & {"", None}
    changed = {action.customer.get("C_TIER") for action in updates(small, "UPDCUST")}
    assert changed & {"0", "4", "9"}
    genders = {customer.get("C_GNDR") for customer in new}
    assert {"M", "F", "m", "f"} <= genders
    assert genders - {"M", "F", "m", "f", "", None, "U"}
    assert any(is_too_old(customer, 1) for customer in new)
    assert any(is_unborn(customer, 1) for customer in new)


def test_what_the_audit_asks_of_every_customer_holds(small: Directory) -> None:
    rates = {row[0] for row in small.rows(1, "TaxRate.txt")}
    brokers = {row[0] for row in small.rows(1, "HR.csv") if row[5] == "314"}
    for action in small.actions:
        taxes = {action.customer.get(f"C_{kind}_TX_ID") for kind in ("LCL", "NAT")}
        assert taxes <= rates | {None}
        assert None not in taxes or action.kind != "NEW"
        assert action.account.get("CA_B_ID") in brokers | {None}
        assert action.account.get("CA_TAX_ST") in {"0", "1", "2", None}


# Prospects


def test_a_quarter_of_the_prospects_are_customers_written_otherwise(small: Directory) -> None:
    customers = {customer_key(each): each for each in small.books().customers.values()}
    prospects = small.rows(3, "Prospect.csv")
    matching = [row for row in prospects if prospect_key(row) in customers]
    assert 0.2 < len(matching) / len(prospects) < 0.27
    known = {prospect_key(row) for row in matching}
    assert len(known) == len(matching), "two prospects are one customer"
    assert 0.1 < 1 - len(known) / len(customers) < 0.4, "every customer is a prospect, or none"
    last_names = [(row[1], customers[prospect_key(row)]["C_L_NAME"]) for row in matching]
    assert any(prospect != customer for prospect, customer in last_names)
    assert any(prospect == customer for prospect, customer in last_names)
    assert {bool(row[6]) for row in matching} == {False, True}


def test_what_the_agency_does_not_know_is_empty(small: Directory) -> None:
    prospects = small.rows(1, "Prospect.csv")
    for column in range(11, 22):
        unknown = sum(not row[column] for row in prospects)
        assert 0 < unknown < len(prospects) / 5, column
    assert any(int(row[16] or 99) < 25 and int(row[21] or 0) > 1_000_000 for row in prospects)


@pytest.mark.parametrize("batch", [2, 3])
def test_the_prospects_file_is_whole_and_few_of_it_change(small: Directory, batch: int) -> None:
    before = {row[0]: row for row in small.rows(batch - 1, "Prospect.csv")}
    now = {row[0]: row for row in small.rows(batch, "Prospect.csv")}
    assert len(before) == len(now)
    new, gone = now.keys() - before.keys(), before.keys() - now.keys()
    assert 3 == len(new) == len(gone)
    changed = [key for key in now.keys() & before.keys() if now[key] != before[key]]
    assert len(changed) == 4
    customers = {customer_key(each) for each in small.books().customers.values()}
    kinds = {prospect_key(now[key]) in customers for key in changed}
    assert kinds == {False, True}
    assert any(prospect_key(now[key]) in customers for key in new), "no customer becomes known"


def test_an_increments_prospects_raise_no_alert_of_a_customer_that_is_not_filed(
    small: Directory,
) -> None:
    """Such a change makes a version of the customer; the answers count the filed ones."""
    customers = {customer_key(each): each for each in small.books().customers.values()}
    for batch in (2, 3):
        before = {tuple(row) for row in small.rows(batch - 1, "Prospect.csv")}
        for row in small.rows(batch, "Prospect.csv"):
            customer = customers.get(prospect_key(row))
            if tuple(row) not in before and customer is not None:
                assert customer["C_TIER"] in {"1", "2", "3"}
                today = BATCH_DAYS[batch]
                assert today - timedelta(36_525) <= date.fromisoformat(customer["C_DOB"]) <= today
