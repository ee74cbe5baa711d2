"""What is staged for an outlet, carried into a table of PostgreSQL that has delta's columns.

Without a key that is rows, which are appended. With one it is operations: rows that replace the
one of their key, and deletions. Of the operations of one key the last in order counts, so it alone
is carried.
"""

from collections.abc import Iterable, Iterator
from typing import LiteralString, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from psycopg.copy import LibpqWriter

from etl_procs.model import Outlet
from etl_procs.reader import Snapshot
from migrations import binary, tables
from migrations.warehouse import Connection, names

CREATE: LiteralString = "CREATE TEMPORARY TABLE {staged} AS SELECT * FROM {delta} WITH NO DATA"

COPY: LiteralString = "COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)"

NUMBER = "_number"  # no column of a user's is called so

HELD_BYTES = 64 * 2**20
"""So much of what is staged is held as a whole, where the last of each key is looked for."""


class Range(NamedTuple):
    """The batches of (after, through] of a partition."""

    snapshot: Snapshot
    partition: int
    after: int
    through: int


def temporary(name: str) -> sql.Identifier:
    """Name a temporary table."""
    return sql.Identifier("pg_temp", name)


def create(connection: Connection, outlet: Outlet, table: sql.Identifier) -> None:
    """Make a temporary table for what is staged. Of a deletion, only the key is there."""
    delta = tables.identifier(tables.delta(outlet))
    connection.execute(sql.SQL(CREATE).format(staged=table, delta=delta))


def read(outlet: Outlet, *ranges: Range) -> Iterator[pa.Table]:
    """Read what is staged in some ranges of batches, in order, as delta has it."""
    schema = tables.arrow(outlet)
    for snapshot, partition, after, through in ranges:
        of_partition = pa.scalar(partition, schema.field(tables.PARTITION).type)
        for found in snapshot.staged(outlet, after, through):
            column = pa.repeat(of_partition, found.num_rows)
            wide = found.add_column(1, schema.field(tables.PARTITION), column)
            assert wide.schema.equals(schema), wide.schema
            yield wide


def table(outlet: Outlet, rows: Iterable[pa.Table]) -> pa.Table:
    """Make one table of what was read, or of nothing."""
    return pa.concat_tables([tables.arrow(outlet).empty_table(), *rows])


def last_of_each_key(outlet: Outlet, operations: pa.Table) -> pa.Table:
    """Keep the last of the operations of each key, in their order."""
    if len(operations) <= 1:
        return operations
    numbers = pa.arange(0, operations.num_rows)
    # A filter, not a take, which would join all of a column's text into one array.
    return operations.filter(pc.is_in(numbers, value_set=_last(outlet, operations)))


def _last(outlet: Outlet, operations: pa.Table) -> pa.ChunkedArray:
    """Number the operations that are the last of their keys."""
    keys = operations.select(list(outlet.key))
    for number, column in enumerate(keys.schema):
        if column.type == pa.float64():  # -0.0 is 0.0 to PostgreSQL, and two keys to Arrow
            keys = keys.set_column(number, column.name, pc.add(keys[number], 0.0))
    numbers = pa.arange(0, operations.num_rows)
    found = keys.append_column(NUMBER, numbers).group_by(list(outlet.key))
    return found.aggregate([(NUMBER, "max")])[f"{NUMBER}_max"]


def carried(outlet: Outlet, staged: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Give, of what is staged, what is carried: all rows, or the last operation of each key."""
    if not outlet.key:
        yield from staged
    elif operations := list(staged):
        yield last_of_each_key(outlet, pa.concat_tables(operations))


def carried_of(outlet: Outlet, size: int, *ranges: Range) -> Iterator[pa.Table]:
    """Give the same of ranges of about so many bytes. Of many, only the keys are held: they are
    read twice.
    """
    if not outlet.key or size <= HELD_BYTES:
        yield from carried(outlet, read(outlet, *ranges))
        return
    # Taken, and so copied: with a column of a table, all that was read with it stays.
    keys = pa.concat_tables(
        table.select(list(outlet.key)).take(pa.arange(0, table.num_rows))
        for table in read(outlet, *ranges)
    )
    is_last = np.zeros(keys.num_rows, dtype=np.bool_)
    is_last[_last(outlet, keys).to_numpy()] = True
    first = 0
    for table in read(outlet, *ranges):
        yield table.filter(pa.array(is_last[first : first + table.num_rows]))
        first += table.num_rows


def copy(
    connection: Connection,
    outlet: Outlet,
    into: sql.Identifier,
    staged: Iterable[pa.Table],
    writer: type[LibpqWriter] = LibpqWriter,
) -> int:
    """COPY rows into a table; tell how many PostgreSQL has put there."""
    statement = sql.SQL(COPY).format(table=into, columns=names(tables.arrow(outlet).names))
    with connection.cursor() as cursor:
        with cursor.copy(statement, writer=writer(cursor)) as writing:
            writing.write(binary.BEGIN)
            for table in staged:
                for part in binary.encoded(table):
                    writing.write(part)
            writing.write(binary.END)
        return cursor.rowcount
