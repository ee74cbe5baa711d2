"""Sources: what stands in a query in the place of a table, in PostgreSQL's SQL.

Rows that are there and rows that were shipped are added up. For an outlet with a key these are
operations: a row that is there counts if none of them has its key.

Many rows are shipped into a temporary table. A few are written into the query: PostgreSQL reads a
temporary table in one process, and these in several. Then what tells apart by key stands around
the union, whose members are plain: so both can be read in the order that the query wants.
"""

from collections.abc import Sequence
from typing import LiteralString

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from api.catalogue import Shown
from api.cut import Part, There
from api.few import Few
from etl_procs.columns import Column, Type
from etl_procs.model import Outlet
from migrations import tables

SELECT: LiteralString = "SELECT {columns} FROM {table} AS there"
NOT_SHIPPED: LiteralString = "NOT EXISTS (SELECT FROM pg_temp.{shipped} AS staged WHERE {same})"
SHIPPED: LiteralString = "SELECT {columns} FROM pg_temp.{shipped} AS staged"
NOT_DELETED: LiteralString = "NOT {deleted}"

BOTH: LiteralString = """\
SELECT {columns} FROM (
SELECT {all}, true AS _there FROM {table} AS there UNION ALL SELECT {all}, false FROM {written}
) AS staged"""
NOT_WRITTEN: LiteralString = "({key}) NOT IN (SELECT * FROM {written})"
NONE_OF: LiteralString = "{key} <> ALL ({values})"
"""The same of one column; of this, PostgreSQL knows how many rows it leaves."""
OUTSIDE: LiteralString = "{name} < {least} OR {name} > {most}"
IS_WRITTEN: LiteralString = "(NOT _there OR {not_written})"
WRITTEN: LiteralString = "unnest({values}) AS staged ({names})"
ORDERED = {Type.INTEGER, Type.NUMERIC, Type.DATE, Type.TIMESTAMP}
"""Types of which PostgreSQL and Arrow know the same order."""
UNKNOWN = "..."
"""What is shown of values that were not read."""

CREATE: LiteralString = """\
CREATE TEMPORARY TABLE {name} ON COMMIT DELETE ROWS AS SELECT * FROM {delta} WITH NO DATA"""
CREATE_TYPED: LiteralString = "CREATE TEMPORARY TABLE {name} ({columns}) ON COMMIT DELETE ROWS"

BOUNDED: LiteralString = """\
(SELECT {columns} FROM {main} UNION ALL SELECT {columns} FROM {delta} AS delta WHERE {within})"""
WITHIN: LiteralString = "(delta.{partition} = {number} AND delta.{batch} <= {through})"

BATCH, DELETED, PARTITION = map(sql.Identifier, (tables.BATCH, tables.DELETED, tables.PARTITION))


def created(name: str, outlet: Outlet, *, has_delta: bool) -> sql.Composed:
    """Make the statement of a temporary table: as delta is, if there is one."""
    if has_delta:
        delta = tables.identifier(tables.delta(outlet))
        return sql.SQL(CREATE).format(name=sql.Identifier(name), delta=delta)
    own = [(BATCH, "bigint"), (PARTITION, "integer")]
    return _typed(name, [*own, (DELETED, "boolean")] if outlet.key else own, outlet)


def created_for_lent(name: str, outlet: Outlet) -> sql.Composed:
    """Make the statement of a temporary table of what another engine has."""
    return _typed(name, [], outlet)


def _typed(
    name: str, own: Sequence[tuple[sql.Identifier, LiteralString]], outlet: Outlet
) -> sql.Composed:
    of_outlet = [(sql.Identifier(c.name), _type(c)) for c in outlet.columns.columns]
    columns = [sql.SQL("{} {}").format(n, sql.SQL(t)) for n, t in (*own, *of_outlet)]
    return sql.SQL(CREATE_TYPED).format(
        name=sql.Identifier(name), columns=sql.SQL(", ").join(columns)
    )


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


def there_unless_written(shown: Shown, part: Part, few: Few | None) -> sql.Composed:
    """Select what it has, but for the keys of rows; None: they are not known yet."""
    return _there(shown, part, [_not_written(shown.outlet, few)])


def whole_written(shown: Shown, part: Part, few: Few | None) -> sql.Composed:
    """Select what it has, and these rows."""
    outlet, conditions = shown.outlet, list[sql.Composable]()
    columns = outlet.columns.columns
    if not shown.where:  # which may name any of them
        columns = tuple(c for c in columns if c.name in (*shown.columns, *outlet.key))
    added = few
    if outlet.key:
        not_written = _not_written(outlet, few)
        conditions.append(sql.SQL(IS_WRITTEN).format(not_written=not_written))
        added = few and few.added
    both = sql.SQL(BOTH).format(
        columns=_names(shown.columns),
        all=_names([column.name for column in columns]),
        table=_table(outlet, part),
        written=written(columns, added),
    )
    return both + _where(shown, conditions)


def _not_written(outlet: Outlet, few: Few | None) -> sql.Composed:
    columns = [column for column in outlet.columns.columns if column.name in outlet.key]
    names = _names([column.name for column in columns])
    if len(columns) == 1:
        is_new = sql.SQL(NONE_OF).format(key=names, values=_values(columns[0], few))
    else:
        is_new = sql.SQL(NOT_WRITTEN).format(key=names, written=written(columns, few))
    if few is None or not len(few.rows):
        return is_new
    outside = [_outside(c, few.rows[c.name]) for c in columns if c.type in ORDERED]
    return sql.SQL("({})").format(sql.SQL(" OR ").join([*outside, is_new]))


def _outside(column: Column, values: pa.ChunkedArray) -> sql.Composed:
    """Compare with the least and the most: PostgreSQL tells so at once of keys that are all new,
    and knows from its statistics how many there are, which it does not of NOT IN.
    """
    extremes = pc.cast(pa.array(pc.min_max(values).values()), pa.string()).to_pylist()
    least, most = (
        sql.SQL("{}::{}").format(sql.Literal(one), sql.SQL(_type(column))) for one in extremes
    )
    return sql.SQL(OUTSIDE).format(name=sql.Identifier(column.name), least=least, most=most)


def written(columns: Sequence[Column], few: Few | None) -> sql.Composed:
    """Write rows as what stands in a FROM clause."""
    values = [_values(column, few) for column in columns]
    names = _names([column.name for column in columns])
    return sql.SQL(WRITTEN).format(values=sql.SQL(", ").join(values), names=names)


def _values(column: Column, few: Few | None) -> sql.Composed:
    array = UNKNOWN if few is None else few.array(column)
    return sql.SQL("{}::{}[]").format(sql.Literal(array), sql.SQL(_type(column)))


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
        case There.LENT:
            return sql.Identifier("pg_temp", part.lent)
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
