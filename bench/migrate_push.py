"""A push of much beside COPY of the same rows, encoded already; and of little, again and again."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
from psycopg import sql

from bench import ingest_data, migrate_ours
from bench.harness import Result, Setup, copy, folder, in_turns_per, timed
from bench.migrate_ours import HERE
from bench.ours import ARRIVE_ROWS, FILE, Ours, arrivals
from etl_procs import Batch, Dataflow, Transaction, by_count
from etl_procs.origin import Origin
from etl_procs.reader import Reader
from headrace import config
from headrace.crash import CrashPoints
from migrations import binary, layout, staged, tables, warehouse
from migrations.push import Push
from migrations.warehouse import Connection

BATCH = 100
moved = Dataflow("moved")
trades = moved.stream("trades", ingest_data.COLUMNS, batches=by_count(BATCH))
kept = moved.outlet("kept", ingest_data.COLUMNS)


@moved.procedure(takes=trades, gives=kept)
def keep(tx: Transaction, batch: Batch) -> None:
    """Stage all of it."""
    tx.emit(kept, batch.table)


def run(setup: Setup, conninfo: str) -> Result:
    """Push much at once, and little again and again."""
    rows = setup.size(full=1_000_000, quick=100_000)
    small = setup.size(full=1_000, quick=100)
    with folder(setup.folder, "origin") as origin:
        fill(origin, rows)
        with warehouse.connect(conninfo, application="bench") as connection:
            trials = {
                "ours": partial(pushed, connection, origin, rows),
                "copy": partial(copied, connection, encoded(origin), rows),
            }
            times = in_turns_per(trials, setup, rows)
            with folder(setup.folder, "small") as place:
                seconds = small_pushes(connection, place, small)
    return Result(
        figures={"push_rows_per_s": times.rate("ours"), "small_pushes_per_s": small / seconds},
        peers={"raw_copy": {"rows_per_s": times.rate("copy")}},
        ratios={"push_to_raw_copy": times.ratios("ours", "copy")},
        settings={
            "rows": rows,
            "columns": len(ingest_data.NAMES),
            "small_pushes": small,
            "rows_of_a_small_push": BATCH,
            "seed": ingest_data.SEED,
        },
    )


def fill(place: Path, rows: int) -> None:
    """Have a core stage so many rows."""
    with Ours(place, moved, "strong") as ours:
        for first in range(0, rows, ARRIVE_ROWS):
            some = list(ingest_data.trades(min(ARRIVE_ROWS, rows - first), first))
            ours.feed(arrivals(trades, some, first_offset=first))


@contextmanager
def pushing(connection: Connection, place: Path) -> Iterator[Push]:
    """Open a core for pushes into a warehouse that has nothing of it."""
    migrate_ours.anew(connection, moved)
    crash = CrashPoints()
    with closing(Origin(place / FILE, config.Core(), crash)) as origin:
        origin.feed(moved.name, [HERE.name])
        yield Push(0, HERE, origin, crash, config.Push().batches_max)


def pushed(connection: Connection, origin: Path, rows: int, place: Path) -> float:
    """Push all that a core has staged, until the core knows that it is there."""
    copy(origin, place)
    with pushing(connection, place) as push:
        with timed() as seconds:
            while push.run(connection, moved).more:
                pass
        assert count(connection) == rows
    return seconds()


def encoded(origin: Path) -> list[bytes]:
    """Encode what a core has staged, once for all."""
    with Reader(origin / FILE).snapshot() as snapshot:
        all_of_it = staged.Range(snapshot, 0, 0, snapshot.batch(moved.name))
        table = pa.concat_tables(staged.read(kept, all_of_it))
    return [bytes(part) for part in binary.encoded(table)]


def copied(connection: Connection, parts: list[bytes], rows: int, _place: Path) -> float:
    """COPY the same rows into the same table, and commit."""
    layout.prepare(connection, HERE, moved)
    table = tables.identifier(tables.delta(kept))
    connection.execute(sql.SQL("TRUNCATE {table}").format(table=table))
    columns = warehouse.names(tables.arrow(kept).names)
    statement = sql.SQL(staged.COPY).format(table=table, columns=columns)
    with (
        timed() as seconds,
        connection.transaction(),
        connection.cursor() as cursor,
        cursor.copy(statement) as writing,
    ):
        for part in (binary.BEGIN, *parts, binary.END):
            writing.write(part)
    assert count(connection) == rows
    return seconds()


def small_pushes(connection: Connection, place: Path, times: int) -> float:
    """Push one batch at a time; tell how long all pushes took."""
    total = 0.0
    with Ours(place, moved, "strong") as ours, pushing(connection, place) as push:
        for number in range(times):
            first = number * BATCH
            some = list(ingest_data.trades(BATCH, first))
            ours.feed(arrivals(trades, some, first_offset=first))
            with timed() as seconds:
                assert push.run(connection, moved).rows == BATCH
            total += seconds()
    return total


def count(connection: Connection) -> int:
    """Count the rows that have arrived."""
    ((rows,),) = connection.execute(
        sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(moved.name, kept.name))
    ).fetchall()
    assert isinstance(rows, int)
    return rows
