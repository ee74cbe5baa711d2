"""A small dataflow for tests that need rows in a real core, and nothing of Kafka or Spark.

Each tuple goes to the outlet `sales`; one with a negative price to `refunds` as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from trial import Trial

from api.answer import Column
from api.catalogue import Catalogue
from api.cut import Freshness, Moment
from api.grant import Restriction
from api.island import Asked, Island, Setting
from api.parse import Parameter
from api.plans import Plan
from api.shims.postgres import Postgres
from etl_procs.batch import Batch
from etl_procs.core import core_path
from etl_procs.dataflow import Dataflow
from etl_procs.origin import Origin
from etl_procs.reader import Reader
from etl_procs.rules import by_punctuation
from etl_procs.transaction import Transaction
from headrace import config
from headrace.clock import Clock
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


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer, all of it, with the values that psycopg would give."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    as_of: dict[str, int]
    freshness: Freshness


class Answering(Island):
    """An island that is asked in this process, for whole answers."""

    opened: ClassVar[list["Answering"]] = []
    timeout_ms = 10_000
    tables: tuple[tuple[str, Restriction], ...] | None = None
    plan = Plan.WAREHOUSE
    """That of the last answer."""

    def query(
        self,
        sql: str,
        freshness: Freshness = Freshness.STAGED,
        parameters: tuple[Parameter, ...] = (),
        as_of: dict[str, int] | None = None,
        plan: Plan | None = None,
        max_lag_s: float | None = None,
    ) -> Whole:
        moment = Moment(freshness, as_of or {}, max_lag_s)
        asked = Asked(sql, parameters, moment, self.timeout_ms, plan, self.tables)
        with self.answer(asked) as answer:
            self.plan = Plan(answer.head.plan)
            columns = answer.head.columns
            rows = tuple(row for batch in answer.batches for row in _rows(columns, batch))
        return Whole(columns, rows, dict(answer.head.as_of), Freshness(answer.head.freshness))

    def query_of_session(self, sql: str) -> list[tuple[Any, ...]]:
        """Ask PostgreSQL in the session that queries are asked in."""
        (session,) = self._sessions
        assert isinstance(session, Postgres)
        columns = session.columns(sql)
        return [row for batch in session.rows(sql, columns) for row in _rows(columns, batch)]


def _rows(columns: Sequence[Column], batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    of = [
        [_value(column.type, value) for value in values.to_pylist()]
        for column, values in zip(columns, batch.columns, strict=True)
    ]
    return list(zip(*of, strict=True)) if of else [()] * batch.num_rows


def _value(type_: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_value(type_.removesuffix("[]"), one) for one in value]
    if isinstance(value, datetime) and value.tzinfo:
        return value.astimezone(UTC)
    return Decimal(value) if type_ == "numeric" and value is not None else value


def island_over(
    url: str,
    reader: Reader,
    *more: Dataflow,
    timeout_ms: int = 10_000,
    clock: Clock | None = None,
) -> Answering:
    """Make an island that knows this dataflow, and more."""
    catalogue = Catalogue.of({known.name: known for known in (flow, *more)})
    made = Answering(Setting((Warehouse(DEFAULT, url),), (reader.path,), catalogue), clock)
    made.timeout_ms = timeout_ms
    Answering.opened.append(made)
    return made


def ask(
    island: Answering, sql: str, freshness: Freshness = Freshness.STAGED
) -> list[tuple[Any, ...]]:
    return list(island.query(sql, freshness).rows)
