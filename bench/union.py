"""One table in two places: whether what is staged is shipped to the rest, or each computes a part.

It is the query island's experiment: tables of which 0 to 100 % is staged, by either plan and by the
one that the island chooses; beside it, PostgreSQL alone with all of it merged.
"""

import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import count
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_postgresql import dbapi

from api import costs
from api.plans import Plan
from bench import analytics, postgres, union_table
from bench.harness import Figures, Result, Setup, folder, timed
from bench.union_table import BATCHES, Union, calibrated, staged

SMALL, LARGE = 200_000, 5_000_000
PERCENT, PERCENT_QUICK = (100, 90, 75, 50, 25, 10, 5, 1, 0), (100, 50, 5, 1, 0)
SCAN = "scan"
SHAPES: Mapping[str, str] = {
    SCAN: "SELECT * FROM trades",
    "filter": "SELECT id, price FROM trades WHERE account = 5",
    "aggregate": "SELECT symbol, count(*), sum(price), avg(quantity) FROM trades GROUP BY symbol",
    "top": "SELECT id, price FROM trades ORDER BY price DESC, id LIMIT 10",
    "keyed_scan": "SELECT * FROM latest",
    "keyed_aggregate": "SELECT symbol, count(*), sum(price) FROM latest GROUP BY symbol",
}
SHAPES_LARGE = (SCAN, "aggregate")
FETCH, MAIN = "fetch_to_pushdown", "main_to_postgres"
"""Ratios of the largest table; and of each, with its size."""
PUSHED_DOWN = "SELECT count(*), sum(price), avg(quantity) FROM trades"
PUSHED_AT = 5
"""Per cent that are staged when pushing down is compared with fetching."""
PLANNED = 200


class Point(NamedTuple):
    """A query over a table of which so much is staged."""

    shape: str
    percent: int
    size: int

    @property
    def name(self) -> str:
        """Name it, as a key of figures begins."""
        return f"{self.shape}_of_{self.size}_at_{self.percent}"


def run(setup: Setup) -> Result:
    """Measure at each share, from all staged to nothing."""
    analytic = analytics.to_merged(setup)  # first: a quick run has fewer rounds of the rest for it
    small, large = setup.size(SMALL, SMALL), setup.size(LARGE, 0)
    seconds: dict[Point, dict[Plan, float]] = {}
    chosen: dict[Point, Plan] = {}
    ratios: dict[str, list[float]] = {}
    figures: Figures = {}
    peers: dict[str, Figures] = {"postgres": {}}
    rates: dict[int, Mapping[str, float]] = {}
    for size, shapes in ((small, tuple(SHAPES)), *(((large, SHAPES_LARGE),) * (not setup.quick))):
        with ExitStack() as opened:
            place = opened.enter_context(folder(setup.folder, "core"))
            conninfo = opened.enter_context(postgres.server(place))
            url = postgres.url(conninfo)
            measured = calibrated(url)
            rates[size] = costs.written(measured)
            table = opened.enter_context(staged(place, url, max(size, BATCHES), measured))
            for percent in PERCENT_QUICK if setup.quick else PERCENT:
                table.stage_only(percent)
                for shape in shapes:
                    point = Point(shape, percent, size)
                    seconds[point], chosen[point] = by_plans(table, SHAPES[shape], setup)
                if percent == PUSHED_AT:
                    pushed = fetched_to_pushed(table, setup)
                    ratios |= {FETCH: pushed, f"{FETCH}_of_{size}": pushed}
                    figures |= planning(table)
            plain, ours = beside_postgres(table, url, setup)
            at_main = [o / p for o, p in zip(ours, plain[SCAN], strict=True)]
            ratios |= {MAIN: at_main, f"{MAIN}_of_{size}": at_main}
            peers["postgres"] |= {
                f"{name}_of_{size}_ms": 1e3 * statistics.median(took)
                for name, took in plain.items()
            }
    worst = max(
        of[chosen[point]] / min(of.values()) for point, of in seconds.items() if len(of) > 1
    )
    return Result(
        figures={
            **figures,
            **{
                f"{point.name}_{plan.value}_ms": 1e3 * took
                for point, of in seconds.items()
                for plan, took in of.items()
            },
        },
        peers=peers,
        ratios={
            **ratios,
            "choice_to_best_worst_case": [worst],
            analytics.TO_MERGED: analytic,
        },
        settings={
            "sizes": [small] if setup.quick else [small, large],
            "shapes": dict(SHAPES),
            "pushed_down": PUSHED_DOWN,
            "pushed_down_at_percent": PUSHED_AT,
            "planned": PLANNED,
            "chosen": {point.name: plan.value for point, plan in chosen.items()},
            "rates": {str(size): of for size, of in rates.items()},
            "analytics": "its ratio is that of `bench analytics`, which tells more",
            "format": "Arrow",
        },
    )


def by_plans(table: Union, sql: str, setup: Setup) -> tuple[dict[Plan, float], Plan]:
    """Ask by each plan that can be, in turns, and see that all give the same rows."""
    found = [table.ask(sql, plan) for plan in (Plan.SHIP, Plan.SPLIT)]
    plans = list(dict.fromkeys(took.plan for took in found))
    first, *others = (took.table.num_rows for took in found)
    assert all(other == first for other in others), f"{sql}: the plans give other rows"
    times: dict[Plan, list[float]] = {plan: [] for plan in plans}
    for turn in setup.turns():
        for plan in plans if turn % 2 == 0 else reversed(plans):
            times[plan].append(table.ask(sql, plan).seconds)
    return {plan: statistics.median(of) for plan, of in times.items()}, table.ask(sql).plan


def fetched_to_pushed(table: Union, setup: Setup) -> list[float]:
    """Compare an aggregate of parts with fetching all rows and aggregating them here."""
    ratios = []
    for _ in setup.turns():
        with timed() as seconds:
            rows = table.ask(SHAPES[SCAN]).table
            total = pc.sum(pc.cast(rows["price"], pa.decimal128(38, 2)))
            pc.mean(rows["quantity"])
        pushed = table.ask(PUSHED_DOWN)
        ((counted, summed, _),) = _rows(pushed.table)
        assert (counted, summed) == (len(rows), str(total))
        ratios.append(seconds() / pushed.seconds)
    return ratios


def planning(table: Union) -> Figures:
    """Plan queries that nobody has asked before."""
    numbers = count()
    took = [
        table.explain(
            f"SELECT symbol, count(*), sum(price) FROM trades WHERE account = {next(numbers)} "  # noqa: S608
            "GROUP BY symbol ORDER BY 2 DESC LIMIT 3"
        )
        for _ in range(PLANNED)
    ]
    return {"planning_ms_p50": 1e3 * statistics.median(took)}


def beside_postgres(
    table: Union, url: str, setup: Setup
) -> tuple[dict[str, list[float]], list[float]]:
    """Ask PostgreSQL alone for all rows, and for the aggregate; in turns with ours, for all rows.

    How many times faster the one is than the other there, no division of it can surpass by far.
    """
    plain: dict[str, list[float]] = {SCAN: [], "pushed_down": []}
    ours = []
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET search_path TO {union_table.union.name}_main")
        for _ in setup.turns():
            counts = []
            for name, sql in ((SCAN, SHAPES[SCAN]), ("pushed_down", PUSHED_DOWN)):
                with timed() as seconds:
                    cursor.execute(sql)
                    counts.append(cursor.fetch_arrow_table().num_rows)
                plain[name].append(seconds())
            took = table.ask(SHAPES[SCAN])
            assert took.table.num_rows == counts[0]
            ours.append(took.seconds)
    return plain, ours


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    columns = table.to_pydict().values()
    return sorted(zip(*columns, strict=True), key=repr)
