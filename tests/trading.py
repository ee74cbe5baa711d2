"""Trades whose facts need the key of a dimension that lives in a warehouse."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from etl_procs import Batch, Dataflow, Strategy, Transaction, by_count
from etl_procs.errors import Unanswered

FILE = Path(__file__)


def trading(**more: Any) -> Dataflow:
    """Declare it; how the key is looked up is asked of the warehouse, unless it is said."""
    flow = Dataflow("trading")
    traded = flow.stream("traded", "b TEXT NOT NULL", batches=by_count(1))
    facts = flow.table("facts", "b TEXT NOT NULL, sk INTEGER")
    dim = flow.foreign("crm.dim", "sk INTEGER NOT NULL, b TEXT NOT NULL, d TEXT, UNIQUE (b, d)")
    how: dict[str, Any] = {"strategy": Strategy.WAREHOUSE, **more}
    found = flow.lookup("found", dim, key="b", at="d", gives="sk", **how)

    @flow.procedure(takes=traded, writes=facts, looks=found)
    def enter(tx: Transaction, batch: Batch) -> None:
        sks: list[Any] = [-1] * len(batch)
        with suppress(Unanswered):  # what a body makes of it does not count
            sks = tx.lookup(found, batch.table["b"], ["2026"] * len(batch))["sk"].to_pylist()
        pairs = zip(batch.table["b"].to_pylist(), sks, strict=True)
        tx.executemany("INSERT INTO facts VALUES (?, ?)", list(pairs))

    return flow


flow = trading()
