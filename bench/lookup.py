"""As-of lookups in a dimension of 10^3 to 10^7 rows, in batches of 1 to 10^5 keys.

The cost of a batch must depend on the batch alone. Peers answer the same from the same rows: SQL
in the same transaction, key by key and as one statement, and Arrow's as-of join, which reads the
dimension for each batch.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench import lookup_abroad
from bench.harness import Figures, Result, Setup, folder
from etl_procs import Batch, Dataflow, Lookup, Transaction, by_count, owned
from etl_procs.core import Core
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
SIZES_QUICK = (1_000, 10_000_000)
BATCHES = (1, 100, 10_000, 100_000)
VERSIONS = 4
"""Of each account."""
UNKNOWN = 100
"""One of so many keys is none."""
SQL_KEYS_MAX = AT_ONCE_KEYS_MAX = 10_000
"""More are not asked of SQL: what it costs for a key is known by then."""
ARROW_ROWS_MAX = 100_000
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
SELECT v.sk, v.customer, v.status FROM json_each(?) AS a LEFT JOIN account_versions AS v
ON v.account = a.value ->> 0 AND v.effective = (
  SELECT max(effective) FROM account_versions
  WHERE account = a.value ->> 0 AND effective <= a.value ->> 1)"""

Way = Callable[[Transaction, pa.Array, pa.Array], object]


class Bank:
    """A core with one dimension, and a procedure that takes the time of what it is given to do."""

    def __init__(self, place: Path, *, looked: bool = True) -> None:
        self._way: Way = lambda _tx, _accounts, _days: None
        self._asked: list[tuple[pa.Array, pa.Array]] = []
        self.seconds: list[float] = []
        self.cpu_seconds: list[float] = []
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
            self.seconds, self.cpu_seconds = [], []
            for asked in self._asked:
                began, cpu_began = time.perf_counter(), time.process_time()
                self._way(tx, *asked)
                self.cpu_seconds.append(time.process_time() - cpu_began)
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
    """Fill a dimension of each size, and ask all of them in turns."""
    wanted = SIZES_QUICK if setup.quick else SIZES
    sizes = list(dict.fromkeys(max(VERSIONS, round(size * setup.scale)) for size in wanted))
    batches = [max(1, round(batch * setup.scale)) for batch in BATCHES]
    seconds: dict[str, dict[str, list[float]]] = {}
    build_s: Figures = {}
    with ExitStack() as opened:
        banks = {}
        for size in sizes:
            place = opened.enter_context(folder(setup.folder, f"rows-{size}"))
            _load(place, size)
            banks[size] = bank = Bank(place)
            opened.callback(bank.core.close)
            build_s[f"build_s_of_{size}"] = _warm(bank, size, max(batches))
        for number in range(setup.rounds):
            if number and time.perf_counter() > setup.until:
                break
            for batch in dict.fromkeys(batches):
                for size, bank in banks.items():
                    key = f"us_per_batch_{batch}_of_{size}"
                    for who, took in _measure(bank, size, batch, number).items():
                        seconds.setdefault(who, {}).setdefault(key, []).append(took)
    inserts = _inserts(setup)
    strategies, chosen = lookup_abroad.compare(setup, _batches)
    figures = {who: {k: 1e6 * median(s) for k, s in of.items()} for who, of in seconds.items()}
    ours, cpu = seconds.pop("ours"), seconds.pop("ours_cpu")
    ratios = {
        f"to_{who}_{key.removeprefix('us_per_')}": _ratios(of[key], ours[key])
        for who, of in seconds.items()
        for key in of
    }
    across = {
        f"cost_10m_to_1k_{batch}": _ratios(
            cpu[f"us_per_batch_{batch}_of_{sizes[-1]}"],
            cpu[f"us_per_batch_{batch}_of_{sizes[0]}"],
        )
        for batch in batches
    }
    logged, unlogged = inserts["insert_400k_s"], inserts["insert_400k_without_lookup_s"]
    return Result(
        figures={
            **figures.pop("ours"),
            **{f"cpu_{key}": us for key, us in figures.pop("ours_cpu").items()},
            **build_s,
            **inserts,
        },
        peers=figures | {f"strategy_{way}": of for way, of in strategies.items()},
        ratios={
            "cost_10m_to_1k": [geometric_mean(each) for each in zip(*across.values(), strict=True)],
            **across,
            **ratios,
            "insert_to_unlogged": [logged / unlogged],
            "auto_to_the_better_of_asking_and_copying": (auto := _auto(strategies)),
            "auto_to_the_better_at_worst": [max(auto)],
        },
        settings={
            "sizes": sizes,
            "batches": batches,
            "versions_of_a_key": VERSIONS,
            "seed": SEED,
            "auto_chose": chosen,
            "cost_10m_to_1k": "of processor time: it does not count what else the machine runs; "
            "and with the index: until a quarter as many keys as rows were asked, it is sql_each",
            "duckdb": "no package of this project's: Arrow's join_asof is the join instead",
        },
    )


def _batches(size: int) -> lookup_abroad.Asks:
    """Give what makes batches for a dimension of a size."""
    return partial(_asked, np.random.default_rng(SEED), size)


def _auto(strategies: Mapping[str, Figures]) -> list[float]:
    """Tell how many times as long as with the better of the two a batch took with auto."""
    return [
        us / min(strategies["warehouse"][key], strategies["replica"][key])
        for key, us in strategies["auto"].items()
    ]


def _load(place: Path, rows: int) -> None:
    """Make the table and fill it, as fast as SQLite can."""
    bank = Bank(place, looked=False)
    bank.core.close()
    with closing(sqlite3.connect(bank.path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(FILL, {"first": 0, "rows": rows})


def _ratios(ours: list[float], others: list[float]) -> list[float]:
    return [one / other for one, other in zip(ours, others, strict=True)]


def _warm(bank: Bank, size: int, batch: int) -> float:
    """Let the index be built with the first batch, and tell how long that took."""
    asked = _asked(np.random.default_rng(SEED), size, max(batch, owned.FEW + 1), 1)
    usual, owned.ROWS_PER_KEY = owned.ROWS_PER_KEY, size
    try:
        (took,) = bank.run(bank.ours, asked)
    finally:
        owned.ROWS_PER_KEY = usual
    assert bank.core.metrics.lookups["bank.account_at"].entries == size
    return took


def _measure(bank: Bank, size: int, batch: int, number: int) -> dict[str, float]:
    """Tell the seconds that each needs for a batch."""
    random = np.random.default_rng([SEED, number])
    asked = _asked(random, size, batch, max(3, min(100, 100_000 // batch)))
    found = {"ours": median(bank.run(bank.ours, asked)), "ours_cpu": median(bank.cpu_seconds)}
    if batch <= SQL_KEYS_MAX:
        found["sql_each"] = median(bank.run(_each, asked[:10]))
        _compare(bank, asked[0])
    if batch <= AT_ONCE_KEYS_MAX:
        found["sql_at_once"] = median(bank.run(_at_once, asked[:10]))
    if size <= ARROW_ROWS_MAX:
        found["arrow_asof"] = median(bank.run(_arrow(bank), asked[:3]))
    return found


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
    pairs = zip(accounts.to_pylist(), days.to_pylist(), strict=True)
    return tx.table(AS_OF_ALL, [json.dumps(list(pairs))])


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
        "insert_400k_s": median(seconds[True]),
        "insert_400k_without_lookup_s": median(seconds[False]),
    }
