"""Checks of history in the dimensions, and of the keys that refer to it."""

from tpcdi.checks import Checks, batches, distinct, none, query, rows

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


def _of_history(table: str) -> Checks:
    surrogate, key, of_batches = HISTORIES[table]
    name = table.lower()
    return {
        f"{table} distinct keys": distinct(table, surrogate),
        f"{table} EndDate": none(
            """\
            {table} AS one LEFT JOIN {table} AS next
                ON next.{key} = one.{key} AND next.effectivedate = one.enddate
            WHERE next.{key} IS NULL AND one.enddate <> '9999-12-31'""",
            table=name,
            key=key,
        ),
        f"{table} Overlap": none(
            """\
            {table} AS one JOIN {table} AS other
                ON other.{key} = one.{key} AND other.{surrogate} <> one.{surrogate}
                AND one.effectivedate >= other.effectivedate
                AND one.effectivedate < other.enddate""",
            table=name,
            key=key,
            surrogate=surrogate,
        ),
        f"{table} End of Time": query(
            """\
            SELECT NULL, count(*) FILTER (WHERE enddate = '9999-12-31'), '=', count(DISTINCT {key})
            FROM {table}""",
            table=name,
            key=key,
        ),
        f"{table} consolidation": none("{table} WHERE effectivedate = enddate", table=name),
        f"{table} batches": batches(table, of_batches),
        f"{table} EffectiveDate": rows(table, "effectivedate BETWEEN firstday AND lastday"),
        f"{table} Status": none("{table} WHERE status NOT IN ('Active', 'Inactive')", table=name),
    }


CHECKS: Checks = {}
for _table in HISTORIES:
    CHECKS |= _of_history(_table)
CHECKS |= {
    f"{table} IsCurrent": none(
        "{table} WHERE (iscurrent = (enddate = '9999-12-31')) IS NOT TRUE", table=table.lower()
    )
    for table in ("DimAccount", "DimCustomer", "DimSecurity")
}
CHECKS |= {
    f"{table} {key}": none(
        """\
        {table} AS one LEFT JOIN {owner} AS of
            ON of.{key} = one.{key} AND of.effectivedate <= one.effectivedate
            AND one.enddate <= of.enddate
        WHERE of.{key} IS NULL""",
        table=table.lower(),
        owner=OWNERS[key],
        key=key.lower(),
    )
    for table, keys in WITHIN.items()
    for key in keys
}
CHECKS |= {
    f"{fact} {key}": none(
        """\
        {fact} AS one LEFT JOIN dimdate ON dimdate.sk_dateid = one.{date}
            LEFT JOIN {owner} AS of
            ON of.{key} = one.{key} AND datevalue BETWEEN of.effectivedate AND of.enddate
        WHERE of.{key} IS NULL""",
        fact=fact.lower(),
        date=date,
        owner=OWNERS[key],
        key=key.lower(),
    )
    for (fact, date), keys in VALID.items()
    for key in keys
}
CHECKS |= {
    f"FactHoldings {key}": none(
        """\
        factholdings AS one LEFT JOIN dimdate ON dimdate.sk_dateid = one.sk_dateid
            LEFT JOIN {owner} AS of ON of.{key} = one.{key} AND of.effectivedate <= datevalue
        WHERE of.{key} IS NULL""",
        owner=OWNERS[key],
        key=key.lower(),
    )
    for key in BEGUN
}
CHECKS["Financial SK_CompanyID"] = none("""\
    financial AS one LEFT JOIN dimcompany AS of ON of.sk_companyid = one.sk_companyid
    WHERE of.sk_companyid IS NULL""")
