"""A push of much beside COPY of the same rows, encoded already; and of little, again and again."""

from functools import partial
from pathlib import Path

import pyarrow as pa
from psycopg import sql

from bench import ingest_data, migrate_ours
from bench.harness import Result, Setup, folder, in_turns_per, timed
from bench.keeping import keeping
from bench.migrate_ours import HERE
from bench.ours import FILE, Ours
from etl_procs import by_count
from etl_procs.reader import Reader
from migrations import binary, layout, staged, tables, warehouse
from migrations.warehouse import Connection

BATCH = 100
moved, trades, kept = keeping("moved", ingest_data.COLUMNS, by_count(BATCH))


def run(setup: Setup, conninfo: str) -> Result:
    """Push much at once, and little again and again."""
    rows = setup.size(full=1_000_000, quick=100_000)
    small = setup.size(full=1_000, quick=100)
    with folder(setup.folder, "origin") as origin:
        with Ours(origin, moved, "strong") as core:
            migrate_ours.stage_trades(core, rows)
        with warehouse.connect(conninfo, application="bench") as connection:
            trials = {
                "ours": partial(pushed, connection, conninfo, origin, rows),
                "copy": partial(copied, connection, encoded(origin), rows),
            }
            times = in_turns_per(trials, setup, rows)
            with folder(setup.folder, "small") as place:
                seconds = small_pushes(conninfo, place, small)
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


def pushed(connection: Connection, url: str, origin: Path, rows: int, place: Path) -> float:
    """Push all that a core has staged, until the core knows that it is there."""
    seconds = migrate_ours.pushed(url, origin, place, moved)
    assert count(connection) == rows
    return seconds


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


def small_pushes(url: str, place: Path, times: int) -> float:
    """Push one batch at a time; tell how long all pushes took."""
    total = 0.0
    with Ours(place, moved, "strong") as core:
        migrate_ours.prepare(url, moved, place)
        with migrate_ours.moving(place, url) as ours:
            for number in range(times):
                migrate_ours.stage_trades(core, BATCH, number * BATCH)
                with timed() as seconds:
                    assert ours.push_once(moved, 1).rows == BATCH
                total += seconds()
    return total


def count(connection: Connection) -> int:
    """Count the rows that have arrived."""
    ((rows,),) = connection.execute(
        sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(moved.name, kept.name))
    ).fetchall()
    assert isinstance(rows, int)
    return rows
