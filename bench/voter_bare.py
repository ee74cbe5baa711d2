"""The voter by hand in SQLite: three functions, each under a savepoint, and a window in tables."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import bare, voter_sql
from bench.voter_show import VOTES_A_REMOVAL, WINDOW, State, Vote

Protect = Callable[..., Any]
"""`bare.savepoint`, or `bare.unprotected`."""


class BareVoter:
    """One connection, and the number of the window's last tuple."""

    def __init__(
        self, path: Path, durability: str, group: int, protect: Protect = bare.savepoint
    ) -> None:
        self._protect = protect
        self._connection = bare.connect(path, durability)
        self._group = group
        self._entered = 0
        self.rejected = 0
        bare.make(self._connection, voter_sql.SCHEMA)
        with self._connection:
            for table, rows in voter_sql.ROWS.items():
                self._connection.executemany(voter_sql.FILL[table], rows)

    def run(self, votes: list[Vote]) -> None:
        """Take every vote; when it returns they are committed."""
        bare.run(self._connection, votes, self._vote, self._group)

    def state(self) -> State:
        """Read every table."""
        return {
            table: self._connection.execute(sql).fetchall()
            for table, sql in voter_sql.STATE.items()
        }

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    def _vote(self, vote: Vote) -> None:
        connection, protect = self._connection, self._protect
        if protect(connection, _validate, connection, *vote):
            self._entered += 1
            protect(connection, _maintain, connection, self._entered, *vote)
            protect(connection, _remove, connection)
        else:
            self.rejected += 1


def _validate(connection: sqlite3.Connection, phone: int, contestant: int) -> bool:
    if connection.execute(voter_sql.KNOWN, (contestant,)).fetchone() is None:
        return False
    return connection.execute(voter_sql.KEEP, (phone, contestant)).rowcount == 1


def _maintain(connection: sqlite3.Connection, number: int, phone: int, contestant: int) -> None:
    execute = connection.execute
    execute(voter_sql.COUNT, (contestant,))
    execute(voter_sql.COUNT_ALL)
    execute(voter_sql.ENTER, (number, phone, contestant))
    execute(voter_sql.ENTER_COUNT, (contestant,))
    gone = execute(voter_sql.LEAVE, (number - WINDOW,)).fetchall()
    if gone:
        execute(voter_sql.LEAVE_COUNT, gone[0])
    for statement in voter_sql.RANK:
        execute(statement)


def _remove(connection: sqlite3.Connection) -> None:
    (total,) = connection.execute(voter_sql.TOTAL).fetchone()
    if total % VOTES_A_REMOVAL:
        return
    last = connection.execute(voter_sql.LAST).fetchall()
    if len(last) > 1:
        for statement in voter_sql.REMOVE:
            connection.execute(statement, last[0])
