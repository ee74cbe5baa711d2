"""A small dataflow for tests that need rows in a real core, and nothing of Kafka or Spark.

Each tuple goes to the outlet `sales`; one with a negative price to `refunds` as well.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flows import ended

from api.catalogue import Catalogue
from api.cut import Freshness
from api.island import Island
from etl_procs.batch import Batch
from etl_procs.core import Core, core_path
from etl_procs.dataflow import Dataflow
from etl_procs.reader import Reader
from etl_procs.rules import by_punctuation
from etl_procs.transaction import Transaction
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints
from migrations import warehouse
from migrations.push import Push, Pushed

flow = Dataflow("shop")
orders = flow.stream(
    "orders", "id INTEGER NOT NULL, price REAL, note TEXT", batches=by_punctuation()
)
sales = flow.outlet("sales", "id INTEGER NOT NULL, price REAL, note TEXT")
refunds = flow.outlet("refunds", "id INTEGER NOT NULL")

Sale = tuple[int, float | None, str | None]


@flow.procedure(takes=orders, gives=[sales, refunds])
def sell(tx: Transaction, batch: Batch) -> None:
    tx.emit(sales, batch.table)
    prices = ((row["id"], row["price"]) for row in batch.rows())
    tx.emit(refunds, [{"id": n} for n, price in prices if isinstance(price, float) and price < 0])


class Shop:
    """A core with the dataflow, fed by hand."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.core = Core(
            core_path(home), settings=config.Core(), clock=SystemClock(), crash=CrashPoints()
        )
        self.core.prepare([flow])
        self.core.open(flow.name, {orders.name: [0]})
        self.reader = Reader(core_path(home))

    def sell(self, *sales: Sale) -> None:
        """Commit one batch."""
        self.sell_all([sales])

    def sell_all(self, batches: Sequence[Sequence[Sale]]) -> None:
        """Commit batch after batch."""
        first = self.core.positions(orders).get(0, 0)
        with self.reader.snapshot() as snapshot:
            last = snapshot.batch("shop")
        for number, batch in enumerate(batches, last + 1):
            self.core.feed(ended(orders, batch, batch=number, first=first))
            first += len(batch) + 1
        committed = self.core.drain()
        assert not batches or committed[-1].through == last + len(batches)

    def a_push(self, batches_max: int = 1_000, *, crash_at: str = "") -> Push:
        return Push(self.reader, self.core.forget, CrashPoints(crash_at), batches_max)

    def push(self, connection: warehouse.Connection, batches_max: int = 1_000) -> Pushed:
        return self.a_push(batches_max).run(connection, flow)

    def staged(self) -> int:
        """Count the rows of `sales` that the core still holds."""
        with self.reader.snapshot() as snapshot:
            through = snapshot.batch("shop")
            return sum(rows.num_rows for rows in snapshot.staged(sales, after=0, through=through))

    def close(self) -> None:
        self.core.close()


def island_over(
    url: str, reader: Reader, *more: Dataflow, timeout_ms: int = 10_000, rows_max: int = 1_000
) -> Island:
    """Make an island that knows this dataflow, and more."""
    catalogue = Catalogue({known.name: known for known in (flow, *more)})
    return Island(url, reader, catalogue, timeout_ms=timeout_ms, rows_max=rows_max)


def ask(island: Island, sql: str, freshness: Freshness = Freshness.STAGED) -> list[tuple[Any, ...]]:
    return list(island.query(sql, freshness).rows)
