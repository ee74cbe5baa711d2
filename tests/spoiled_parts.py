"""What spoils a warehouse in one part of what a check asserts, and what is no fault at all.

A check that forgot a batch, a column or a bound would pass one of the first; one that is too
strict, or counts what is none of its business, would fail one of the others.
"""

from collections import defaultdict
from collections.abc import Iterable

from spoilings import MORE, SPOILINGS, answered, one, told

from tpcdi.checks.references import BEGUN, HISTORIES, OWNERS, VALID, WITHIN
from tpcdi.seen import JOINED, TABLES

BATCHES = (1, 2, 3)
BEFORE = {1: "1949-12-31", 2: "2017-07-07", 3: "2017-07-08"}
FIRST = {1: "1950-01-01", 2: "2017-07-08", 3: "2017-07-09"}
LAST = {1: "2017-07-07", 2: "2017-07-08", 3: "2017-07-09"}
AFTER = {1: "2017-07-08", 2: "2017-07-09", 3: "2017-07-10"}
"""Each batch's window, and the days around it; the calendar lacks the first."""
NO_DAY = "19491231"
OPEN, FORMER = "enddate = '9999-12-31'", "enddate < '9999-12-31'"

PARTS: defaultdict[str, list[str]] = defaultdict(list)
"""Statements after which a check is not OK."""
ALLOWED: defaultdict[str, list[str]] = defaultdict(list)
"""Statements after which a check is OK still."""


def sk(day: str) -> str:
    """Give the key of a day."""
    return day.replace("-", "")


def every(table: str, *changes: str) -> list[str]:
    """Change all rows of a table, in several ways."""
    return [f"UPDATE {table} SET {change}" for change in changes]


def each(table: str, *changes: str, where: str = "true") -> list[str]:
    """Change one row of a table, in several ways."""
    return [one(table, change, where) for change in changes]


def domain(check: str, column: str, good: Iterable[str], bad: Iterable[str] = ()) -> None:
    """Tell what a column may be, and what not."""
    table = check.partition(" ")[0].lower()
    ALLOWED[check] += every(table, *(f"{column} = {value}" for value in good))
    PARTS[check] += each(table, *(f"{column} = {value}" for value in bad))


def texts(*values: str) -> list[str]:
    """Write texts as SQL does."""
    return [f"'{value}'" for value in values]


# Answers and what was told: each batch, and each number that goes in.

for _check, _dataset, _more in (
    ("DimAccount row count", "DimAccount", "CA_ADDACCT CA_CLOSEACCT CA_UPDACCT"),
    ("DimCustomer row count", "DimCustomer", "C_NEW C_UPDCUST C_INACT"),
    ("DimCustomer age range alerts", "DimCustomer", "C_DOB_TO C_DOB_TY"),
    ("DimCustomer customer tier alerts", "DimCustomer", "C_TIER_INV"),
    ("FactWatches row count", "FactWatches", "WH_ACTIVE"),
    ("FactMarketHistory row count", "FactMarketHistory", "DM_RECORDS"),
    ("FactHoldings row count", "FactHoldings", "HH_RECORDS"),
    ("DimBroker row count", "DimBroker", "HR_BROKERS"),
    ("DimBroker distinct keys", "DimBroker", "HR_BROKERS"),
    ("DimTrade canceled trades", "DimTrade", "T_CanceledTrades"),
    ("DimTrade commission alerts", "DimTrade", "T_InvalidCommision"),
    ("DimTrade charge alerts", "DimTrade", "T_InvalidCharge"),
    ("Financial row count", "Financial", "FW_FIN"),
):
    PARTS[_check] += [answered(_dataset, name, b) for name in _more.split() for b in BATCHES]
for _name in ("C_NEW", "C_UPDCUST", "C_INACT"):
    PARTS["DimAccount row count"].append(answered("DimCustomer", _name))
    ALLOWED["DimAccount row count"] += [answered("DimCustomer", _name, b) for b in (2, 3)]
for _check, _dataset, _name, _batches in (
    ("DimAccount row count", "DimAccount", "CA_ID_HIST", BATCHES),
    ("DimAccount row count", "DimCustomer", "C_ID_HIST", (1,)),
    ("DimCustomer row count", "DimCustomer", "C_ID_HIST", BATCHES),
):
    PARTS[_check] += [answered(_dataset, _name, b, by=-1000) for b in _batches]
ALLOWED["DimAccount row count"] += [answered("DimCustomer", "C_ID_HIST", b, by=-9) for b in (2, 3)]
PARTS["DimAccount row count"].append(
    # In the first batch there must be more.
    "UPDATE audit SET value = value + (SELECT count(*) FROM dimaccount WHERE batchid = 1) - "
    "(SELECT sum(value) FROM audit WHERE batchid = 1 AND attribute IN ('CA_ADDACCT', "
    "'CA_CLOSEACCT', 'CA_UPDACCT', 'C_NEW', 'C_UPDCUST', 'C_INACT')) "
    "WHERE batchid = 1 AND attribute = 'C_NEW'"
)
for _table in ("DimAccount", "DimCustomer"):
    PARTS[f"{_table} row count"] += [
        f"UPDATE {_table} SET batchid = 4 WHERE batchid = {b}" for b in BATCHES
    ]
for _check, _table, _text, _number in (
    ("DimCustomer inactive customers", "DimCustomer", "Inactive customers", MORE),
    ("DimCompany row count", "DimCompany", "Row count", "'1000'"),
    ("DimTrade row count", "DimTrade", "Row count", MORE),
    ("FactWatches active watches", "FactWatches", "Row count", MORE),
    ("FactWatches active watches", "FactWatches", "Inactive watches", MORE),
):
    PARTS[_check] += [told(_table, _number, b, _text) for b in BATCHES]
PARTS["DimCompany row count"] += [
    answered("DimCompany", "FW_CMP", by=-9),
    f"{told('DimCompany', '500', 1)}; {answered('DimCompany', 'FW_CMP', 3)}",
]
for _table, _new, _dataset, _again in (
    ("DimAccount", "CA_ADDACCT", "DimAccount", "CA_ID_HIST"),
    ("DimAccount", "CA_ADDACCT", "DimCustomer", "C_ID_HIST"),
    ("DimCustomer", "C_NEW", "DimCustomer", "C_ID_HIST"),
):
    PARTS[f"{_table} row count"].append(
        # What is subtracted is that of the same batch.
        f"{answered(_table, _new, 1)}; {answered(_dataset, _again, 3)}"
    )
PARTS["DimSecurity row count"].append(told("DimSecurity", "'0'", 1))
ALLOWED["DimSecurity row count"] += [answered("DimSecurity", "FW_SEC", b) for b in (2, 3)]
PARTS["Financial row count"].append(told("Financial", MORE, 1))
ALLOWED["Financial row count"] += [told("Financial", MORE, b) for b in (2, 3)]
for _table in TABLES:
    PARTS[f"Batch row count: {_table}"] += [told(_table, "'0'", 2), told(_table, "'99999999'", 0)]
    _seen = f"Data visibility row counts: {_table}"
    PARTS[_seen].append(
        "INSERT INTO dimessages SELECT messagedateandtime + interval '1 day', batchid, "
        "messagesource, messagetext, 'Visibility_2', '0' FROM dimessages "
        f"WHERE messagetype = 'Visibility_1' AND messagesource = '{_table}' AND batchid = 3"
    )
    PARTS[_seen].append(told(_table, "'many'", kind="Visibility_1"))
for _fact in JOINED:
    PARTS[f"Batch joined row count: {_fact}"] += [
        told(_fact, MORE, b, text="Row count joined") for b in BATCHES
    ]
    PARTS[f"Data visibility joined row counts: {_fact}"] += [
        told(_fact, MORE, kind="Visibility_1"),
        "DELETE FROM dimessages WHERE messagetype = 'Visibility_1' "
        f"AND messagesource = '{_fact}' AND messagetext = 'Row count joined' AND batchid = 3",
    ]
    ALLOWED[f"Data visibility joined row counts: {_fact}"].append(
        told(_fact, MORE, text="Row count joined", kind="Visibility_1")
    )
for _table in TABLES:
    for _kind in ("Data visibility row counts", "Data visibility joined row counts"):
        if f"{_kind}: {_table}" in SPOILINGS:
            PARTS[f"{_kind}: {_table}"].append(
                "DELETE FROM dimessages WHERE messagetype LIKE 'Visibility%' "
                f"AND messagesource = '{_table}'"
            )
    if _table != "DimCompany":
        PARTS["DImessages sources"].append(
            f"UPDATE dimessages SET messagetype = 'Other' WHERE messagesource = '{_table}'"
        )
ALLOWED["DImessages sources"].append("DELETE FROM dimessages WHERE messagesource = 'DimCompany'")
for _b in (0, *BATCHES):
    PARTS["DImessages validation reports"] += [
        one(
            "dimessages", "messagetype = 'Other'", f"messagetype = 'Validation' AND batchid = {_b}"
        ),
        one("dimessages", "messagetype = 'Validation'", f"messagetype = 'PCR' AND batchid = {_b}"),
    ]
    PARTS["DImessages batches"].append(f"DELETE FROM dimessages WHERE batchid = {_b}")
    PARTS["DImessages Phase complete records"].append(
        f"DELETE FROM dimessages WHERE messagetype = 'PCR' AND batchid = {_b}"
    )
PARTS["DImessages initial condition"].append(told("DimDate", "NULL", 0))
PARTS["Audit table sources"] += [
    f"DELETE FROM audit WHERE dataset = '{dataset}'"
    for dataset in (
        *("Batch", "DimAccount", "DimBroker", "DimCompany", "DimCustomer", "DimSecurity"),
        *("DimTrade", "FactHoldings", "FactMarketHistory", "FactWatches", "Financial", "Prospect"),
    )
]

NOISE = (
    *(
        f"INSERT INTO audit SELECT {of}, {value}, dvalue FROM audit"
        for of in ("'Other', batchid, date, attribute", "dataset, batchid, date, 'Other'")
        for value in (1000, -1000)
    ),
    *(
        "INSERT INTO dimessages "
        f"SELECT messagedateandtime + interval '{days} days', batchid, {what}, '{number}' "
        f"FROM dimessages WHERE {where}"
        for days, number in ((0, 0), (1, 7), (2, 5))
        for what, where in (
            ("messagesource, messagetext, 'Other'", "true"),
            ("messagesource, 'Other', messagetype", "messagetype NOT IN ('Validation', 'PCR')"),
            ("'Other', messagetext, messagetype", "messagetype LIKE 'Visibility%'"),
        )
    ),
)
"""What concerns no check: answers and messages of another kind."""
NOISE_OF_VALIDATION = tuple(
    f"INSERT INTO dimessages SELECT messagedateandtime, batchid, {what}, 'Validation', "
    "1000000 - 100 * batchid FROM dimessages WHERE messagetype = 'Validation' AND batchid > 0"
    for what in ("messagesource, 'Other'", "'Other', messagetext")
)
"""The same, but for the check that counts the validation's messages."""
PARTS["DimSecurity row count"].append(f"{told('DimSecurity', '0', 1)}; {NOISE_OF_VALIDATION[0]}")
for _table in TABLES:
    PARTS[f"Batch row count: {_table}"] += [
        f"{told(_table, '0', 2)}; {noise}" for noise in NOISE_OF_VALIDATION
    ]

# Of how many batches a table is.

_in_batches = [name for name in SPOILINGS if name.endswith(" batches") and name[:2] != "DI"]
for _check in _in_batches:
    _table = _check.split()[0].lower()
    if HISTORIES.get(_check.split()[0], ("", "", 3))[2] == 1:
        PARTS[_check] += every(_table, "batchid = 2")
    else:
        PARTS[_check] += [
            f"UPDATE {_table} SET batchid = {to} WHERE batchid = {b}"
            for b, to in ((1, 2), (2, 3), (3, 2), (3, 4))
        ]
    ALLOWED[_check].append(f"INSERT INTO {_table} SELECT * FROM {_table}")
ALLOWED["DImessages Phase complete records"].append("INSERT INTO dimessages TABLE dimessages")

# Days within a batch's window.

for _table in HISTORIES:
    _check = f"{_table} EffectiveDate"
    for _b in BATCHES:
        for _found, _ends in ((PARTS, (BEFORE, AFTER)), (ALLOWED, (FIRST, LAST))):
            _found[_check] += each(
                _table, *(f"batchid = {_b}, effectivedate = '{days[_b]}'" for days in _ends)
            )
for _fact in ("FactHoldings", "FactCashBalances"):
    for _b in BATCHES:
        for _found, _ends in ((PARTS, (BEFORE, AFTER)), (ALLOWED, (FIRST, LAST))):
            _found[f"{_fact} SK_DateID"] += each(
                _fact, *(f"batchid = {_b}, sk_dateid = {sk(days[_b])}" for days in _ends)
            )
for _b, _bad, _good in (
    (1, (NO_DAY, "20170707"), ("19500101", "20170706")),
    (2, ("20170706", "20170708"), ("20170707",)),
    (3, ("20170707", "20170709"), ("20170708",)),
):
    for _found, _days in ((PARTS, _bad), (ALLOWED, _good)):
        _found["FactMarketHistory SK_DateID"] += each(
            "factmarkethistory", *(f"batchid = {_b}, sk_dateid = {day}" for day in _days)
        )
for _b in BATCHES:
    for _found, _ends in ((PARTS, (BEFORE, BEFORE)), (ALLOWED, (FIRST, AFTER))):
        _found["Prospect SK_RecordDateID"] += each(
            "prospect", *(f"batchid = {_b}, sk_recorddateid = {sk(days[_b])}" for days in _ends)
        )


def watched(batch: int, placed: str, removed: str | None) -> str:
    """Say of a watch when it was placed and removed."""
    return one(
        "factwatches",
        f"batchid = {batch}, sk_dateid_dateplaced = {sk(placed)}, "
        f"sk_dateid_dateremoved = {sk(removed) if removed else 'NULL'}",
    )


def traded(batch: int, created: str, closed: str | None, type_: str = "Market Buy") -> str:
    """Say of a trade when it was created and closed."""
    return one(
        "dimtrade",
        f"batchid = {batch}, type = '{type_}', sk_createdateid = {sk(created)}, "
        f"sk_closedateid = {sk(closed) if closed else 'NULL'}",
    )


LONG_AGO = "2015-01-01"
for _b in BATCHES:
    PARTS["FactWatches date check"] += [
        watched(_b, BEFORE[_b], None),
        watched(_b, AFTER[_b], None),
        watched(_b, FIRST[1], BEFORE[_b]),
        watched(_b, FIRST[1], AFTER[_b]),
        watched(_b, AFTER[_b], LAST[_b]),
        watched(_b, LAST[_b], NO_DAY),
        watched(_b, NO_DAY, LAST[_b]),
    ]
    ALLOWED["FactWatches date check"] += [
        *(watched(_b, days[_b], None) for days in (FIRST, LAST)),
        *(watched(_b, FIRST[1], days[_b]) for days in (FIRST, LAST)),
    ]
    PARTS["DimTrade date check"] += [
        traded(_b, FIRST[1], BEFORE[_b]),
        traded(_b, FIRST[1], AFTER[_b]),
        traded(_b, AFTER[_b], LAST[_b]),
        traded(_b, NO_DAY, LAST[_b]),
        traded(_b, BEFORE[_b], None),
        traded(_b, AFTER[_b], None),
        *(traded(_b, day, None, "Limit Buy") for day in (NO_DAY, AFTER[_b])),
    ]
    ALLOWED["DimTrade date check"] += [
        *(traded(_b, FIRST[1], days[_b]) for days in (FIRST, LAST)),
        *(traded(_b, days[_b], days[_b]) for days in (FIRST, LAST)),
        *(traded(_b, days[_b], None) for days in (FIRST, LAST)),
        traded(_b, FIRST[1], None, "Limit Sell"),
    ]

# History, and what refers to it.

for _table, (_surrogate, _key, _) in HISTORIES.items():
    _changing = f"(SELECT min({_key}) FROM {_table} WHERE {FORMER})"
    PARTS[f"{_table} EndDate"].append(
        one(_table, "effectivedate = '2015-06-06'", f"{_key} <> {_changing}")
        + "; "
        + one(_table, "enddate = '2015-06-06'", f"{FORMER} AND {_key} = {_changing}")
    )
    PARTS[f"{_table} Overlap"].append(
        one(_table, "effectivedate = enddate, enddate = enddate + 1", FORMER)
    )
    PARTS[f"{_table} End of Time"].append(one(_table, OPEN, FORMER))
    domain(f"{_table} Status", "status", texts("Active", "Inactive"), texts("", "active"))
    if f"{_table} IsCurrent" in SPOILINGS:
        PARTS[f"{_table} IsCurrent"] += [
            one(_table, "iscurrent = false", OPEN),
            one(_table, "iscurrent = true", FORMER),
        ]
NEVER_MORE, NOT_YET, ALWAYS = (
    f"effectivedate = '{begins}', enddate = '{ends}'"
    for begins, ends in (
        ("1940-01-01", "1950-01-01"),
        ("2019-01-01", "9999-12-31"),
        ("1940-01-01", "9999-12-31"),
    )
)
DAY = "2016-01-01"
for _table, _keys in WITHIN.items():
    for _key in _keys:
        _owner, _check = OWNERS[_key], f"{_table} {_key}"
        PARTS[_check] += [*each(_table, f"{_key} = -1"), *every(_owner, NEVER_MORE, NOT_YET)]
        PARTS[_check] += every(_owner, ALWAYS.replace("9999-12-31", "9999-12-30"))
        _same = f"effectivedate = '{DAY}', enddate = '2016-01-02'"
        ALLOWED[_check].append(f"UPDATE {_owner} SET {_same}; UPDATE {_table} SET {_same}")
for (_fact, _date), _keys in VALID.items():
    for _key in _keys:
        _owner, _check = OWNERS[_key], f"{_fact} {_key}"
        PARTS[_check] += [*each(_fact, f"{_key} = -1"), *every(_owner, NEVER_MORE, NOT_YET)]
        ALLOWED[_check] += [
            f"UPDATE {_fact} SET {_date} = {sk(DAY)}; UPDATE {_owner} SET {interval}"
            for interval in (
                f"effectivedate = '{DAY}', enddate = '9999-12-31'",
                f"effectivedate = '1940-01-01', enddate = '{DAY}'",
            )
        ]
for _key in BEGUN:
    _owner, _check = OWNERS[_key], f"FactHoldings {_key}"
    PARTS[_check] += [*each("factholdings", f"{_key} = -1"), *every(_owner, NOT_YET)]
    PARTS[_check] += each("factholdings", f"sk_dateid = {NO_DAY}")
    ALLOWED[_check] += [
        *every(_owner, NEVER_MORE),
        f"UPDATE factholdings SET sk_dateid = {sk(DAY)}; "
        f"UPDATE {_owner} SET effectivedate = '{DAY}'",
    ]
PARTS["FactHoldings CurrentTradeID"] += each(
    "factholdings", "currenttradeid = -1", "sk_dateid = sk_dateid + 1"
)

# What a column may be.

for _check, _column, _is, _is_not in (
    ("DimCustomer Gender", "gender", "M F U", "m X"),
    ("DimSecurity ExchangeID", "exchangeid", "NYSE NASDAQ AMEX PCX", "nyse NYSE2"),
    ("DimSecurity Issue", "issue", "COMMON PREF_A PREF_B PREF_C PREF_D", "PREF_ PREF"),
    (
        "DimCompany SPrating",
        "sprating",
        "AAA AA+ AA AA- A+ A A- BBB+ BBB BBB- BB+ BB BB- B+ B B- CCC+ CCC CCC- CC C D",
        "AAA- CC+ C+ D- E AAAA aa BBBB A++",
    ),
    ("DimTrade Status", "status", "Canceled Pending Submitted Active Completed", "Open PNDG"),
    ("DimCustomer TaxID", "taxid", "123-45-6789", "123-456789 12-345-6789 123-45-67890"),
):
    domain(_check, _column, texts(*_is.split()), texts(*_is_not.split()))
domain("DimCompany SPrating", "sprating", ["NULL"])
COUNTRIES = texts("Canada", "United States of America")
domain("DimCompany Country", "country", [*COUNTRIES, "''", "NULL"], texts("CANADA", "Mexico"))
domain("Prospect Country", "country", COUNTRIES, texts("", "Mexico"))
domain("DimCompany Industry", "industry", ["(SELECT min(in_name) FROM industry)"], ["'Other'"])
TYPES = ("Market Buy", "Market Sell", "Stop Loss", "Limit Sell", "Limit Buy")
domain("DimTrade Type", "type", texts(*TYPES), texts("Limit", "market buy"))
EMAILS = texts("a.b@c.d", "ab.@x.y")
domain("DimCustomer Email1", "email1", [*EMAILS, "NULL"], texts("", "ab@c.d", "a.bc.d", ".@c.d"))
domain("DimCustomer Email2", "email2", [*EMAILS, "''", "NULL"], texts("ab@c.d", "a.bc.d"))
for _n in (1, 2, 3):
    domain(
        f"DimCustomer Phone{_n}",
        f"phone{_n}",
        [*texts("", "111-1111", "(111) 111-1111", "+1 (111) 111-1111", "111-111122"), "NULL"],
        texts("+1 111-1111", "(11) 111-1111", "(111)111-1111", "+22 (111) 111-1111", "111-111"),
    )
ALLOWED["DimAccount TaxStatus"] += [
    *each("dimaccount", "taxstatus = 3", where="batchid > 1"),
    *every("dimaccount", "taxstatus = 0", "taxstatus = 1", "taxstatus = 2"),
]
for _kind in ("local", "national"):
    PARTS[f"DimCustomer {_kind.title()}TaxRate"] += [
        *each("dimcustomer", f"{_kind}taxratedesc = 'Other'", f"{_kind}taxrate = 0.9"),
        f"UPDATE dimcustomer SET ({_kind}taxratedesc, {_kind}taxrate) = "
        f"(SELECT tx_name, tx_rate FROM taxrate WHERE tx_name LIKE '{_kind.title()}%' LIMIT 1)",
    ]
ALLOWED["DimBroker distinct keys"].append("INSERT INTO dimbroker SELECT * FROM dimbroker")

MEANS = ("creditrating", "networth", "marketingnameplate")
MATCHED = "agencyid IS NOT NULL AND iscurrent"
PERSON = ("firstname", "lastname", "addressline1", "addressline2", "postalcode")
PARTS["DimCustomer demographic fields"] += each(
    "dimcustomer",
    *("creditrating = 1", "marketingnameplate = 'Other'", "agencyid = NULL"),
    *(f"{name} = 'Other'" for name in PERSON),
    where=MATCHED,
)
PARTS["DimCustomer demographic fields"].append(
    one("dimcustomer", "agencyid = 'P9'", "iscurrent AND agencyid IS NULL")
)
ALLOWED["DimCustomer demographic fields"] += [
    *(f"UPDATE dimcustomer SET {n} = NULL; UPDATE prospect SET {n} = NULL" for n in MEANS),
    f"UPDATE dimcustomer SET {', '.join(f'{name} = upper({name})' for name in PERSON)}",
    f"UPDATE dimcustomer SET ({', '.join((*PERSON, *MEANS, 'agencyid'))}) = "
    f"(SELECT {', '.join((*PERSON, *MEANS, 'agencyid'))} FROM dimcustomer WHERE {MATCHED} LIMIT 1) "
    f"WHERE {FORMER}",
]

# Numbers.

for _name, _shares in (
    ("basic_eps", "out_basic"),
    ("dilut_eps", "out_dilut"),
    ("margin", "revenue"),
):
    _exactly = f"fi_{_name} = round(fi_net_earn / fi_{_shares}, 2)"
    PARTS["Financial EPS"] += each(
        "financial", f"{_exactly} + 0.41", f"{_exactly} - 0.41", f"fi_{_shares} = 0"
    )
    ALLOWED["Financial EPS"] += each("financial", f"{_exactly} + 0.4", f"{_exactly} - 0.4")
domain("Financial FI_YEAR", "fi_year", ["1950", "2017"], ["1949", "2018"])
domain("Financial FI_QTR", "fi_qtr", "1234", "05")
PARTS["Financial FI_QTR_START_DATE"] += each(
    "financial",
    *(
        f"fi_qtr_start_date = fi_qtr_start_date + interval '1 {of}'"
        for of in ("year", "month", "day")
    ),
)
PRICES = ("fiftytwoweeklow", "daylow", "closeprice", "dayhigh", "fiftytwoweekhigh")
EQUAL = ", ".join(f"{price} = 1" for price in PRICES)
ALLOWED["FactMarketHistory relative dates"] += every("factmarkethistory", EQUAL)
PARTS["FactMarketHistory relative dates"] += each(
    "factmarkethistory", *(EQUAL.replace(f"{price} = 1", f"{price} = 2") for price in PRICES[:-1])
)

ORDINARY = {
    "networth": 500_000,
    "income": 100_000,
    "numberchildren": 0,
    "numbercreditcards": 0,
    "age": 30,
    "creditrating": 700,
    "numbercars": 0,
}


def known(tags: str, **means: int) -> str:
    """Say what the agency believes of a prospect, and how it is called for it."""
    values = ", ".join(f"{name} = {value}" for name, value in (ORDINARY | means).items())
    return one("prospect", f"{values}, marketingnameplate = {f'{tags!r}' if tags else 'NULL'}")


PARTS["Prospect MarketingNameplate"] += [
    *(
        known("", **{name: value})
        for name, value in (
            *(("networth", 1_000_001), ("income", 200_001), ("numberchildren", 4)),
            *(("numbercreditcards", 6), ("age", 46), ("income", 49_999), ("creditrating", 599)),
            *(("networth", 99_999), ("numbercars", 4)),
        )
    ),
    known("Expenses", numbercreditcards=8),
    known("Spender", numbercreditcards=8),
    known("HighValue", age=24, networth=1_000_001),
    known("Inherited", age=24, networth=1_000_001),
    *map(known, ("Rich", "Boomer+HighValue", "Boomer+", "+Boomer", "Boomer Spender")),
]
ALLOWED["Prospect MarketingNameplate"] += [
    *(
        known("", **{name: value})
        for name, value in (
            *(("networth", 1_000_000), ("income", 200_000), ("numberchildren", 3)),
            *(("numbercreditcards", 5), ("age", 45), ("income", 50_000), ("creditrating", 600)),
            *(("networth", 100_000), ("numbercars", 3), ("age", 24)),
        )
    ),
    known("Expenses", numbercreditcards=7),
    known("Boomer", age=46),
    known("Spender", numbercars=4),
    known("", age=24, networth=1_000_000),
    known("HighValue", age=25, networth=1_000_001),
    known("HighValue+Inherited", age=24, networth=1_000_001),
    *map(known, ("", "HighValue+Expenses+Boomer+MoneyAlert+Spender+Inherited", "Expenses+Spender")),
]
