"""Joined tables: what a query of one SELECT reads of which table, and under which name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp, parse_one

from api.catalogue import Shown
from api.kinds import Alike, in_duckdb, of_columns
from api.resolve import Resolved

CLAUSES = frozenset(
    {
        *("expressions", "from_", "joins", "where", "group", "having"),
        *("order", "limit", "offset", "distinct"),
    }
)


class NotAlike(Exception):
    """Why a query is left to PostgreSQL as a whole."""


@dataclass(frozen=True, slots=True)
class Source:
    """A table of a query, under its name there."""

    name: str
    shown: Shown
    columns: tuple[str, ...]
    """Those that the query reads."""
    restricted: str
    """What the caller is restricted to, in DuckDB's SQL."""
    filter: exp.Expr | None
    """What of the query's conditions every row of it must meet."""

    @property
    def needed(self) -> tuple[str, ...]:
        """Name the columns that are brought here: at least one, or no row would be."""
        return self.columns or self.shown.columns[:1]


def joined(resolved: Resolved, *, orders_text: bool) -> "Joined":
    """Look at the tables of a query, or raise why it is left to PostgreSQL."""
    query = resolved.query
    odd = {name for name, value in query.args.items() if value} - CLAUSES
    if not isinstance(query, exp.Select) or odd or not query.args.get("from_"):
        raise NotAlike("only a SELECT of tables, without subqueries, is divided")
    joins = query.args.get("joins") or []
    tables = [query.args["from_"].this, *(join.this for join in joins)]
    if [id(table) for table in tables] != [id(table) for table, _ in resolved.places]:
        raise NotAlike("only a SELECT of tables, without subqueries, is divided")
    for table in tables:
        alias = table.args.get("alias")
        if table.args.get("joins") or (alias and alias.columns):
            raise NotAlike("joins in parentheses and names for columns are PostgreSQL's to read")
    names = [table.alias or table.name for table in tables]
    if len(set(names)) < len(names):
        raise NotAlike("two tables have one name")
    shown = dict(zip(names, (one for _, one in resolved.places), strict=True))
    return Joined(_qualified(query, shown), shown, orders_text)


class Joined:
    """A SELECT of tables, in which every column has the name of its table before it."""

    def __init__(self, query: exp.Select, tables: Mapping[str, Shown], orders_text: bool) -> None:
        self.query = query
        self.tables = tables
        self.orders_text = orders_text
        self.joins: Sequence[exp.Join] = query.args.get("joins") or []
        kinds = {
            (name, column): kind
            for name, shown in tables.items()
            for column, kind in of_columns(shown.outlet).items()
            if column in shown.columns
        }
        self.alike = Alike(kinds, orders_text=orders_text)
        self.items = [item for one in query.expressions for item in self._starred(one)]
        where = query.args.get("where")
        for condition in [where and where.this, *(join.args.get("on") for join in self.joins)]:
            if not self.alike.is_condition(condition):
                raise NotAlike(f"{condition.sql('postgres')} is PostgreSQL's to decide")
        if any(join.args.get("using") or join.method for join in self.joins):
            raise NotAlike("USING and NATURAL are PostgreSQL's to read")

    def sources(self) -> tuple[Source, ...]:
        """Tell what is read of each table."""
        return tuple(map(self._source, self.tables))

    def qualify(self, column: exp.Column) -> None:
        """Write the name of its table before a column, if it is clear which it is."""
        _qualify(column, self.tables)

    def _source(self, name: str) -> Source:
        shown = self.tables[name]
        items = [*self.items, *self.query.find_all(exp.Column)]
        read = {
            c.name for item in items for c in item.find_all(exp.Column) if c.table in ("", name)
        }
        columns = tuple(column for column in shown.columns if column in read)
        restricted = ""
        if shown.where:
            where = parse_one(shown.where, dialect="postgres")
            kinds = {("", column): kind for column, kind in of_columns(shown.outlet).items()}
            if not Alike(kinds, orders_text=self.orders_text).is_condition(where):
                raise NotAlike("which rows the key may see is PostgreSQL's to decide")
            restricted = in_duckdb(where)
        return Source(name, shown, columns, restricted, self._filter(name))

    def _filter(self, name: str) -> exp.Expr | None:
        """Find the conditions that rows of one table must meet, whatever they are joined with."""
        if name in self._nullable():
            return None
        found = [one for one in conditions(self.query.args.get("where")) if tables(one) == {name}]
        return exp.and_(*found) if found else None

    def _nullable(self) -> set[str]:
        """Tell of which tables a join may make rows of NULLs."""
        names = list(self.tables)
        found: set[str] = set()
        for number, join in enumerate(self.query.args.get("joins") or [], 1):
            if join.side in ("LEFT", "FULL"):
                found.add(names[number])
            if join.side in ("RIGHT", "FULL"):
                found.update(names[:number])
        return found

    def _starred(self, item: exp.Expr) -> list[exp.Expr]:
        """Write * out."""
        if isinstance(item, exp.Star):
            of = list(self.tables)
        elif isinstance(item, exp.Column) and item.is_star:
            of = [name for name in self.tables if name == item.table]
        else:
            return [item]
        return [
            exp.column(exp.to_identifier(column), table=exp.to_identifier(name))
            for name in of
            for column in self.tables[name].columns
        ]


def conditions(clause: exp.Expr | None) -> list[exp.Expr]:
    """Give what must all hold by a WHERE, or by a condition; nothing if there is none."""
    inside = clause.this if isinstance(clause, exp.Where) else clause
    if inside is None:
        return []
    return list(inside.flatten()) if isinstance(inside, exp.And) else [inside]


def tables(condition: exp.Expr) -> set[str]:
    """Name the tables that a condition is about."""
    return {column.table for column in condition.find_all(exp.Column)}


def _qualified(query: exp.Select, tables: Mapping[str, Shown]) -> exp.Select:
    """Write the names of their tables before the columns, where it is clear which it is."""
    for node in query.walk():
        node.meta.clear()  # places in the text: what is copied of the query has no use for them
    query = query.copy()
    for column in list(query.find_all(exp.Column)):
        # In ORDER BY, a bare name is that of an item if one has it.
        if not column.table and not isinstance(column.parent, exp.Ordered):
            _qualify(column, tables)
    return query


def _qualify(column: exp.Column, tables: Mapping[str, Shown]) -> None:
    of = [name for name, shown in tables.items() if column.name in shown.columns]
    if len(of) == 1:
        column.set("table", exp.to_identifier(of[0]))
