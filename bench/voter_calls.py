"""The voter as a client has to drive it that knows no streams: three calls a vote, each awaited.

Our own engine runs them, so what differs from the dataflow is who keeps the order.
"""

from typing import Any

from bench import voter_sql
from bench.voter_show import CONTESTANTS, VOTES_A_REMOVAL, WINDOW
from etl_procs import Dataflow, Transaction

flow = Dataflow("voter_calls")

contestants = flow.table(
    "contestants",
    "contestant INTEGER PRIMARY KEY, name TEXT NOT NULL",
    rows=[(number, f"Contestant {number}") for number in range(1, CONTESTANTS + 1)],
)
kept = flow.table(
    "votes", "phone INTEGER PRIMARY KEY, contestant INTEGER NOT NULL, UNIQUE (contestant, phone)"
)
counts = flow.table(
    "counts",
    "contestant INTEGER PRIMARY KEY, votes INTEGER NOT NULL, UNIQUE (votes, contestant)",
    rows=[(number, 0) for number in range(1, CONTESTANTS + 1)],
)
totals = flow.table("totals", "votes INTEGER NOT NULL", rows=[(0,)])
leaders = flow.table(
    "leaders",
    "kind TEXT NOT NULL, place INTEGER NOT NULL, contestant INTEGER NOT NULL, "
    "votes INTEGER NOT NULL, PRIMARY KEY (kind, place)",
)
recent = flow.table(
    "recent", "number INTEGER PRIMARY KEY, phone INTEGER NOT NULL, contestant INTEGER NOT NULL"
)
trending = flow.table("trending", "contestant INTEGER PRIMARY KEY, votes INTEGER NOT NULL")


@flow.call(
    arguments="phone INTEGER NOT NULL, contestant INTEGER NOT NULL",
    returns="good INTEGER NOT NULL",
    reads=[contestants],
    writes=[kept],
)
def validate(tx: Transaction, phone: int, contestant: int) -> list[dict[str, Any]]:
    """Keep a vote, and say whether it was good."""
    good = bool(tx.query(voter_sql.KNOWN, (contestant,)))
    good = good and tx.execute(voter_sql.KEEP, (phone, contestant)) == 1
    return [{"good": int(good)}]


@flow.call(
    arguments="phone INTEGER NOT NULL, contestant INTEGER NOT NULL",
    reads=[contestants],
    writes=[counts, totals, leaders, recent, trending],
)
def maintain(tx: Transaction, phone: int, contestant: int) -> None:
    """Count a vote, and rank."""
    tx.execute(voter_sql.COUNT, (contestant,))
    tx.execute(voter_sql.COUNT_ALL)
    (total,) = tx.query(voter_sql.TOTAL)
    tx.execute(voter_sql.ENTER, (total["votes"], phone, contestant))
    tx.execute(voter_sql.ENTER_COUNT, (contestant,))
    for gone in tx.query(voter_sql.LEAVE, (total["votes"] - WINDOW,)):
        tx.execute(voter_sql.LEAVE_COUNT, (gone["contestant"],))
    for sql in (voter_sql.CLEAR, voter_sql.TOP, voter_sql.BOTTOM, voter_sql.TRENDING):
        tx.execute(sql)


@flow.call(writes=[contestants, kept, counts, totals, leaders])
def remove(tx: Transaction) -> None:
    """After every thousandth vote, remove the last one."""
    (total,) = tx.query(voter_sql.TOTAL)
    if total["votes"] % VOTES_A_REMOVAL:
        return
    last = tx.query(voter_sql.LAST)
    if len(last) > 1:
        for sql in voter_sql.REMOVE:
            tx.execute(sql, (last[0]["contestant"],))
