"""The voter as a client has to drive it that knows no streams: three calls a vote, each awaited.

Our own engine runs them, so what differs from the dataflow is who keeps the order.
"""

from typing import Any

from bench import voter_sql
from bench.voter_show import VOTES_A_REMOVAL, WINDOW
from etl_procs import Dataflow, Transaction

flow = Dataflow("voter_calls")

for _name, _columns in voter_sql.TABLES.items():
    flow.table(_name, _columns, rows=voter_sql.ROWS.get(_name, ()))
contestants, kept, counts, totals, leaders, recent, trending = flow.tables.values()


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
    for sql in voter_sql.RANK:
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
