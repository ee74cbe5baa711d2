"""As-of lookups in a dimension of 10^3 to 10^7 rows, in batches of 1 to 10^5 keys.

The cost of a batch must depend on the batch alone. Peers answer the same from the same rows: SQL
in the same transaction, key by key and as one statement, and Arrow's as-of join, which reads the
dimension for each batch.
"""

import json
import sqlite3
import statistics
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.harness import Figures, Result, Setup, folder
from etl_procs import Batch, Dataflow, Lookup, Transaction, by_count
from etl_procs.core import Core
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
SIZES_QUICK = (1_000, 100_000, 10_000_000)
BATCHES = (1, 100, 10_000, 100_000)
VERSIONS = 4
"""Of each account."""
UNKNOWN = 100
"""One of so many keys is none."""
SQL_KEYS_MAX = 10_000
"""More are not asked of the peers: what they cost for a key is known by then."""
ARROW_ROWS_MAX = 1_000_000
INSERTED = 400_000
SEED = 2026

TABLE = (
    "sk INTEGER PRIMARY KEY, account INTEGER NOT NULL, effective TEXT NOT NULL, "
    "customer INTEGER NOT NULL, status TEXT NOT NULL, UNIQUE (account, effective)"
)
FILL = f"""
WITH RECURSIVE n (i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :rows)
INSERT INTO account_versions
SELECT :first + i, (:first + i) / {VERSIONS}, (2010 + 4 * (i % {VERSIONS})) || '-07-01',
i / 7, 'ACTV'
FROM n"""  # noqa: S608 - a number
AS_OF = """
SELECT sk, customer, status FROM account_versions
WHERE account = ? AND effective <= ? ORDER BY effective DESC LIMIT 1"""
AS_OF_ALL = """
SELECT v.sk, v.customer, v.status
FROM json_each(?1) AS a JOIN json_each(?2) AS d ON d.key = a.key
LEFT JOIN account_versions AS v ON v.account = a.value AND v.effective = (
  SELECT max(effective) FROM account_versions WHERE account = a.value AND effective <= d.value)"""

Way = Callable[[Transaction, pa.Array, pa.Array], object]


class Bank:
    """A core with one dimension, and a procedure that takes the time of what it is given to do."""

    def __init__(self, place: Path, *, looked: bool = True) -> None:
        self._way: Way = lambda _tx, _accounts, _days: None
        self._asked: list[tuple[pa.Array, pa.Array]] = []
        self.seconds: list[float] = []
        self.flow = Dataflow("bank")
        self.go = self.flow.stream("go", "n INTEGER NOT NULL", batches=by_count(1))
        versions = self.flow.table("account_versions", TABLE)
        self.lookup: Lookup | None = None
        if looked:
            self.lookup = self.flow.lookup(
                "account_at",
                versions,
                key="account",
                at="effective",
                gives=("sk", "customer", "status"),
            )
        looks = [self.lookup] if self.lookup else []

        @self.flow.procedure(takes=self.go, reads=versions, looks=looks)
        def work(tx: Transaction, _batch: Batch) -> None:
            self.seconds = []
            for asked in self._asked:
                began = time.perf_counter()
                self._way(tx, *asked)
                self.seconds.append(time.perf_counter() - began)

        self.path = place / "core.sqlite"
        settings = config.Core(durability="weak", lookups_mb_max=8_192, statement_ms_max=600_000)
        self.core = Core(self.path, settings=settings, clock=SystemClock(), crash=CrashPoints())
        self.core.prepare([self.flow])
        self.core.open("bank", {"go": [0]})

    def fill(self, first: int, rows: int) -> float:
        """Insert so many versions, and tell how long it took."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = NORMAL")
            began = time.perf_counter()
            connection.execute(FILL, {"first": first, "rows": rows})
            return time.perf_counter() - began

    def run(self, way: Way, asked: list[tuple[pa.Array, pa.Array]]) -> list[float]:
        """Do it in one transaction, for each of the batches; tell the seconds of each."""
        self._way, self._asked = way, asked
        self.core.enqueue("bank", {self.go: [(1,)]})
        (committed,) = self.core.drain()
        assert not committed.dead_tuples
        assert len(self.seconds) == len(asked)
        return self.seconds

    def ours(self, tx: Transaction, accounts: pa.Array, days: pa.Array) -> pa.Table:
        """Look up."""
        assert self.lookup is not None
        return tx.lookup(self.lookup, accounts, at=days)


def run(setup: Setup) -> Result:
    """Fill a dimension of each size, and ask."""
    sizes = [max(VERSIONS, round(s * setup.scale)) for s in (SIZES_QUICK if setup.quick else SIZES)]
    batches = [max(1, round(batch * setup.scale)) for batch in BATCHES]
    figures: Figures = {}
    peers: dict[str, Figures] = {"sql_each": {}, "sql_at_once": {}, "arrow_asof": {}}
    for size in dict.fromkeys(sizes):
        with folder(setup.folder, f"rows-{size}") as place:
            _measure(Bank(place), size, batches, setup, figures, peers)
    figures |= _inserts(setup)
    most, least = sizes[-1], sizes[0]
    ratios = {
        f"cost_10m_to_1k_{batch}": [
            figures[f"us_per_batch_{batch}_of_{most}"] / figures[f"us_per_batch_{batch}_of_{least}"]
        ]
        for batch in batches
    }
    ratios["cost_10m_to_1k"] = [statistics.geometric_mean([r for (r,) in ratios.values()])]
    for peer, found in peers.items():
        for key, us in found.items():
            ratios[f"to_{peer}_{key.removeprefix('us_per_')}"] = [us / figures[key]]
    ratios["insert_to_unlogged"] = [
        figures["insert_400k_s"] / figures["insert_400k_without_lookup_s"]
    ]
    settings = {"sizes": sizes, "batches": batches, "versions_of_a_key": VERSIONS, "seed": SEED}
    return Result(figures=figures, peers=peers, ratios=ratios, settings=settings)


def _measure(
    bank: Bank,
    size: int,
    batches: list[int],
    setup: Setup,
    figures: Figures,
    peers: dict[str, Figures],
) -> None:
    bank.fill(0, size)
    random = np.random.default_rng(SEED)
    warm = _asked(random, size, max(batches[-1], 33), 1 + size // (2 * max(batches[-1], 33)))
    figures[f"build_s_of_{size}"] = max(bank.run(bank.ours, warm))
    for batch in batches:
        count = max(3, min(200, (20_000 if setup.quick else 200_000) // batch))
        asked = _asked(random, size, batch, count)
        key = f"us_per_batch_{batch}_of_{size}"
        figures[key] = _us(bank.run(bank.ours, asked))
        if batch > SQL_KEYS_MAX:
            continue
        ways: dict[str, Way] = {"sql_each": _each, "sql_at_once": _at_once}
        if size <= ARROW_ROWS_MAX:
            ways["arrow_asof"] = _arrow(bank)
        for name, way in ways.items():
            peers[name][key] = _us(bank.run(way, asked[: 3 if name == "arrow_asof" else 20]))
        _compare(bank, asked[0])
    bank.core.close()


def _us(seconds: list[float]) -> float:
    return 1e6 * statistics.median(seconds)


def _asked(
    random: np.random.Generator, size: int, batch: int, count: int
) -> list[tuple[pa.Array, pa.Array]]:
    most = size // VERSIONS + max(1, size // VERSIONS // UNKNOWN)
    days = pa.array([f"{year}-{month:02}-01" for year in range(2009, 2027) for month in (1, 7, 9)])
    return [
        (
            pa.array(random.integers(0, most, batch)),
            days.take(pa.array(random.integers(0, len(days), batch))),
        )
        for _ in range(count)
    ]


def _each(tx: Transaction, accounts: pa.Array, days: pa.Array) -> list[object]:
    pairs = zip(accounts.to_pylist(), days.to_pylist(), strict=True)
    return [tx.query(AS_OF, pair) for pair in pairs]


def _at_once(tx: Transaction, accounts: pa.Array, days: pa.Array) -> pa.Table:
    return tx.table(AS_OF_ALL, [json.dumps(accounts.to_pylist()), json.dumps(days.to_pylist())])


def _arrow(bank: Bank) -> Way:
    """Join as of a moment, with the dimension in memory as Arrow has it."""
    with closing(sqlite3.connect(bank.path)) as connection:
        rows = connection.execute(
            "SELECT account, cast(replace(effective, '-', '') AS INTEGER), sk, customer, status "
            "FROM account_versions ORDER BY 2"
        ).fetchall()
    names = ("account", "day", "sk", "customer", "status")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    held = pa.table({name: pa.array(values) for name, values in columns.items()})

    def join(_tx: Transaction, accounts: pa.Array, days: pa.Array) -> pa.Table:
        numbers = pc.replace_substring(days, "-", "").cast(pa.int64())
        asked = pa.table({"account": accounts, "day": numbers}).sort_by("day")
        return asked.join_asof(held, on="day", by="account", tolerance=-100_000_000)

    return join


def _compare(bank: Bank, asked: tuple[pa.Array, pa.Array]) -> None:
    """Hold the answer against SQL's."""
    found: list[object] = []

    def both(tx: Transaction, accounts: pa.Array, days: pa.Array) -> None:
        nothing = {"sk": None, "customer": None, "status": None}
        found.append([(rows or [nothing])[0] for rows in _each(tx, accounts, days)])  # type: ignore[index]
        found.append(bank.ours(tx, accounts, days).to_pylist())

    bank.run(both, [asked])
    assert found[0] == found[1], "a lookup answers otherwise than SQL"


def _inserts(setup: Setup) -> Figures:
    """Tell what the log of changes costs who inserts many versions."""
    count = max(VERSIONS, round(INSERTED * setup.scale))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 if setup.quick else 5):
        for looked in (True, False) if number % 2 else (False, True):
            with folder(setup.folder, "insert") as place:
                bank = Bank(place, looked=looked)
                seconds[looked].append(bank.fill(0, count))
                bank.core.close()
    return {
        "insert_400k_s": statistics.median(seconds[True]),
        "insert_400k_without_lookup_s": statistics.median(seconds[False]),
    }
