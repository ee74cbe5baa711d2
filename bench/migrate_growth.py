"""What a push costs if main is big: the same operations, into mains of ten times as many rows."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import LiteralString, NamedTuple

from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench import ingest_data, migrate_filled, migrate_merge
from bench.harness import Result, Setup, copy, folder, in_turns_per, timed
from bench.ingest_data import NAMES
from bench.migrate_filled import BATCH, KEPT_MAIN, traded, trades
from bench.migrate_ours import HERE
from bench.ours import ARRIVE_ROWS, FILE, Ours, arrivals
from etl_procs.origin import Origin
from headrace import config
from headrace.crash import CrashPoints
from migrations import warehouse
from migrations.push import Push
from migrations.warehouse import Connection

TEN = 10
MAINS = 3
PUSHES = 3
"""In one turn: a push takes some hundredths of a second."""

GROW: LiteralString = """\
INSERT INTO {main} SELECT id + step * %(rows)s, {others} FROM {main}, generate_series(1, 9) AS step
"""


class Into(NamedTuple):
    """A push into a warehouse."""

    push: Push
    connection: Connection


def run(setup: Setup, conninfo: str) -> Result:
    """Push into each main in turns."""
    smallest = setup.size(full=100_000, quick=10_000)
    mains = [smallest * TEN**times for times in range(MAINS)]
    operations = BATCH * max(1, setup.size(full=10_000, quick=10_000) // BATCH)
    make(conninfo, mains)
    with folder(setup.folder, "origin") as origin, ExitStack() as opened:
        fill(origin, operations * (PUSHES * setup.rounds + 1))
        trials = {}
        for rows in mains:
            place = opened.enter_context(folder(setup.folder, "growth"))
            copy(origin, place)
            into = opened.enter_context(pushing(conninfo, rows, place, operations))
            push(into, operations)  # the first one compiles and connects
            trials[_size(rows)] = partial(pushed, into, operations)
        times = in_turns_per(trials, setup, PUSHES)
    small, *_, big = trials
    return Result(
        figures={f"push_into_{name}_us": times.us(name) for name in trials},
        peers={},
        ratios={"push_cost_10m_to_100k_main": times.ratios(small, big)},
        settings={"operations_of_a_push": operations, "mains": mains},
    )


def make(conninfo: str, mains: list[int]) -> None:
    """Make a database for each, of the one before."""
    smallest, *others = mains
    migrate_filled.make(conninfo, smallest, _name(smallest))
    names = sql.SQL(", ").join(sql.Identifier(name) for name in NAMES if name != "id")
    for before, rows in zip(mains, others, strict=False):
        migrate_merge.copy(conninfo, _name(before), _name(rows))
        with migrate_merge.connected(conninfo, _name(rows)) as connection:
            grow = sql.SQL(GROW).format(main=KEPT_MAIN, others=names)
            connection.execute(grow, {"rows": before})
            migrate_filled.analyze(connection, KEPT_MAIN)
            connection.execute("CHECKPOINT")


def fill(place: Path, operations: int) -> None:
    """Have a core stage so many."""
    with Ours(place, traded, "strong") as ours:
        for first in range(0, operations, ARRIVE_ROWS):
            some = list(ingest_data.trades(min(ARRIVE_ROWS, operations - first), first))
            ours.feed(arrivals(trades, some, first_offset=first))


@contextmanager
def pushing(conninfo: str, rows: int, place: Path, operations: int) -> Iterator[Into]:
    """Open a core for pushes of so many operations into the warehouse with so many rows."""
    url = make_conninfo(conninfo, dbname=_name(rows))
    crash = CrashPoints()
    with (
        closing(Origin(place / FILE, config.Core(), crash)) as origin,
        warehouse.connect(url, application="bench") as connection,
    ):
        origin.feed(traded.name, [HERE.name])
        yield Into(Push(0, HERE, origin, crash, operations // BATCH), connection)


def pushed(into: Into, operations: int, _place: Path) -> float:
    """Push a few times; tell the seconds of all of them."""
    with timed() as seconds:
        for _ in range(PUSHES):
            push(into, operations)
    return seconds()


def push(into: Into, operations: int) -> None:
    """Push what is next."""
    assert into.push.run(into.connection, traded).rows == operations


def _name(rows: int) -> str:
    return f"main_{rows}"


def _size(rows: int) -> str:
    """Write a number in short."""
    for unit, many in (("m", 1_000_000), ("k", 1_000)):
        if rows % many == 0:
            return f"{rows // many}{unit}"
    return str(rows)
