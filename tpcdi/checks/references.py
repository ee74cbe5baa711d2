"""Checks of history in the dimensions, and of the keys that refer to it."""

from typing import LiteralString

from psycopg.sql import SQL, Composable

from tpcdi.checks import Checks, batches, distinct, none, query, rows

NO_JOIN = SQL("")

HISTORIES = {
    "DimAccount": ("sk_accountid", "accountid", 3),
    "DimCustomer": ("sk_customerid", "customerid", 3),
    "DimSecurity": ("sk_securityid", "symbol", 1),
    "DimCompany": ("sk_companyid", "companyid", 1),
}
"""Tables with history: the surrogate key, the natural one, and of how many batches they are."""

OWNERS = {
    "SK_BrokerID": "dimbroker",
    "SK_CompanyID": "dimcompany",
    "SK_SecurityID": "dimsecurity",
    "SK_CustomerID": "dimcustomer",
    "SK_AccountID": "dimaccount",
}
"""Where a surrogate key comes from."""

WITHIN = {"DimAccount": ("SK_CustomerID", "SK_BrokerID"), "DimSecurity": ("SK_CompanyID",)}
"""Versions that lie within one version of each of these."""

VALID = {
    ("FactWatches", "sk_dateid_dateplaced"): ("SK_CustomerID", "SK_SecurityID"),
    ("DimTrade", "sk_createdateid"): tuple(OWNERS),
    ("FactMarketHistory", "sk_dateid"): ("SK_CompanyID", "SK_SecurityID"),
    ("FactCashBalances", "sk_dateid"): ("SK_CustomerID", "SK_AccountID"),
}
"""Facts that refer to what is valid on their date, the day on which it ends included."""

BEGUN = ("SK_CustomerID", "SK_AccountID", "SK_CompanyID", "SK_SecurityID")
"""What a holding refers to has begun by its date; it may have ended since the trade was placed."""


OF_HISTORY: dict[str, LiteralString] = {
    "EndDate": """\
        {table} AS one LEFT JOIN {table} AS next
            ON next.{key} = one.{key} AND next.effectivedate = one.enddate
        WHERE next.{key} IS NULL AND one.enddate <> '9999-12-31'""",
    "Overlap": """\
        {table} AS one JOIN {table} AS other
            ON other.{key} = one.{key} AND other.{surrogate} <> one.{surrogate}
            AND one.effectivedate >= other.effectivedate
            AND one.effectivedate < other.enddate""",
    "consolidation": "{table} WHERE effectivedate = enddate",
    "Status": "{table} WHERE status NOT IN ('Active', 'Inactive')",
}
"""There is no such row in a table with history: each follows FROM."""


def refers(
    table: str, key: str, condition: LiteralString, joins: Composable = NO_JOIN
) -> Composable:
    """Want each row to refer by a key to something of which a condition holds."""
    text: LiteralString = """\
        {table} AS one {joins}
            LEFT JOIN {owner} AS of ON of.{key} = one.{key} AND {condition}
        WHERE of.{key} IS NULL"""
    names = {"table": table.lower(), "owner": OWNERS[key], "key": key.lower()}
    return none(text, **names, joins=joins, condition=SQL(condition))


def of_day(column: str) -> Composable:
    """Join the day of a row."""
    return query("LEFT JOIN dimdate ON dimdate.sk_dateid = one.{column}", column=column)


CHECKS: Checks = {
    "Financial SK_CompanyID": refers("Financial", "SK_CompanyID", "true"),
}
for _table, (_surrogate, _key, _batches) in HISTORIES.items():
    _names = {"table": _table.lower(), "key": _key, "surrogate": _surrogate}
    CHECKS |= {f"{_table} {what}": none(wrong, **_names) for what, wrong in OF_HISTORY.items()}
    CHECKS |= {
        f"{_table} distinct keys": distinct(_table, _surrogate),
        f"{_table} End of Time": query(
            """\
            SELECT NULL, count(*) FILTER (WHERE enddate = '9999-12-31'), '=', count(DISTINCT {key})
            FROM {table}""",
            **_names,
        ),
        f"{_table} batches": batches(_table, _batches),
        f"{_table} EffectiveDate": rows(_table, "effectivedate BETWEEN firstday AND lastday"),
    }
CHECKS |= {
    f"{table} IsCurrent": none(
        "{table} WHERE (iscurrent = (enddate = '9999-12-31')) IS NOT TRUE", table=table.lower()
    )
    for table in ("DimAccount", "DimCustomer", "DimSecurity")
}
CHECKS |= {
    f"{table} {key}": refers(
        table, key, "of.effectivedate <= one.effectivedate AND one.enddate <= of.enddate"
    )
    for table, keys in WITHIN.items()
    for key in keys
}
CHECKS |= {
    f"{fact} {key}": refers(
        fact, key, "datevalue BETWEEN of.effectivedate AND of.enddate", of_day(date)
    )
    for (fact, date), keys in VALID.items()
    for key in keys
}
CHECKS |= {
    f"FactHoldings {key}": refers(
        "FactHoldings", key, "of.effectivedate <= datevalue", of_day("sk_dateid")
    )
    for key in BEGUN
}
