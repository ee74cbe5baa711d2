"""Databases to measure in: what is compared begins with copies of one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench.postgres import Connection

BASE, TRIAL = "base", "trial"
"""The database that every merge begins with, and the copy of it."""

COPY: LiteralString = "CREATE DATABASE {name} TEMPLATE {of} STRATEGY FILE_COPY"
SUM: LiteralString = """\
SELECT count(*), sum(hashtextextended(main::text, 0)::numeric)
FROM (SELECT {columns} FROM {table}) AS main"""

EVERY = sql.SQL("*")


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
