"""A dataflow that divides by its key: deposits into accounts, one a batch."""

from etl_procs import Batch, Dataflow, Transaction, by_count

PARTITIONS = 1

flow = Dataflow("deposits", partitions=PARTITIONS)
paid_in = flow.stream(
    "paid_in",
    "account INTEGER NOT NULL, cents INTEGER NOT NULL",
    batches=by_count(1),
    key="account",
)
accounts = flow.table("accounts", "account INTEGER PRIMARY KEY, cents INTEGER NOT NULL")


@flow.procedure(takes=paid_in, writes=[accounts])
def deposit(tx: Transaction, batch: Batch) -> None:
    """Add to the account; open it if it is new."""
    for account, cents in batch.tuples:
        found = tx.query("SELECT cents FROM accounts WHERE account = ?", [account])
        if found:
            tx.execute(
                "UPDATE accounts SET cents = ? WHERE account = ?",
                [found[0]["cents"] + cents, account],
            )
        else:
            tx.execute("INSERT INTO accounts VALUES (?, ?)", [account, cents])
