"""A small dataflow for tests that need rows in a real core, and nothing of Kafka or Spark.

Each tuple goes to the outlet `sales`; one with a negative price to `refunds` as well.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from etl_procs.batch import ARRIVAL, Arrived, Batch
from etl_procs.core import Core, core_path
from etl_procs.model import Dataflow
from etl_procs.reader import Reader
from etl_procs.transaction import Transaction
from headrace.clock import SystemClock
from headrace.crash import CrashPoints

flow = Dataflow("shop")
orders = flow.stream("orders", "id INTEGER NOT NULL, price REAL, note TEXT")
sales = flow.outlet("sales", "id INTEGER NOT NULL, price REAL, note TEXT")
refunds = flow.outlet("refunds", "id INTEGER NOT NULL")

Sale = tuple[int, float | None, str | None]


@flow.procedure(takes=orders, gives=[sales, refunds])
def sell(tx: Transaction, batch: Batch) -> None:
    tx.emit(sales, batch.table)
    tx.emit(refunds, [{"id": row["id"]} for row in batch.rows() if (row["price"] or 0) < 0])


class Shop:
    """A core with the dataflow, fed by hand."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.core = Core(core_path(home), clock=SystemClock(), crash=CrashPoints())
        self.core.prepare([flow])
        self.reader = Reader(core_path(home))

    def sell(self, *sales: Sale) -> None:
        """Commit one batch."""
        self.sell_all([sales])

    def sell_all(self, batches: Sequence[Sequence[Sale]]) -> None:
        """Commit batch after batch."""
        for batch in batches:
            start = self.core.positions("shop", orders.topic).get(0, 0)
            assert self.core.run(flow.procedures["sell"], _arrived(batch, start))

    def staged(self) -> int:
        """Count the rows of `sales` that the core still holds."""
        with self.reader.snapshot() as snapshot:
            through = snapshot.batch("shop")
            return sum(b.table.num_rows for b in snapshot.staged(sales, after=0, through=through))

    def close(self) -> None:
        self.core.close()


def _arrived(batch: Sequence[Sale], start: int) -> Arrived:
    count = len(batch)
    positions = {
        "_partition": [0] * count,
        "_offset": list(range(start, start + count)),
        "_value": [b""] * count,
        "_reason": [None] * count,
    }
    values = {
        name: [sale[index] for sale in batch] for index, name in enumerate(orders.columns.names)
    }
    schema = pa.schema([*ARRIVAL, *orders.columns.arrow])
    return Arrived(orders, pa.table({**positions, **values}, schema=schema))
