"""A small dataflow for tests that need outlets with a key: a book of what accounts have.

An entry sets what an account has on a day, or takes it off the book.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from shop import Warehoused

from etl_procs import Batch, Dataflow, Transaction, by_punctuation
from migrations import ledger, warehouse

flow = Dataflow("book")
entries = flow.stream(
    "entries",
    "account TEXT NOT NULL, day INTEGER NOT NULL, amount REAL NOT NULL, note TEXT, "
    "gone INTEGER NOT NULL",
    batches=by_punctuation(),
)
balances = flow.outlet(
    "balances",
    "note TEXT, day INTEGER NOT NULL, amount REAL NOT NULL, account TEXT NOT NULL",
    key=("account", "day"),
)
latest = flow.outlet("latest", "account TEXT NOT NULL, day INTEGER NOT NULL", key="account")
amounts = flow.outlet("amounts", "amount REAL NOT NULL", key="amount")
history = flow.outlet("history", "account TEXT NOT NULL, gone INTEGER NOT NULL")

KEYED = (balances, latest, amounts)


class Entry(NamedTuple):
    account: str
    day: int
    amount: float
    note: str | None = None
    gone: bool = False


Contents = list[tuple[object, ...]]
"""The rows of all tables of the warehouse, in order, as CONTENTS asks for them."""

CONTENTS = """\
SELECT 'balances' AS name, account, day, amount, note FROM book.balances
UNION ALL SELECT 'latest', account, day, NULL, NULL FROM book.latest
UNION ALL SELECT 'amounts', NULL, NULL, amount, NULL FROM book.amounts
UNION ALL SELECT 'history', account, gone, NULL, NULL FROM book.history"""


@flow.procedure(takes=entries, gives=[*KEYED, history])
def keep(tx: Transaction, batch: Batch) -> None:
    tx.emit(history, batch.table.select(["account", "gone"]))
    for gone, rows in groupby(batch.rows(), key=lambda row: row["gone"]):
        run = list(rows)
        for outlet in KEYED:
            if gone:
                tx.delete(outlet, [{name: row[name] for name in outlet.key} for row in run])
            else:
                names = outlet.columns.names
                tx.emit(outlet, [{name: row[name] for name in names} for row in run])


def operations(batch: Sequence[Entry]) -> int:
    """Count what a batch gives to all outlets."""
    return len(batch) * (len(KEYED) + 1)


def contents(batches: Iterable[Sequence[Entry]]) -> Contents:
    """Work out, by hand, what the warehouse is to hold after some batches."""
    keyed: dict[tuple[object, ...], tuple[object, ...]] = {}
    history: Contents = []
    for account, day, amount, note, gone in (entry for batch in batches for entry in batch):
        history.append(("history", account, int(gone), None, None))
        for key, row in [
            (("balances", account, day), ("balances", account, day, amount, note)),
            (("latest", account), ("latest", account, day, None, None)),
            (("amounts", amount), ("amounts", None, None, amount, None)),
        ]:
            keyed.pop(key, None)
            if not gone:
                keyed[key] = row
    return in_order([*keyed.values(), *history])


def in_order(rows: Iterable[tuple[object, ...]]) -> Contents:
    """Sort rows, NULLs too; 0.0 and -0.0 are the same number."""
    return sorted(rows, key=lambda row: [repr(v + 0.0 if isinstance(v, float) else v) for v in row])


class Book(Warehoused):
    """A core with the dataflow, fed by hand."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, flow)
        self.batches: list[Sequence[Entry]] = []

    def commit(self, *batches: Sequence[Entry]) -> None:
        """Commit batches, together in as few groups as it takes."""
        self.batches += batches
        rows = [[(*entry[:-1], int(entry.gone)) for entry in batch] for batch in batches]
        committed = self.run(entries, *rows)
        assert not batches or committed[-1].through == len(self.batches)

    def check_main(self, connection: warehouse.Connection) -> None:
        """Make sure that the warehouse holds what its ledger says, and nothing else."""
        arrived = ledger.read(connection, [flow.name])[flow.name, 0]
        done = self.batches[: arrived.batch]
        assert arrived.rows == sum(map(operations, done))
        assert in_order(connection.execute(CONTENTS).fetchall()) == contents(done)
