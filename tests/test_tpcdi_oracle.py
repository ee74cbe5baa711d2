"""The oracle knows the rules for dimensions: what is expected here was written by hand."""

from datetime import date
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
    return Digen()


def test_a_broker_is_who_has_the_job_code_314_from_the_first_day_on(
    consult: Consult, made: Digen
) -> None:
    made.row(1, "HR.csv", "8,,Bob,Other,,315,Main,OFFICE1,")
    made.row(1, "HR.csv", "9,,Eve,Other,,,Main,OFFICE1,")
    made.days(date(1950, 1, 1), date(1950, 1, 1))
    ask = consult(made)
    assert ask("FROM dimbroker") == [
        (
            *(1, 7, 1, "Ann", "Broker", "B", "Main", "OFFICE1", "(111) 111-1111", True, 1),
            *("1950-01-01", "9999-12-31"),
        )
    ]
    assert ask("SELECT sk_dateid, holidayflag FROM dimdate") == [(19500101, False)]


def test_a_company_changes_once_a_day_and_only_if_something_changed(
    consult: Consult, made: Digen
) -> None:
    made.company("20000101-090000", "ACME", 5, ceo="Ann")
    made.company("20010101-090000", "ACME", 5, ceo="Ann")
    made.company("20020101-090000", "ACME", 5, ceo="Bob")
    made.company("20020101-100000", "ACME", 5, ceo="Eve")
    made.company("20030101-090000", "ACME", 5, ceo="Zoe")
    made.company("20030101-100000", "ACME", 5, ceo="Eve")
    ask = consult(made)
    query = "SELECT companyid, ceo, iscurrent, batchid, effectivedate, enddate FROM dimcompany"
    assert ask(query + " ORDER BY effectivedate") == [
        (5, "Ann", False, 1, "2000-01-01", "2002-01-01"),
        (5, "Eve", True, 1, "2002-01-01", "9999-12-31"),
    ]


def test_a_company_has_every_field_from_its_place_and_blank_ones_are_null(
    consult: Consult, made: Digen
) -> None:
    made.company(
        *("20000101-090000", "ACME & Sons", 123),
        status="INAC", rating="BBB-", founded="18991231",
        line1="1 Street", line2="Floor 2", postal="X1Y 2Z3", city="City", state="ON",
        country="Canada", ceo="Ann Boss", description="Makes all",
    )  # fmt: skip
    made.company("20000101-090000", "Plain", 124)
    (whole, plain) = consult(made)(
        "SELECT * EXCLUDE (sk_companyid, batchid, effectivedate, enddate) "
        "FROM dimcompany ORDER BY companyid"
    )
    assert whole == (
        *(123, "Inactive", "ACME & Sons", "Steel", "BBB-", False, "Ann Boss", "1 Street"),
        *("Floor 2", "X1Y 2Z3", "City", "ON", "Canada", "Makes all", "1899-12-31", True),
    )
    assert plain == (124, "Active", "Plain", "Steel", "A+", False, *[None] * 9, True)


RATINGS = {
    "AAA": ("AAA", False), "A-": ("A-", False), "BBB": ("BBB", False), "BB+": ("BB+", True),
    "D": ("D", True), "AAA+": (None, None), "CC+": (None, None), "E": (None, None),
}  # fmt: skip


def test_a_rating_is_known_or_null_with_an_alert(consult: Consult, made: Digen) -> None:
    for cik, rating in enumerate(RATINGS):
        made.company("20000101-090000", f"Company {cik}", cik, rating=rating)
    ask = consult(made)
    rated = ask("SELECT sprating, islowgrade FROM dimcompany ORDER BY companyid")
    assert rated == list(RATINGS.values())
    assert sorted(ask(ALERTS)) == [
        ("Invalid SPRating", "CO_ID = 5, CO_SP_RATE = AAA+", 1),
        ("Invalid SPRating", "CO_ID = 6, CO_SP_RATE = CC+", 1),
        ("Invalid SPRating", "CO_ID = 7, CO_SP_RATE = E", 1),
    ]


def test_a_company_without_a_rating_raises_no_alert(consult: Consult, made: Digen) -> None:
    made.company("20000101-090000", "ACME", 5, rating=None)
    ask = consult(made)
    assert ask("SELECT sprating, islowgrade FROM dimcompany") == [(None, None)]
    assert ask(ALERTS) == []


VERSIONS = """
    SELECT symbol, security.name, ceo, security.effectivedate, security.enddate
    FROM dimsecurity AS security JOIN dimcompany USING (sk_companyid)
    ORDER BY symbol, security.effectivedate"""


def test_a_security_has_a_version_for_each_day_on_which_it_or_its_company_changed(
    consult: Consult, made: Digen
) -> None:
    made.company("20000101-090000", "ACME", 5, ceo="Ann")
    made.security("20000301-090000", "S", 5, name="One")
    made.company("20010101-090000", "ACME", 5, ceo="Bob")
    made.company("20020101-090000", "ACME", 5, ceo="Eve")
    made.security("20020101-100000", "S", "ACME", name="Two")
    made.security("20020101-110000", "S", "ACME", name="Three")
    assert consult(made)(VERSIONS) == [
        ("S", "One", "Ann", "2000-03-01", "2001-01-01"),
        ("S", "One", "Bob", "2001-01-01", "2002-01-01"),
        ("S", "Three", "Eve", "2002-01-01", "9999-12-31"),
    ]


def test_a_security_has_every_field_from_its_place(consult: Consult, made: Digen) -> None:
    made.company("20000101-090000", "ACME", 5)
    made.security("20000301-090000", "S", 5, issue="PREF_A", status="INAC", dividend="12.34")
    assert consult(made)("SELECT * EXCLUDE (sk_companyid) FROM dimsecurity") == [
        (
            *(1, "S", "PREF_A", "Inactive", "Shares", "NYSE", 1000, "2000-01-03", "2000-01-04"),
            *("12.34", True, 1, "2000-03-01", "9999-12-31"),
        )
    ]


def test_a_name_means_the_company_that_had_it_at_that_time(consult: Consult, made: Digen) -> None:
    made.company("20000101-090000", "ACME", 5, ceo="Ann")
    made.company("20010101-090000", "Former", 5, ceo="Ann II")
    made.company("20020101-090000", "ACME", 6, ceo="Bob")
    made.security("20000301-090000", "OLD", "ACME")
    made.security("20020101-090000", "NEW", "ACME")
    made.report("20000401-090000", "2000Q1", "ACME")
    made.report("20020401-090000", "2002Q1", "ACME")
    made.report("20020401-090000", "2002Q2", 5)
    ask = consult(made)
    assert ask(VERSIONS) == [
        ("NEW", "Shares", "Bob", "2002-01-01", "9999-12-31"),
        ("OLD", "Shares", "Ann", "2000-03-01", "2001-01-01"),
        ("OLD", "Shares", "Ann II", "2001-01-01", "9999-12-31"),
    ]
    reports = "SELECT fi_year, fi_qtr, ceo FROM financial JOIN dimcompany USING (sk_companyid)"
    assert sorted(ask(reports)) == [(2000, 1, "Ann"), (2002, 1, "Bob"), (2002, 2, "Ann II")]


def test_what_is_older_than_its_company_is_entered_on_the_first_day_of_that(
    consult: Consult, made: Digen
) -> None:
    made.security("20000301-090000", "S", 5)
    made.security("20000601-090000", "S", 5, name="Two")
    made.security("20000301-090000", "T", "ACME")
    made.report("20000401-090000", "2000Q1", "ACME")
    made.company("20010101-090000", "ACME", 5, ceo="Ann")
    made.company("20020101-090000", "ACME", 5, ceo="Bob")
    ask = consult(made)
    assert ask(VERSIONS) == [
        ("S", "Two", "Ann", "2001-01-01", "2002-01-01"),
        ("S", "Two", "Bob", "2002-01-01", "9999-12-31"),
        ("T", "Shares", "Ann", "2001-01-01", "2002-01-01"),
        ("T", "Shares", "Bob", "2002-01-01", "9999-12-31"),
    ]
    assert ask("SELECT ceo FROM financial JOIN dimcompany USING (sk_companyid)") == [("Ann",)]


def test_a_report_has_every_field_from_its_place(consult: Consult, made: Digen) -> None:
    made.company("20000101-090000", "ACME", 5)
    made.report(
        *("20160401-090000", "2016Q1", 5), revenue="10.01", earnings="-20.02", eps="-3.03",
        diluted="4.04", margin="5.05", inventory="6.06", assets="7.07", liabilities="8.08",
        shares=9, diluted_shares=10,
    )  # fmt: skip
    assert consult(made)("FROM financial") == [
        (
            *(1, 2016, 1, "2016-01-01", "10.01", "-20.02", "-3.03", "4.04", "5.05", "6.06"),
            *("7.07", "8.08", 9, 10),
        )
    ]


CUSTOMERS = "FROM dimcustomer ORDER BY customerid, effectivedate"


def test_an_update_keeps_what_is_absent_and_takes_away_what_is_empty(
    consult: Consult, made: Digen
) -> None:
    made.new("2010-01-01T09:00:00", 1, 10)
    inside = "<Name><C_M_NAME>M</C_M_NAME></Name><Address><C_CITY/></Address>"
    made.action("UPDCUST", "2011-01-01T09:00:00", 1, inside=inside, attributes={"C_TIER": 3})
    made.action("UPDCUST", "2012-01-01T09:00:00", 1, attributes={"C_DOB": None})
    made.action("INACT", "2013-01-01T09:00:00", 1)
    query = "SELECT status, lastname, middleinitial, city, tier, dob, effectivedate, enddate "
    assert consult(made)(query + CUSTOMERS) == [
        ("Active", "Last1", None, "City", 2, "1980-05-06", "2010-01-01", "2011-01-01"),
        ("Active", "Last1", "M", None, 3, "1980-05-06", "2011-01-01", "2012-01-01"),
        ("Active", "Last1", "M", None, 3, None, "2012-01-01", "2013-01-01"),
        ("Inactive", "Last1", "M", None, 3, None, "2013-01-01", "9999-12-31"),
    ]


def test_what_happens_to_a_customer_in_one_day_makes_one_version(
    consult: Consult, made: Digen
) -> None:
    made.new("2010-01-01T09:00:00", 1, 10)
    made.action("UPDCUST", "2010-01-01T10:00:00", 1, attributes={"C_TIER": 1})
    made.action("UPDCUST", "2011-01-01T09:00:00", 1, attributes={"C_TIER": 3})
    made.action("UPDCUST", "2011-01-01T10:00:00", 1, attributes={"C_DOB": "1970-01-01"})
    made.action("ADDACCT", "2012-01-01T10:00:00", 1, account={"CA_ID": 11, "CA_B_ID": 7})
    query = "SELECT tier, dob, iscurrent, effectivedate, enddate "
    assert consult(made)(query + CUSTOMERS) == [
        (1, "1980-05-06", False, "2010-01-01", "2011-01-01"),
        (3, "1970-01-01", True, "2011-01-01", "9999-12-31"),
    ]


PHONES = {
    ("1", "234", "567-8901", "23"): "+1 (234) 567-890123",
    (None, "234", "567-8901", None): "(234) 567-8901",
    (None, None, "567-8901", "23"): "567-890123",
    ("1", None, "567-8901", None): "567-8901",
    ("1", "234", None, "23"): None,
}


def test_a_phone_is_written_of_the_parts_that_are_there(consult: Consult, made: Digen) -> None:
    for n, parts in enumerate(PHONES):
        named = zip(("C_CTRY_CODE", "C_AREA_CODE", "C_LOCAL", "C_EXT"), parts, strict=True)
        leaves = "".join(f"<{name}>{of}</{name}>" for name, of in named if of)
        inside = f"<ContactInfo><C_PHONE_2>{leaves}</C_PHONE_2></ContactInfo>"
        made.action("NEW", "2010-01-01T09:00:00", n, inside=inside)
        ctry, area, local, ext = parts
        made.customer(2, "U", n, ctry_3=ctry, area_3=area, local_3=local, ext_3=ext)
    assert consult(made)("SELECT phone1, phone2, phone3 " + CUSTOMERS) == [
        phones for phone in PHONES.values() for phones in ((None, phone, None), (None, None, phone))
    ]


def test_a_phone_in_an_update_replaces_that_phone_whole(consult: Consult, made: Digen) -> None:
    both = (
        "<ContactInfo><C_PHONE_1><C_AREA_CODE>111</C_AREA_CODE><C_LOCAL>111-1111</C_LOCAL>"
        "</C_PHONE_1><C_PHONE_2><C_LOCAL>222-2222</C_LOCAL></C_PHONE_2></ContactInfo>"
    )
    one = "<ContactInfo><C_PHONE_1><C_LOCAL>333-3333</C_LOCAL></C_PHONE_1></ContactInfo>"
    none = "<ContactInfo><C_PHONE_1/></ContactInfo>"
    made.action("NEW", "2010-01-01T09:00:00", 1, inside=both)
    made.action("UPDCUST", "2011-01-01T09:00:00", 1, inside=one)
    made.action("UPDCUST", "2012-01-01T09:00:00", 1, inside=none)
    assert consult(made)("SELECT phone1, phone2 " + CUSTOMERS) == [
        ("(111) 111-1111", "222-2222"),
        ("333-3333", "222-2222"),
        (None, "222-2222"),
    ]


def test_gender_taxes_and_mail_are_as_the_rules_have_them(consult: Consult, made: Digen) -> None:
    mail = "<ContactInfo><C_PRIM_EMAIL>a.b@c.d</C_PRIM_EMAIL><C_ALT_EMAIL/></ContactInfo>"
    made.action("NEW", "2010-01-01T09:00:00", 1, inside=mail, attributes={"C_GNDR": "m"})
    made.new("2010-01-01T09:00:00", 2, 20, C_GNDR="x")
    made.customer(2, "I", 3, gender=None, email_2="e.f@g.h")
    query = """SELECT gender, email1, email2, nationaltaxratedesc, nationaltaxrate,
        localtaxratedesc, localtaxrate """
    taxes = ("U.S. Income Tax Bracket 1", "0.15000", "New York 1", "0.04000")
    assert consult(made)(query + CUSTOMERS) == [
        ("M", "a.b@c.d", None, None, None, None, None),
        ("U", None, None, *taxes),
        ("U", None, "e.f@g.h", *taxes),
    ]


def test_a_bad_tier_or_date_of_birth_raises_an_alert_for_every_version_that_has_it(
    consult: Consult, made: Digen
) -> None:
    made.new("2010-01-01T09:00:00", 1, 10, C_TIER=9)
    made.action("UPDCUST", "2010-01-01T10:00:00", 1, attributes={"C_TIER": 4})
    made.action("UPDCUST", "2011-01-01T10:00:00", 1, attributes={"C_TIER": 1})
    made.new("2010-01-01T09:00:00", 2, 20, C_TIER=None)
    made.action("INACT", "2011-01-01T10:00:00", 2)
    made.new("2010-01-01T09:00:00", 3, 30, C_DOB="1917-07-07")
    made.new("2010-01-01T09:00:00", 4, 40, C_DOB="1917-07-06")
    made.new("2010-01-01T09:00:00", 5, 50, C_DOB="2017-07-08")
    made.customer(2, "I", 6, dob="2017-07-08")
    made.customer(3, "U", 6, dob="2017-07-10", tier=0)
    tier, born = "Invalid customer tier", "DOB out of range"
    assert sorted(consult(made)(ALERTS)) == [
        (born, "C_ID = 4, C_DOB = 1917-07-06", 1),
        (born, "C_ID = 5, C_DOB = 2017-07-08", 1),
        (born, "C_ID = 6, C_DOB = 2017-07-10", 3),
        (tier, "C_ID = 1, C_TIER = 4", 1),
        (tier, "C_ID = 2, C_TIER = ", 1),
        (tier, "C_ID = 2, C_TIER = ", 1),
        (tier, "C_ID = 6, C_TIER = 0", 3),
    ]


def test_in_an_increment_the_last_row_of_a_customer_counts_whole_from_the_batch_date_on(
    consult: Consult, made: Digen
) -> None:
    made.new("2010-01-01T09:00:00", 1, 10)
    made.customer(2, "U", 1, city="First")
    made.customer(2, "U", 1, city=None, status="INAC", mi="X")
    made.customer(3, "U", 1, city="Third")
    query = "SELECT status, city, middleinitial, batchid, effectivedate, enddate "
    assert consult(made)(query + CUSTOMERS) == [
        ("Active", "City", None, 1, "2010-01-01", "2017-07-08"),
        ("Inactive", None, "X", 2, "2017-07-08", "2017-07-09"),
        ("Active", "Third", None, 3, "2017-07-09", "9999-12-31"),
    ]


def test_only_the_latest_version_of_batch_1_has_demographics(consult: Consult, made: Digen) -> None:
    made.new("2010-01-01T09:00:00", 1, 10)
    made.action("UPDCUST", "2011-01-01T09:00:00", 1, attributes={"C_TIER": 1})
    made.prospect(1, "P", last="lAST1", first="FIRST", line1="1 sTREET", age=50)
    made.prospect(1, "P2", last="Last1", first="First", line1="1 Street")
    made.prospect(1, "Q", last="Last1", first="First", line1="1 Street", line2="Floor 2")
    made.prospect(1, "R", last="Last1", first="First", line1="1 Street", postal=None)
    query = "SELECT agencyid, creditrating, networth, marketingnameplate "
    ask = consult(made)
    assert ask(query + CUSTOMERS) == [(None,) * 4, ("P", 700, 200000, "Boomer")]
    assert sorted(ask("SELECT agencyid FROM prospect WHERE iscustomer")) == [("P",), ("P2",)]


def same(**more: Field) -> dict[str, Field]:
    """The person who is customer 1."""
    return {"last": "Last1", "first": "First", **more}


def test_a_change_of_the_prospect_alone_makes_a_version_of_the_customer_and_of_its_accounts(
    consult: Consult, made: Digen
) -> None:
    made.new("2010-01-01T09:00:00", 1, 10)
    made.prospect(1, "P", **same())
    made.prospect(2, "P", **same(worth=50))
    ask = consult(made)
    query = "SELECT networth, batchid, effectivedate, enddate "
    assert ask(query + CUSTOMERS) == [
        (200000, 1, "2010-01-01", "2017-07-08"),
        (50, 2, "2017-07-08", "9999-12-31"),
    ]
    assert ask("SELECT batchid, effectivedate, enddate FROM dimaccount ORDER BY ALL") == [
        (1, "2010-01-01", "2017-07-08"),
        (2, "2017-07-08", "9999-12-31"),
    ]


def test_a_prospect_who_is_not_in_the_file_any_more_goes_on_to_be_matched(
    consult: Consult, made: Digen
) -> None:
    made.new("2010-01-01T09:00:00", 1, 10)
    made.prospect(1, "P", **same(worth=50))
    made.customer(3, "U", 1, tier=3)
    query = "SELECT agencyid, networth, batchid "
    assert consult(made)(query + CUSTOMERS) == [("P", 50, 1), ("P", 50, 3)]


def test_a_customer_who_is_another_person_now_has_other_demographics(
    consult: Consult, made: Digen
) -> None:
    made.new("2010-01-01T09:00:00", 1, 10)
    made.new("2010-01-01T09:00:00", 2, 20)
    made.prospect(1, "P", **same())
    made.customer(2, "U", 1, last="Other")
    made.prospect(3, "Q", **same(last="Last2"))
    ask = consult(made)
    assert ask("SELECT customerid, agencyid, batchid " + CUSTOMERS) == [
        (1, "P", 1),
        (1, None, 2),
        (2, None, 1),
        (2, "Q", 3),
    ]
    assert ask("SELECT agencyid, iscustomer FROM prospect ORDER BY ALL") == [
        ("P", False),
        ("Q", True),
    ]


def test_who_is_not_active_is_no_customer(consult: Consult, made: Digen) -> None:
    made.new("2010-01-01T09:00:00", 1, 10)
    made.prospect(1, "P", **same())
    made.customer(2, "U", 1, status="INAC")
    state = "SELECT iscustomer, batchid FROM prospect"
    assert consult(made, 1)(state) == [(True, 1)]
    assert consult(made, 2)(state) == [(False, 1)]


def test_a_prospect_is_new_changed_the_same_or_gone(consult: Consult, made: Digen) -> None:
    made.prospect(1, "same", gender="f")
    made.prospect(1, "changed")
    made.prospect(1, "gone")
    made.prospect(1, "back")
    made.prospect(2, "same", gender="f")
    made.prospect(2, "changed", phone="1")
    made.prospect(2, "new")
    made.prospect(3, "same", gender="f")
    made.prospect(3, "back")
    ask = consult(made)
    query = "SELECT agencyid, sk_recorddateid, sk_updatedateid, batchid, gender FROM prospect"
    assert sorted(ask(query)) == [
        ("back", 20170709, 20170707, 1, None),
        ("changed", 20170708, 20170708, 2, None),
        ("gone", 20170707, 20170707, 1, None),
        ("new", 20170708, 20170708, 2, None),
        ("same", 20170709, 20170707, 1, "f"),
    ]
    told = "SELECT batchid, messagetext, messagedata FROM dimessages WHERE messagetype = 'Status'"
    assert sorted(ask(told)) == [
        (1, "Inserted rows", "4"),
        (2, "Inserted rows", "1"),
        (2, "Source rows", "3"),
        (2, "Updated rows", "1"),
        (3, "Inserted rows", "0"),
        (3, "Source rows", "2"),
        (3, "Updated rows", "0"),
    ]


NAMEPLATES: list[tuple[dict[str, Field], str | None]] = [
    ({}, None),
    ({"worth": 1000001}, "HighValue"),
    ({"income": 200001}, "HighValue"),
    ({"children": 4}, "Expenses"),
    ({"cards": 6}, "Expenses"),
    ({"cards": 8}, "Expenses+Spender"),
    ({"age": 46}, "Boomer"),
    ({"income": 49999}, "MoneyAlert"),
    ({"rating": 599}, "MoneyAlert"),
    ({"worth": 99999}, "MoneyAlert"),
    ({"cars": 4}, "Spender"),
    ({"age": 24, "worth": 1000001}, "HighValue+Inherited"),
    (
        {"worth": 1000001, "children": 4, "age": 46, "rating": 1, "cars": 4},
        "HighValue+Expenses+Boomer+MoneyAlert+Spender",
    ),
    (dict.fromkeys(("income", "cars", "children", "age", "rating", "cards", "worth")), None),
    ({"worth": 1000000, "income": 200000, "children": 3, "cards": 5, "age": 45}, None),
    ({"income": 50000, "rating": 600, "worth": 100000, "cars": 3}, None),
]


def test_a_nameplate_has_the_tags_that_apply(consult: Consult, made: Digen) -> None:
    for n, (of, _) in enumerate(NAMEPLATES):
        made.prospect(1, f"{n:02}", **of)
    found = consult(made)("SELECT marketingnameplate FROM prospect ORDER BY agencyid")
    assert found == [(nameplate,) for _, nameplate in NAMEPLATES]
