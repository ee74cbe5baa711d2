"""A small dataflow for tests that need rows in a real core, and nothing of Kafka or Spark.

Each tuple goes to the outlet `sales`; one with a negative price to `refunds` as well.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trial import Trial

from api.catalogue import Catalogue
from api.cut import Freshness
from api.island import Island
from etl_procs.batch import Batch
from etl_procs.core import core_path
from etl_procs.dataflow import Dataflow
from etl_procs.origin import Origin
from etl_procs.reader import Reader
from etl_procs.rules import by_punctuation
from etl_procs.transaction import Transaction
from headrace import config
from headrace.crash import CrashPoints
from migrations import warehouse
from migrations.merge import Merging
from migrations.push import Push, Pushed
from migrations.warehouse import DEFAULT, Warehouse

HERE = Warehouse(DEFAULT, "")
"""The warehouse of a test: it is connected already."""

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


class Warehoused(Trial):
    """A core in a data folder of its own, whose outlets are pushed to a warehouse."""

    def __init__(self, home: Path, flow: Dataflow) -> None:
        super().__init__(core_path(home), flow)
        self.home = home

        self.origin = Origin(self.path, config.Core(), CrashPoints())
        self.origin.feed(flow.name, [HERE.name])

    def close(self) -> None:
        self.origin.close()
        super().close()

    def keep(self, seconds: int) -> None:
        """Keep batches for so long after every warehouse has confirmed them."""
        self.origin.close()
        self.origin = Origin(self.path, config.Core(keep_s=seconds), CrashPoints())

    def a_push(self, batches_max: int = 1_000, *, crash_at: str = "") -> Push:
        return Push(0, HERE, self.origin, CrashPoints(crash_at), batches_max)

    def push(self, connection: warehouse.Connection, batches_max: int = 1_000) -> Pushed:
        return self.a_push(batches_max).run(connection, self.flows[0])

    def merge(self, connection: warehouse.Connection, crash_at: str = "") -> int:
        return Merging(HERE, CrashPoints(crash_at)).run(connection, self.flows[0])


class Shop(Warehoused):
    """A core with the dataflow, fed by hand."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, flow)

    def sell(self, *sales: Sale) -> None:
        """Commit one batch."""
        self.run(orders, sales)

    def sell_all(self, batches: Sequence[Sequence[Sale]]) -> None:
        """Commit batch after batch."""
        self.run(orders, *batches)

    def unsent(self) -> int:
        """Count the rows of `sales` that the core still holds."""
        return len(self.staged(sales))


def island_over(
    url: str, reader: Reader, *more: Dataflow, timeout_ms: int = 10_000, rows_max: int = 1_000
) -> Island:
    """Make an island that knows this dataflow, and more."""
    catalogue = Catalogue({known.name: known for known in (flow, *more)})
    here = Warehouse(DEFAULT, url)
    return Island([here], [reader.path], catalogue, timeout_ms=timeout_ms, rows_max=rows_max)


def ask(island: Island, sql: str, freshness: Freshness = Freshness.STAGED) -> list[tuple[Any, ...]]:
    return list(island.query(sql, freshness).rows)
