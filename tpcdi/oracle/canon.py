"""The canonical form of the tables: the same of two warehouses that hold the same.

A surrogate key is replaced by what it stands for: the natural key, and the effective date, of the
version that it refers to. What only one load can know is left out: the time of a message, and
the messages that the loader makes of its own course.
"""

import hashlib
import tempfile
from pathlib import Path

import duckdb
from psycopg import sql

from tpcdi import schema
from tpcdi.oracle.computation import create
from tpcdi.snapshot import Connection, snapshot

DIMENSIONS = {
    "sk_brokerid": ("dimbroker", "brokerid"),
    "sk_companyid": ("dimcompany", "companyid"),
    "sk_securityid": ("dimsecurity", "symbol"),
    "sk_customerid": ("dimcustomer", "customerid"),
    "sk_accountid": ("dimaccount", "accountid"),
}
"""What a surrogate key refers to: the table, and its natural key."""

OWN = {"watchid", "messagedateandtime"}
"""What stands for nothing outside of its warehouse."""

OF_DATA = {"dimessages": "WHERE messagetype IN ('Alert', 'Status')"}
"""Which rows are functions of the data, where not all are."""

COPY_OUT = sql.SQL("COPY (SELECT {columns} FROM {table}) TO STDOUT (FORMAT csv)")
READ = """
    INSERT INTO {place}.{table} SELECT * FROM read_csv($file, columns = $columns, header = false,
        auto_detect = false, nullstr = '', allow_quoted_nulls = false, new_line = '\\n')"""


def columns(connection: duckdb.DuckDBPyConnection, place: str, table: str) -> dict[str, str]:
    """Give the columns of a table, with their types."""
    described = connection.execute(f"DESCRIBE {place}.{table}").fetchall()
    return {name: kind for name, kind, *_ in described}


def canonical(connection: duckdb.DuckDBPyConnection, place: str, table: str) -> str:
    """Write the query of a table's canonical rows."""
    shown, joins = [], []
    for name in columns(connection, place, table):
        dimension, key = DIMENSIONS.get(name, ("", ""))
        if name not in DIMENSIONS and name not in OWN:
            shown.append(f"of.{name}")
        elif dimension and dimension != table:
            shown += [f"{name}.{key} AS {name}", f"{name}.effectivedate AS {name}_effectivedate"]
            joins.append(f"LEFT JOIN {place}.{dimension} AS {name} ON of.{name} = {name}.{name}")
    chosen = OF_DATA.get(table, "")
    return f"SELECT {', '.join(shown)} FROM {place}.{table} AS of {' '.join(joins)} {chosen}"


def fetch(warehouse: Connection, connection: duckdb.DuckDBPyConnection, place: str) -> None:
    """Copy a warehouse's tables, as they are at one moment, into a schema of this name."""
    create(connection, place)
    with snapshot(warehouse), tempfile.TemporaryDirectory() as folder, warehouse.cursor() as cursor:
        file = Path(folder) / "rows.csv"
        for table in schema.TABLES:
            of_table = columns(connection, place, table)
            names = sql.SQL(", ").join(map(sql.Identifier, of_table))
            query = COPY_OUT.format(columns=names, table=sql.Identifier(table))
            with cursor.copy(query) as rows, file.open("wb") as out:
                for block in rows:
                    out.write(block)
            if file.stat().st_size:
                read = READ.format(place=place, table=table)
                connection.execute(read, {"file": str(file), "columns": of_table})


def export(warehouse: Connection, folder: Path) -> None:
    """Write a warehouse's canonical rows, in a total order: a CSV file for each table."""
    with duckdb.connect() as connection:
        fetch(warehouse, connection, "warehouse")
        write(connection, "warehouse", folder)


def write(connection: duckdb.DuckDBPyConnection, place: str, folder: Path) -> None:
    """Write the canonical rows of a schema, in a total order: a CSV file for each table."""
    for table in schema.TABLES:
        rows = canonical(connection, place, table)
        connection.execute(
            f"COPY ({rows} ORDER BY ALL) TO '{folder / table}.csv' (FORMAT csv, HEADER)"
        )


def digests(warehouse: Connection) -> dict[str, str]:
    """Digest what `export` writes, by table: two warehouses with the same hold the same."""
    with tempfile.TemporaryDirectory() as folder:
        export(warehouse, Path(folder))
        return {
            table: hashlib.sha256((Path(folder) / f"{table}.csv").read_bytes()).hexdigest()
            for table in schema.TABLES
        }
