"""The peer that an embedded engine is measured by: a loop over SQLite, written by hand.

It has the same pragmas as our core and commits as seldom, and keeps none of its promises: no
ledger, no dead letters, no declared access. It is what the same SQL costs at least.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.harness import timed

GROUP_BATCHES = 64
"""As many batches as our core commits together, unless it is told otherwise."""

SYNCHRONOUS = {"strong": "FULL", "weak": "NORMAL"}

T = TypeVar("T")
B = TypeVar("B")


def connect(path: Path, durability: str) -> sqlite3.Connection:
    """Open a database as our core opens its own."""
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=1_000)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
    connection.execute("PRAGMA secure_delete = OFF")  # as in the core
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def run(
    connection: sqlite3.Connection,
    batches: Sequence[B],
    take: Callable[[B], None],
    group: int,
) -> None:
    """Give batch after batch to `take`, `group` of them to a transaction."""
    for start in range(0, len(batches), group):
        connection.execute("BEGIN IMMEDIATE")
        for batch in batches[start : start + group]:
            take(batch)
        connection.execute("COMMIT")


def ran(
    connection: sqlite3.Connection,
    batches: Sequence[B],
    take: Callable[[B], None],
    check: Callable[[sqlite3.Connection], None],
) -> float:
    """Run it in groups as large as ours; tell the seconds, once what came of it is checked."""
    with timed() as seconds:
        run(connection, batches, take, GROUP_BATCHES)
    check(connection)
    connection.close()
    return seconds()


def savepoint(connection: sqlite3.Connection, body: Callable[..., T], *arguments: Any) -> T:
    """Run a procedure so that it could be rolled back alone."""
    connection.execute("SAVEPOINT te")
    try:
        result = body(*arguments)
    except BaseException:
        connection.execute("ROLLBACK TO te")
        connection.execute("RELEASE te")
        raise
    connection.execute("RELEASE te")
    return result


def unprotected(_connection: sqlite3.Connection, body: Callable[..., T], *arguments: Any) -> T:
    """Run a procedure as the same loop would that never rolls one back alone."""
    return body(*arguments)


def make(connection: sqlite3.Connection, schema: Iterable[str]) -> None:
    """Create tables, strict as ours are."""
    for table in schema:
        connection.execute(f"{table} STRICT")
