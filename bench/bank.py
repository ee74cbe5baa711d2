"""Transfers between accounts that must not go below zero: our dataflow and a bare SQLite loop.

In batches of one and of ten; between accounts all equally busy, and a few busier than the rest;
with more and more accounts, which must not make a batch dearer.
"""

import shutil
import sqlite3
import statistics
from array import array
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import Random

from bench import bare
from bench.bare import GROUP_BATCHES
from bench.harness import Figures, Result, Setup, Times, copy, in_turns_per
from bench.ours import GROUP_MS, Ours, fed
from etl_procs import Batch, Dataflow, Transaction, by_count

OPENING = 1_000
AMOUNT_MAX = 100
ZIPF = 0.99
SCATTER = 7_919
"""A prime, so that busy accounts do not lie side by side."""
SEED = 2026

BATCHES, KEYS, ACCOUNTS = (1, 10), ("uniform", "zipf"), (1_000, 100_000, 1_000_000)
ACCOUNTS_QUICK = ACCOUNTS[:2]

BALANCE = "SELECT balance FROM accounts WHERE id = ?"
TAKE = "UPDATE accounts SET balance = balance - ? WHERE id = ?"
GIVE = "UPDATE accounts SET balance = balance + ? WHERE id = ?"
COLUMNS = "id INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0)"

Transfer = tuple[int, int, int]
"""From whom, to whom, and how much."""


@dataclass(frozen=True, slots=True)
class Case:
    """One setting in which ours and the bare loop are compared."""

    batch: int
    keys: str
    accounts: int

    @property
    def name(self) -> str:
        """Name it, for a key."""
        return f"b{self.batch}_{self.keys}_{shortly(self.accounts)}"


@dataclass(frozen=True, slots=True)
class Work:
    """The transfers of a case, and the balances that they lead to."""

    case: Case
    transfers: list[Transfer]
    balances: "array[int]"
    rejected: int


def run(setup: Setup) -> Result:
    """Transfer in every case, in turns."""
    sizes = ACCOUNTS_QUICK if setup.quick else ACCOUNTS
    accounts = [max(2, round(size * min(1.0, setup.scale))) for size in sizes]
    cases = [Case(batch, keys, size) for size in accounts for keys in KEYS for batch in BATCHES]
    figures: Figures = {}
    peers: dict[str, Figures] = {"bare": {}}
    found: dict[str, list[float]] = {}
    rejected: dict[str, float] = {}
    for size in accounts:
        templates = _templates(setup.folder, size)
        for case in (case for case in cases if case.accounts == size):
            count = case.batch * setup.size(full=50_000, quick=6_000)
            if case.batch > 1:
                count //= 2  # ten transfers take about twice as long as one
            work = work_of(case, count)
            times = in_turns_per(
                {
                    "ours": partial(_ours, work, templates),
                    "bare": partial(_bare, work, templates),
                },
                setup,
                count // case.batch,
            )
            figures |= _figures(times, work, "ours", "strong_")
            peers["bare"] |= _figures(times, work, "bare", "")
            found[f"strong_to_bare_{case.name}"] = times.ratios("ours", "bare")
            rejected[case.name] = work.rejected / count
        shutil.rmtree(templates)
    lowest = min(found.values(), key=statistics.median)
    headline = Case(10, "uniform", accounts[1]).name
    return Result(
        figures={
            "strong_transfers_per_s": figures[f"strong_transfers_per_s_{headline}"],
            **figures,
        },
        peers=peers,
        ratios={
            "strong_to_bare": lowest,
            "us_per_batch_most_to_fewest_accounts": [_growth(figures, "strong_", accounts)],
            "bare_us_per_batch_most_to_fewest_accounts": [_growth(peers["bare"], "", accounts)],
            **found,
        },
        settings={
            "rounds": min(map(len, found.values())),
            "group_batches": GROUP_BATCHES,
            "group_ms_max": GROUP_MS,
            "strong_to_bare": "the lowest of all cases",
            "strong_transfers_per_s": f"case {headline}",
            "opening_balance": OPENING,
            "amount_max": AMOUNT_MAX,
            "zipf": ZIPF,
            "seed": SEED,
            "rejected_share": rejected,
            "dead_letters": "ours keeps what is rejected, the peer only counts it",
        },
    )


def dataflow(accounts: int, batch: int) -> Dataflow:
    """Declare the bank in our interface."""
    flow = Dataflow("bank")
    transfers = flow.stream(
        "transfers",
        "source INTEGER NOT NULL, target INTEGER NOT NULL, amount INTEGER NOT NULL",
        batches=by_count(batch),
    )
    table = flow.table("accounts", COLUMNS, rows=((n, OPENING) for n in range(accounts)))

    @flow.procedure(takes=transfers, writes=[table])
    def transfer(tx: Transaction, batch: Batch) -> None:
        for index, (source, target, amount) in enumerate(batch.tuples):
            (held,) = tx.query(BALANCE, (source,))
            if held["balance"] < amount:
                tx.reject(batch.row(index), "the account does not hold as much")
            else:
                tx.execute(TAKE, (amount, source))
                tx.execute(GIVE, (amount, target))

    return flow


def work_of(case: Case, count: int) -> Work:
    """Make transfers, and do them in plain Python."""
    random = Random(SEED)  # noqa: S311 - no secret
    weights = list(accumulate(n**-ZIPF for n in range(1, case.accounts + 1)))

    def account() -> int:
        if case.keys == "uniform":
            return random.randrange(case.accounts)
        return bisect(weights, random.random() * weights[-1]) * SCATTER % case.accounts

    balances = array("q", [OPENING]) * case.accounts
    transfers: list[Transfer] = []
    rejected = 0
    while len(transfers) < count:
        source, target, amount = account(), account(), random.randint(1, AMOUNT_MAX)
        if source == target:
            continue
        transfers.append((source, target, amount))
        if balances[source] < amount:
            rejected += 1
        else:
            balances[source] -= amount
            balances[target] += amount
    return Work(case, transfers, balances, rejected)


def shortly(number: int) -> str:
    """Write a round number for a key: 1k, 1m."""
    for unit, name in ((1_000_000, "m"), (1_000, "k")):
        if number >= unit and number % unit == 0:
            return f"{number // unit}{name}"
    return str(number)


def _figures(times: Times, work: Work, who: str, prefix: str) -> Figures:
    return {
        f"{prefix}transfers_per_s_{work.case.name}": times.rate(who) * work.case.batch,
        f"{prefix}us_per_batch_{work.case.name}": times.us(who),
    }


def _growth(figures: Figures, prefix: str, accounts: Sequence[int]) -> float:
    """How much dearer a uniform batch of one is with the most accounts than with the fewest."""
    most, fewest = (
        figures[f"{prefix}us_per_batch_{Case(1, 'uniform', of(accounts)).name}"]
        for of in (max, min)
    )
    return most / fewest


def _templates(folder: Path, accounts: int) -> Path:
    """Make the accounts once; every trial starts from a copy."""
    made = folder / f"accounts-{accounts}"
    made.mkdir()
    with Ours(made / "ours", dataflow(accounts, 1), "strong"):
        pass
    (made / "bare").mkdir()
    connection = bare.connect(made / "bare" / "bare.sqlite", "strong")
    bare.make(connection, [f"CREATE TABLE accounts ({COLUMNS})"])
    connection.execute("BEGIN")
    rows = ((n, OPENING) for n in range(accounts))
    connection.executemany("INSERT INTO accounts VALUES (?, ?)", rows)
    connection.execute("COMMIT")
    connection.close()
    return made


def _ours(work: Work, templates: Path, folder: Path) -> float:
    copy(templates / "ours", folder)
    flow = dataflow(work.case.accounts, work.case.batch)
    return fed(folder, flow, work.transfers, partial(_compare, work, "our dataflow"))


def _bare(work: Work, templates: Path, folder: Path) -> float:
    copy(templates / "bare", folder)
    connection = bare.connect(folder / "bare.sqlite", "strong")
    size = work.case.batch
    batches = [work.transfers[n : n + size] for n in range(0, len(work.transfers), size)]

    def take(batch: list[Transfer]) -> None:
        bare.savepoint(connection, transfer_all, connection, batch)

    return bare.ran(connection, batches, take, partial(_compare, work, "the bare loop"))


def transfer_all(connection: sqlite3.Connection, batch: Sequence[Transfer]) -> int:
    """Do the transfers of one batch, and count those that are rejected."""
    execute = connection.execute
    rejected = 0
    for source, target, amount in batch:
        (balance,) = execute(BALANCE, (source,)).fetchone()
        if balance < amount:
            rejected += 1
        else:
            execute(TAKE, (amount, source))
            execute(GIVE, (amount, target))
    return rejected


def _compare(work: Work, who: str, connection: sqlite3.Connection) -> None:
    balances = array("q", (n for (n,) in connection.execute("SELECT balance FROM accounts")))
    assert balances == work.balances, f"{who} ended with other balances than the rules"
