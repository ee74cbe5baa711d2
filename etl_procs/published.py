"""Published streams: what their batches hold, kept for readers outside from the batch on at which
somebody asked for it. What is kept is bounded by age and size; the oldest of all goes first.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import pyarrow as pa

from etl_procs import staging
from etl_procs.batch import Batch, table_of
from etl_procs.model import Kept, Outlet, Stream
from etl_procs.staging import BATCH
from headrace import arrow

ALL = "SELECT dataflow, stream, after FROM headrace_published"

# Of a round that is open, its first batches were given already.
PUBLISH = """\
INSERT INTO headrace_published
SELECT :dataflow, :stream, coalesce(max(batch), 0)
FROM (
    SELECT batch FROM headrace_ledger WHERE dataflow = :dataflow
    UNION ALL SELECT batch FROM headrace_pending WHERE dataflow = :dataflow
)
WHERE true
ON CONFLICT DO NOTHING"""

UNPUBLISH = "DELETE FROM headrace_published WHERE dataflow = :dataflow AND stream = :stream"

DROP = "DELETE FROM headrace_published_batches WHERE dataflow = :dataflow AND stream = :stream"

CHANGE = "UPDATE headrace_core SET published = published + 1"

INSERT = """\
INSERT INTO headrace_published_batches (dataflow, stream, first_batch, last_batch, at, data)
VALUES (:dataflow, :stream, :first_batch, :last_batch, :at, :data)"""

SIZE = "SELECT coalesce(sum(length(data)), 0) FROM headrace_published_batches"

OLDEST = "SELECT at FROM headrace_published_batches ORDER BY number LIMIT 1"

BY_AGE = """\
SELECT number, dataflow, stream, last_batch, at, length(data) FROM headrace_published_batches
ORDER BY number"""

FORGET = "DELETE FROM headrace_published_batches WHERE number <= :through"

FORGOTTEN = """\
UPDATE headrace_published SET after = max(after, :through)
WHERE dataflow = :dataflow AND stream = :stream"""

BATCHES = """\
SELECT number, data FROM headrace_published_batches
WHERE dataflow = :dataflow AND stream = :name AND last_batch > :after AND number >= :number
ORDER BY last_batch, number"""

STAGED = """\
SELECT number, data FROM headrace_staged
WHERE dataflow = :dataflow AND outlet = :name AND last_batch > :after AND number >= :number
ORDER BY last_batch, number"""

RANGE = """\
SELECT first_batch, last_batch, data FROM headrace_published_batches
WHERE dataflow = :dataflow AND stream = :stream AND last_batch > :after AND first_batch <= :through
ORDER BY last_batch, number"""

SIZE_OF_RANGE = """\
SELECT coalesce(sum(length(data)), 0) FROM headrace_published_batches
WHERE dataflow = :dataflow AND stream = :stream AND last_batch > :after AND first_batch <= :through
"""

VALUE_BYTES = 8
"""About, where rows are to be guessed from bytes."""

SMALL = 100
"""Up to so many tuples, a table of all of them costs less than one for each batch."""


class Published:
    """What is published in one core, as its writer knows it."""

    def __init__(self) -> None:
        self._version = -1
        self._streams: dict[str, dict[str, int]] = {}
        self.size = 0
        """The bytes of all that is kept."""

    def see(self, connection: sqlite3.Connection, version: int) -> None:
        """Read it, if that is another version than the last."""
        if version != self._version:
            self._version, self._streams = version, all_of(connection)
            self.size = size(connection)

    def of(self, dataflow: str) -> Mapping[str, int]:
        """Tell which streams of a dataflow are published, and after which batch each is kept."""
        return self._streams.get(dataflow, {})


def all_of(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """Tell which streams of each dataflow are published, and after which batch each is kept."""
    found: dict[str, dict[str, int]] = {}
    for dataflow, stream, after in connection.execute(ALL):
        found.setdefault(dataflow, {})[stream] = after
    return found


def of(connection: sqlite3.Connection, dataflow: str) -> dict[str, int]:
    """Tell it of one dataflow."""
    return all_of(connection).get(dataflow, {})


def publish(connection: sqlite3.Connection, dataflow: str, stream: str) -> None:
    """Keep a stream's batches from the next round on; one that is published already stays so."""
    if connection.execute(PUBLISH, {"dataflow": dataflow, "stream": stream}).rowcount:
        connection.execute(CHANGE)


def unpublish(connection: sqlite3.Connection, dataflow: str, stream: str) -> None:
    """Keep a stream's batches no more, and drop those that there are."""
    of_stream = {"dataflow": dataflow, "stream": stream}
    if connection.execute(UNPUBLISH, of_stream).rowcount:
        connection.execute(DROP, of_stream)
        connection.execute(CHANGE)


def add(connection: sqlite3.Connection, streams: Iterable[list[Batch]], at: float) -> int:
    """Keep what a group of batches holds, stream by stream; tell how many bytes it is."""
    total = 0
    for batches in streams:
        stream = batches[0].stream
        of_stream = {"dataflow": stream.dataflow, "stream": stream.name, "at": at}
        for first, last, _, data in staging.blobs(_table(stream, batches)):
            of_blob = {"first_batch": first, "last_batch": last, "data": data}
            connection.execute(INSERT, {**of_stream, **of_blob})
            total += len(data)
    return total


def size(connection: sqlite3.Connection) -> int:
    """Tell the bytes of all that is kept."""
    (total,) = connection.execute(SIZE).fetchone()
    return int(total)


def is_older(connection: sqlite3.Connection, than: float) -> bool:
    """Whether something is kept that was committed before a moment."""
    oldest = connection.execute(OLDEST).fetchone()
    return oldest is not None and oldest[0] < than


def forget(connection: sqlite3.Connection, *, before: float, size_max: int) -> int:
    """Drop what was committed before a moment, and the oldest of the rest, until no more is left
    than `size_max`; tell how much that is.
    """
    left, through = size(connection), 0
    ends: dict[tuple[str, str], int] = {}
    for number, dataflow, stream, last, at, length in connection.execute(BY_AGE):
        if at >= before and left <= size_max:
            break
        through, left = number, left - length
        ends[dataflow, stream] = last
    for (dataflow, stream), last in ends.items():
        connection.execute(FORGOTTEN, {"dataflow": dataflow, "stream": stream, "through": last})
    connection.execute(FORGET, {"through": through})
    return left


def after(connection: sqlite3.Connection, what: Stream | Outlet) -> int | None:
    """Tell after which batch all of a stream, or of what was staged for an outlet, is kept; None
    for a stream that is not published.
    """
    if isinstance(what, Outlet) and not isinstance(what, Kept):
        return staging.forgotten(connection, what.dataflow)
    return of(connection, what.dataflow).get(what.name)


def batches(
    connection: sqlite3.Connection, what: Stream | Outlet, *, after: int, number: int = 0
) -> Iterator[tuple[int, pa.Table]]:
    """Read what is kept of the batches behind `after`, in order, from the blob of a number on: of
    each blob its number and its rows, with their batch. The first may begin with older ones.
    """
    of_what = {"dataflow": what.dataflow, "name": what.name, "after": after, "number": number}
    statement = STAGED if isinstance(what, Outlet) else BATCHES
    for found, data in connection.execute(statement, of_what):
        yield found, arrow.from_bytes(data)


def between(
    connection: sqlite3.Connection, table: Outlet, after: int, through: int
) -> Iterator[pa.Table]:
    """Read what the batches of (after, through] gave to an outlet, or of a stream themselves, in
    order, as `staging.schema` says. What was kept before a column was declared lacks it.
    """
    if not isinstance(table, Kept):
        yield from staging.between(connection, table, after, through)
        return
    of = {"dataflow": table.dataflow, "stream": table.name, "after": after, "through": through}
    declared = staging.schema(table)
    for found in staging.within_range(connection.execute(RANGE, of), after, through):
        columns = [
            found[field.name].cast(field.type)
            if field.name in found.column_names
            else pa.nulls(found.num_rows, field.type)
            for field in declared
        ]
        yield pa.table(columns, schema=declared)


def measure(
    connection: sqlite3.Connection, table: Outlet, after: int, through: int
) -> tuple[int, int]:
    """Tell how many rows and bytes that is, about."""
    if not isinstance(table, Kept):
        return staging.measure(connection, table, after, through)
    of = {"dataflow": table.dataflow, "stream": table.name, "after": after, "through": through}
    (size,) = connection.execute(SIZE_OF_RANGE, of).fetchone()
    return -(-size // (VALUE_BYTES * (1 + len(table.columns.names)))), size


def _table(stream: Stream, batches: list[Batch]) -> pa.Table:
    declared = pa.schema([pa.field(BATCH, pa.int64(), nullable=False), *stream.columns.arrow])
    pieces = []
    for is_small, some in groupby(batches, lambda batch: len(batch) <= SMALL):
        if is_small:
            tuples = [(batch.id, *values) for batch in some for values in batch.tuples]
            pieces.append(table_of(tuples, declared))
        else:
            for batch in some:
                ids = pa.repeat(pa.scalar(batch.id, pa.int64()), len(batch))
                pieces.append(pa.table([ids, *batch.table.columns], schema=declared))
    return pa.concat_tables(pieces)
