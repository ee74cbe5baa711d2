"""A bank on two partitions: accounts by name, deposits and calls, each where its account is."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from etl_procs import Batch, Dataflow, Transaction, by_count
from etl_procs.batch import ARRIVAL, Arrived, place_of
from etl_procs.routing import partition_of

FILE = Path(__file__)
PARTITIONS = 2

flow = Dataflow("bank", partitions=PARTITIONS)
deposits = flow.stream(
    "deposits",
    "account TEXT NOT NULL, cents INTEGER NOT NULL",
    batches=by_count(3, linger_s=0.05),
    key="account",
)
accounts = flow.table("accounts", "account TEXT PRIMARY KEY, cents INTEGER NOT NULL")
statements = flow.outlet(
    "statements", "account TEXT NOT NULL, cents INTEGER NOT NULL", key="account"
)
ADD = """\
INSERT INTO accounts VALUES (:account, :cents)
ON CONFLICT DO UPDATE SET cents = cents + excluded.cents"""


@flow.procedure(takes=deposits, writes=[accounts], gives=[statements])
def deposit(tx: Transaction, batch: Batch) -> None:
    for row in batch.rows():
        if row["cents"] == 0:
            tx.reject(row, "nothing is no deposit")
            continue
        tx.execute(ADD, row)
        tx.emit(statements, tx.query("SELECT * FROM accounts WHERE account = :account", row))


@flow.call(
    arguments="account TEXT NOT NULL, cents INTEGER NOT NULL",
    returns="cents INTEGER NOT NULL",
    key="account",
    writes=[accounts],
)
def put(tx: Transaction, account: str, cents: int) -> object:
    """Put money into an account, and tell what is there then."""
    tx.execute(ADD, {"account": account, "cents": cents})
    return tx.query("SELECT cents FROM accounts WHERE account = ?", [account])


def names_of(partition: int, count: int) -> list[str]:
    """Name accounts that lie on a partition."""
    names = (f"acc{n}" for n in range(10_000))
    mine = [name for name in names if partition_of(name, PARTITIONS) == partition]
    return mine[:count]


def arrived(rows: Sequence[tuple[str | None, int]], *, first: int = 0, lane: int = 0) -> Arrived:
    """Make what ingest hands over; without a name, it did not decode."""
    made = [
        {
            "_partition": lane,
            "_place": place_of(first + n),
            "_value": f"{account} {cents}".encode(),
            "_reason": None if account else "not JSON",
            "_mark": None,
            "account": account,
            "cents": cents if account else None,
        }
        for n, (account, cents) in enumerate(rows)
    ]
    schema = pa.schema([*ARRIVAL, *(f.with_nullable(True) for f in deposits.columns.arrow)])
    return Arrived(deposits, pa.Table.from_pylist(made, schema))
