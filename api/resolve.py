"""Resolving: which names in a query are tables of the catalogue, and which the query's own."""

import secrets
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from api import grammar
from api.catalogue import Catalogue, Shown
from api.errors import QueryRefused
from api.parse import ALLOWED, Parameter, parse, put, refuse, render

# What a table in a FROM clause may have beside its name; `joins` are those in its parentheses.
TABLE_PARTS = frozenset({"this", "db", "alias", "joins"})

# Names that PostgreSQL gives to columns that have none.
GIVEN_NAMES = frozenset(
    {name.lower() for function in grammar.FUNCTIONS for name in function.sql_names()}
    | {"array", "bool_and", "bool_or", "case", "column1", "date_trunc", "now", "position"}
    | {"string_agg", "to_timestamp"}
)

Nodes = Mapping[type[exp.Expr], Sequence[Any]]
"""The nodes of a query, by what they are."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A query, and each place in it where a table of the catalogue stands."""

    query: exp.Query
    places: tuple[tuple[exp.Table, Shown], ...]

    def template(self) -> "Template":
        """Write the query once, with a mark for each table. It changes the tree."""
        for number, (table, _) in enumerate(self.places):
            mark(table, number)
        return Template(render(self.query), len(self.places))


@dataclass(frozen=True, slots=True)
class Template:
    """A query as text, with a mark in the place of each table's name."""

    text: str
    tables: int

    def bound(self, values: Mapping[str, str]) -> "Template":
        """Put values of parameters in the places of their marks."""
        return replace(self, text=put(self.text, values))

    def filled(self, sources: Sequence[str]) -> str:
        """Put a subquery in each place."""
        assert len(sources) == self.tables
        text = self.text
        for number, source in enumerate(sources):
            text = text.replace(f'"{MARK}{number}"', f"({source})")
        return text


def mark(table: exp.Table, number: int) -> None:
    """Put a mark in the place of a table's name; in the query it is called as before."""
    if not table.args.get("alias"):
        table.set("alias", exp.TableAlias(this=table.this))
    table.set("this", exp.to_identifier(f"{MARK}{number}"))
    table.set("db", None)


# Nobody who writes a query can know it, so no text of theirs can hold it.
MARK = f"headrace_{secrets.token_hex(16)}_"


def resolve(
    sql: str,
    catalogue: Catalogue,
    parameters: Sequence[Parameter] = (),
    marked: AbstractSet[int] = frozenset(),
) -> Resolved:
    """Parse a query and find its tables; refuse names that are neither."""
    query = parse(sql, parameters, marked)
    places = tuple(
        (table, _find(table, catalogue)) for table in _tables(query, visible=frozenset())
    )
    nodes = defaultdict(list)
    for node in query.walk():
        nodes[type(node)].append(node)
    _check_attributes(nodes, catalogue)
    return Resolved(query, _narrowed(nodes, places))


def _narrowed(
    nodes: Nodes, places: tuple[tuple[exp.Table, Shown], ...]
) -> tuple[tuple[exp.Table, Shown], ...]:
    """Leave out columns that the query does not name; none, where it may mean all of a table."""
    named = {identifier.name.lower() for identifier in nodes[exp.Identifier]}
    tables = {table.alias_or_name for table, _ in places}
    tables |= {alias.name for alias in nodes[exp.TableAlias]}
    if (
        any(not isinstance(star.parent, exp.Count) for star in nodes[exp.Star])
        or any(column.name in tables for column in nodes[exp.Column])
        or any(alias.columns for alias in nodes[exp.TableAlias])
        or any(join.method for join in nodes[exp.Join])
    ):
        return places
    found = []
    for table, shown in places:
        names = tuple(name for name in shown.columns if name in named)
        found.append((table, replace(shown, columns=names or shown.columns[:1])))
    return tuple(found)


def _tables(node: exp.Expr, visible: frozenset[str]) -> Iterator[exp.Table]:
    """Find the tables that are not CTEs, given the CTEs that are `visible` around the node.

    A CTE sees those before it, and hides a table of the same name from all but itself. After
    WITH RECURSIVE each sees all, itself included.
    """
    with_ = node.args.get("with_")
    if with_:
        names = frozenset(cte.alias for cte in with_.expressions)
        inside = visible | names if with_.recursive else visible
        for cte in with_.expressions:
            yield from _tables(cte.this, inside)
            inside |= {cte.alias}
        visible |= names
    if isinstance(node, exp.Table) and (node.db or node.name not in visible):
        yield node
    for child in node.iter_expressions():
        if child is not with_:
            yield from _tables(child, visible)


def _find(table: exp.Table, catalogue: Catalogue) -> Shown:
    odd = {part for part, value in table.args.items() if value} - TABLE_PARTS
    if odd or not isinstance(table.this, exp.Identifier):
        raise refuse(table, f"{table.sql('postgres')} is not a plain table", ALLOWED)
    try:
        return catalogue.find(table.db, table.name)
    except QueryRefused as error:
        raise refuse(table, error.what, error.hint) from error


def _check_attributes(nodes: Nodes, catalogue: Catalogue) -> None:
    """Refuse t.f where f can be no column: PostgreSQL would read it as f(t), a function."""
    aliases = {alias.alias for alias in nodes[exp.Alias]}
    aliases |= {column.name for alias in nodes[exp.TableAlias] for column in alias.columns}
    known = catalogue.columns | aliases | GIVEN_NAMES
    for column in nodes[exp.Column]:
        if column.table and not column.is_star and column.name not in known:
            raise refuse(column, f"there is no column {column.name}", ALLOWED)
