"""An outlet's tables in a warehouse, defined once: what is made, copied and looked for is of these.

    sales.orders         live: a view of the two below, for everybody who reads
    sales_main.orders    main: the rows as they were merged, with key and indexes, and of each the
                         batch that brought it last
    sales_delta.orders   delta: what has arrived since, with its batch and operation, unindexed

Live shows of each key the latest that has arrived. Without a key it shows all rows.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from psycopg import sql
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable, CreateView

from etl_procs import staging
from etl_procs.columns import Column, Type
from etl_procs.model import Outlet

BATCH, DELETED, PARTITION = staging.BATCH, staging.DELETED, "_partition"
MAIN, DELTA = "_main", "_delta"
"""What the names of the schemas end with, after that of the dataflow, which holds live."""

TYPES: dict[Type, type[sa.types.TypeEngine[Any]]] = {
    Type.INTEGER: sa.BigInteger,
    Type.REAL: sa.Double,
    Type.TEXT: sa.Text,
    Type.BOOLEAN: sa.Boolean,
    Type.DATE: sa.Date,
    Type.TIMESTAMP: sa.TIMESTAMP,
}
"""PostgreSQL's types; of NUMERIC, each column has its own."""
DIALECT = postgresql.dialect()  # type: ignore[no-untyped-call]
# Two underscores: outlet a_b by c, and outlet a by b_c, are in one schema.
NAMING = {"ix": "%(table_name)s__%(column_0_N_name)s"}


def schemas(dataflow: str) -> tuple[str, str, str]:
    """Name a dataflow's schemas: of live, main and delta."""
    return dataflow, dataflow + MAIN, dataflow + DELTA


@cache
def main(outlet: Outlet) -> sa.Table:
    """Define main. Rows that were merged before it kept their batches have none."""
    table = sa.Table(
        outlet.name,
        sa.MetaData(naming_convention=NAMING),
        *_columns(outlet),
        sa.Column(BATCH, sa.BigInteger),
        sa.Column(PARTITION, sa.Integer),
        schema=outlet.dataflow + MAIN,
    )
    if outlet.key:
        table.append_constraint(sa.PrimaryKeyConstraint(*outlet.key))
    for names in outlet.indexes:
        sa.Index(None, *(table.c[name] for name in names))
    return table


@cache
def columns_of_main(outlet: Outlet) -> tuple[str, ...]:
    """Name the columns of main: the outlet's own, and of what brought each row."""
    return *outlet.columns.names, BATCH, PARTITION


@cache
def delta(outlet: Outlet) -> sa.Table:
    """Define delta. Of a deletion, only the key is there."""
    operation = [sa.Column(DELETED, sa.Boolean, nullable=False)] if outlet.key else []
    return sa.Table(
        outlet.name,
        sa.MetaData(),
        sa.Column(BATCH, sa.BigInteger, nullable=False),
        sa.Column(PARTITION, sa.Integer, nullable=False),
        *operation,
        *_columns(outlet, within=outlet.key or outlet.columns.names),
        schema=outlet.dataflow + DELTA,
    )


@cache
def arrow(outlet: Outlet) -> pa.Schema:
    """Give the schema of delta's rows, as they are copied."""
    of_batch, *others = staging.schema(outlet)
    return pa.schema([of_batch, pa.field(PARTITION, pa.int32(), nullable=False), *others])


@cache
def summed(outlet: Outlet) -> pa.Schema:
    """Give the columns that a checksum of delta's rows is of.

    Without a key these are main's: there and in delta are, in all, the rows that have arrived.
    """
    copied = arrow(outlet)
    return copied if outlet.key else pa.schema([copied.field(n) for n in outlet.columns.names])


def live(outlet: Outlet, names: Sequence[str]) -> sa.SelectBase:
    """Select these columns of what live shows; it has those of main."""
    of_main, of_delta = main(outlet).alias("main"), delta(outlet).alias("delta")
    merged = sa.select(*(of_main.c[name] for name in names))
    if not outlet.key:
        return merged.union_all(sa.select(*(of_delta.c[name] for name in names)))
    same = sa.and_(*(of_delta.c[name] == of_main.c[name] for name in outlet.key))
    last = latest(outlet).subquery("latest")
    arrived = sa.select(*(last.c[name] for name in names))
    # Asked once for a query: while delta is empty, main is read as if there were none. (Against an
    # empty table PostgreSQL plans a join by loops, which takes 3 to 7 times as long.)
    has_rows = sa.select(sa.literal_column("1")).select_from(delta(outlet)).exists()
    return sa.union_all(
        merged.where(~has_rows),
        merged.where(has_rows, ~sa.select(sa.literal_column("1")).where(same).exists()),
        arrived.where(~last.c[DELETED]),
    )


def latest(outlet: Outlet) -> sa.Select[tuple[object, ...]]:
    """Select the latest operation of each key in delta."""
    table = delta(outlet).alias("delta")
    keys = [table.c[name] for name in outlet.key]
    return (
        sa.select(*(table.c[name] for name in columns_of_main(outlet)), table.c[DELETED])
        .ext(postgresql.distinct_on(*keys))
        .order_by(*keys, table.c[BATCH].desc(), table.c[PARTITION].desc())
    )


def created(table: sa.Table) -> tuple[sql.SQL, ...]:
    """Give the statements that make a table and its indexes."""
    return written(CreateTable(table)), *(written(CreateIndex(one)) for one in indexes(table))


def indexes(table: sa.Table) -> list[sa.Index]:
    """Give the indexes that a table has beside its key."""
    return sorted(table.indexes, key=lambda index: str(index.name))


def index_name(index: sa.Index) -> str:
    """Give the name that an index has there: PostgreSQL's have 63 bytes at most."""
    return DIALECT.identifier_preparer.format_index(index).strip('"')


def view(outlet: Outlet, shown: Sequence[str] = ()) -> sql.SQL:
    """Give the statement that makes live, or makes it anew; first come the columns `shown`."""
    names = [*shown, *(name for name in outlet.columns.names if name not in shown)]
    made = CreateView(live(outlet, names), outlet.name, schema=outlet.dataflow, or_replace=True)
    return written(made)


def added(table: sa.Table, column: str) -> sql.SQL:
    """Give the statement that adds a column to a table that lacks it."""
    name = DIALECT.identifier_preparer.format_table(table)
    declared = CreateColumn(table.c[column]).compile(dialect=DIALECT)
    return sql.SQL(f"ALTER TABLE {name} ADD COLUMN {declared}")


def written(statement: sa.ClauseElement) -> sql.SQL:
    """Write a statement in PostgreSQL's words."""
    text = str(statement.compile(dialect=DIALECT, compile_kwargs={"literal_binds": True}))
    return sql.SQL(text)


def identifier(table: sa.Table) -> sql.Identifier:
    """Name a table."""
    return sql.Identifier(str(table.schema), table.name)


def type_of(column: Column) -> sa.types.TypeEngine[Any]:
    """Give PostgreSQL's type of a column."""
    if column.type is Type.NUMERIC:
        return sa.Numeric(column.precision, column.scale)
    return TYPES[column.type]()


def _columns(outlet: Outlet, within: tuple[str, ...] | None = None) -> list[sa.Column[object]]:
    """Define an outlet's own columns; NOT NULL may be for some of them only."""
    return [
        sa.Column(
            column.name,
            type_of(column),
            nullable=not column.required or (within is not None and column.name not in within),
            autoincrement=False,
        )
        for column in outlet.columns.columns
    ]
