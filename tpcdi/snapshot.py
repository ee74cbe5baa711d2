"""A warehouse at one moment, for those who read many of its tables."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.pq import TransactionStatus

Connection = psycopg.Connection[tuple[object, ...]]


@contextmanager
def snapshot(connection: Connection) -> Iterator[None]:
    """Read in one transaction, which sees what was committed when it began.

    Within a transaction of the caller's own, what that one sees is read.
    """
    fresh = connection.info.transaction_status == TransactionStatus.IDLE
    with connection.transaction():
        if fresh:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
