"""Staging: what batches give to an outlet, kept until every warehouse has it.

A batch is forgotten when every warehouse that the dataflow feeds has confirmed it, and it has been
kept for as long afterwards as is asked for. What a warehouse has is its own ledger's word: here is
what it said last.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import Tuple, table_of
from etl_procs.dataflow import Dataflow
from etl_procs.errors import DefinitionChanged
from etl_procs.fitting import Part
from etl_procs.model import Outlet
from headrace import arrow

BATCH, DELETED = "_batch", "_deleted"

INSERT = """\
INSERT INTO headrace_staged (dataflow, outlet, first_batch, last_batch, row_count, data)
VALUES (:dataflow, :outlet, :first_batch, :last_batch, :row_count, :data)"""

RANGE = """\
SELECT first_batch, last_batch, data FROM headrace_staged
WHERE dataflow = :dataflow AND outlet = :outlet AND last_batch > :after AND first_batch <= :through
ORDER BY last_batch, number"""

LAST = """\
SELECT outlet, data FROM headrace_staged
WHERE dataflow = :dataflow GROUP BY outlet HAVING last_batch = max(last_batch)"""

DROP = "DELETE FROM headrace_staged WHERE dataflow = :dataflow AND last_batch <= :through"

PIECE_BYTES = 4 * 2**20
"""Of more, several blobs are made: nobody has to hold a large batch to read it."""

WAITING = """\
SELECT coalesce(sum(row_count), 0) FROM headrace_staged
WHERE dataflow = :dataflow AND last_batch > coalesce(
    (SELECT min(batch) FROM headrace_confirmed WHERE dataflow = :dataflow), 0)"""

MEASURE = """\
SELECT coalesce(sum(row_count), 0), coalesce(sum(length(data)), 0)
FROM headrace_staged
WHERE dataflow = :dataflow AND outlet = :outlet AND last_batch > :after AND first_batch <= :through
"""

SIZES = """\
SELECT last_batch, length(data) FROM headrace_staged
WHERE dataflow = :dataflow AND outlet = :outlet
    AND last_batch > :after AND last_batch <= :through"""

SIZE = "SELECT coalesce(sum(length(data)), 0) FROM headrace_staged"

KNOWN = "SELECT warehouse, batch FROM headrace_confirmed WHERE dataflow = :dataflow"

FEED = """\
INSERT INTO headrace_confirmed VALUES (:dataflow, :warehouse, 0) ON CONFLICT DO NOTHING"""

LEAVE = "DELETE FROM headrace_confirmed WHERE dataflow = :dataflow AND warehouse = :warehouse"

# It may go back: a warehouse can be restored from a backup.
CONFIRM = """\
UPDATE headrace_confirmed SET batch = :batch
WHERE dataflow = :dataflow AND warehouse = :warehouse"""

NOTE = """\
INSERT INTO headrace_kept
SELECT :dataflow, batch, :at
FROM (SELECT min(batch) AS batch FROM headrace_confirmed WHERE dataflow = :dataflow)
WHERE batch > max(
    (SELECT coalesce(max(batch), 0) FROM headrace_kept WHERE dataflow = :dataflow),
    (SELECT coalesce(max(batch), 0) FROM headrace_forgotten WHERE dataflow = :dataflow))"""

DUE = """\
SELECT min((
    SELECT coalesce(max(batch), 0) FROM headrace_kept WHERE dataflow = :dataflow AND at <= :before
), (SELECT coalesce(min(batch), 0) FROM headrace_confirmed WHERE dataflow = :dataflow))"""

PRUNE = "DELETE FROM headrace_kept WHERE dataflow = :dataflow AND batch <= :through"

FORGOTTEN = "SELECT batch FROM headrace_forgotten WHERE dataflow = :dataflow"

MOVE_FORGOTTEN = """\
INSERT INTO headrace_forgotten VALUES (:dataflow, :through)
ON CONFLICT DO UPDATE SET batch = :through"""


class Staged(NamedTuple):
    """Rows for an outlet, or the keys of rows that are deleted from it."""

    outlet: Outlet
    deleted: bool
    part: Part


def schema(outlet: Outlet) -> pa.Schema:
    """Give the schema of an outlet's staged rows: their batch and, with a key, whether they are
    deletions (which have only their key), before the outlet's own columns.
    """
    of_batch = [pa.field(BATCH, pa.int64(), nullable=False)]
    if not outlet.key:
        return pa.schema([*of_batch, *outlet.columns.arrow])
    columns = [f if f.name in outlet.key else f.with_nullable(True) for f in outlet.columns.arrow]
    return pa.schema([*of_batch, pa.field(DELETED, pa.bool_(), nullable=False), *columns])


def add(connection: sqlite3.Connection, outlet: Outlet, rows: Iterable[tuple[int, Staged]]) -> int:
    """Stage what a group of batches gives to `outlet`, in its order; tell how many bytes it is."""
    declared = schema(outlet)
    table = pa.concat_tables(
        _of_tables(declared, some) if is_table else _of_tuples(outlet, declared, some)
        for is_table, some in groupby(rows, lambda row: isinstance(row[1].part, pa.Table))
    )
    of, size = {"dataflow": outlet.dataflow, "outlet": outlet.name}, 0
    for first, last, count, data in blobs(table):
        batches = {"first_batch": first, "last_batch": last}
        connection.execute(INSERT, {**of, **batches, "row_count": count, "data": data})
        size += len(data)
    return size


def blobs(table: pa.Table) -> Iterator[tuple[int, int, int, bytes]]:
    """Write rows, by their batches, as they are kept: the first batch of each blob, its last, the
    number of its rows, and the blob.
    """
    table = table.combine_chunks()
    most = max(table.num_rows * PIECE_BYTES // max(table.nbytes, 1), 1)
    for begin in range(0, table.num_rows, most):
        piece = table.slice(begin, most)
        first, last = piece[BATCH][0].as_py(), piece[BATCH][-1].as_py()
        yield first, last, piece.num_rows, arrow.to_bytes(piece)


def check(connection: sqlite3.Connection, dataflow: Dataflow) -> None:
    """Refuse definitions under which what is staged could not be moved any more."""
    for name, data in connection.execute(LAST, {"dataflow": dataflow.name}):
        outlet = dataflow.outlets.get(name)
        if outlet is None or not arrow.from_bytes(data).schema.equals(schema(outlet)):
            raise DefinitionChanged(
                f"rows wait for the warehouse in outlet {dataflow.name}.{name}, which is "
                + ("no longer defined" if outlet is None else "now defined with other columns"),
                hint="Bring the old definition back until `headrace status` shows 0 rows of lag.",
            )


def between(
    connection: sqlite3.Connection, outlet: Outlet, after: int, through: int
) -> Iterator[pa.Table]:
    """Read what the batches of (after, through] gave to `outlet`, in order, as `schema` says."""
    of = {"dataflow": outlet.dataflow, "outlet": outlet.name, "after": after, "through": through}
    return within_range(connection.execute(RANGE, of), after, through)


def within_range(
    blobs: Iterable[tuple[int, int, bytes]], after: int, through: int
) -> Iterator[pa.Table]:
    """Read of blobs, each with its first batch and its last, the rows of (after, through]."""
    for first, last, data in blobs:
        table = arrow.from_bytes(data)
        if first <= after or last > through:
            batches = table[BATCH]
            within = pc.and_(pc.greater(batches, after), pc.less_equal(batches, through))
            table = table.filter(within)
        if table.num_rows:
            yield table


def waiting(connection: sqlite3.Connection, dataflow: str) -> int:
    """Count the rows that wait for a warehouse."""
    (rows,) = connection.execute(WAITING, {"dataflow": dataflow}).fetchone()
    return int(rows)


def measure(
    connection: sqlite3.Connection, outlet: Outlet, after: int, through: int
) -> tuple[int, int]:
    """Tell how many rows and bytes the batches of (after, through] gave to `outlet`.

    What a group of batches gave together is counted as a whole, if it reaches over an end.
    """
    of = {"dataflow": outlet.dataflow, "outlet": outlet.name, "after": after, "through": through}
    rows, size = connection.execute(MEASURE, of).fetchone()
    return int(rows), int(size)


def within(
    connection: sqlite3.Connection,
    outlets: Iterable[Outlet],
    after: int,
    through: int,
    size_max: int,
) -> int:
    """Tell how far after a batch one can go, and take about so many bytes at most."""
    of = {"after": after, "through": through}
    sizes = sorted(
        row
        for outlet in outlets
        for row in connection.execute(
            SIZES, {**of, "dataflow": outlet.dataflow, "outlet": outlet.name}
        )
    )
    total, last = 0, after
    for batch, size in sizes:
        total += size
        if total > size_max and after < last < batch:
            return int(last)
        last = batch
    return through


def size(connection: sqlite3.Connection) -> int:
    """Tell the bytes of all that is staged."""
    (total,) = connection.execute(SIZE).fetchone()
    return int(total)


def _of_tuples(outlet: Outlet, declared: pa.Schema, rows: Iterable[tuple[int, Staged]]) -> pa.Table:
    """Make one table of many small pieces: a table for each would cost more than its batch."""
    of_key = [n in outlet.key for n in outlet.columns.names]
    tuples: list[Tuple] = []
    for batch, staged in rows:
        before = (batch, staged.deleted) if outlet.key else (batch,)
        for values in staged.part:
            if staged.deleted:
                keys = iter(values)
                values = tuple(next(keys) if is_key else None for is_key in of_key)
            tuples.append((*before, *values))
    return table_of(tuples, declared)


def _of_tables(declared: pa.Schema, rows: Iterable[tuple[int, Staged]]) -> pa.Table:
    pieces = []
    for batch, staged in rows:
        part: pa.Table = staged.part
        given = {name: part[name] for name in part.column_names}
        given[BATCH] = pa.repeat(pa.scalar(batch, pa.int64()), part.num_rows)
        given[DELETED] = pa.repeat(staged.deleted, part.num_rows)
        columns = [given.get(f.name, pa.nulls(part.num_rows, f.type)) for f in declared]
        pieces.append(pa.table(columns, schema=declared))
    return pa.concat_tables(pieces)


def confirmed(connection: sqlite3.Connection, dataflow: str) -> dict[str, int]:
    """Tell through which batch each warehouse that a dataflow feeds has confirmed."""
    return dict(connection.execute(KNOWN, {"dataflow": dataflow}).fetchall())


def feed(connection: sqlite3.Connection, dataflow: str, warehouses: Iterable[str]) -> list[str]:
    """Keep batches for these warehouses from now on, and for no others; name those that go."""
    wanted = set(warehouses)
    gone = sorted(confirmed(connection, dataflow).keys() - wanted)
    of_flow = {"dataflow": dataflow}
    connection.executemany(FEED, [{**of_flow, "warehouse": name} for name in sorted(wanted)])
    connection.executemany(LEAVE, [{**of_flow, "warehouse": name} for name in gone])
    return gone


def confirm(connection: sqlite3.Connection, dataflow: str, warehouse: str, through: int) -> None:
    """Take note that a warehouse, if it is fed, has the batches through `through`."""
    at = {"dataflow": dataflow, "warehouse": warehouse, "batch": through}
    connection.execute(CONFIRM, at)


def forgotten(connection: sqlite3.Connection, dataflow: str) -> int:
    """Tell through which batch everything that was staged is gone."""
    row = connection.execute(FORGOTTEN, {"dataflow": dataflow}).fetchone()
    return int(row[0]) if row else 0


def forget(connection: sqlite3.Connection, dataflow: str, *, at: float, keep_s: float) -> int:
    """Drop what all have confirmed `keep_s` ago; tell through which batch all is gone."""
    connection.execute(NOTE, {"dataflow": dataflow, "at": at})
    (through,) = connection.execute(DUE, {"dataflow": dataflow, "before": at - keep_s}).fetchone()
    if through > forgotten(connection, dataflow):
        for statement in (DROP, MOVE_FORGOTTEN, PRUNE):
            connection.execute(statement, {"dataflow": dataflow, "through": through})
    return forgotten(connection, dataflow)
