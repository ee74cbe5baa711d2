"""Our merge beside the best SQL by hand, each time in a fresh copy of one database.

By hand: a temporary table of the last operations, ANALYZE, DELETE, INSERT ON CONFLICT, TRUNCATE.
Ours deletes what it has merged, for readers with an older snapshot; and vacuums after its commit.
"""

import statistics
import time
from pathlib import Path
from typing import LiteralString, NamedTuple

from psycopg import sql

from bench import migrate_mains
from bench.harness import Result, Setup, in_turns_per, timed
from bench.migrate_mains import BASE, KEPT_DELTA, KEPT_MAIN, kept, traded
from bench.migrate_ours import HERE
from bench.postgres import Connection
from headrace.crash import CrashPoints, Point
from migrations import tables
from migrations.merge import Merging

BY_HAND: tuple[LiteralString, ...] = (
    """\
CREATE TEMPORARY TABLE chosen ON COMMIT DROP AS
SELECT DISTINCT ON (id) {columns}, _deleted FROM delta ORDER BY id, _batch DESC, _partition DESC""",
    "ANALYZE chosen",
    "DELETE FROM main USING chosen WHERE chosen.id = main.id AND chosen._deleted",
    """\
INSERT INTO main ({columns}) SELECT {columns} FROM chosen WHERE NOT _deleted
ON CONFLICT (id) DO UPDATE SET ({others}) = ROW ({excluded})""",
    "TRUNCATE delta",
)
"""The fastest of the ways that decision 13 compares."""
RENAME: LiteralString = """\
ALTER TABLE {main} RENAME TO main; ALTER TABLE {delta} RENAME TO delta;
SET search_path = {schemas}"""


class Sizes(NamedTuple):
    """How many rows are in main, and operations in delta."""

    main: int
    delta: int


class Watch(CrashPoints):
    """Takes the time when a merge has committed."""

    def __init__(self) -> None:
        super().__init__()
        self.committed = 0.0

    def reached(self, point: Point) -> None:
        """Take it."""
        if point is Point.MERGE_COMMIT_AFTER:
            self.committed = time.perf_counter()


class Merges:
    """Merges in copies of one database, and remembers what came of each."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._ends: set[tuple[object, ...]] = set()
        self.vacuums: list[float] = []

    def ours(self, _place: Path) -> float:
        """Merge as we do; tell the seconds until the commit."""
        with migrate_mains.copied(self._conninfo) as connection:
            watch = Watch()
            began = time.perf_counter()
            Merging(HERE, watch).run(connection, traded)
            self.vacuums.append(time.perf_counter() - watch.committed)
            self._check(connection, KEPT_MAIN)
            return watch.committed - began

    def by_hand(self, _place: Path) -> float:
        """Merge by hand, in the same tables."""
        with migrate_mains.copied(self._conninfo) as connection:
            connection.execute(_renamed())
            connection.execute("SET work_mem = '64MB'")
            with timed() as seconds, connection.transaction():
                for statement in _by_hand():
                    connection.execute(statement)
            self._check(connection, sql.Identifier("main"))
            return seconds()

    def _check(self, connection: Connection, table: sql.Identifier) -> None:
        self._ends.add(migrate_mains.summed(connection, table))
        assert len(self._ends) == 1, self._ends


def _by_hand() -> list[sql.Composed]:
    """Write the columns into the statements."""
    columns = tables.columns_of_main(kept)
    others = [name for name in columns if name != "id"]
    parts = {
        "columns": sql.SQL(", ").join(map(sql.Identifier, columns)),
        "others": sql.SQL(", ").join(map(sql.Identifier, others)),
        "excluded": sql.SQL(", ").join(sql.Identifier("excluded", name) for name in others),
    }
    return [sql.SQL(statement).format(**parts) for statement in BY_HAND]


def _renamed() -> sql.Composed:
    """Name the tables as the SQL by hand does."""
    schemas = sql.SQL(", ").join(map(sql.Identifier, tables.schemas(traded.name)))
    return sql.SQL(RENAME).format(main=KEPT_MAIN, delta=KEPT_DELTA, schemas=schemas)


def run(setup: Setup, conninfo: str) -> Result:
    """Merge in both ways, in turns."""
    size = sizes(setup)
    migrate_mains.make(conninfo, size.main)
    with migrate_mains.connected(conninfo, BASE) as base:
        migrate_mains.fill_delta(base, size.main, size.delta)
    merges = Merges(conninfo)
    trials = {"ours": merges.ours, "by_hand": merges.by_hand}
    times = in_turns_per(trials, setup, size.delta)
    return Result(
        figures={
            "merge_operations_per_s": times.rate("ours"),
            "merge_vacuum_s": statistics.median(merges.vacuums),
        },
        peers={"merge_by_hand": {"operations_per_s": times.rate("by_hand")}},
        ratios={"merge_to_hand_sql": times.ratios("ours", "by_hand")},
        settings={"rows_of_main": size.main, "operations_of_a_merge": size.delta},
    )


def sizes(setup: Setup) -> Sizes:
    """Choose them."""
    return Sizes(
        main=setup.size(full=5_000_000, quick=200_000),
        delta=setup.size(full=500_000, quick=50_000),
    )
