"""Accounts that pay each other, and an alert: a call that writes down who has too little.

What all of them have is the same after every batch.
"""

from collections.abc import Sequence
from pathlib import Path

from shop import Warehoused

from etl_procs import Batch, Dataflow, Transaction, by_punctuation
from etl_procs.calls import Callers
from headrace import config
from headrace.crash import CrashPoints

FILE = Path(__file__)
EACH = 100
NAMES = ("ann", "bob", "cy")
IN_ALL = len(NAMES) * EACH

flow = Dataflow("alerting")
payments = flow.stream(
    "payments",
    "payer TEXT NOT NULL, payee TEXT NOT NULL, cents INTEGER NOT NULL",
    batches=by_punctuation(),
)
accounts = flow.table("accounts", "name TEXT PRIMARY KEY, cents INTEGER NOT NULL")
warned = flow.table("warned", "name TEXT NOT NULL, cents INTEGER NOT NULL")
balances = flow.outlet("balances", "name TEXT NOT NULL, cents INTEGER NOT NULL", key="name")
PAY = """\
INSERT INTO accounts VALUES (?, ?) ON CONFLICT DO UPDATE SET cents = cents + excluded.cents"""


@flow.procedure(takes=payments, writes=[accounts], gives=[balances])
def pay(tx: Transaction, batch: Batch) -> None:
    for row in batch.rows():
        tx.execute(PAY, [row["payer"], -int(str(row["cents"]))])
        tx.execute(PAY, [row["payee"], row["cents"]])
    tx.emit(balances, tx.query("SELECT name, cents FROM accounts WHERE name <> 'mint'"))


@flow.call(arguments="name TEXT NOT NULL, cents INTEGER NOT NULL", writes=[warned])
def warn(tx: Transaction, name: str, cents: int) -> None:
    """Write down that somebody was warned."""
    if name == "cy":
        tx.abort("cy does not listen")
    tx.execute("INSERT INTO warned VALUES (?, ?)", [name, cents])


class Accounts(Warehoused):
    """A core with the dataflow; its first batch gives everybody the same."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, flow)
        self.run(payments, [("mint", name, EACH) for name in NAMES])

    def pay(self, *batches: tuple[str, str, int] | Sequence[tuple[str, str, int]]) -> None:
        """Commit a batch for each payment, or for several of them."""
        self.run(payments, *[[one] if isinstance(one, tuple) else one for one in batches])

    def warned(self) -> list[tuple[str, int]]:
        """Give who was warned, and of what, in order."""
        return self.query("SELECT name, cents FROM warned ORDER BY rowid")

    def calls(self) -> Callers:
        """Make the calls of the dataflow."""
        known = {flow.name: flow}
        return Callers(self.home, known, config.Core(), CrashPoints())
