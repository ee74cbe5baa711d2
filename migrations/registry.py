"""The registry: the migrations that somebody has asked for, each under an id of their choice.

It is a file of its own in the data folder: an id means the same migration after any restart. What
a migration has done is in the ledgers, and nowhere else: one that begins again does the rest.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from headrace.clock import Clock
from migrations.errors import MigrationConflict, MigrationUnknown

BUSY_TIMEOUT_MS = 10_000

SCHEMA = """\
CREATE TABLE IF NOT EXISTS migrations (
    number     INTEGER PRIMARY KEY,
    id         TEXT NOT NULL UNIQUE,
    kind       TEXT NOT NULL,
    warehouse  TEXT NOT NULL,
    asked      TEXT NOT NULL,
    state      TEXT NOT NULL,
    is_to_stop INTEGER NOT NULL DEFAULT 0,
    stage      TEXT NOT NULL DEFAULT '',
    rows       INTEGER NOT NULL DEFAULT 0,
    bytes      INTEGER NOT NULL DEFAULT 0,
    goal       TEXT NOT NULL DEFAULT '{}',
    reached    TEXT NOT NULL DEFAULT '{}',
    findings   TEXT NOT NULL DEFAULT '[]',
    error      TEXT,
    created_at TEXT NOT NULL,
    started_at TEXT,
    ended_at   TEXT
) STRICT"""

INSERT = """\
INSERT INTO migrations (id, kind, warehouse, asked, state, created_at)
VALUES (:id, :kind, :warehouse, :asked, 'waiting', :at) ON CONFLICT DO NOTHING"""

FIND = "SELECT * FROM migrations WHERE id = :id"

CHOSEN = """\
SELECT * FROM migrations
WHERE (:state = '' OR state = :state) AND (:kind = '' OR kind = :kind)
    AND (:warehouse = '' OR warehouse = :warehouse)
ORDER BY number DESC LIMIT :most"""

OPEN = "SELECT * FROM migrations WHERE state IN ('waiting', 'running') ORDER BY number"

BEGIN = """\
UPDATE migrations SET state = 'running', started_at = coalesce(started_at, :at)
WHERE id = :id AND state IN ('waiting', 'running')"""

# What has not begun is cancelled at once.
STOP = """\
UPDATE migrations
SET is_to_stop = 1, ended_at = iif(state = 'waiting', :at, NULL),
    state = iif(state = 'waiting', 'cancelled', state)
WHERE id = :id AND state IN ('waiting', 'running')"""

STOPPED = """\
UPDATE migrations SET state = 'cancelled', ended_at = :at, stage = ''
WHERE is_to_stop AND state IN ('waiting', 'running')"""

AIM = "UPDATE migrations SET goal = :goal WHERE id = :id"

TELL = """\
UPDATE migrations SET stage = :stage, rows = :rows, bytes = :bytes
WHERE id = :id AND state = 'running' RETURNING is_to_stop"""

END = """\
UPDATE migrations
SET state = :state, reached = :reached, findings = :findings, error = :error, ended_at = :at,
    stage = ''
WHERE id = :id AND state IN ('waiting', 'running')"""

PRUNE = """\
DELETE FROM migrations
WHERE ended_at IS NOT NULL
    AND number <= (SELECT max(number) FROM migrations) - :kept"""

KEPT = 100_000
"""So many are known by their id, at most: some weeks of a migration every half a minute."""


class Kind(Enum):
    """What a migration does."""

    PULL = "pull"
    MERGE = "merge"
    RETENTION = "retention"
    AUDIT = "audit"
    REBUILD = "rebuild"


class State(Enum):
    """How far a migration is."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Idle:
    """When a warehouse is idle, and until when that is waited for."""

    query_s_max: float
    active_max: int
    deadline_s: float


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody has asked for."""

    kind: Kind
    warehouse: str
    dataflows: tuple[str, ...] | None = None
    """None: all."""
    idle: Idle | None = None
    source: str = ""
    """Of a rebuild: the warehouse whose rows are copied; empty: any that has them."""

    def text(self) -> str:
        """Write it so that the same is the same text."""
        return json.dumps({**asdict(self), "kind": self.kind.value}, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration, as far as it has come."""

    id: str
    asked: Asked
    state: State
    stage: str
    rows: int
    size: int
    goal: Mapping[str, int]
    """The batches that it goes to, by place; decided when it begins."""
    reached: Mapping[str, int]
    findings: tuple[str, ...]
    error: Mapping[str, str] | None
    created_at: str
    started_at: str | None
    ended_at: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a migration ended."""

    state: State
    reached: Mapping[str, int] = field(default_factory=dict)
    findings: tuple[str, ...] = ()
    error: Mapping[str, str] | None = None

    @classmethod
    def failed(cls, code: str, what: str, hint: str, **more: Any) -> "Outcome":
        """Say that it has failed, and why."""
        return cls(State.FAILED, error={"code": code, "what": what, "hint": hint}, **more)


class Registry:
    """The migrations of one data folder. Safe to share by threads and processes."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._writing() as connection:
            connection.execute(SCHEMA)

    def put(self, id_: str, asked: Asked) -> tuple[Migration, bool]:
        """Enter a migration, unless it is there already; tell whether it is new."""
        values = {
            "id": id_,
            "kind": asked.kind.value,
            "warehouse": asked.warehouse,
            "asked": asked.text(),
            "at": self._now(),
        }
        with self._writing() as connection:
            is_new = connection.execute(INSERT, values).rowcount == 1
            connection.execute(PRUNE, {"kept": KEPT})
        found = self.find(id_)
        if found.asked != asked:
            raise MigrationConflict(
                f"the migration {id_} is another one: {found.asked.text()}",
                hint="Give this one an id of its own.",
            )
        return found, is_new

    def find(self, id_: str) -> Migration:
        """Give one, or refuse an id that is none's."""
        with self._reading() as connection:
            row = connection.execute(FIND, {"id": id_}).fetchone()
        if row is None:
            raise MigrationUnknown(
                f"there is no migration {id_}", hint="`headrace migrate list` tells which are."
            )
        return _migration(row)

    def chosen(
        self,
        *,
        state: State | None = None,
        kind: Kind | None = None,
        warehouse: str = "",
        most: int,
    ) -> list[Migration]:
        """Give the newest of a state, a kind, a warehouse; without them, of any."""
        of = {
            "state": state.value if state else "",
            "kind": kind.value if kind else "",
            "warehouse": warehouse,
            "most": most,
        }
        with self._reading() as connection:
            return [_migration(row) for row in connection.execute(CHOSEN, of)]

    def open(self) -> list[Migration]:
        """Give those that have not ended, in the order in which they were asked for."""
        with self._reading() as connection:
            return [_migration(row) for row in connection.execute(OPEN)]

    def begin(self, id_: str) -> bool:
        """Say that it runs; False if it has ended already."""
        return self._write(BEGIN, id=id_, at=self._now())

    def stop(self, id_: str) -> bool:
        """Say that it is to stop; False if it has ended already."""
        return self._write(STOP, id=id_, at=self._now())

    def end_stopped(self) -> None:
        """End what was to stop, when nothing runs."""
        self._write(STOPPED, at=self._now())

    def aim(self, id_: str, goal: Mapping[str, int]) -> None:
        """Say to which batches it goes."""
        self._write(AIM, id=id_, goal=json.dumps(goal))

    def tell(self, id_: str, stage: str, rows: int, size: int) -> bool:
        """Say how far it is; False if it is to stop, as another process may have been told."""
        of = {"id": id_, "stage": stage, "rows": rows, "bytes": size}
        with self._writing() as connection:
            found = connection.execute(TELL, of).fetchall()
        return [row["is_to_stop"] for row in found] == [False]

    def end(self, id_: str, outcome: Outcome) -> bool:
        """Say how it ended; False if it had ended before."""
        return self._write(
            END,
            id=id_,
            state=outcome.state.value,
            reached=json.dumps(outcome.reached),
            findings=json.dumps(outcome.findings),
            error=json.dumps(outcome.error) if outcome.error else None,
            at=self._now(),
        )

    def _now(self) -> str:
        return self._clock.now().isoformat()

    def _write(self, statement: str, **values: Any) -> bool:
        with self._writing() as connection:
            return connection.execute(statement, values).rowcount == 1

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self._path, isolation_level=None)
        try:
            connection.row_factory = sqlite3.Row
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            yield connection
        finally:
            connection.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")


def _migration(row: sqlite3.Row) -> Migration:
    asked = json.loads(row["asked"])
    idle, dataflows = asked["idle"], asked["dataflows"]
    told = ("id", "stage", "rows", "created_at", "started_at", "ended_at")
    goal, reached, findings, error = (
        json.loads(row[name] or "null") for name in ("goal", "reached", "findings", "error")
    )
    return Migration(
        asked=Asked(
            Kind(asked["kind"]),
            asked["warehouse"],
            None if dataflows is None else tuple(dataflows),
            Idle(**idle) if idle else None,
            asked["source"],
        ),
        state=State(row["state"]),
        size=row["bytes"],
        goal=goal,
        reached=reached,
        findings=tuple(findings),
        error=error,
        **{name: row[name] for name in told},
    )
