"""What a read of live costs while operations wait in delta, and while none do, beside one of main.

Two databases have the same rows: in one they are merged, and it is there that main is read.
"""

import statistics
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import LiteralString, NamedTuple

from psycopg import sql

from bench import migrate_mains, migrate_merging
from bench.harness import Result, Setup, Times, Trial, in_turns
from bench.migrate_mains import BASE, KEPT_MAIN, LOG_MAIN, NAMED, kept, log, logged, traded
from bench.migrate_merging import Sizes
from bench.migrate_ours import HERE
from bench.postgres import Connection
from etl_procs.model import Outlet
from headrace.crash import CrashPoints
from migrations import tables
from migrations.merge import Merging

GROUPS: LiteralString = (
    "SELECT kind, count(*), sum(quantity), avg(price) FROM {table} GROUP BY kind"
)
"""All rows in groups: the one that counts."""
READS: Mapping[str, LiteralString] = {
    "total": "SELECT count(*), sum(quantity), avg(price), max(id) FROM {table}",
    "count": "SELECT count(*) FROM {table}",
    "range": "SELECT sum(quantity) FROM {table} WHERE customer BETWEEN 5000 AND 5999",
}
"""All rows at once, their number, and a hundredth of them by the index."""
OF_KEYED = {**READS, "point": "SELECT * FROM {table} WHERE id = 4321"}
OF_APPENDED = {"groups": GROUPS, **READS}

MERGED = "merged"
LEAST_S = 0.05
"""A read is repeated for so long."""


class Case(NamedTuple):
    """A read, where operations wait or where they are merged."""

    read: LiteralString
    outlet: Outlet
    pending: Connection
    merged: Connection


def run(setup: Setup, conninfo: str) -> Result:
    """Read in turns."""
    size = Sizes(migrate_merging.sizes(setup).main, setup.size(full=100_000, quick=4_000))
    make(conninfo, size)
    with (
        migrate_mains.connected(conninfo, BASE) as pending,
        migrate_mains.connected(conninfo, MERGED) as merged,
    ):
        found = cases(pending, merged)
        check(pending, merged)
        times = in_turns(trials(found), setup)
    medians = {name: statistics.median(_cost(times, name)) for name in found}
    return Result(
        figures={f"live_to_main_{name}": cost for name, cost in medians.items() if name},
        peers={},
        ratios={"live_to_main": _cost(times, "")},
        settings={
            "rows_of_main": size.main,
            "operations_that_wait": size.delta,
            "live_to_main_reads": " ".join(GROUPS.format(table="live").split()),
        },
    )


def make(conninfo: str, size: Sizes) -> None:
    """Make both databases, of the one that the merges began with."""
    with migrate_mains.connected(conninfo, BASE) as base:
        migrate_mains.fill_delta(base, size.main, size.delta)
        migrate_mains.fill_log(base, size.main, size.delta)
    migrate_mains.copy(conninfo, BASE, MERGED)
    with migrate_mains.connected(conninfo, MERGED) as merged:
        for flow in (traded, logged):
            Merging(HERE, CrashPoints()).run(merged, flow)
        for main in (KEPT_MAIN, LOG_MAIN):
            migrate_mains.analyze(merged, main)


def cases(pending: Connection, merged: Connection) -> dict[str, Case]:
    """Name every read; the one that counts has no name."""
    return {
        "": Case(GROUPS, kept, pending, merged),
        "empty": Case(GROUPS, kept, merged, merged),
        **{name: Case(read, kept, pending, merged) for name, read in OF_KEYED.items()},
        **{
            f"append_{name}": Case(read, log, pending, merged) for name, read in OF_APPENDED.items()
        },
    }


def check(pending: Connection, merged: Connection) -> None:
    """See that both show the same; what is read first comes from the disk, too."""
    for outlet in (kept, log):
        live, main = _live(outlet), tables.identifier(tables.main(outlet))
        wanted = migrate_mains.summed(merged, main, NAMED)
        assert migrate_mains.summed(pending, live, NAMED) == wanted, outlet.name
        assert migrate_mains.summed(merged, live, NAMED) == wanted, outlet.name


def trials(found: Mapping[str, Case]) -> dict[str, Trial]:
    """Read live and then main, each by each."""
    reads: dict[str, Trial] = {}
    for name, case in found.items():
        main = tables.identifier(tables.main(case.outlet))
        reads[f"{name} live"] = partial(read, case.pending, case.read, _live(case.outlet))
        reads[f"{name} main"] = partial(read, case.merged, case.read, main)
    return reads


def read(
    connection: Connection, statement: LiteralString, table: sql.Identifier, _place: Path
) -> float:
    """Tell how long a read takes."""
    query = sql.SQL(statement).format(table=table)
    times, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < LEAST_S:
        connection.execute(query).fetchall()
        times += 1
    return took / times


def _cost(times: Times, name: str) -> list[float]:
    return times.ratios(f"{name} main", f"{name} live")


def _live(outlet: Outlet) -> sql.Identifier:
    return sql.Identifier(outlet.dataflow, outlet.name)
