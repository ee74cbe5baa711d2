"""A peer of analytic queries: DuckDB attached to PostgreSQL by its own extension.

    python analytics_duckdb.py URL SCHEMA

is a program for the peers' environment, whose DuckDB is the one that the extension is made for. For
each line with a query, as JSON, it writes one with the seconds and the rows, or with an error.
"""

import json
import sys
import time
from pathlib import Path

import duckdb
import duckdb_extension_postgres_scanner as extension

url, schema = sys.argv[1:]
(file,) = Path(extension.__file__).parent.rglob("postgres_scanner.duckdb_extension")
connection = duckdb.connect()
connection.execute(f"LOAD '{file}'")
connection.execute(f"ATTACH '{url}' AS warehouse (TYPE postgres, SCHEMA '{schema}', READ_ONLY)")
connection.execute(f"USE warehouse.{schema}")
for line in sys.stdin:
    began = time.perf_counter()
    try:
        told: dict[str, int | str] = {"rows": len(connection.sql(json.loads(line)).fetchall())}
    except duckdb.Error as error:
        told = {"error": str(error)}
    print(json.dumps({**told, "seconds": time.perf_counter() - began}), flush=True)
