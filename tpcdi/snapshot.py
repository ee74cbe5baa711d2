"""A warehouse at one moment, for those who read many of its tables."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import psycopg
from psycopg.pq import TransactionStatus

from migrations.errors import translated

Connection = psycopg.Connection[tuple[object, ...]]

# Of a view PostgreSQL has no statistics, and would rather loop over it than hash it.
SETTINGS: LiteralString = """
    SET LOCAL search_path = tpcdi;
    SET LOCAL enable_nestloop = off;
    SET LOCAL work_mem = '256MB'"""


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """Read live in one transaction, which sees what was committed when it began.

    Within a transaction of the caller's own, what that one sees is read.
    """
    fresh = connection.info.transaction_status == TransactionStatus.IDLE
    with translated("reading the warehouse"), connection.transaction():
        if fresh:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        connection.execute(SETTINGS)
        yield
