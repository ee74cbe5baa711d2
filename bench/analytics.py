"""Twenty analytic queries over TPC-DI's warehouse, a hundredth of it staged; and by peers.

The peers have everything merged: PostgreSQL; and over its tables, DuckDB attached to it by its own
extension, and another PostgreSQL that has them as foreign tables.
"""

import json
import re
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE, Popen
from typing import NamedTuple

import psycopg
import pyarrow as pa
from adbc_driver_postgresql import dbapi
from psycopg.conninfo import make_conninfo

from bench import analytics_foreign, peers_environment, postgres, union_table
from bench.harness import Figures, Result, Setup, copy, folder, timed
from bench.ours import Ours, arrivals
from bench.tpcdi import scaled
from bench.union_table import BATCHES, Union
from etl_procs import Batch, Dataflow, Transaction, by_count
from tpcdi import DERIVED, oracle, schema
from tpcdi.generate import generate

FULL, QUICK = 1.0, 0.05
SEED = 1
STAGED_PERCENT = 1
MERGED = "merged"
QUERIES: Mapping[str, str] = dict(
    re.findall(r"-- name: (\w+)\n(.*?);", Path(__file__).with_suffix(".sql").read_text(), re.DOTALL)
)
TO_MERGED = "analytics_to_merged_geomean"
SCHEMA = "analytics_main"
OURS, POSTGRES = "ours", "postgres"
DUCKDB, FOREIGN = "duckdb_attached", "postgres_foreign"
DUCKDB_PROGRAM = Path(__file__).parent / "analytics_duckdb.py"

Asks = Callable[[str], tuple[float, int, pa.Table | None]]
"""Asks a query; tells the seconds, how many rows there are, and the rows."""


class Made(NamedTuple):
    """The tables by the island, and where PostgreSQL has all of them merged."""

    tables: Union
    merged_url: str
    foreign_url: Callable[[], str]
    """Makes a database in which its tables are foreign ones, and tells where."""
    scale: float
    rows: int


def run(setup: Setup) -> Result:
    """Ask everybody each query, in turns."""
    with ExitStack() as opened:
        made = _made_twice(opened, setup)
        asks = {
            **_asks(opened, made),
            DUCKDB: opened.enter_context(_duckdb(made.merged_url)),
            FOREIGN: opened.enter_context(_postgres(made.foreign_url())),
        }
        plans = {name: made.tables.ask(sql).plan.value for name, sql in QUERIES.items()}
        _check(asks)
        seconds = _in_turns(asks, setup)
    return Result(
        figures=_figures(seconds, OURS),
        peers={who: _figures(seconds, who) for who in (POSTGRES, DUCKDB, FOREIGN)},
        ratios={TO_MERGED: _to_merged(seconds)},
        settings={
            "scale": made.scale,
            "rows": made.rows,
            "staged_percent": STAGED_PERCENT,
            "plans": plans,
            "queries": "bench/analytics.sql",
            "duckdb": "its extension reads PostgreSQL's tables by COPY; DuckDB 1.5.5, for which "
            "there is a package of it",
            "postgres_foreign": "postgres_fdw of the same version, with statistics of its own",
            "results": DERIVED,
        },
    )


def to_merged(setup: Setup) -> list[float]:
    """Tell of each round how many times as long as PostgreSQL we took, and ask nobody else."""
    with ExitStack() as opened:
        asks = _asks(opened, _made_twice(opened, setup))
        _check(asks)
        return _to_merged(_in_turns(asks, setup))


def _asks(opened: ExitStack, made: Made) -> dict[str, Asks]:
    merged = opened.enter_context(_postgres(made.merged_url))
    return {OURS: lambda sql: _of_ours(made.tables, sql), POSTGRES: merged}


def _made_twice(opened: ExitStack, setup: Setup) -> Made:
    """Make the warehouse twice: one of which a hundredth is staged, one with everything merged."""
    scale = scaled(setup, QUICK if setup.quick else FULL)
    place = opened.enter_context(folder(setup.folder, "warehouse"))
    conninfo = opened.enter_context(postgres.server(place))
    made = _made(place, scale)
    flow = flow_of(made)
    cores = place / "core", place / "core-of-merged"
    for core in cores:
        core.mkdir()
    with Ours(cores[0], flow, "strong", group=1) as ours:
        (stream,) = flow.borders
        ours.feed(arrivals(stream, [(number,) for number in range(BATCHES)]))
    copy(*cores)
    with psycopg.connect(conninfo, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {MERGED}")
    merged_url = postgres.url(make_conninfo(conninfo, dbname=MERGED))
    with union_table.over(cores[1], merged_url, flow) as whole:
        whole.stage_only(0)
    tables = opened.enter_context(union_table.over(cores[0], postgres.url(conninfo), flow))
    tables.stage_only(STAGED_PERCENT)
    foreign = partial(analytics_foreign.url, conninfo, MERGED, SCHEMA, place)
    return Made(tables, merged_url, foreign, scale, sum(table.num_rows for table in made.values()))


def _made(place: Path, scale: float) -> Mapping[str, pa.Table]:
    """Have the oracle compute the tables of a historical load."""
    with folder(place, "files") as files:
        generate(files / "tpcdi", scale, SEED)
        with oracle.compute(files / "tpcdi", batches=1) as computed:
            return {
                name: computed.sql(f"FROM oracle.{name}").to_arrow_table() for name in schema.TABLES
            }


def flow_of(made: Mapping[str, pa.Table]) -> Dataflow:
    """Define a dataflow whose batches are so many equal parts of tables."""
    flow = Dataflow("analytics")
    parts = flow.stream("parts", "number INTEGER NOT NULL", batches=by_count(1))
    outlets = {
        name: flow.outlet(name, table.columns, key=table.key, indexes=table.indexes)
        for name, table in schema.TABLES.items()
    }

    @flow.procedure(takes=parts, gives=list(outlets.values()))
    def give(tx: Transaction, batch: Batch) -> None:
        """Give a part of each table."""
        for row in batch.rows():
            number = int(row["number"] or 0)
            for name, outlet in outlets.items():
                rows = made[name]
                first, after = (rows.num_rows * n // BATCHES for n in (number, number + 1))
                part = rows.slice(first, after - first)
                tx.emit(outlet, part.cast(outlet.columns.arrow))

    return flow


def _of_ours(tables: Union, sql: str) -> tuple[float, int, pa.Table | None]:
    took = tables.ask(sql)
    return took.seconds, took.table.num_rows, took.table


@contextmanager
def _postgres(url: str) -> Iterator[Asks]:
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET search_path TO {SCHEMA}")

        def ask(sql: str) -> tuple[float, int, pa.Table | None]:
            with timed() as seconds:
                cursor.execute(sql)
                found = cursor.fetch_arrow_table()
            return seconds(), found.num_rows, found

        yield ask


@contextmanager
def _duckdb(url: str) -> Iterator[Asks]:
    """Run the peer's program; what it cannot answer is an error of the experiment."""
    program: list[str | Path] = [peers_environment.python(), DUCKDB_PROGRAM, url, SCHEMA]
    with Popen(program, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(sql: str) -> tuple[float, int, pa.Table | None]:
            print(json.dumps(sql), file=process.stdin, flush=True)
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert "error" not in told, told
            return told["seconds"], told["rows"], None

        yield ask


def _check(asks: Mapping[str, Asks]) -> None:
    """See that all give the same; what is asked first comes from the disk, too."""
    for name, sql in QUERIES.items():
        _, count, wanted = asks[POSTGRES](sql)
        _, _, ours = asks[OURS](sql)
        assert wanted is not None
        assert ours is not None
        assert _values(ours) == _values(wanted), name
        for peer in asks.keys() - {POSTGRES, OURS}:
            assert asks[peer](sql)[1] == count, (peer, name)


def _values(table: pa.Table) -> list[list[str]]:
    return [[str(value) for value in column.to_pylist()] for column in table.columns]


def _in_turns(asks: Mapping[str, Asks], setup: Setup) -> Mapping[tuple[str, str], list[float]]:
    seconds: dict[tuple[str, str], list[float]] = {
        (who, name): [] for who in asks for name in QUERIES
    }
    for turn in setup.turns():
        for name, sql in QUERIES.items():
            for who in asks if turn % 2 == 0 else reversed(list(asks)):
                seconds[who, name].append(asks[who](sql)[0])
    return seconds


def _to_merged(seconds: Mapping[tuple[str, str], list[float]]) -> list[float]:
    """Tell of each round how many times as long as PostgreSQL we took, as a geometric mean."""
    turns = range(min(map(len, seconds.values())))
    return [
        statistics.geometric_mean(
            seconds[OURS, name][turn] / seconds[POSTGRES, name][turn] for name in QUERIES
        )
        for turn in turns
    ]


def _figures(seconds: Mapping[tuple[str, str], list[float]], who: str) -> Figures:
    return {f"{name}_ms": 1e3 * statistics.median(seconds[who, name]) for name in QUERIES}
