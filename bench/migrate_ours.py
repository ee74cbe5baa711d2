"""Ours beside the peers: a core that has staged the changes; the push, and the merge.

    python -m bench.migrate_ours ORIGIN URL CRASH_AT

is one that pushes and merges into tables that are there, and kills itself with SIGKILL at a crash
point.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bench import ingest_data, migrate_state
from bench.harness import copy, timed
from bench.ingest_data import COLUMNS, NAMES
from bench.migrate_changes import BATCH, Batch
from bench.ours import ARRIVE_ROWS, FILE, Ours, arrivals
from etl_procs import Batch as Tuples
from etl_procs import Dataflow, Transaction, by_count
from etl_procs.origin import Origin
from headrace import config
from headrace.crash import CrashPoints, Point
from migrations import layout, tables, warehouse
from migrations.merge import Merging
from migrations.push import Push, Pushed
from migrations.warehouse import DEFAULT, Connection, Warehouse

GONE = "gone"
POINTS = tuple(point for point in Point if point.value.startswith(("push.", "merge.")))
"""Where it is killed, in each run at one of them."""
WORST = (Point.PUSH_COMMIT_AFTER, Point.MERGE_COMMIT_AFTER)
"""Where PostgreSQL has committed, and nobody knows it yet."""
HARMED_BATCHES = 10
"""So few go in a push that is killed, that there are many of them."""

HERE = Warehouse(DEFAULT, "")

changed, harmed = Dataflow("changed"), Dataflow("harmed")
INPUT = f"{COLUMNS}, {GONE} INTEGER NOT NULL"
changes = changed.stream("changes", INPUT, batches=by_count(BATCH))
harmed_changes = harmed.stream("changes", INPUT, batches=by_count(BATCH))
kept = changed.outlet(migrate_state.KEPT, COLUMNS, key="id")
harmed_kept = harmed.outlet(migrate_state.KEPT, COLUMNS, key="id")
harmed_history = harmed.outlet(migrate_state.HISTORY, COLUMNS)
NO_ROW = next(ingest_data.trades(1))


class Moving(NamedTuple):
    """A core, and the warehouse that it is pushed into and merged in."""

    connection: Connection
    origin: Origin
    crash: CrashPoints

    def push(self, flow: Dataflow) -> None:
        """Push all that is staged."""
        while self.push_once(flow, config.Push().batches_max).more:
            pass

    def push_once(self, flow: Dataflow, batches_max: int) -> Pushed:
        """Push so many batches."""
        pushing = Push(0, HERE, self.origin, self.crash, batches_max)
        return pushing.run(self.connection, flow)

    def merge(self, flow: Dataflow) -> None:
        """Merge what has arrived."""
        Merging(HERE, self.crash).run(self.connection, flow)


@changed.procedure(takes=changes, gives=kept)
def keep(tx: Transaction, batch: Tuples) -> None:
    """Replace and delete rows; a key is once in a batch."""
    new, gone = divided(batch.table)
    tx.emit(kept, new)
    tx.delete(kept, gone)


@harmed.procedure(takes=harmed_changes, gives=[harmed_kept, harmed_history])
def record(tx: Transaction, batch: Tuples) -> None:
    """Do that, and keep every row that there was."""
    new, gone = divided(batch.table)
    tx.emit(harmed_kept, new)
    tx.delete(harmed_kept, gone)
    tx.emit(harmed_history, new)


def divided(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Tell new rows from the keys of deleted ones."""
    is_gone = pc.equal(table[GONE], 1)
    return table.filter(pc.invert(is_gone)).select(list(NAMES)), table.filter(is_gone).select(
        ["id"]
    )


def stage(place: Path, flow: Dataflow, batches: Iterable[Batch]) -> None:
    """Have a core stage changes for a dataflow."""
    (stream,) = flow.borders
    rows = [
        (*(c.row or (c.key, c.number, *NO_ROW[2:])), int(c.row is None))
        for batch in batches
        for c in batch
    ]
    with Ours(place, flow, "strong") as ours:
        ours.feed(arrivals(stream, rows))


def stage_trades(ours: Ours, rows: int, start: int = 0) -> None:
    """Have a core stage so many trades, from a number on."""
    (stream,) = ours.flow.borders
    for first in range(start, start + rows, ARRIVE_ROWS):
        some = list(ingest_data.trades(min(ARRIVE_ROWS, start + rows - first), first))
        ours.feed(arrivals(stream, some, first_offset=first))


@contextmanager
def moving(place: Path, url: str, crash: CrashPoints | None = None) -> Iterator[Moving]:
    """Open a core that a warehouse is fed from."""
    crash = crash or CrashPoints()
    with (
        closing(Origin(place / FILE, config.Core(), crash)) as origin,
        warehouse.connect(url, application="bench") as connection,
    ):
        yield Moving(connection, origin, crash)


def prepare(url: str, flow: Dataflow, origin: Path) -> None:
    """Make the tables of a dataflow anew, and have a core keep its batches for them."""
    with moving(origin, url) as ours:
        anew(ours.connection, flow)
        ours.origin.feed(flow.name, [HERE.name])


def anew(connection: Connection, flow: Dataflow) -> None:
    """Make the tables of a dataflow, where nothing is of it or of any other."""
    for schema in (*tables.schemas(flow.name), "headrace"):
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    layout.prepare(connection, HERE, flow)


def pushed(url: str, origin: Path, place: Path, flow: Dataflow = changed) -> float:
    """Push what was staged once into empty tables; tell the seconds."""
    copy(origin, place)
    prepare(url, flow, place)
    with moving(place, url) as ours, timed() as seconds:
        ours.push(flow)
    return seconds()


def pushed_and_merged(url: str, origin: Path, place: Path) -> float:
    """Push it, and merge it into main; tell the seconds."""
    copy(origin, place)
    prepare(url, changed, place)
    with moving(place, url) as ours, timed() as seconds:
        ours.push(changed)
        ours.merge(changed)
    return seconds()


def end(place: Path, url: str, at: str = "") -> None:
    """Push a little and merge it, again and again, until all is merged; or die at a crash point."""
    with moving(place, url, CrashPoints(at)) as ours:
        more = True
        while more:
            more = ours.push_once(harmed, HARMED_BATCHES).more
            ours.merge(harmed)


if __name__ == "__main__":
    end(Path(sys.argv[1]), *sys.argv[2:])
