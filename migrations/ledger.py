"""The warehouse's ledger: what has arrived of each partition, from which core, and what is merged.

It moves by compare-and-set in the transaction that brings the rows, so rows and ledger cannot
disagree, and of two who move it one changes nothing. What is merged has a table of its own: a
merge takes long, and arrivals do not wait for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

CREATE_SCHEMA: LiteralString = "CREATE SCHEMA IF NOT EXISTS headrace"

# A core is named from the first batch on: rows of two cores never mix under one ledger row.
CREATE_ARRIVED: LiteralString = """\
CREATE TABLE IF NOT EXISTS headrace.ledger (
    dataflow  text NOT NULL,
    partition integer NOT NULL,
    core      uuid,
    batch     bigint NOT NULL CHECK (batch >= 0),
    rows      bigint NOT NULL CHECK (rows >= 0),
    tables    jsonb NOT NULL DEFAULT '{}',
    moved_at  timestamptz NOT NULL,
    migration text NOT NULL DEFAULT '',
    PRIMARY KEY (dataflow, partition),
    CHECK ((core IS NULL) = (batch = 0))
)"""

CREATE_MERGED: LiteralString = """\
CREATE TABLE IF NOT EXISTS headrace.merged (
    dataflow  text NOT NULL,
    partition integer NOT NULL,
    batch     bigint NOT NULL CHECK (batch >= 0),
    merged_at timestamptz NOT NULL,
    migration text NOT NULL DEFAULT '',
    PRIMARY KEY (dataflow, partition)
)"""

ENTER: LiteralString = """\
INSERT INTO headrace.ledger (dataflow, partition, core, batch, rows, tables, moved_at)
VALUES (%(dataflow)s, %(partition)s, NULL, 0, 0, %(tables)s, now())
ON CONFLICT DO NOTHING"""

# Before its first batch a partition has nothing of any table, whichever these are. Not as ON
# CONFLICT DO UPDATE: that would lock the row in any case, and wait for a push.
EXPECT: LiteralString = """\
UPDATE headrace.ledger SET tables = %(tables)s
WHERE dataflow = %(dataflow)s AND partition = %(partition)s AND batch = 0
    AND tables <> %(tables)s"""

ENROLL: LiteralString = """\
UPDATE headrace.ledger SET tables = %(tables)s || tables WHERE dataflow = %(dataflow)s"""

ENTER_MERGED: LiteralString = """\
INSERT INTO headrace.merged (dataflow, partition, batch, merged_at)
VALUES (%(dataflow)s, %(partition)s, 0, now())
ON CONFLICT DO NOTHING"""

LOCK: LiteralString = """\
SELECT core, batch, rows, tables, moved_at FROM headrace.ledger
WHERE dataflow = %(dataflow)s AND partition = %(partition)s FOR UPDATE"""

MOVE: LiteralString = """\
UPDATE headrace.ledger
SET core = %(core)s, batch = %(batch)s, rows = %(rows)s, tables = %(tables)s,
    moved_at = now(), migration = %(migration)s
WHERE dataflow = %(dataflow)s AND partition = %(partition)s"""
FROM: LiteralString = " AND batch = %(after)s AND (core IS NULL OR core = %(core)s)"

READ: LiteralString = """\
SELECT dataflow, partition, core, batch, rows, tables, moved_at FROM headrace.ledger
WHERE dataflow = ANY(%(dataflows)s)"""

READ_MERGED: LiteralString = """\
SELECT dataflow, partition, batch FROM headrace.merged WHERE dataflow = ANY(%(dataflows)s)"""

STANDING: LiteralString = """\
SELECT dataflow, partition, arrived.core::text, arrived.batch, merged.batch
FROM headrace.ledger AS arrived JOIN headrace.merged AS merged USING (dataflow, partition)
WHERE dataflow = ANY({dataflows})"""

# All that has arrived, as this transaction sees it.
MERGE: LiteralString = """\
UPDATE headrace.merged AS merged
SET batch = ledger.batch, merged_at = now(), migration = %(migration)s
FROM headrace.ledger AS ledger
WHERE merged.dataflow = %(dataflow)s
    AND (ledger.dataflow, ledger.partition) = (merged.dataflow, merged.partition)"""

Place = tuple[str, int]
"""A dataflow, and one of its partitions."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What has arrived for one table: how many rows or operations, and the sum of their checksums.

    Of an outlet with a key, rows that a later one had overtaken already were counted and not sent.
    """

    rows: int = 0
    checksum: int = 0
    is_of_main: bool = True
    """Without a key, the checksum is that of main and delta, in all. A Headrace before this one had
    summed up delta's own columns as well.
    """

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.rows + other.rows,
            (self.checksum + other.checksum) % 2**64,
            self.is_of_main and other.is_of_main,
        )


@dataclass(frozen=True, slots=True)
class Arrived:
    """What the warehouse has of a partition: through which batch, and of which core."""

    core: UUID | None
    batch: int

    def fed_by(self, core_id: str) -> bool:
        """Tell whether `core_id` feeds this row, or may be the first to."""
        return self.core is None or self.core == UUID(core_id)


@dataclass(frozen=True, slots=True)
class Standing(Arrived):
    """That, and through which batch it is merged."""

    merged: int


@dataclass(frozen=True, slots=True)
class Migrated(Arrived):
    """That, and how many rows in all.

    Of an outlet with a key, `rows` counts the operations that have arrived, and not the table.
    """

    rows: int
    tables: Mapping[str, Tally]
    moved_at: Any = None


def create(connection: psycopg.Connection[Any]) -> None:
    """Make the ledger where there is none."""
    for statement in (CREATE_SCHEMA, CREATE_ARRIVED, CREATE_MERGED):
        connection.execute(statement)


def enter(
    connection: psycopg.Connection[Any], dataflow: str, partition: int, tables: Iterable[str]
) -> None:
    """Give a partition of a dataflow its rows, before its first batch."""
    of = {**_of((dataflow, partition)), "tables": _document(dict.fromkeys(tables, Tally()))}
    for statement in (ENTER, EXPECT, ENTER_MERGED):
        connection.execute(statement, of)


def enroll(connection: psycopg.Connection[Any], dataflow: str, tables: Iterable[str]) -> None:
    """Say that a dataflow has given nothing yet to some tables, where nothing is said of them."""
    named = _document(dict.fromkeys(tables, Tally()))
    connection.execute(ENROLL, {"dataflow": dataflow, "tables": named})


def lock(connection: psycopg.Connection[Any], dataflow: str, partition: int) -> Migrated:
    """Read a partition's row and hold it until the transaction ends."""
    row = connection.execute(LOCK, {"dataflow": dataflow, "partition": partition}).fetchone()
    assert row is not None, "the warehouse is prepared before anything is pushed"
    return _migrated(*row)


def move(
    connection: psycopg.Connection[Any],
    place: Place,
    arrived: Migrated,
    *,
    core_id: str,
    through: int,
    brought: Mapping[str, Tally],
    migration: str,
) -> None:
    """Move a partition on from what has arrived through batch `through`."""
    assert arrived.batch < through, (arrived, through)
    tables = {name: before + brought.get(name, Tally()) for name, before in arrived.tables.items()}
    assert tables.keys() >= brought.keys(), "a table is in the ledger before its first row"
    now = Migrated(
        UUID(core_id), through, arrived.rows + sum(t.rows for t in brought.values()), tables
    )
    of = _row(place, now, migration) | {"after": arrived.batch}
    moved = connection.execute(MOVE + FROM, of)
    assert moved.rowcount == 1, "the row is locked: nobody else can have moved it"


def adopt(
    connection: psycopg.Connection[Any], place: Place, arrived: Migrated, *, migration: str
) -> None:
    """Say of a partition what another warehouse's ledger says, whose rows were copied."""
    connection.execute(MOVE, _row(place, arrived, migration))


def merge(connection: psycopg.Connection[Any], dataflow: str, *, migration: str) -> None:
    """Say that all is in main that has arrived, as this transaction sees it."""
    connection.execute(MERGE, {"dataflow": dataflow, "migration": migration})


def read(connection: psycopg.Connection[Any], dataflows: list[str]) -> dict[Place, Migrated]:
    """Read what has arrived of dataflows, without locking it."""
    rows = connection.execute(READ, {"dataflows": dataflows})
    return {(dataflow, partition): _migrated(*row) for dataflow, partition, *row in rows}


def standing(dataflows: list[str]) -> sql.Composed:
    """Write what tells how far the partitions of dataflows are."""
    return sql.SQL(STANDING).format(dataflows=sql.Literal(dataflows))


def standings(rows: Iterable[tuple[Any, ...]]) -> dict[Place, Standing]:
    """Read what that tells."""
    return {
        (dataflow, partition): Standing(core and UUID(core), arrived, merged)
        for dataflow, partition, core, arrived, merged in rows
    }


def merged(connection: psycopg.Connection[Any], dataflows: list[str]) -> dict[Place, int]:
    """Tell through which batch each partition of dataflows is in main."""
    rows = connection.execute(READ_MERGED, {"dataflows": dataflows})
    return {(dataflow, partition): batch for dataflow, partition, batch in rows}


def _row(place: Place, of: Migrated, migration: str) -> dict[str, Any]:
    given = {"core": of.core, "batch": of.batch, "rows": of.rows, "migration": migration}
    return {**_of(place), **given, "tables": _document(of.tables)}


def _of(place: Place) -> dict[str, Any]:
    dataflow, partition = place
    return {"dataflow": dataflow, "partition": partition}


def _migrated(core: UUID | None, batch: int, rows: int, tables: Any, moved_at: Any) -> Migrated:
    tallies = {name: _tally(*tally) for name, tally in tables.items()}
    return Migrated(core, batch, rows, tallies, moved_at)


def _document(tables: Mapping[str, Tally]) -> Jsonb:
    return Jsonb({name: astuple(tally) for name, tally in tables.items()})


def _tally(rows: int, checksum: int, is_of_main: bool | None = None) -> Tally:
    return Tally(rows, checksum, rows == 0 if is_of_main is None else is_of_main)
