"""The warehouse's ledger: which batch of which core each dataflow has arrived through.

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
    dataflow text PRIMARY KEY,
    core     uuid,
    batch    bigint NOT NULL CHECK (batch >= 0),
    rows     bigint NOT NULL CHECK (rows >= 0),
    moved_at timestamptz NOT NULL,
    CHECK ((core IS NULL) = (batch = 0))
)"""

ENTER: LiteralString = """\
INSERT INTO headrace.ledger VALUES (%(dataflow)s, NULL, 0, 0, now())
ON CONFLICT DO NOTHING"""

LOCK: LiteralString = """\
SELECT core, batch, rows FROM headrace.ledger WHERE dataflow = %(dataflow)s FOR UPDATE"""

MOVE: LiteralString = """\
UPDATE headrace.ledger
SET core = %(core)s, batch = %(through)s, rows = rows + %(rows)s, moved_at = now()
WHERE dataflow = %(dataflow)s AND batch = %(after)s AND (core IS NULL OR core = %(core)s)"""

READ: LiteralString = """\
SELECT dataflow, core, batch, rows FROM headrace.ledger WHERE dataflow = ANY(%(dataflows)s)"""


@dataclass(frozen=True, slots=True)
class Migrated:
    """What the warehouse has of a dataflow: through which batch, of which core, rows in all.

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


def enter(connection: psycopg.Connection[Any], dataflow: str) -> None:
    """Give a dataflow its row, before its first batch."""
    connection.execute(ENTER, {"dataflow": dataflow})


def lock(connection: psycopg.Connection[Any], dataflow: str) -> Migrated:
    """Read a dataflow's row and hold it until the transaction ends."""
    row = connection.execute(LOCK, {"dataflow": dataflow}).fetchone()
    assert row is not None, "the warehouse is prepared before anything is pushed"
    return Migrated(*row)


def move(
    connection: psycopg.Connection[Any],
    dataflow: str,
    *,
    core_id: str,
    after: int,
    through: int,
    rows: int,
) -> None:
    """Move a dataflow from batch `after` to `through`."""
    assert after < through, (after, through)
    moved = connection.execute(
        MOVE,
        {
            "dataflow": dataflow,
            "core": UUID(core_id),
            "after": after,
            "through": through,
            "rows": rows,
        },
    )
    assert moved.rowcount == 1, "the row is locked: nobody else can have moved it"


def read(connection: psycopg.Connection[Any], dataflows: list[str]) -> dict[str, Migrated]:
    """Read the rows of dataflows without locking them."""
    rows = connection.execute(READ, {"dataflows": dataflows})
    return {dataflow: Migrated(core, batch, total) for dataflow, core, batch, total in rows}
