"""Where a dimension lives: in the core, in a warehouse that is asked, or in a copy of its table.

Batches come so often that a copy is young enough for ten of them; between two of them, rows of the
dimension change. What counts is the time of the lookups, with all that they read anew.
"""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from statistics import mean

import psycopg
import pyarrow as pa

from bench import postgres
from bench.harness import Figures, Setup, folder
from etl_procs import Batch, Dataflow, Strategy, Transaction, by_count
from etl_procs.core import Core
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints
from migrations.asking import Asker

SIZES, SIZES_QUICK = (1_000, 100_000, 10_000_000), (1_000, 100_000)
BATCHES, BATCHES_QUICK = (1, 100, 10_000, 100_000), (1, 1_000)
CHANGING, CHANGING_QUICK = (0, 100, 10_000), (0, 100)
"""Rows that change between two batches."""
ANEW_ROWS_MAX = 1_000_000
"""A larger table is not read anew for each period: what a row costs is known by then."""
BATCHES_OF_A_PERIOD, EVERY_S = 10, 3.0
MAX_AGE_S = 2 * EVERY_S * BATCHES_OF_A_PERIOD
"""A copy is read anew when it is half as old as it may be."""

COLUMNS = "sk INTEGER {}, account INTEGER NOT NULL, effective TEXT NOT NULL, customer INTEGER NOT \
NULL, revision INTEGER NOT NULL, UNIQUE (account, effective)"
MAKE = """
CREATE SCHEMA bank;
CREATE TABLE bank.account_versions (sk bigint PRIMARY KEY, account bigint NOT NULL,
  effective text NOT NULL, customer bigint NOT NULL, revision bigint NOT NULL);
INSERT INTO bank.account_versions
SELECT i, i / 4, (2010 + 4 * (i % 4)) || '-07-01', i / 7, 0 FROM generate_series(0, {} - 1) AS i;
CREATE UNIQUE INDEX ON bank.account_versions (account, effective);
CREATE INDEX ON bank.account_versions (revision);
ANALYZE bank.account_versions"""
FILL = """
WITH RECURSIVE n (i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?)
INSERT INTO account_versions
SELECT i, i / 4, (2010 + 4 * (i % 4)) || '-07-01', i / 7, 0 FROM n"""
CHANGE = "UPDATE {} SET customer = customer + 1, revision = {} WHERE sk < {}"

Asked = tuple[pa.Array, pa.Array]
Asks = Callable[[int, int], list[Asked]]
"""Gives batches: of so many keys, so many."""
WAYS = ("owned", "warehouse", "replica", "replica_anew", "auto")


class Skipping(SystemClock):
    """Time that goes on by itself, and skips what nobody needs to wait for."""

    def __init__(self) -> None:
        self._skipped = 0.0

    def monotonic(self) -> float:
        """Tell a time in seconds that never goes backwards."""
        return time.monotonic() + self._skipped

    def skip(self, seconds: float) -> None:
        """Let so much time be over."""
        self._skipped += seconds


class Branch:
    """A core that looks up in one way; the dimension is its own, or a warehouse's."""

    def __init__(self, place: Path, url: str, way: str, rows: int) -> None:
        self.way = way
        self._asked: Asked | None = None
        self._took = 0.0
        self._clock = Skipping()
        flow = Dataflow("branch")
        self._go = flow.stream("go", "n INTEGER NOT NULL", batches=by_count(1))
        strategy = Strategy(way.removesuffix("_anew"))
        copies = strategy in (Strategy.REPLICA, Strategy.AUTO)
        lookup = flow.lookup(
            "account_at",
            flow.table("account_versions", COLUMNS.format("PRIMARY KEY"))
            if way == "owned"
            else flow.foreign(
                "bank.account_versions",
                COLUMNS.format("NOT NULL"),
                version="" if way == "replica_anew" else "revision",
            ),
            key="account",
            at="effective",
            gives=("sk", "customer"),
            strategy=strategy,
            max_age_s=MAX_AGE_S if copies else 0.0,
        )

        @flow.procedure(takes=self._go, looks=lookup)
        def look(tx: Transaction, _batch: Batch) -> None:
            assert self._asked is not None
            began = time.perf_counter()
            tx.lookup(lookup, self._asked[0], at=self._asked[1])
            self._took = time.perf_counter() - began

        self._path = place / f"{way}.sqlite"
        loaded = config.load({"warehouse.url": url}, environment={}).config
        self.core = Core(
            self._path,
            settings=config.Core(durability="weak", lookups_mb_max=8_192, statement_ms_max=600_000),
            clock=self._clock,
            crash=CrashPoints(),
            warehouses=partial(Asker, loaded, self._clock),
        )
        self.core.prepare([flow])
        self.core.open("branch", {"go": [0]})
        if way == "owned":
            self._write(FILL.replace("?", str(rows)))

    def period(self, asked: list[Asked], change: Callable[[], None]) -> list[float]:
        """Look batches up, each after a change; tell how long each took."""
        took = []
        for one in asked:
            change()
            self._asked = one
            self.core.enqueue("branch", {self._go: [(1,)]})
            self.core.drain()
            took.append(self._took)
            self._clock.skip(EVERY_S)
        return took

    def change(self, rows: int) -> None:
        """Change some of the rows that are its own."""
        self._write(CHANGE.format("account_versions", 0, rows))

    def _write(self, sql: str) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute(sql)

    @property
    def chosen(self) -> str:
        """Tell by which strategy it is answered now."""
        return self.core.metrics.lookups["branch.account_at"].strategy


def compare(setup: Setup, asks: Callable[[int], Asks]) -> tuple[dict[str, Figures], dict[str, str]]:
    """Tell what a batch takes in each way, in microseconds, and what auto chose."""
    figures: dict[str, Figures] = {way: {} for way in WAYS}
    chosen: dict[str, str] = {}
    sizes = [setup.size(size, size) for size in (SIZES_QUICK if setup.quick else SIZES)]
    with folder(setup.folder, "abroad") as place, postgres.server(place) as server:
        url = postgres.url(server)
        for size in dict.fromkeys(sizes):
            with _dimension(server, size) as dimension, ExitStack() as opened:
                ways = [w for w in WAYS if w != "replica_anew" or size <= ANEW_ROWS_MAX]
                branches = [_opened(opened, place, url, way, size) for way in ways]
                for key, found in _measured(setup, branches, asks(size), dimension):
                    name = f"us_per_batch_{key[0]}_of_{size}_changing_{key[1]}"
                    for way, us in found.items():
                        figures[way][name] = us
                    chosen[name] = next(b.chosen for b in branches if b.way == "auto")
    return figures, chosen


def _opened(opened: ExitStack, place: Path, url: str, way: str, size: int) -> Branch:
    branch = Branch(opened.enter_context(folder(place, way)), url, way, size)
    opened.callback(branch.core.close)
    return branch


class Dimension:
    """The warehouse's table."""

    def __init__(self, connection: psycopg.Connection, rows: int) -> None:
        self._connection = connection
        self._revision = 0
        connection.execute(MAKE.replace("{}", str(rows)).encode())

    def change(self, rows: int) -> None:
        """Change some of the rows."""
        self._revision += 1
        statement = CHANGE.format("bank.account_versions", self._revision, rows)
        self._connection.execute(statement.encode())

    def clear(self) -> None:
        """Do what PostgreSQL does by itself in the time that is skipped."""
        self._connection.execute("VACUUM (ANALYZE) bank.account_versions")


@contextmanager
def _dimension(server: str, rows: int) -> Iterator[Dimension]:
    with psycopg.connect(server, autocommit=True) as connection:
        yield Dimension(connection, rows)
        connection.execute("DROP SCHEMA bank CASCADE")


def _measured(
    setup: Setup, branches: list[Branch], asks: Asks, dimension: Dimension
) -> Iterator[tuple[tuple[int, int], dict[str, float]]]:
    """Measure the second of two periods: by the first, auto knows what it does."""
    for batch in BATCHES_QUICK if setup.quick else BATCHES:
        for changing in CHANGING_QUICK if setup.quick else CHANGING:
            found = {}
            for branch in branches:
                # Each one changes the rows that it looks up in.
                of = branch.change if branch.way == "owned" else dimension.change
                for _ in range(2):
                    took = branch.period(asks(batch, BATCHES_OF_A_PERIOD), partial(of, changing))
                found[branch.way] = 1e6 * mean(took)
                dimension.clear()
            yield (batch, changing), found
