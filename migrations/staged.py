"""What is staged for an outlet, carried into a table of PostgreSQL.

Without a key that is rows, which are appended. With one it is operations: rows that replace the
one of their key, and deletions. Of the operations of one key the last in order counts, so it alone
is carried. The push applies them, and a query reads them in place of the rows of their keys.
"""

from collections.abc import Iterable
from itertools import chain
from typing import LiteralString, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from etl_procs import staging
from etl_procs.columns import Type
from etl_procs.model import Outlet
from etl_procs.reader import Snapshot
from migrations import binary
from migrations.warehouse import Connection, names, table_of

# Not LIKE, which would bring NOT NULL along: of a deletion, only the key is there.
CREATE: LiteralString = """\
CREATE TEMPORARY TABLE {staged} AS
SELECT {columns}, false AS {deleted} FROM {table} WITH NO DATA"""

COPY: LiteralString = "COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)"

NUMBER = "_number"  # no column of a user's is called so


def temporary(name: str) -> sql.Identifier:
    """Name a temporary table."""
    return sql.Identifier("pg_temp", name)


def create(connection: Connection, outlet: Outlet, table: sql.Identifier) -> None:
    """Make a temporary table for what is staged; `_deleted` says which rows are deletions."""
    connection.execute(
        sql.SQL(CREATE).format(
            staged=table,
            columns=names(outlet.columns.names),
            deleted=sql.Identifier(staging.DELETED),
            table=table_of(outlet),
        )
    )


class Range(NamedTuple):
    """The batches of (after, through] of a partition."""

    snapshot: Snapshot
    after: int
    through: int


def copy(connection: Connection, outlet: Outlet, into: sql.Identifier, *ranges: Range) -> int:
    """COPY what is staged for `outlet` in some ranges of batches into a table.

    Tells how many rows or operations that is. One that a later one of its key has overtaken is
    counted and not sent: the count is the same however the batches are divided among pushes.
    """
    tables = chain.from_iterable(r.snapshot.staged(outlet, r.after, r.through) for r in ranges)
    first = next(tables, None)
    if first is None:
        return 0
    tables = chain([first], tables)
    if not outlet.key:
        return _copy(connection, outlet, into, tables)
    operations = pa.concat_tables(tables)
    _copy(connection, outlet, into, [last_of_each_key(outlet, operations)])
    return int(operations.num_rows)


def last_of_each_key(outlet: Outlet, operations: pa.Table) -> pa.Table:
    """Keep the last of the operations of each key, in their order."""
    keys = operations.select(list(outlet.key))
    for number, column in enumerate(keys.schema):
        if column.type == Type.REAL.arrow:  # -0.0 is 0.0 to PostgreSQL, and two keys to Arrow
            keys = keys.set_column(number, column.name, pc.add(keys[number], 0.0))
    numbers = pa.arange(0, operations.num_rows)
    last = (
        keys.append_column(NUMBER, numbers).group_by(list(outlet.key)).aggregate([(NUMBER, "max")])
    )
    # A filter, not a take, which would join all of a column's text into one array.
    return operations.filter(pc.is_in(numbers, value_set=last[f"{NUMBER}_max"]))


def _copy(
    connection: Connection, outlet: Outlet, into: sql.Identifier, tables: Iterable[pa.Table]
) -> int:
    schema = staging.schema(outlet)
    wanted = schema.remove(schema.get_field_index(staging.BATCH))
    statement = sql.SQL(COPY).format(table=into, columns=names(wanted.names))
    rows = 0
    with connection.cursor() as cursor, cursor.copy(statement) as writing:
        writing.write(binary.BEGIN)
        for table in tables:
            assert table.schema.equals(schema), table.schema
            for part in binary.encoded(table.select(wanted.names)):
                writing.write(part)
            rows += table.num_rows
        writing.write(binary.END)
    return rows
