"""Sources: what stands in a query in the place of a table, in PostgreSQL's SQL.

Rows that are there and rows that were shipped are added up. For an outlet with a key these are
operations: a row that is there counts if none of them has its key.
"""

from collections.abc import Sequence
from typing import LiteralString

from psycopg import sql

from api.catalogue import Shown
from api.cut import Part, There
from etl_procs.columns import Column
from etl_procs.model import Outlet
from migrations import tables

SELECT: LiteralString = "SELECT {columns} FROM {table} AS there"
NOT_SHIPPED: LiteralString = "NOT EXISTS (SELECT FROM pg_temp.{shipped} AS staged WHERE {same})"
SHIPPED: LiteralString = "SELECT {columns} FROM pg_temp.{shipped} AS staged"
NOT_DELETED: LiteralString = "NOT {deleted}"

BOUNDED: LiteralString = """\
(SELECT {columns} FROM {main} UNION ALL SELECT {columns} FROM {delta} AS delta WHERE {within})"""
WITHIN: LiteralString = "(delta.{partition} = {number} AND delta.{batch} <= {through})"

BATCH, DELETED, PARTITION = map(sql.Identifier, (tables.BATCH, tables.DELETED, tables.PARTITION))


def there(shown: Shown, part: Part) -> sql.Composed:
    """Select what a warehouse has of a table at a cut."""
    return _there(shown, part, [])


def _nothing(outlet: Outlet) -> sql.Composed:
    """Select no row of a table's columns and types."""
    values = [
        sql.SQL("NULL::{} AS {}").format(sql.SQL(_type(column)), sql.Identifier(column.name))
        for column in outlet.columns.columns
    ]
    return sql.SQL("(SELECT {} WHERE false)").format(sql.SQL(", ").join(values))


def _type(column: Column) -> str:
    declared = tables.type_of(column)
    return str(declared.compile(dialect=tables.DIALECT))


def there_unless(shown: Shown, part: Part, shipped: str) -> sql.Composed:
    """Select what it has, but for the keys that were shipped."""
    if not shown.outlet.key:
        return there(shown, part)
    staged = sql.Identifier(shipped)
    same = _same(shown.outlet, "staged", "there")
    return _there(shown, part, [sql.SQL(NOT_SHIPPED).format(shipped=staged, same=same)])


def whole(shown: Shown, part: Part, shipped: str) -> sql.Composed:
    """Select what it has and what was shipped."""
    conditions: list[sql.Composable] = []
    if shown.outlet.key:
        conditions.append(sql.SQL(NOT_DELETED).format(deleted=DELETED))
    added = sql.SQL(SHIPPED).format(columns=_names(shown.columns), shipped=sql.Identifier(shipped))
    both = "({}) UNION ALL ({})" if shown.where else "{} UNION ALL {}"
    return sql.SQL(both).format(
        there_unless(shown, part, shipped), added + _where(shown, conditions)
    )


def _there(shown: Shown, part: Part, conditions: list[sql.Composable]) -> sql.Composed:
    table = _table(shown.outlet, part)
    select = sql.SQL(SELECT).format(columns=_names(shown.columns), table=table)
    return select + _where(shown, conditions)


def _where(shown: Shown, conditions: list[sql.Composable]) -> sql.Composed:
    if shown.where:
        # It was parsed, checked and written anew when the key was made.
        conditions = [*conditions, sql.SQL(shown.where)]
        # OFFSET 0 has PostgreSQL decide it first: what a query computes of a row that is hidden
        # could tell of it in an error.
        return sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions) + sql.SQL(" OFFSET 0")
    if not conditions:
        return sql.Composed([])
    return sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions)


def _table(outlet: Outlet, part: Part) -> sql.Composable:
    main = sql.Identifier(outlet.dataflow + tables.MAIN, outlet.name)
    match part.there:
        case There.MAIN:
            return main
        case There.NONE:
            return _nothing(outlet)
        case There.LIVE | There.WHOLE:
            return sql.Identifier(outlet.dataflow, outlet.name)
        case There.BOUNDED:
            within = sql.SQL(" OR ").join(
                sql.SQL(WITHIN).format(
                    partition=PARTITION, batch=BATCH, number=number, through=through
                )
                for number, through in enumerate(part.bounds)
            )
            return sql.SQL(BOUNDED).format(
                columns=_names(outlet.columns.names),
                main=main,
                delta=sql.Identifier(outlet.dataflow + tables.DELTA, outlet.name),
                within=within,
            )


def _same(outlet: Outlet, one: str, other: str) -> sql.Composable:
    return sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(sql.Identifier(one, name), sql.Identifier(other, name))
        for name in outlet.key
    )


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))
