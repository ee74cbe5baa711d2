"""What is seen in the warehouse: the counts that the benchmark wants reported, at one moment."""

from datetime import UTC, datetime
from typing import LiteralString, NamedTuple

from psycopg import sql

from tpcdi.snapshot import Connection, snapshot

TABLES = (
    *("DimAccount", "DimBroker", "DimCompany", "DimCustomer", "DimDate", "DimSecurity", "DimTime"),
    *("DimTrade", "FactCashBalances", "FactHoldings", "FactMarketHistory", "FactWatches"),
    *("Financial", "Industry", "Prospect", "StatusType", "TaxRate", "TradeType"),
)
JOINED: dict[str, LiteralString] = {
    "FactCashBalances": """
        JOIN dimcustomer USING (sk_customerid) JOIN dimaccount USING (sk_accountid)
        JOIN dimdate USING (sk_dateid)""",
    "FactHoldings": """
        JOIN dimcustomer USING (sk_customerid) JOIN dimaccount USING (sk_accountid)
        JOIN dimsecurity USING (sk_securityid) JOIN dimdate USING (sk_dateid)
        JOIN dimcompany ON dimcompany.sk_companyid = facts.sk_companyid""",
    "FactMarketHistory": """
        JOIN dimsecurity USING (sk_securityid) JOIN dimdate USING (sk_dateid)
        JOIN dimcompany ON dimcompany.sk_companyid = facts.sk_companyid""",
    "FactWatches": """
        JOIN dimcustomer USING (sk_customerid) JOIN dimsecurity USING (sk_securityid)
        JOIN dimdate ON sk_dateid = sk_dateid_dateplaced""",
}
Counts = dict[tuple[str, str], sql.Composable]
"""By what is reported: of which table, and by which words; what is counted follows FROM."""

ROWS: Counts = {(name, "Row count"): sql.Identifier(name.lower()) for name in TABLES}
FOUND: Counts = {
    (name, "Row count joined"): sql.SQL("{} AS facts {}").format(
        sql.Identifier(name.lower()), sql.SQL(joins)
    )
    for name, joins in JOINED.items()
}
INACTIVE: Counts = {
    ("DimCustomer", "Inactive customers"): sql.SQL(
        "dimcustomer WHERE iscurrent AND status = 'Inactive'"
    ),
    ("FactWatches", "Inactive watches"): sql.SQL(
        "factwatches WHERE sk_dateid_dateremoved IS NOT NULL"
    ),
}


class Seen(NamedTuple):
    """A count of rows, and when it was taken."""

    at: str
    source: str | None
    text: str
    number: int | None


def now() -> str:
    """Tell the time as messages have it."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"


def rows(warehouse: Connection) -> list[Seen]:
    """Count the rows of all tables."""
    return _counted(warehouse, ROWS)


def visible(warehouse: Connection) -> list[Seen]:
    """Count the rows of all tables, and those of facts that find their dimensions."""
    return _counted(warehouse, ROWS | FOUND)


def valid(warehouse: Connection) -> list[Seen]:
    """Count all that is reported when a phase is complete."""
    return _counted(warehouse, ROWS | FOUND | INACTIVE)


def _counted(warehouse: Connection, counts: Counts) -> list[Seen]:
    at, found = now(), []
    with snapshot(warehouse), warehouse.cursor() as cursor:
        for (source, text), of in counts.items():
            cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(of))
            ((number,),) = cursor.fetchall()
            found.append(Seen(at, source, text, int(str(number))))
    return found
