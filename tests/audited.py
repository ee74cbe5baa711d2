"""A small benchmark that passes the whole audit: its files, and a warehouse that holds them."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import LiteralString

import duckdb
import psycopg
from digen import Digen, Field
from psycopg import sql

from tpcdi import oracle, schema
from tpcdi.seen import JOINED, TABLES
from tpcdi.snapshot import Connection

CUSTOMERS = 310
"""The audit wants more than 300 local tax rates in use."""

DAYS = ("", "2017-07-07", "2017-07-08", "2017-07-09")

ANSWERS: Mapping[str, tuple[int, int, int]] = {
    "DimBroker HR_BROKERS": (1, 0, 0),
    "DimAccount CA_ADDACCT": (1, 1, 1),
    "DimAccount CA_CLOSEACCT": (1, 0, 0),
    "DimAccount CA_UPDACCT": (1, 0, 0),
    "DimAccount CA_ID_HIST": (0, 0, 0),
    "DimCustomer C_NEW": (CUSTOMERS, 1, 1),
    "DimCustomer C_UPDCUST": (1, 0, 0),
    "DimCustomer C_INACT": (1, 1, 0),
    "DimCustomer C_ID_HIST": (0, 0, 0),
    "DimCustomer C_DOB_TO": (1, 0, 0),
    "DimCustomer C_DOB_TY": (0, 0, 1),
    "DimCustomer C_TIER_INV": (1, 0, 0),
    "DimSecurity FW_SEC": (2, 0, 0),
    "DimCompany FW_CMP": (3, 0, 0),
    "FactWatches WH_ACTIVE": (2, 1, 1),
    "FactWatches WH_RECORDS": (3, 2, 1),
    "DimTrade T_NEW": (4, 1, 1),
    "DimTrade T_CanceledTrades": (1, 0, 0),
    "DimTrade T_InvalidCommision": (1, 0, 0),
    "DimTrade T_InvalidCharge": (0, 1, 0),
    "Financial FW_FIN": (2, 0, 0),
    "FactMarketHistory DM_RECORDS": (2, 1, 1),
    "FactHoldings HH_RECORDS": (2, 1, 1),
    "Prospect P_RECORDS": (3, 3, 3),
    "Generator SF": (0, 0, 0),
}
"""What the answer keys say of the files below, by batch."""


def files() -> Digen:
    """Gather source files in which every check has something to look at."""
    made = Digen("\r\n")
    made.days(date(1950, 1, 1), date(1950, 1, 1))
    made.days(date(2015, 1, 1), date(2017, 12, 31))
    for time in ("10:00:00", "10:00:01", "11:00:00"):
        hour, minute, second = (str(int(part)) for part in time.split(":"))
        parts = (hour, hour, minute, minute, second, second)
        made.row(1, "Time.txt", time.replace(":", ""), time, *parts, "true", "true")
    for n in range(CUSTOMERS):
        made.row(1, "TaxRate.txt", f"L{n}", f"Local {n}", f"0.{n:05}")
    for n in range(9):
        made.row(1, "TaxRate.txt", f"N{n}", f"National {n}", f"0.{n:05}")
    _dimensions(made)
    _facts(made)
    for name, by_batch in ANSWERS.items():
        dataset, attribute = name.split()
        for batch, value in enumerate(by_batch, start=1):
            _answer(made, batch, dataset, attribute, value=value)
    for batch, first in ((1, "1950-01-01"), (2, DAYS[2]), (3, DAYS[3])):
        _answer(made, batch, "Batch", "FirstDay", day=first)
        _answer(made, batch, "Batch", "LastDay", day=DAYS[batch])
    return made


def _answer(made: Digen, batch: int, dataset: str, attribute: str, **of: int | str) -> None:
    name = f"{dataset}_audit.csv"
    if not made.files[f"Batch{batch}/{name}"]:
        made.row(batch, name, "DataSet, BatchID ,Date , Attribute , Value, DValue")
    made.row(batch, name, dataset, batch, of.get("day"), attribute, of.get("value"), None)


def _dimensions(made: Digen) -> None:
    for number, name in ((1, "ACME"), (2, "Other")):
        made.company("20150101-090000", name, number, country="Canada")
        made.security("20150102-090000", f"S{number}", name)
        made.report("20160102-090000", "2015Q4", number)
    made.company("20160101-090000", "ACME", 1, rating="BB")
    for n in range(CUSTOMERS):
        born = "1890-01-01" if n == 3 else "1980-05-06"
        tier = 0 if n == 4 else 1
        made.new("2015-02-01T09:00:00", n, 1000 + n, f"L{n} N{n % 9}", C_DOB=born, C_TIER=tier)
    contact = (
        "<ContactInfo><C_PRIM_EMAIL>a.b@c.d</C_PRIM_EMAIL><C_ALT_EMAIL>e.f@g.h</C_ALT_EMAIL>"
        "<C_PHONE_1><C_LOCAL>111-1111</C_LOCAL></C_PHONE_1></ContactInfo>"
    )
    made.action("UPDCUST", "2015-03-06T09:00:00", 1, inside=contact)
    opened: dict[str, Field] = {"CA_ID": 2000, "CA_TAX_ST": 0, "CA_B_ID": 7, "CA_NAME": "Second"}
    made.action("ADDACCT", "2015-03-02T09:00:00", 1, account=opened)
    made.action("UPDACCT", "2015-03-03T09:00:00", 1, account={"CA_ID": 2000, "CA_NAME": "2nd"})
    made.action("CLOSEACCT", "2015-03-04T09:00:00", 1, account={"CA_ID": 2000})
    made.action("INACT", "2015-03-05T09:00:00", 2)
    taxes = {"local_tax": "L1", "national_tax": "N1"}
    made.customer(2, "U", 5, status="INAC", **taxes)
    made.customer(2, "I", 500, **taxes)
    made.customer(3, "I", 501, dob="2020-01-01", **taxes)
    made.cdc(2, "Account.txt", "I", 3000, 7, 500, "New", 1, "ACTV")
    made.cdc(3, "Account.txt", "I", 3001, 7, 501, "New", 1, "ACTV")
    for batch in (1, 2, 3):
        made.prospect(batch, "P1", last="LAST1", first="First", line1="1 street", worth=2000000)
        made.prospect(batch, "P2", age=20 + batch // 2)
        made.prospect(batch, f"P{batch + 3}", income=1)


def _facts(made: Digen) -> None:
    done = ("5.00", 1001, "executor", "5.01")
    for trade, kind, status in ((1, "TMB", "CMPT"), (2, "TLS", "CMPT"), (3, "TLB", "CNCL")):
        made.row(
            *(1, "Trade.txt", trade, f"2016-05-0{trade} 10:00:00", status, kind, 1, "S1", 10),
            *(*done, "1.00", "60.00" if trade == 1 else "1.00", "0.10"),
        )
        opening = "SBMT" if kind == "TMB" else "PNDG"
        made.row(1, "TradeHistory.txt", trade, f"2016-05-0{trade} 10:00:00", opening)
        made.row(1, "TradeHistory.txt", trade, f"2016-05-0{trade} 11:00:00", status)
    still_open = (*done[:3], None, None, None, None)
    pending = ("2017-07-07 10:00:00", "PNDG", "TLB", 1, "S2", 10)
    made.row(1, "Trade.txt", 4, *pending, *still_open)
    made.row(1, "TradeHistory.txt", 4, "2017-07-07 10:00:00", "PNDG")
    closed = ("CMPT", "TLB", 1, "S2", 10, *done, "60.00", "1.00", "0.10")
    made.cdc(2, "Trade.txt", "U", 4, "2017-07-08 10:00:00", *closed)
    for batch, trade in ((2, 5), (3, 6)):
        placed = ("SBMT", "TMB", 0, "S1", 10, *still_open)
        made.cdc(batch, "Trade.txt", "I", trade, f"{DAYS[batch]} 10:00:00", *placed)
        closed = ("CMPT", "TMB", 0, "S1", 10, *done, "1.00", "1.00", "0.10")
        made.cdc(batch, "Trade.txt", "U", trade, f"{DAYS[batch]} 10:00:01", *closed)
    made.row(1, "HoldingHistory.txt", 1, 1, 0, 10)
    made.row(1, "HoldingHistory.txt", 2, 2, 0, 10)
    made.cdc(2, "HoldingHistory.txt", "I", 4, 4, 0, 10)
    made.cdc(3, "HoldingHistory.txt", "I", 1, 6, 10, 20)
    made.row(1, "CashTransaction.txt", 1001, "2016-05-01 10:00:00", "-50.10", "bought")
    made.row(1, "DailyMarket.txt", "2017-07-05", "S1", "5.00", "6.00", "4.00", 100)
    made.row(1, "DailyMarket.txt", "2017-07-06", "S1", "5.00", "5.50", "4.50", 100)
    made.row(1, "WatchHistory.txt", 1, "S1", "2016-05-01 10:00:00", "ACTV")
    made.row(1, "WatchHistory.txt", 6, "S1", "2016-05-01 10:00:00", "ACTV")
    made.row(1, "WatchHistory.txt", 6, "S1", "2016-05-02 10:00:00", "CNCL")
    made.cdc(2, "WatchHistory.txt", "I", 1, "S1", f"{DAYS[2]} 10:00:00", "CNCL")
    for batch in (2, 3):
        made.cdc(batch, "CashTransaction.txt", "I", 1001, f"{DAYS[batch]} 10:00:00", 10, "sold")
        made.cdc(batch, "DailyMarket.txt", "I", DAYS[batch - 1], "S1", *("5.00", "6.00", "4.00"), 1)
        made.cdc(batch, "WatchHistory.txt", "I", 7, "S2", f"{DAYS[batch]} 10:00:00", "ACTV")


@contextmanager
def database(server_url: str, name: str) -> Iterator[Connection]:
    """Give a connection to a database of this name, which is there for so long."""
    with psycopg.connect(server_url, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        with psycopg.connect(server_url.rsplit("/", 1)[0] + f"/{name}", autocommit=True) as opened:
            yield opened
        server.execute(sql.SQL("DROP DATABASE {}").format(sql.Identifier(name)))


def fill(warehouse: Connection, computed: duckdb.DuckDBPyConnection) -> None:
    """Make the warehouse's tables, as plain ones, and put into them what was computed."""
    warehouse.execute("CREATE SCHEMA tpcdi")
    with tempfile.TemporaryDirectory() as folder, warehouse.cursor() as cursor:
        for table, definition in schema.TABLES.items():
            columns = definition.columns.replace("INTEGER", "BIGINT")
            warehouse.execute(f"CREATE TABLE tpcdi.{table} ({columns})".encode())
            file = Path(folder) / table
            computed.execute(
                f"COPY oracle.{table} TO '{file}' (FORMAT csv, HEADER false, FORCE_QUOTE *)"
            )
            into = sql.SQL("COPY tpcdi.{} FROM STDIN (FORMAT csv)").format(sql.Identifier(table))
            with cursor.copy(into) as copied:
                copied.write(file.read_bytes())


COUNT: LiteralString = "SELECT '{table}', 'Row count', count(*) FROM oracle.{table}"
INACTIVE: LiteralString = """
    SELECT 'DimCustomer', 'Inactive customers', count(*) FROM oracle.dimcustomer
    WHERE iscurrent AND status = 'Inactive'
    UNION ALL
    SELECT 'FactWatches', 'Inactive watches', count(*) FROM oracle.factwatches
    WHERE sk_dateid_dateremoved IS NOT NULL"""
TELL: LiteralString = "INSERT INTO tpcdi.dimessages VALUES (%s, %s, %s, %s, %s, %s)"


def report(warehouse: Connection, directory: Path) -> None:
    """Write the messages that a loader makes of its own course."""
    counts = [(table, "Row count") for table in TABLES]
    counts += [(fact, "Row count joined") for fact in JOINED]
    told: dict[tuple[str, str], int] = dict.fromkeys(counts, 0)
    told |= {("DimCustomer", "Inactive customers"): 0, ("FactWatches", "Inactive watches"): 0}
    rows: list[tuple[object, ...]] = []
    for batch in range(4):
        moment = f"2017-07-1{batch}"
        if batch:
            with oracle.compute(directory, batch) as computed:
                query = " UNION ALL ".join(COUNT.format(table=table) for table in TABLES)
                of = computed.execute(f"{query} UNION ALL {INACTIVE}").fetchall()
            told |= {(source, text): number for source, text, number in of}
            told |= {(fact, "Row count joined"): told[fact, "Row count"] for fact in JOINED}
        for (source, text), number in told.items():
            rows.append((moment, batch, source, text, "Validation", number))
            if "Row count" in text:
                rows.append((moment, batch, source, text, "Visibility_1", number))
        rows.append((moment, batch, None, "Phase complete", "PCR", None))
    with warehouse.cursor() as cursor:
        cursor.executemany(TELL, rows)
