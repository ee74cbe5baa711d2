"""What is registered: the continuous queries of a data folder, how far each has come, its last
results, and which of them somebody still has to be told.

A result is here before anybody is told of it, and the position moves with it.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from secrets import token_hex
from typing import Any

from anyio import CapacityLimiter

from api.errors import ContinuousConflict, ContinuousUnknown, Forgotten
from api.parse import Parameter
from headrace.clock import Clock
from headrace.crash import CrashPoints, Point

BUSY_TIMEOUT_MS = 10_000
ID_BYTES = 8

KEPT = 100
"""So many results of a query are kept for those who follow it."""
DUE_MAX = 100
"""So many wait for a webhook or a call; what comes then takes the place of the newest of them."""

SCHEMA = """\
CREATE TABLE IF NOT EXISTS continuous (
    name       TEXT PRIMARY KEY,
    id         TEXT NOT NULL,
    registrant TEXT NOT NULL,
    definition TEXT NOT NULL,
    places     TEXT NOT NULL,
    reached    TEXT NOT NULL,
    forgotten  TEXT NOT NULL,
    parked     TEXT,
    created_at TEXT NOT NULL
) STRICT, WITHOUT ROWID"""

# Batches never go back, so their sum orders the results of a query.
SCHEMA_OF_RESULTS = """\
CREATE TABLE IF NOT EXISTS results (
    id      TEXT NOT NULL,
    number  INTEGER NOT NULL,
    batches TEXT NOT NULL,
    answer  TEXT NOT NULL,
    is_due  INTEGER NOT NULL,
    PRIMARY KEY (id, number)
) STRICT, WITHOUT ROWID"""

INSERT = """\
INSERT INTO continuous
    (name, id, registrant, definition, places, reached, forgotten, created_at)
VALUES (:name, :id, :registrant, :definition, :places, :reached, :forgotten, :at)"""

FIND = "SELECT * FROM continuous WHERE name = :name"

ALL = "SELECT * FROM continuous ORDER BY name"

DELETE = "DELETE FROM continuous WHERE id = :id"

DELETE_RESULTS = "DELETE FROM results WHERE id = :id"

REACH = "UPDATE continuous SET reached = :reached WHERE id = :id"

PARK = "UPDATE continuous SET parked = :parked WHERE id = :id"

ADD = """\
INSERT INTO results (id, number, batches, answer, is_due)
VALUES (:id, :number, :reached, :answer, :is_due)"""

PUT_TOGETHER = """\
UPDATE results SET is_due = 0
WHERE id = :id AND number = (SELECT max(number) FROM results WHERE id = :id AND is_due)
    AND :most <= (SELECT count(*) FROM results WHERE id = :id AND is_due)"""

PRUNE = """\
DELETE FROM results
WHERE id = :id AND NOT is_due AND number <= (
    SELECT number FROM results WHERE id = :id ORDER BY number DESC LIMIT 1 OFFSET :kept
)
RETURNING number, batches"""

# One that was due for long may go after newer ones.
FORGET = """\
UPDATE continuous SET forgotten = :batches
WHERE id = :id AND :number > (SELECT sum(value) FROM json_each(forgotten))"""

LAST = "SELECT * FROM results WHERE id = :id ORDER BY number DESC LIMIT 1"

NEXT = "SELECT * FROM results WHERE id = :id AND number > :after ORDER BY number LIMIT 1"

DUE = "SELECT * FROM results WHERE id = :id AND is_due ORDER BY number LIMIT 1"

DELIVERED = "UPDATE results SET is_due = 0 WHERE id = :id AND number = :number"

WAITING = "SELECT count(*) FROM results WHERE id = :id AND is_due"


class When(Enum):
    """Which results count."""

    EACH = "each batch"
    CHANGE = "change"


@dataclass(frozen=True, slots=True)
class Definition:
    """What somebody has registered."""

    sql: str
    parameters: tuple[Parameter, ...] = ()
    on: str = ""
    """The dataflow whose batches it is answered at; empty: any that it reads."""
    webhook: str = ""
    call: str = ""
    when: When = When.EACH

    @property
    def acts(self) -> bool:
        """Whether its results are to be brought to somebody."""
        return bool(self.webhook or self.call)

    def text(self) -> str:
        """Write it so that the same is the same text."""
        return json.dumps({**asdict(self), "when": self.when.value}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Query:
    """A continuous query, as far as it has come."""

    name: str
    id: str
    """Of this very registration: another one under the name has another."""
    registrant: str
    """The id of the grant of whoever registered it."""
    definition: Definition
    places: tuple[str, ...]
    """The partitions that it reads, as answers name them."""
    reached: tuple[int, ...]
    """The batch of each that its last result is as of."""
    parked: Mapping[str, str] | None
    """Why its results are not brought to anybody any more."""
    created_at: str


@dataclass(frozen=True, slots=True)
class Result:
    """What a query's answer was as of some batches."""

    name: str
    as_of: Mapping[str, int]
    columns: Sequence[Mapping[str, str]]
    rows: Sequence[Sequence[Any]]

    @property
    def number(self) -> int:
        """Its place among the results of the query."""
        return sum(self.as_of.values())

    @property
    def position(self) -> str:
        """The batches, as a text."""
        return position(tuple(self.as_of.values()))

    def document(self) -> dict[str, Any]:
        """Write it down."""
        return {
            "name": self.name,
            "as_of": dict(self.as_of),
            "position": self.position,
            "columns": self.columns,
            "rows": self.rows,
        }


class Registered:
    """The file. Safe to share by threads; only the API's process uses it."""

    def __init__(self, path: Path, clock: Clock, crash: CrashPoints) -> None:
        self._path = path
        self._clock = clock
        self._crash = crash
        self.turns = CapacityLimiter(1)
        """For the threads that use it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._writing() as connection:
            connection.execute(SCHEMA)
            connection.execute(SCHEMA_OF_RESULTS)

    def all(self) -> list[Query]:
        """Give all."""
        with self._reading() as connection:
            return [_query(row) for row in connection.execute(ALL)]

    def put(
        self, registrant: str, definition: Definition, first: Result, *, replace: str = ""
    ) -> Query:
        """Register a query with its first result, in the place of the one whose id is given."""
        id_ = token_hex(ID_BYTES)
        values = {
            "name": first.name,
            "id": id_,
            "registrant": registrant,
            "definition": definition.text(),
            "places": json.dumps(list(first.as_of)),
            "reached": json.dumps(list(first.as_of.values())),
            "forgotten": json.dumps([0] * len(first.as_of)),
            "at": self._clock.now().isoformat(),
        }
        with self._writing() as connection:
            _drop(connection, replace)
            if connection.execute(FIND, {"name": first.name}).fetchone():
                raise conflict(first.name)
            connection.execute(INSERT, values)
            connection.execute(ADD, _row(id_, first, is_due=definition.acts))
            found = connection.execute(FIND, {"name": first.name}).fetchone()
        return _query(found)

    def drop(self, query: Query) -> None:
        """Forget a query and its results."""
        with self._writing() as connection:
            _drop(connection, query.id)

    def add(self, query: Query, result: Result) -> bool:
        """Keep the next result, and move on to it; False if the query is gone."""
        values = _row(query.id, result, is_due=query.definition.acts)
        self._crash.reached(Point.API_RESULT_BEFORE)
        with self._writing() as connection:
            if not connection.execute(REACH, values).rowcount:
                return False
            connection.execute(PUT_TOGETHER, {"id": query.id, "most": DUE_MAX})
            connection.execute(ADD, values)
            for row in connection.execute(PRUNE, {"id": query.id, "kept": KEPT}).fetchall():
                connection.execute(FORGET, {"id": query.id, **dict(row)})
        self._crash.reached(Point.API_RESULT_AFTER)
        return True

    def last(self, query: Query) -> Result:
        """Give the last result."""
        with self._reading() as connection:
            found = connection.execute(LAST, {"id": query.id}).fetchone()
        if found is None:
            raise unknown(query.name)
        return _result(query, found)

    def next(self, query: Query, after: int) -> Result | None:
        """Give the first result after another one, if there is; refuse if some lack before it."""
        with self._reading() as connection:
            row = connection.execute(FIND, {"name": query.name}).fetchone()
            if row is None or row["id"] != query.id:
                raise unknown(query.name)
            found = connection.execute(NEXT, {"id": query.id, "after": after}).fetchone()
        kept = json.loads(row["forgotten"])
        if after < sum(kept):
            oldest = position(kept)
            raise Forgotten(
                f"not all results of {query.name} behind that position are kept: the oldest are "
                f"those behind {oldest}",
                hint=f"Go on with ?after={oldest}, and without what lies between; the last {KEPT} "
                "results are kept.",
                oldest=oldest,
            )
        return None if found is None else _result(query, found)

    def due(self, query: Query) -> Result | None:
        """Give the oldest result that is still to be brought to somebody."""
        with self._reading() as connection:
            found = connection.execute(DUE, {"id": query.id}).fetchone()
        return None if found is None else _result(query, found)

    def waiting(self, query: Query) -> int:
        """Count those."""
        with self._reading() as connection:
            (count,) = connection.execute(WAITING, {"id": query.id}).fetchone()
        return int(count)

    def delivered(self, query: Query, result: Result) -> None:
        """Say that a result was brought."""
        self._crash.reached(Point.API_DELIVERED_BEFORE)
        with self._writing() as connection:
            connection.execute(DELIVERED, {"id": query.id, "number": result.number})
        self._crash.reached(Point.API_DELIVERED_AFTER)

    def park(self, query: Query, why: Mapping[str, str] | None) -> None:
        """Say that its results are not brought any more, and why; None: they are, again."""
        with self._writing() as connection:
            connection.execute(PARK, {"id": query.id, "parked": json.dumps(why) if why else None})

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            connection.row_factory = sqlite3.Row
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            connection.row_factory = sqlite3.Row
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # a result that was told stays
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        finally:
            connection.close()


def position(batches: Sequence[int]) -> str:
    """Write batches as a position."""
    return ",".join(map(str, batches))


def unknown(name: str) -> ContinuousUnknown:
    """Make the refusal of a name that is no query's."""
    return ContinuousUnknown(
        f"there is no continuous query {name}", hint="`headrace watch --list` tells which are."
    )


def conflict(name: str) -> ContinuousConflict:
    """Make the refusal of another query under a name that is taken."""
    return ContinuousConflict(
        f"the continuous query {name} is another one",
        hint="Give this one a name of its own, or replace that one: ?replace=true, or --replace.",
    )


def _drop(connection: sqlite3.Connection, id_: str) -> None:
    connection.execute(DELETE, {"id": id_})
    connection.execute(DELETE_RESULTS, {"id": id_})


def _row(id_: str, result: Result, *, is_due: bool) -> dict[str, Any]:
    answer = {"columns": result.columns, "rows": result.rows}
    return {
        "id": id_,
        "number": result.number,
        "reached": json.dumps(list(result.as_of.values())),
        "answer": json.dumps(answer, separators=(",", ":")),
        "is_due": int(is_due),
    }


def _query(row: sqlite3.Row) -> Query:
    given = json.loads(row["definition"])
    parameters = tuple(tuple(p) if isinstance(p, list) else p for p in given.pop("parameters"))
    when = When(given.pop("when"))
    return Query(
        name=row["name"],
        id=row["id"],
        registrant=row["registrant"],
        definition=Definition(**given, parameters=parameters, when=when),
        places=tuple(json.loads(row["places"])),
        reached=tuple(json.loads(row["reached"])),
        parked=json.loads(row["parked"]) if row["parked"] else None,
        created_at=row["created_at"],
    )


def _result(query: Query, row: sqlite3.Row) -> Result:
    as_of = dict(zip(query.places, json.loads(row["batches"]), strict=True))
    return Result(query.name, as_of, **json.loads(row["answer"]))
