"""The tables of the union: trades, added up and by key, of any size; each batch is one tuple."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from api.calibrate import Calibration
from api.catalogue import Catalogue
from api.costs import Rates
from api.cut import Freshness, Moment
from api.island import Asked, Island, Setting
from api.plans import Plan
from bench.harness import timed
from bench.migrate_ours import Moving, anew, moving
from bench.ours import FILE, Ours, arrivals
from etl_procs import Batch, Dataflow, Transaction, by_count
from headrace.clock import SystemClock
from migrations.warehouse import DEFAULT, Warehouse

BATCHES = 100
"""So many make up a table, so that each is a hundredth of it."""
COLUMNS = """\
id INTEGER NOT NULL, account INTEGER NOT NULL, symbol TEXT NOT NULL, price NUMERIC(8,2) NOT NULL,
quantity INTEGER NOT NULL, at TIMESTAMP NOT NULL"""
SYMBOLS, ACCOUNTS = 50, 997
TIMEOUT_MS = 600_000
KNOWN = Rates()
"""Those that an API has where nobody has measured others."""

union = Dataflow("union_of")
parts = union.stream("parts", "first INTEGER NOT NULL, rows INTEGER NOT NULL", batches=by_count(1))
trades = union.outlet("trades", COLUMNS)
latest = union.outlet("latest", COLUMNS, key="id")


@union.procedure(takes=parts, gives=[trades, latest])
def give(tx: Transaction, batch: Batch) -> None:
    """Give a part of both tables."""
    for row in batch.rows():
        made = rows(int(row["first"] or 0), int(row["rows"] or 0))
        tx.emit(trades, made)
        tx.emit(latest, made)


def rows(first: int, count: int) -> pa.Table:
    """Make trades, from a number on."""
    ids = np.arange(first, first + count)
    cents = pa.array((ids * 7919 % 1_000_000).astype("float64"))
    columns = {
        "id": ids,
        "account": ids % ACCOUNTS,
        "symbol": pa.array([f"SYM{n:02}" for n in ids % SYMBOLS]),
        "price": pc.cast(
            pc.divide(cents, 100.0), trades.columns.arrow.field("price").type, safe=False
        ),
        "quantity": ids % 500 + 1,
        "at": pa.array(ids * 1_000_000, pa.timestamp("us")),
    }
    return pa.table(columns, schema=trades.columns.arrow)


class Took(NamedTuple):
    """What a query took, and how it was answered."""

    seconds: float
    plan: Plan
    table: pa.Table


class Union:
    """Tables of which a part is staged, and the rest is merged."""

    def __init__(self, island: Island, moving: Moving, flow: Dataflow) -> None:
        self.island = island
        self._moving = moving
        self._flow = flow
        self._staged = BATCHES

    def stage_only(self, percent: int) -> None:
        """Move rows on until only so many are staged: there is no way back."""
        while self._staged > percent:
            self._moving.push_once(self._flow, self._staged - percent)
            self._staged = percent
        self._moving.merge(self._flow)
        self._moving.connection.execute("ANALYZE")

    def ask(self, sql: str, plan: Plan | None = None) -> Took:
        """Ask for all rows, as Arrow."""
        with timed() as seconds, self.island.answer(asked(sql, plan)) as answer:
            batches = list(answer.batches)
        table = pa.Table.from_batches(batches)
        return Took(seconds(), Plan(answer.head.plan), table)

    def explain(self, sql: str) -> float:
        """Tell how long it takes to plan a query."""
        with timed() as seconds:
            self.island.explain(asked(sql))
        return seconds()


def calibrated(url: str) -> Rates:
    """Measure the rates by which plans are chosen, as `headrace calibrate` does."""
    with closing(Calibration(Warehouse(DEFAULT, url), SystemClock())) as calibration:
        return calibration.rates()


def asked(sql: str, plan: Plan | None = None) -> Asked:
    """Ask for what is staged, too."""
    return Asked(sql, (), Moment(Freshness.STAGED), TIMEOUT_MS, plan)


@contextmanager
def staged(folder: Path, url: str, count: int, rates: Rates = KNOWN) -> Iterator[Union]:
    """Stage tables of so many rows."""
    each = count // BATCHES
    with Ours(folder, union, "strong", group=1) as ours:
        ours.feed(arrivals(parts, [(number * each, each) for number in range(BATCHES)]))
    with over(folder, url, union, rates) as opened:
        yield opened


@contextmanager
def over(folder: Path, url: str, flow: Dataflow, rates: Rates = KNOWN) -> Iterator[Union]:
    """Open the tables of a dataflow, all of which a core has staged."""
    with ExitStack() as opened:
        move = opened.enter_context(moving(folder, url))
        anew(move.connection, flow)
        move.origin.feed(flow.name, [DEFAULT])
        catalogue = Catalogue.of({flow.name: flow})
        island = Island(Setting((Warehouse(DEFAULT, url),), (folder / FILE,), catalogue, rates))
        opened.callback(island.close)
        yield Union(island, move, flow)
