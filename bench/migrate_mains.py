"""Databases of much in main and in delta: an outlet with a key, and one without, beside an index.

PostgreSQL makes the rows itself; the values are random, and the same at each run. What is compared
begins with copies of one database.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench.ingest_data import COLUMNS, NAMES
from bench.keeping import keeping
from bench.migrate_ours import HERE
from bench.postgres import Connection
from etl_procs import Dataflow, by_count
from migrations import layout, tables

BASE, TRIAL = "base", "trial"
"""The database that every merge begins with, and the copy of it."""
BATCH = 100
"""Operations in a batch."""
INDEXED = "customer"

traded, trades, kept = keeping("traded", COLUMNS, by_count(BATCH), key="id", indexes=(INDEXED,))
logged = Dataflow("logged")
log = logged.outlet("log", COLUMNS, indexes=[INDEXED])
KEPT_MAIN, KEPT_DELTA = (tables.identifier(of(kept)) for of in (tables.main, tables.delta))
LOG_MAIN, LOG_DELTA = (tables.identifier(of(log)) for of in (tables.main, tables.delta))

SEED: LiteralString = "SELECT setseed(0.2026)"
KEYS_OF_TEN = 4
"""So many keys of main do ten operations take turns in; of new keys it is three."""

# 14 columns of about the widths of ingest_data.trades.
VALUES: LiteralString = """\
floor(random() * 100000)::bigint AS customer,
floor(random() * 100000)::bigint AS account,
substr(upper(md5(floor(random() * 500)::text)), 1, 6) AS symbol,
(ARRAY['TMB', 'TMS', 'TLB'])[1 + floor(random() * 3)] AS kind,
(ARRAY['CMPT', 'PNDG', 'SBMT'])[1 + floor(random() * 3)] AS status,
to_char(timestamp '2026-01-01' + n % 40000 * interval '1 minute', 'YYYY-MM-DD"T"HH24:MI:SS')
  AS placed,
100 * floor(1 + random() * 99)::bigint AS quantity,
round(random() * 99999)::float8 / 100 AS bid,
round(random() * 99999)::float8 / 100 AS price,
round(random() * 999)::float8 / 100 AS fee,
round(random() * 999)::float8 / 100 AS commission,
round(random() * 999)::float8 / 100 AS tax,
(ARRAY['Ada Ito', 'Kurt Lem', 'Emmy Roe', 'Alan Ito'])[1 + floor(random() * 4)] AS broker"""

FILL_MAIN: LiteralString = """\
INSERT INTO {table} ({columns})
SELECT n AS id, {values} FROM generate_series(1, {rows}) AS of (n)"""

# Of ten operations four bring new keys, four replace, two delete. In a batch a key is there once.
FILL_DELTA: LiteralString = """\
INSERT INTO {table} ({columns}, _batch, _partition, _deleted)
SELECT DISTINCT ON (_batch, id)
  id, customer, account, symbol, kind, status, placed, quantity, bid, price, fee, commission, tax,
  broker, _batch, (id % 2)::integer AS _partition, _deleted
FROM (
  SELECT
    CASE
      WHEN dice < 4 OR dice >= 9.5 THEN {rows} + 1 + floor(random() * {operations} * 3 / 10)::bigint
      ELSE 1 + abs(hashint8extended(floor(random() * {operations} * {keys} / 10)::bigint, 0)
        % {rows})
    END AS id,
    {values}, n / {per_batch} AS _batch, dice >= 8 AS _deleted
  FROM (SELECT n, 10 * random() AS dice FROM generate_series(1, {operations}) AS of (n)) AS diced
) AS made
ORDER BY _batch, id"""

FILL_APPENDED: LiteralString = """\
INSERT INTO {table} ({columns}, _batch, _partition)
SELECT {rows} + n AS id, {values}, n / {per_batch}, n % 2
FROM generate_series(1, {operations}) AS of (n)"""

ARRIVED: LiteralString = """\
UPDATE headrace.ledger SET core = gen_random_uuid(), batch = batch + 1
WHERE dataflow = %s AND partition = 0"""
FILL_LOG: LiteralString = "INSERT INTO {log} SELECT * FROM {kept}"

COPY: LiteralString = "CREATE DATABASE {name} TEMPLATE {of} STRATEGY FILE_COPY"
SUM: LiteralString = """\
SELECT count(*), sum(hashtextextended(main::text, 0)::numeric)
FROM (SELECT {columns} FROM {table}) AS main"""

EVERY = sql.SQL("*")
NAMED = sql.SQL(", ").join(map(sql.Identifier, NAMES))


@contextmanager
def copied(conninfo: str) -> Iterator[Connection]:
    """Connect to a fresh copy of the database, on a disk that has nothing left to do."""
    copy(conninfo, BASE, TRIAL)
    with connected(conninfo, TRIAL) as trial:
        yield trial


def copy(conninfo: str, of: str, name: str) -> None:
    """Copy a database; if one of the name was there it is gone."""
    new, old = sql.Identifier(name), sql.Identifier(of)
    with psycopg.connect(conninfo, autocommit=True) as server:
        server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(new))
        server.execute(sql.SQL(COPY).format(name=new, of=old))
        server.execute("CHECKPOINT")


def connected(conninfo: str, name: str) -> Connection:
    """Connect to a database of the server."""
    return psycopg.connect(make_conninfo(conninfo, dbname=name), autocommit=True)


def summed(
    connection: Connection, table: sql.Identifier, columns: sql.Composable = EVERY
) -> tuple[object, ...]:
    """Tell what is in a table, or in columns of it, in short."""
    query = sql.SQL(SUM).format(columns=columns, table=table)
    (found,) = connection.execute(query).fetchall()
    return found


def make(conninfo: str, rows: int, name: str = BASE) -> None:
    """Make a database with so many rows in the main of the outlet with the key."""
    with psycopg.connect(conninfo, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with connected(conninfo, name) as connection:
        layout.prepare(connection, HERE, traded)
        _fill(connection, FILL_MAIN, KEPT_MAIN, rows)


def analyze(connection: Connection, table: sql.Identifier) -> None:
    """Leave nothing for PostgreSQL to do by itself, amid a measurement."""
    connection.execute(sql.SQL("VACUUM ANALYZE {}").format(table))


def fill_delta(connection: Connection, rows: int, operations: int) -> None:
    """Have so many operations arrive for a main of so many rows, and nothing else."""
    connection.execute(sql.SQL("TRUNCATE {}").format(KEPT_DELTA))
    _fill(connection, FILL_DELTA, KEPT_DELTA, rows, operations)
    connection.execute(ARRIVED, [traded.name])


def fill_log(connection: Connection, rows: int, operations: int) -> None:
    """Have the outlet without a key hold what the other's main holds, and more rows in delta."""
    layout.prepare(connection, HERE, logged)
    connection.execute(sql.SQL(FILL_LOG).format(log=LOG_MAIN, kept=KEPT_MAIN))
    analyze(connection, LOG_MAIN)
    _fill(connection, FILL_APPENDED, LOG_DELTA, rows, operations)
    connection.execute(ARRIVED, [logged.name])


def _fill(
    connection: Connection,
    statement: LiteralString,
    table: sql.Identifier,
    rows: int,
    operations: int = 0,
) -> None:
    """Bring rows into a table, which is analyzed afterwards."""
    connection.execute(SEED)
    connection.execute(
        sql.SQL(statement).format(
            table=table,
            columns=NAMED,
            values=sql.SQL(VALUES),
            rows=sql.Literal(rows),
            operations=sql.Literal(operations),
            keys=sql.Literal(KEYS_OF_TEN),
            per_batch=sql.Literal(BATCH),
        )
    )
    analyze(connection, table)
