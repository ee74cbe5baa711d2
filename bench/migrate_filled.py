"""Outlets of ours with much in main and in delta, which PostgreSQL fills itself: one with a key and
one without. Both have an index beside it.
"""

from typing import LiteralString

import psycopg
from psycopg import sql

from bench import migrate_copies, migrate_tables
from bench.ingest_data import COLUMNS
from bench.keeping import keeping
from bench.migrate_copies import BASE
from bench.migrate_ours import HERE
from bench.migrate_tables import FILL_APPENDED
from bench.postgres import Connection
from etl_procs import Dataflow, by_count
from migrations import layout, tables

BATCH = 100
INDEXED = "customer"

traded, trades, kept = keeping("traded", COLUMNS, by_count(BATCH), key="id", indexes=(INDEXED,))
logged = Dataflow("logged")
log = logged.outlet("log", COLUMNS, indexes=[INDEXED])

ARRIVED: LiteralString = """\
UPDATE headrace.ledger SET core = gen_random_uuid(), batch = batch + 1
WHERE dataflow = %s AND partition = 0"""
FILL_LOG: LiteralString = "INSERT INTO {log} SELECT * FROM {kept}"

KEPT_MAIN, KEPT_DELTA = (tables.identifier(of(kept)) for of in (tables.main, tables.delta))
LOG_MAIN, LOG_DELTA = (tables.identifier(of(log)) for of in (tables.main, tables.delta))


def make(conninfo: str, rows: int, name: str = BASE) -> None:
    """Make a database with so many rows in the main of the outlet with the key."""
    with psycopg.connect(conninfo, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with migrate_copies.connected(conninfo, name) as connection:
        layout.prepare(connection, HERE, traded)
        migrate_tables.fill_main(connection, rows, KEPT_MAIN)
        analyze(connection, KEPT_MAIN)


def analyze(connection: Connection, table: sql.Identifier) -> None:
    """Leave nothing for PostgreSQL to do by itself, amid a measurement."""
    connection.execute(sql.SQL("VACUUM ANALYZE {}").format(table))


def fill_delta(connection: Connection, rows: int, operations: int) -> None:
    """Have so many operations arrive for a main of so many rows, and nothing else."""
    connection.execute(sql.SQL("TRUNCATE {}").format(KEPT_DELTA))
    migrate_tables.fill_delta(connection, rows, operations, delta=KEPT_DELTA)
    connection.execute(ARRIVED, [traded.name])


def fill_log(connection: Connection, rows: int, operations: int) -> None:
    """Have the outlet without a key hold what the other's main holds, and more rows in delta."""
    layout.prepare(connection, HERE, logged)
    connection.execute(sql.SQL(FILL_LOG).format(log=LOG_MAIN, kept=KEPT_MAIN))
    analyze(connection, LOG_MAIN)
    migrate_tables.fill_delta(
        connection, rows, operations, delta=LOG_DELTA, statement=FILL_APPENDED
    )
    connection.execute(ARRIVED, [logged.name])
