"""Predicates: the conditions that restrict which rows of a table a key's holder sees."""

from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from api.errors import QueryRefused
from api.parse import parse, refuse
from api.places import DIALECT
from etl_procs.columns import Columns

AROUND = "SELECT 1 FROM t WHERE "
"""The shortest query that a predicate stands in, so that what parses queries parses it, too."""
OF_A_QUERY = frozenset({"expressions", "from_", "where"})
HINT = "Write one condition over the table's own columns, as in: region = 'north' AND price < 10"


def normal(predicate: str, columns: Columns | None) -> str:
    """Check a predicate, and write it as PostgreSQL's SQL with every name quoted, in parentheses.

    Without `columns`, whether they are there and what types they have is not known.
    """
    query = parse(AROUND + predicate)
    others = {name for name, value in query.args.items() if value} - OF_A_QUERY
    if not isinstance(query, exp.Select) or others or "where" not in query.args:
        raise QueryRefused(f"{predicate!r} is more than a condition", hint=HINT)
    condition = query.args["where"].this
    for node in condition.walk():
        if isinstance(node, (exp.Query, exp.AggFunc, exp.Window, exp.Star)):
            raise refuse(node, f"{node.key.upper()} does not look at one row", HINT)
        if isinstance(node, exp.Column):
            _check_column(node, columns)
    if columns is not None and _type(query, columns) not in (exp.DType.BOOLEAN, exp.DType.UNKNOWN):
        raise QueryRefused(f"{predicate!r} is neither true nor false", hint=HINT)
    return f"({condition.sql(DIALECT, identify=True, comments=False)})"


def _check_column(column: exp.Column, columns: Columns | None) -> None:
    if column.table:
        raise refuse(column, f"{column.sql(DIALECT)} names a table", HINT)
    if columns is not None and column.name not in columns.names:
        known = ", ".join(columns.names)
        raise refuse(column, f"there is no column {column.name}", f"The columns are: {known}.")


def _type(query: exp.Query, columns: Columns) -> exp.DType | None:
    types = {column.name: column.type.value for column in columns.columns}
    query = query.copy()
    for column in query.find_all(exp.Column):
        column.set("table", exp.to_identifier("t"))  # or their types are not looked for
    condition = annotate_types(query, schema={"t": types}, dialect=DIALECT).args["where"].this
    return condition.type.this if condition.type else None
