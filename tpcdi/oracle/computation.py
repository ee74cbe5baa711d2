"""The order in which the oracle computes the tables."""

import re
from pathlib import Path

import duckdb

from tpcdi import schema
from tpcdi.oracle import sources

RULES = Path(__file__).parent / "rules"
ORDER = (
    *("macros", "reference", "dimbroker", "dimcompany", "dimsecurity", "financial"),
    *("prospect", "dimcustomer", "iscustomer", "dimaccount"),
    *("dimtrade", "factcashbalances", "factholdings", "factmarkethistory", "factwatches"),
)


def compute(directory: Path, batches: int = 3) -> duckdb.DuckDBPyConnection:
    """Compute what the warehouse must hold after a batch; it is in the schema `oracle`.

    Surrogate keys are the oracle's own, and so are the times of messages. Of the messages there
    are those that the data brings about: alerts and status.
    """
    connection = duckdb.connect()
    sources.read(connection, directory, batches)
    create(connection, "oracle")
    connection.execute("CREATE SCHEMA steps")
    for name in ORDER:
        connection.execute((RULES / f"{name}.sql").read_text())
    return connection


def create(connection: duckdb.DuckDBPyConnection, place: str) -> None:
    """Create the warehouse's tables, empty, in a schema of this name.

    NULL may be anywhere: a difference tells more than an error.
    """
    connection.execute(f"CREATE SCHEMA {place}")
    for name, table in schema.TABLES.items():
        columns = re.sub(r"\bINTEGER\b", "BIGINT", table.columns.replace("NOT NULL", ""))
        connection.execute(f"CREATE TABLE {place}.{name} ({columns})")
