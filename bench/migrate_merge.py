"""What the best hand-written SQL takes to merge a delta into a table: several ways, side by side.

    python -m bench.migrate_merge [--quick]

Each way begins with a copy of one database, after a checkpoint, and all must end in the same rows.
"""

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import LiteralString, NamedTuple

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench import ingest_data, migrate_tables, postgres
from bench.harness import data_folder, timed
from bench.migrate_tables import COLUMNS
from bench.postgres import Connection

Statements = Sequence[LiteralString]

LATEST: LiteralString = """\
SELECT DISTINCT ON (id) {columns}, _deleted FROM delta ORDER BY id, _batch DESC, _partition DESC"""
LATEST_HASHED: LiteralString = """\
SELECT {columns}, _deleted FROM delta JOIN (
  SELECT id, max(_batch) AS _batch FROM delta GROUP BY id
) AS last USING (id, _batch)"""

UPSERT: LiteralString = """\
INSERT INTO main ({columns}) SELECT {columns} FROM ({latest}) AS latest WHERE NOT _deleted
ON CONFLICT (id) DO UPDATE SET ({others}) = ROW ({excluded})"""
DELETE: LiteralString = """\
DELETE FROM main USING ({latest}) AS latest WHERE latest.id = main.id AND latest._deleted"""
BOTH: LiteralString = """\
WITH latest AS MATERIALIZED ({latest}),
gone AS (DELETE FROM main USING latest WHERE latest.id = main.id AND latest._deleted)
INSERT INTO main ({columns}) SELECT {columns} FROM latest WHERE NOT _deleted
ON CONFLICT (id) DO UPDATE SET ({others}) = ROW ({excluded})"""

MERGE: LiteralString = """\
MERGE INTO main USING ({latest}) AS latest ON latest.id = main.id
WHEN MATCHED AND latest._deleted THEN DELETE
WHEN MATCHED THEN UPDATE SET ({others}) = ROW ({given})
WHEN NOT MATCHED AND NOT latest._deleted THEN INSERT ({columns}) VALUES (latest.id, {given})"""

DELETE_KEYS: LiteralString = """\
DELETE FROM main WHERE id IN (SELECT id FROM delta)"""
INSERT: LiteralString = """\
INSERT INTO main ({columns}) SELECT {columns} FROM ({latest}) AS latest WHERE NOT _deleted"""

TEMPORARY: LiteralString = """\
CREATE TEMPORARY TABLE chosen ON COMMIT DROP AS {latest}"""
ANALYZE: LiteralString = "ANALYZE chosen"
KEY: LiteralString = "ALTER TABLE chosen ADD PRIMARY KEY (id)"
DELETE_CHOSEN: LiteralString = """\
DELETE FROM main USING chosen WHERE chosen.id = main.id AND chosen._deleted"""
UPSERT_CHOSEN: LiteralString = """\
INSERT INTO main ({columns}) SELECT {columns} FROM chosen WHERE NOT _deleted
ON CONFLICT (id) DO UPDATE SET ({others}) = ROW ({excluded})"""
DELETE_ALL_CHOSEN: LiteralString = "DELETE FROM main USING chosen WHERE chosen.id = main.id"
INSERT_CHOSEN: LiteralString = """\
INSERT INTO main ({columns}) SELECT {columns} FROM chosen WHERE NOT _deleted"""
UPDATE_CHOSEN: LiteralString = """\
UPDATE main SET ({others}) = ROW ({chosen}) FROM chosen
WHERE chosen.id = main.id AND NOT chosen._deleted"""
INSERT_NEW_CHOSEN: LiteralString = """\
INSERT INTO main ({columns}) SELECT {columns} FROM chosen
WHERE NOT _deleted AND NOT EXISTS (SELECT FROM main WHERE main.id = chosen.id)"""
MERGE_CHOSEN: LiteralString = """\
MERGE INTO main USING chosen AS latest ON latest.id = main.id
WHEN MATCHED AND latest._deleted THEN DELETE
WHEN MATCHED THEN UPDATE SET ({others}) = ROW ({given})
WHEN NOT MATCHED AND NOT latest._deleted THEN INSERT ({columns}) VALUES (latest.id, {given})"""

CANDIDATES: Mapping[str, Statements] = {
    "upsert_then_delete": (UPSERT, DELETE),
    "delete_then_upsert": (DELETE, UPSERT),
    "one_statement": (BOTH,),
    "merge": (MERGE,),
    "delete_keys_insert": (DELETE_KEYS, INSERT),
    "temporary_upsert": (TEMPORARY, ANALYZE, DELETE_CHOSEN, UPSERT_CHOSEN),
    "temporary_keyed_upsert": (TEMPORARY, KEY, ANALYZE, DELETE_CHOSEN, UPSERT_CHOSEN),
    "temporary_delete_insert": (TEMPORARY, ANALYZE, DELETE_ALL_CHOSEN, INSERT_CHOSEN),
    "temporary_update_insert": (
        TEMPORARY,
        ANALYZE,
        DELETE_CHOSEN,
        UPDATE_CHOSEN,
        INSERT_NEW_CHOSEN,
    ),
    "temporary_merge": (TEMPORARY, ANALYZE, MERGE_CHOSEN),
}
ORDERS: Mapping[str, LiteralString] = {"sorted": LATEST, "hashed": LATEST_HASHED}
"""How the last operation of each key is found, which decides the order in which main is changed."""
EMPTIED: Mapping[str, LiteralString] = {"truncate": "TRUNCATE delta", "delete": "DELETE FROM delta"}

SUM: LiteralString = """\
SELECT count(*), sum(hashtextextended(main::text, 0)::numeric) FROM {table} AS main"""
COPY: LiteralString = "CREATE DATABASE {name} TEMPLATE {of} STRATEGY FILE_COPY"

BASE, TRIAL = "base", "trial"
"""The database that every way begins with, and the copy of it."""


WORK_MEM = ("4MB", "64MB", "256MB")
SMALL_TIMES = 7


class Sizes(NamedTuple):
    """How much of everything there is."""

    main: int
    delta: int
    rounds: int


FULL, QUICK = Sizes(5_000_000, 500_000, 3), Sizes(200_000, 50_000, 1)
SMALL = (100, 10_000)


class Way(NamedTuple):
    """One way to merge."""

    name: str
    order: str = "sorted"
    emptied: str = "truncate"
    work_mem: str = "4MB"


class Took(NamedTuple):
    """The seconds of a merge: of the change, of emptying delta, and of the commit."""

    change: float
    empty: float
    commit: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.change + self.empty + self.commit


def merge(connection: Connection, way: Way) -> Took:
    """Merge delta into main, in one transaction."""
    connection.execute("SELECT set_config('work_mem', %s, false)", [way.work_mem])
    with timed() as all_of_it:
        connection.execute("BEGIN")
        with timed() as change:
            for statement in CANDIDATES[way.name]:
                connection.execute(composed(statement, ORDERS[way.order]))
        with timed() as empty:
            connection.execute(EMPTIED[way.emptied])
        connection.execute("COMMIT")
    return Took(change(), empty(), all_of_it() - change() - empty())


def composed(statement: LiteralString, latest: LiteralString) -> sql.Composed:
    """Write the columns into a statement."""
    others = [name for name in ingest_data.NAMES if name != "id"]

    def of(table: str) -> sql.Composed:
        return sql.SQL(", ").join(sql.Identifier(table, name) for name in others)

    return sql.SQL(statement).format(
        latest=sql.SQL(latest).format(columns=COLUMNS),
        columns=COLUMNS,
        others=sql.SQL(", ").join(map(sql.Identifier, others)),
        excluded=of("excluded"),
        given=of("latest"),
        chosen=of("chosen"),
    )


@contextmanager
def copied(conninfo: str) -> Iterator[Connection]:
    """Connect to a fresh copy of the database, on a disk that has nothing left to do."""
    copy(conninfo, BASE, TRIAL)
    with connected(conninfo, TRIAL) as trial:
        yield trial


def copy(conninfo: str, of: str, name: str) -> None:
    """Copy a database; if one of the name was there it is gone."""
    new, old = sql.Identifier(name), sql.Identifier(of)
    with psycopg.connect(conninfo, autocommit=True) as server:
        server.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(new))
        server.execute(sql.SQL(COPY).format(name=new, of=old))
        server.execute("CHECKPOINT")


def connected(conninfo: str, name: str) -> Connection:
    """Connect to a database of the server."""
    return psycopg.connect(make_conninfo(conninfo, dbname=name), autocommit=True)


def make(conninfo: str, size: Sizes) -> None:
    """Make the database that every way begins with."""
    with psycopg.connect(conninfo, autocommit=True) as server:
        server.execute("CREATE DATABASE base")
    with connected(conninfo, BASE) as base:
        migrate_tables.make_main(base, size.main)
        migrate_tables.fill_delta(base, size.main, size.delta)


def summed(
    connection: Connection, table: sql.Identifier = migrate_tables.MAIN
) -> tuple[object, ...]:
    """Tell what is in a table, in short."""
    (found,) = connection.execute(sql.SQL(SUM).format(table=table)).fetchall()
    return found


def small(
    connection: Connection, way: Way, size: Sizes, operations: int, times: int
) -> list[float]:
    """Merge a small delta so often; give the seconds of each."""
    connection.execute("TRUNCATE delta")
    seconds = []
    for seed in range(1, times + 1):
        migrate_tables.fill_delta(connection, size.main, operations, seed)
        seconds.append(merge(connection, way).total)
    return seconds


def rounds(conninfo: str, size: Sizes) -> Iterator[tuple[Way, list[float]]]:
    """Merge in every way, round after round; give the seconds of each."""
    make(conninfo, size)
    sums = set()
    ways = [Way(name, work_mem=memory) for memory in WORK_MEM for name in CANDIDATES]
    ways += [Way(name, order="hashed", work_mem=WORK_MEM[1]) for name in ("one_statement", "merge")]
    ways += [Way("one_statement", emptied="delete")]
    seconds: dict[Way, list[float]] = {way: [] for way in ways}
    for number in range(size.rounds):
        for way in ways:
            with copied(conninfo) as connection:
                seconds[way].append(merge(connection, way).total)
                if number == 0:
                    sums.add(summed(connection))
    assert len(sums) == 1, sums
    yield from seconds.items()


def main(size: Sizes) -> None:
    """Print the median of each."""
    with data_folder() as folder, postgres.server(folder) as conninfo:
        for way, several in rounds(conninfo, size):
            print(f"{' '.join(way):<50} {statistics.median(several):8.2f} s")
        for operations, name in product(SMALL, CANDIDATES):
            with copied(conninfo) as connection:
                several = small(connection, Way(name), size, operations, SMALL_TIMES)
            print(f"{operations:>6} {name:<43} {1e3 * statistics.median(several):8.2f} ms")


if __name__ == "__main__":
    main(QUICK if "--quick" in sys.argv else FULL)
