"""Ours beside the peers: a core that has staged the changes, and the push that moves them.

    python -m bench.migrate_ours ORIGIN URL CRASH_AT

is one that pushes into tables that are there, and kills itself with SIGKILL at a crash point.
"""

import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from bench import ingest_data, migrate_state
from bench.harness import copy, timed
from bench.ingest_data import COLUMNS, NAMES
from bench.migrate_changes import BATCH, Batch
from bench.ours import FILE, Ours, arrivals
from etl_procs import Batch as Tuples
from etl_procs import Dataflow, Transaction, by_count
from etl_procs.origin import Origin
from headrace import config
from headrace.crash import CrashPoints, Point
from migrations import warehouse
from migrations.push import Push

GONE = "gone"
POINTS = (Point.PUSH_COPY_AFTER, Point.PUSH_COMMIT_BEFORE, Point.PUSH_COMMIT_AFTER)
"""Where it is killed, in each run at one of them."""
HARMED_BATCHES = 10
"""So few go in a push that is killed, that there are many of them."""

changed, harmed = Dataflow("changed"), Dataflow("harmed")
INPUT = f"{COLUMNS}, {GONE} INTEGER NOT NULL"
changes = changed.stream("changes", INPUT, batches=by_count(BATCH))
harmed_changes = harmed.stream("changes", INPUT, batches=by_count(BATCH))
kept = changed.outlet(migrate_state.KEPT, COLUMNS, key="id")
harmed_kept = harmed.outlet(migrate_state.KEPT, COLUMNS, key="id")
harmed_history = harmed.outlet(migrate_state.HISTORY, COLUMNS)
NO_ROW = next(ingest_data.trades(1))


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


def push(
    place: Path, url: str, flow: Dataflow, batches_max: int, crash: CrashPoints | None = None
) -> float:
    """Push all that a core has staged; tell the seconds."""
    crash = crash or CrashPoints()
    with (
        closing(Origin(place / FILE, config.Core(), crash)) as origin,
        warehouse.connect(url, application="bench") as connection,
    ):
        pushing = Push(0, origin, crash, batches_max)
        with timed() as seconds:
            while pushing.run(connection, flow).more:
                pass
    return seconds()


def prepare(url: str, flow: Dataflow) -> None:
    """Make the tables of a dataflow anew."""
    with warehouse.connect(url, application="bench") as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {flow.name} CASCADE")
        connection.execute("DROP SCHEMA IF EXISTS headrace CASCADE")
        warehouse.prepare(connection, flow)


def pushed(url: str, origin: Path, place: Path) -> float:
    """Push what was staged once into empty tables; tell the seconds."""
    copy(origin, place)
    prepare(url, changed)
    return push(place, url, changed, config.Push().batches_max)


if __name__ == "__main__":
    staged_in, into, at = sys.argv[1:]
    push(Path(staged_in), into, harmed, HARMED_BATCHES, CrashPoints(at))
