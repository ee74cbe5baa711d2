"""What a push costs if main is big: the same operations, into mains of ten times as many rows."""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import LiteralString

from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench import migrate_mains
from bench.harness import Result, Setup, copy, folder, in_turns_per, timed
from bench.ingest_data import NAMES
from bench.migrate_mains import BATCH, KEPT_MAIN, traded
from bench.migrate_ours import HERE, Moving, moving, stage_trades
from bench.ours import Ours

TEN = 10
MAINS = 3
PUSHES = 3
"""In one turn: a push takes some hundredths of a second."""

GROW: LiteralString = """\
INSERT INTO {main} SELECT id + step * %(rows)s, {others} FROM {main}, generate_series(1, 9) AS step
"""


def run(setup: Setup, conninfo: str) -> Result:
    """Push into each main in turns."""
    smallest = setup.size(full=100_000, quick=10_000)
    mains = [smallest * TEN**times for times in range(MAINS)]
    operations = BATCH * max(1, setup.size(full=10_000, quick=10_000) // BATCH)
    make(conninfo, mains)
    with folder(setup.folder, "origin") as origin, ExitStack() as opened:
        with Ours(origin, traded, "strong") as core:
            stage_trades(core, operations * (PUSHES * setup.rounds + 1))
        trials = {}
        for rows in mains:
            place = opened.enter_context(folder(setup.folder, "growth"))
            copy(origin, place)
            url = make_conninfo(conninfo, dbname=_name(rows))
            ours = opened.enter_context(moving(place, url))
            ours.origin.feed(traded.name, [HERE.name])
            push(ours, operations)  # the first one compiles and connects
            trials[_size(rows)] = partial(pushed, ours, operations)
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
    migrate_mains.make(conninfo, smallest, _name(smallest))
    names = sql.SQL(", ").join(sql.Identifier(name) for name in NAMES if name != "id")
    for before, rows in zip(mains, others, strict=False):
        migrate_mains.copy(conninfo, _name(before), _name(rows))
        with migrate_mains.connected(conninfo, _name(rows)) as connection:
            grow = sql.SQL(GROW).format(main=KEPT_MAIN, others=names)
            connection.execute(grow, {"rows": before})
            migrate_mains.analyze(connection, KEPT_MAIN)
            connection.execute("CHECKPOINT")


def pushed(ours: Moving, operations: int, _place: Path) -> float:
    """Push a few times; tell the seconds of all of them."""
    with timed() as seconds:
        for _ in range(PUSHES):
            push(ours, operations)
    return seconds()


def push(ours: Moving, operations: int) -> None:
    """Push what is next."""
    assert ours.push_once(traded, operations // BATCH).rows == operations


def _name(rows: int) -> str:
    return f"main_{rows}"


def _size(rows: int) -> str:
    """Write a number in short."""
    for unit, many in (("m", 1_000_000), ("k", 1_000)):
        if rows % many == 0:
            return f"{rows // many}{unit}"
    return str(rows)
