"""The warehouse's ledger: through which batch, of which core, each partition has arrived.

It moves by compare-and-set in the transaction that brings the rows, so rows and ledger cannot
disagree, and of two pushers one changes nothing.
"""

from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

import psycopg

CREATE_SCHEMA: LiteralString = "CREATE SCHEMA IF NOT EXISTS headrace"

# A core is named from the first batch on: rows of two cores never mix under one ledger row.
CREATE_TABLE: LiteralString = """\
CREATE TABLE IF NOT EXISTS headrace.ledger (
    dataflow  text NOT NULL,
    partition integer NOT NULL,
    core      uuid,
    batch     bigint NOT NULL CHECK (batch >= 0),
    rows      bigint NOT NULL CHECK (rows >= 0),
    moved_at  timestamptz NOT NULL,
    PRIMARY KEY (dataflow, partition),
    CHECK ((core IS NULL) = (batch = 0))
)"""

# Dataflows had no partitions at first: all that a row of theirs says is of partition 0.
DIVIDE: LiteralString = """\
DO $$ BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_attribute
        WHERE attrelid = 'headrace.ledger'::regclass AND attname = 'partition'
    ) THEN
        ALTER TABLE headrace.ledger ADD COLUMN partition integer NOT NULL DEFAULT 0;
        ALTER TABLE headrace.ledger
            DROP CONSTRAINT ledger_pkey, ADD PRIMARY KEY (dataflow, partition);
    END IF;
END $$"""

ENTER: LiteralString = """\
INSERT INTO headrace.ledger (dataflow, partition, core, batch, rows, moved_at)
VALUES (%(dataflow)s, %(partition)s, NULL, 0, 0, now())
ON CONFLICT DO NOTHING"""

LOCK: LiteralString = """\
SELECT core, batch, rows FROM headrace.ledger
WHERE dataflow = %(dataflow)s AND partition = %(partition)s FOR UPDATE"""

MOVE: LiteralString = """\
UPDATE headrace.ledger
SET core = %(core)s, batch = %(through)s, rows = rows + %(rows)s, moved_at = now()
WHERE dataflow = %(dataflow)s AND partition = %(partition)s AND batch = %(after)s
    AND (core IS NULL OR core = %(core)s)"""

READ: LiteralString = """\
SELECT dataflow, partition, core, batch, rows FROM headrace.ledger
WHERE dataflow = ANY(%(dataflows)s)"""


@dataclass(frozen=True, slots=True)
class Migrated:
    """What the warehouse has of a partition: through which batch, of which core, rows in all.

    Of an outlet with a key, `rows` counts the operations that have arrived, and not the table.
    """

    core: UUID | None
    batch: int
    rows: int

    def fed_by(self, core_id: str) -> bool:
        """Tell whether `core_id` feeds this row, or may be the first to."""
        return self.core is None or self.core == UUID(core_id)


def create(connection: psycopg.Connection[Any]) -> None:
    """Make the ledger where there is none."""
    connection.execute(CREATE_SCHEMA)
    connection.execute(CREATE_TABLE)
    connection.execute(DIVIDE)


def enter(connection: psycopg.Connection[Any], dataflow: str, partition: int) -> None:
    """Give a partition of a dataflow its row, before its first batch."""
    connection.execute(ENTER, {"dataflow": dataflow, "partition": partition})


def lock(connection: psycopg.Connection[Any], dataflow: str, partition: int) -> Migrated:
    """Read a partition's row and hold it until the transaction ends."""
    row = connection.execute(LOCK, {"dataflow": dataflow, "partition": partition}).fetchone()
    assert row is not None, "the warehouse is prepared before anything is pushed"
    return Migrated(*row)


def move(
    connection: psycopg.Connection[Any],
    dataflow: str,
    partition: int,
    *,
    core_id: str,
    after: int,
    through: int,
    rows: int,
) -> None:
    """Move a partition of a dataflow from batch `after` to `through`."""
    assert after < through, (after, through)
    moved = connection.execute(
        MOVE,
        {
            "dataflow": dataflow,
            "partition": partition,
            "core": UUID(core_id),
            "after": after,
            "through": through,
            "rows": rows,
        },
    )
    assert moved.rowcount == 1, "the row is locked: nobody else can have moved it"


def read(
    connection: psycopg.Connection[Any], dataflows: list[str]
) -> dict[tuple[str, int], Migrated]:
    """Read the rows of dataflows, by dataflow and partition, without locking them."""
    rows = connection.execute(READ, {"dataflows": dataflows})
    return {
        (dataflow, partition): Migrated(core, batch, total)
        for dataflow, partition, core, batch, total in rows
    }
