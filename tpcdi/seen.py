"""What is seen in the warehouse: the counts that the benchmark wants reported, at one moment."""

from collections.abc import Iterator
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
INACTIVE: dict[tuple[str, str], LiteralString] = {
    ("DimCustomer", "Inactive customers"): "dimcustomer WHERE iscurrent AND status = 'Inactive'",
    ("FactWatches", "Inactive watches"): "factwatches WHERE sk_dateid_dateremoved IS NOT NULL",
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
    return list(_counted(warehouse, {(name, "Row count"): _of(name) for name in TABLES}))


def visible(warehouse: Connection) -> list[Seen]:
    """Count the rows of all tables, and those of facts that find their dimensions."""
    return list(
        _counted(warehouse, {(name, "Row count"): _of(name) for name in TABLES} | _joined())
    )


def valid(warehouse: Connection) -> list[Seen]:
    """Count all that is reported when a phase is complete."""
    inactive = {what: sql.SQL(query) for what, query in INACTIVE.items()}
    counts = {(name, "Row count"): _of(name) for name in TABLES}
    return list(_counted(warehouse, counts | _joined() | inactive))


def _of(name: str) -> sql.Composable:
    return sql.Identifier(name.lower())


def _joined() -> dict[tuple[str, str], sql.Composable]:
    return {
        (name, "Row count joined"): sql.SQL("{} AS facts {}").format(_of(name), sql.SQL(joins))
        for name, joins in JOINED.items()
    }


def _counted(
    warehouse: Connection, counts: dict[tuple[str, str], sql.Composable]
) -> Iterator[Seen]:
    at = now()
    with snapshot(warehouse), warehouse.cursor() as cursor:
        for (source, text), rows_ in counts.items():
            found = cursor.execute(sql.SQL("SELECT count(*) FROM {}").format(rows_)).fetchone()
            assert found is not None
            yield Seen(at, source, text, int(str(found[0])))
