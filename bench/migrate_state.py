"""The two tables that everybody writes, what is wrong with them, and what a reader sees of them.

`kept` has a key, which hides what comes twice; `history` has none, and every row is there to stay.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import LiteralString

import psycopg
from psycopg import sql

from bench.harness import Figures
from bench.ingest_data import declared
from bench.migrate_changes import ACCOUNTS, BALANCE, Change, outcome

KEPT, HISTORY = "kept", "history"
LOST, DOUBLED, TORN, FAILED = HARM = ("lost_rows", "doubled_rows", "torn_reads", "failed_starts")
"""What a kill may do: rows, reads of half a batch, and starts after it that ended at once."""
LOOK_EVERY_S = 0.001

CREATE: LiteralString = """\
CREATE SCHEMA {schema};
CREATE TABLE {kept} ({columns}, PRIMARY KEY (id));
CREATE TABLE {history} ({columns})"""
SUM: LiteralString = "SELECT count(*), sum(quantity) FROM {kept} WHERE id <= %s"


def make(url: str, schema: str) -> None:
    """Make both tables, empty."""
    statement = sql.SQL(CREATE).format(
        schema=sql.Identifier(schema),
        kept=sql.Identifier(schema, KEPT),
        history=sql.Identifier(schema, HISTORY),
        columns=declared(required=True),
    )
    with psycopg.connect(url) as connection:
        connection.execute(statement)


def there(url: str, schema: str) -> dict[int, int]:
    """Tell which keys are in `kept`, and by which change."""
    query = sql.SQL("SELECT id, customer FROM {}").format(sql.Identifier(schema, KEPT))
    with psycopg.connect(url) as connection:
        return dict(connection.execute(query).fetchall())


def harm(url: str, schema: str, changes: Sequence[Change]) -> Figures:
    """Count what is lost and what is there too often, in both tables together."""
    kept, wanted = there(url, schema), outcome(changes)
    missing = sum(kept.get(key) != number for key, number in wanted.items())
    query = sql.SQL("SELECT customer FROM {}").format(sql.Identifier(schema, HISTORY))
    with psycopg.connect(url) as connection:
        appended = [number for (number,) in connection.execute(query)]
    different = set(appended)
    every = {change.number for change in changes if change.row is not None}
    return {
        LOST: float(missing + len(every - different)),
        DOUBLED: float(len(kept.keys() - wanted.keys()) + len(appended) - len(different)),
    }


class Reader:
    """Looks again and again what all accounts have together."""

    def __init__(self, url: str, schema: str) -> None:
        self.reads = self.torn = 0
        self._url = url
        self._query = sql.SQL(SUM).format(kept=sql.Identifier(schema, KEPT))
        self._over = threading.Event()

    def look(self) -> None:
        """Read until it is over."""
        with psycopg.connect(self._url, autocommit=True) as connection:
            while not self._over.is_set():
                (found,) = connection.execute(self._query, [ACCOUNTS]).fetchall()
                self.reads += found != (0, None)
                self.torn += found not in ((0, None), (ACCOUNTS, ACCOUNTS * BALANCE))
                time.sleep(LOOK_EVERY_S)

    def end(self) -> None:
        """Look no more."""
        self._over.set()

    @property
    def figures(self) -> Figures:
        """How often it looked when something was there, and how often that was half a batch."""
        return {"reads": float(self.reads), TORN: float(self.torn)}


@contextmanager
def reading(url: str, schema: str) -> Iterator[Reader]:
    """Read in the background."""
    reader = Reader(url, schema)
    thread = threading.Thread(target=reader.look)
    thread.start()
    try:
        yield reader
    finally:
        reader.end()
        thread.join()
