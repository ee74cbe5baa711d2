"""The voter on PostgreSQL, one transaction a procedure, in order: four ways to drive it.

The client sends the statements or calls functions that hold them, and waits for each answer or
sends ahead. Whoever sends ahead has the server decide what the client would have decided.
"""

from importlib import resources
from typing import ClassVar

from bench import voter_sql
from bench.postgres import Connection, connect
from bench.voter_show import VOTES_A_REMOVAL, WINDOW, State, Vote

FUNCTIONS = resources.files("bench") / "voter_functions.sql"

AHEAD_VOTES = 64
"""How many votes are under way before the answers are waited for; as many as we commit at once."""


def _for_postgres(sql: str) -> bytes:
    """Write SQLite's SQL as psycopg wants it."""
    return sql.replace("%", "%%").replace("?", "%s").encode()


KNOWN = _for_postgres(voter_sql.KNOWN)
KEEP = _for_postgres(voter_sql.KEEP)
KEEP_KNOWN = (
    b"INSERT INTO votes SELECT %s, contestant FROM contestants WHERE contestant = %s "
    b"ON CONFLICT DO NOTHING"
)
COUNT = _for_postgres(voter_sql.COUNT)
ENTER = _for_postgres(voter_sql.ENTER)
ENTER_COUNT = _for_postgres(voter_sql.ENTER_COUNT)
LEAVE = _for_postgres(voter_sql.LEAVE)
LEAVE_COUNT = _for_postgres(voter_sql.LEAVE_COUNT)
LEAVE_AND_COUNT = (
    b"WITH gone AS (DELETE FROM recent WHERE number = %s RETURNING contestant) "
    b"UPDATE trending SET votes = votes - 1 FROM gone WHERE trending.contestant = gone.contestant"
)
COUNT_ALL = _for_postgres(voter_sql.COUNT_ALL)
RANK = [_for_postgres(sql) for sql in voter_sql.RANK]
TOTAL, LAST = _for_postgres(voter_sql.TOTAL), _for_postgres(voter_sql.LAST)
REMOVE = [_for_postgres(sql) for sql in voter_sql.REMOVE]

VALIDATE_FUNCTION = b"SELECT validate(%s, %s)"
MAINTAIN_FUNCTION = b"SELECT maintain(%s, %s, %s)"
REMOVE_FUNCTION = b"SELECT remove()"
# A connection's own setting says whether the vote was good, and counts those that were.
VALIDATE_AHEAD = b"SELECT set_config('voter.good', validate(%s, %s)::text, false)"
MAINTAIN_AHEAD = (
    b"SELECT maintain(set_config('voter.entered', "
    b"(current_setting('voter.entered')::integer + 1)::text, false)::integer, %s, %s) "
    b"WHERE current_setting('voter.good') = 'true'"
)
REMOVE_AHEAD = b"SELECT remove() WHERE current_setting('voter.good') = 'true'"


class PostgresVoter:
    """What the four have in common; this one sends each statement and waits for its answer."""

    name: ClassVar[str] = "postgres_statements"

    def __init__(self, conninfo: str) -> None:
        self._connection: Connection = connect(conninfo)
        self._entered = 0
        execute = self._connection.execute
        execute(b"DROP SCHEMA public CASCADE")
        execute(b"CREATE SCHEMA public")
        for table in voter_sql.SCHEMA:
            execute(table.replace("phone INTEGER", "phone BIGINT").encode())
        for name, rows in voter_sql.ROWS.items():
            with self._connection.cursor() as cursor:
                cursor.executemany(_for_postgres(voter_sql.FILL[name]), rows)
        execute(FUNCTIONS.read_bytes(), prepare=False)  # several commands cannot be prepared

    def run(self, votes: list[Vote]) -> None:
        """Take every vote; when it returns they are committed."""
        for phone, contestant in votes:
            if self._validate(phone, contestant):
                self._entered += 1
                self._maintain(phone, contestant)
                self._remove()

    def state(self) -> State:
        """Read every table."""
        return {
            table: self._connection.execute(sql.encode()).fetchall()
            for table, sql in voter_sql.STATE.items()
        }

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _validate(self, phone: int, contestant: int) -> bool:
        execute = self._connection.execute
        execute(b"BEGIN", prepare=False)
        good = execute(KNOWN, (contestant,)).fetchone() is not None
        good = good and execute(KEEP, (phone, contestant)).rowcount == 1
        execute(b"COMMIT", prepare=False)
        return good

    def _maintain(self, phone: int, contestant: int) -> None:
        execute = self._connection.execute
        execute(b"BEGIN", prepare=False)
        execute(COUNT, (contestant,))
        execute(COUNT_ALL)
        execute(ENTER, (self._entered, phone, contestant))
        execute(ENTER_COUNT, (contestant,))
        gone = execute(LEAVE, (self._entered - WINDOW,)).fetchone()
        if gone is not None:
            execute(LEAVE_COUNT, gone)
        for sql in RANK:
            execute(sql)
        execute(b"COMMIT", prepare=False)

    def _remove(self) -> None:
        execute = self._connection.execute
        execute(b"BEGIN", prepare=False)
        found = execute(TOTAL).fetchone()
        assert found is not None, "there is always a total"
        if found[0] % VOTES_A_REMOVAL == 0:
            self._remove_last()
        execute(b"COMMIT", prepare=False)

    def _remove_last(self) -> None:
        last = self._connection.execute(LAST).fetchall()
        if len(last) > 1:
            for sql in REMOVE:
                self._connection.execute(sql, last[0])


class PipelinedPostgresVoter(PostgresVoter):
    """Sends a transaction's statements together, and waits for its end."""

    name = "postgres_statements_pipelined"

    def _validate(self, phone: int, contestant: int) -> bool:
        execute = self._connection.execute
        with self._connection.pipeline():
            execute(b"BEGIN")
            kept = execute(KEEP_KNOWN, (phone, contestant))
            execute(b"COMMIT")
        return kept.rowcount == 1

    def _maintain(self, phone: int, contestant: int) -> None:
        execute = self._connection.execute
        with self._connection.pipeline():
            execute(b"BEGIN")
            execute(COUNT, (contestant,))
            execute(COUNT_ALL)
            execute(ENTER, (self._entered, phone, contestant))
            execute(ENTER_COUNT, (contestant,))
            execute(LEAVE_AND_COUNT, (self._entered - WINDOW,))
            for sql in RANK:
                execute(sql)
            execute(b"COMMIT")

    def _remove(self) -> None:
        # One statement is a transaction; only once in a thousand votes is there more to do.
        found = self._connection.execute(TOTAL).fetchone()
        assert found is not None, "there is always a total"
        if found[0] % VOTES_A_REMOVAL == 0:
            with self._connection.transaction():
                self._remove_last()


class PostgresFunctionsVoter(PostgresVoter):
    """Calls the procedures as functions: one round trip and one transaction each."""

    name = "postgres_functions"

    def _validate(self, phone: int, contestant: int) -> bool:
        found = self._connection.execute(VALIDATE_FUNCTION, (phone, contestant)).fetchone()
        assert found is not None, "a function gives a row"
        return bool(found[0])

    def _maintain(self, phone: int, contestant: int) -> None:
        self._connection.execute(MAINTAIN_FUNCTION, (self._entered, phone, contestant))

    def _remove(self) -> None:
        self._connection.execute(REMOVE_FUNCTION)


class PipelinedPostgresFunctionsVoter(PostgresVoter):
    """Calls functions and sends many votes ahead; each call is still a transaction of its own."""

    name = "postgres_functions_pipelined"

    def run(self, votes: list[Vote]) -> None:
        """Take every vote; when it returns they are committed."""
        execute = self._connection.execute
        execute(b"SELECT set_config('voter.entered', '0', false)")
        for start in range(0, len(votes), AHEAD_VOTES):
            with self._connection.pipeline() as pipeline:
                for phone, contestant in votes[start : start + AHEAD_VOTES]:
                    execute(VALIDATE_AHEAD, (phone, contestant))
                    pipeline.sync()  # ends the transaction, and waits for nothing
                    execute(MAINTAIN_AHEAD, (phone, contestant))
                    pipeline.sync()
                    execute(REMOVE_AHEAD)
                    pipeline.sync()


WAITING = (PostgresVoter, PostgresFunctionsVoter)
PIPELINED = (PipelinedPostgresVoter, PipelinedPostgresFunctionsVoter)
