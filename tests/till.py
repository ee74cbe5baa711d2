"""A till: what is sold and what comes back, settled together, and calls on what is in it.

`settle` takes a batch of both streams. It fails for as long as the till is jammed, which a call
says, and rejects what has no price.
"""

from pathlib import Path

from flows import undecoded
from trial import Trial

from etl_procs import Batch, Dataflow, Stream, Transaction, by_punctuation
from etl_procs.calls import Caller
from etl_procs.core import core_path
from headrace.config import Core as Settings
from headrace.crash import CrashPoints

FILE = Path(__file__)

flow = Dataflow("till")
sold = flow.stream("sold", "item TEXT NOT NULL, cents INTEGER", batches=by_punctuation())
returned = flow.stream("returned", "item TEXT NOT NULL, cents INTEGER", batches=by_punctuation())
till = flow.table("till", "cents INTEGER NOT NULL, jammed INTEGER NOT NULL", rows=[(0, 0)])
owed = flow.table("owed", "item TEXT NOT NULL", parks=True)
settled = flow.outlet("settled", "batch INTEGER NOT NULL, cents INTEGER NOT NULL")


@flow.procedure(takes=[sold, returned], writes=[till, owed], gives=[settled])
def settle(tx: Transaction, sales: Batch, returns: Batch) -> None:
    (state,) = tx.query("SELECT jammed FROM till")
    if state["jammed"]:
        raise ValueError("the till is jammed")
    cents = 0
    for sign, batch in ((1, sales), (-1, returns)):
        for row in batch.rows():
            if isinstance(row["cents"], int):
                cents += sign * row["cents"]
            else:
                tx.reject(row, "no price")
                tx.execute("INSERT INTO owed VALUES (?)", [row["item"]])
    tx.execute("UPDATE till SET cents = cents + ?", [cents])
    tx.emit(settled, [{"batch": tx.batch, "cents": cents}])


@flow.call(arguments="jammed INTEGER NOT NULL", writes=[till])
def jam(tx: Transaction, jammed: int) -> None:
    tx.execute("UPDATE till SET jammed = ?", [jammed])


@flow.call(
    arguments="cents INTEGER NOT NULL, share REAL, note TEXT",
    returns="cents INTEGER NOT NULL, note TEXT",
    writes=[till],
)
def put(tx: Transaction, cents: int, share: float | None, note: str | None) -> dict[str, object]:
    """Put money into the till, or a share of it, and tell what is in there."""
    tx.execute(
        "UPDATE till SET cents = cents + ?", [round(cents * (1.0 if share is None else share))]
    )
    (state,) = tx.query("SELECT cents FROM till")
    if int(state["cents"]) < 0:
        tx.abort("there is not enough in the till")
    return {"cents": state["cents"], "note": note}


@flow.call(returns="cents INTEGER NOT NULL", reads=[till])
def count(tx: Transaction) -> list[dict[str, object]]:
    """Count what is in the till."""
    return tx.query("SELECT cents FROM till")


@flow.call()
def drop(_tx: Transaction) -> None:
    raise ZeroDivisionError("the till fell down")


class Till(Trial):
    """A core of its own in a data folder, with its calls."""

    def __init__(self, home: Path) -> None:
        super().__init__(core_path(home), flow)
        self.home = home
        self.caller = Caller(self.path, {"till": flow}, Settings(), CrashPoints())

    def settle(
        self, sales: list[tuple[str, int | None]], returns: list[tuple[str, int | None]]
    ) -> None:
        """Let a batch of each stream arrive, and run it."""
        self.end(sold, sales)
        self.run(returned, returns)

    def jam(self, jammed: bool) -> None:
        self.caller.call("till", "jam", {"jammed": int(jammed)})

    def cents(self) -> int:
        """Tell what is in the till."""
        ((cents,),) = self.query("SELECT cents FROM till")
        assert isinstance(cents, int)
        return cents

    def garble(self, stream: Stream, value: bytes, reason: str) -> None:
        """Let a record arrive that does not decode."""
        self.give(undecoded(stream, value, reason, offset=self._first(stream, 1, 0)))

    def end_of_day(self) -> None:
        """Close all of it."""
        self.close()
        self.caller.close()
