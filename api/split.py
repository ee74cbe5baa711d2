"""Splitting: a query of one table as a part for each side, and what makes an answer of the parts.

The same part is asked of what a warehouse has and of what is staged. Its columns, the cells, are
groups and what aggregates are made of; or, where nothing is aggregated, the values themselves. The
cells of both sides are merged, and the answer's columns are computed of what comes out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from api.joined import Joined, NotAlike, Source, joined
from api.kinds import BOOLEAN, INTEGER, Alike, Kind, Sort, in_duckdb
from api.parse import flat, put, render
from api.resolve import Resolved, Template, mark
from etl_procs.columns import PRECISION_MOST

PARTS, MERGED = "parts", "merged"
LIMIT_MOST = 10**9


@dataclass(frozen=True, slots=True)
class Cell:
    """A column of the parts, and how those of both sides become one."""

    expression: exp.Expr
    kind: Kind
    merge: str = ""
    """The aggregate over the parts; empty: they are grouped by it."""


@dataclass(frozen=True, slots=True)
class Out:
    """A column of the answer."""

    expression: exp.Expr
    """Over the cells, merged; of an average, its sum."""
    kind: Kind
    count: exp.Expr | None = None
    """Of an average, by what the sum is divided, as PostgreSQL divides decimals."""


@dataclass(frozen=True, slots=True)
class Split:
    """A query in parts."""

    sources: tuple[Source, ...]
    """One for each place in the text."""
    part: exp.Select
    """The part, over the tables by their own names."""
    cells: tuple[Cell, ...]
    merged: str
    """DuckDB's SQL over `parts`, with the columns o0, o1 and so on, and n0 of what o0 is divided
    by; empty: the parts follow each other as they are.
    """
    outs: tuple[Out, ...]
    values: Mapping[str, str] = field(default_factory=dict)
    """Of parameters, by their marks: the texts have the values, the expressions the marks."""
    _asked: dict[str, Template] = field(default_factory=dict, repr=False, compare=False)
    """The part as text, in each dialect that it was asked for in, with the marks."""

    def bound(self, values: Mapping[str, str]) -> "Split":
        """Put values of parameters in the places of their marks."""
        return replace(self, merged=put(self.merged, values), values=values)

    def asked(self, dialect: str) -> Template:
        """Give the part as text, in an engine's dialect."""
        if dialect not in self._asked:
            self._asked[dialect] = written(self.part, dialect)
        return self._asked[dialect].bound(self.values)

    def written(self, query: exp.Select, dialect: str) -> Template:
        """Write what was made of its part."""
        return written(query, dialect).bound(self.values)


def split(resolved: Resolved, *, orders_text: bool) -> Split:
    """Split a query, or raise why it cannot be."""
    return _Splitting(joined(resolved, orders_text=orders_text)).done()


@flat()
def written(query: exp.Select, dialect: str) -> Template:
    """Write a SELECT of tables in a dialect, with a mark for each of them."""
    query = query.copy()
    tables = tables_of(query)
    for number, table in enumerate(tables):
        mark(table, number)
    text = render(query) if dialect == "postgres" else in_duckdb(query)
    return Template(text, len(tables))


def tables_of(query: exp.Select) -> list[exp.Table]:
    """Give what stands in a query's FROM, in order."""
    return [query.args["from_"].this, *(join.this for join in query.args.get("joins") or ())]


class _Splitting:
    def __init__(self, joined: Joined) -> None:
        self.joined = joined
        self.query, self.items = joined.query, joined.items
        self.cells: list[Cell] = []
        group = self.query.args.get("group")
        self.grouped = group is not None or any(one.find(exp.AggFunc) for one in self.items)
        self.distinct = self.query.args.get("distinct") is not None

    def done(self) -> Split:
        where = self.query.args.get("where")
        self._check_group()
        keys = [self._cell(key) for key in self._keys()] if self.grouped else []
        outs = tuple(self._out(item.unalias()) for item in self.items)
        having = self.query.args.get("having")
        condition = self._over_cells(having.this)[0] if having else None
        order = [self._ordered(one) for one in self._order()]
        part = exp.Select(expressions=[_named(c.expression, n) for n, c in enumerate(self.cells)])
        part.set("from_", self.query.args["from_"].copy())
        part.set("joins", [join.copy() for join in self.joined.joins])
        part.set("where", where.copy() if where else None)
        limit, offset = self._number("limit"), self._number("offset")
        if self.grouped and keys:
            part.set("group", exp.Group(expressions=[self.cells[n].expression for n in keys]))
        elif not self.grouped:
            part.set("distinct", exp.Distinct() if self.distinct else None)
            if limit is not None:
                part.set("order", exp.Order(expressions=self._pushed()) if order else None)
                part.set("limit", exp.Limit(expression=exp.Literal.number(limit + (offset or 0))))
        merged = ""
        if self.grouped or self.distinct or order or limit is not None or offset is not None:
            merged = self._merged(outs, keys, condition, order, limit, offset)
        return Split(
            self.joined.sources(),
            part,
            tuple(self.cells),
            merged,
            outs,
        )

    def _check_group(self) -> None:
        group = self.query.args.get("group")
        if group and {name for name, value in group.args.items() if value} - {"expressions"}:
            raise NotAlike("sets of groups are PostgreSQL's to make")
        if self.grouped and self.distinct:
            raise NotAlike("DISTINCT over groups is PostgreSQL's to make")
        if self.distinct and self.query.args["distinct"].args.get("on"):
            raise NotAlike("DISTINCT ON is PostgreSQL's to make")

    def _keys(self) -> list[exp.Expr]:
        group = self.query.args.get("group")
        found = []
        for key in group.expressions if group else []:
            key = self._meant(key)
            if not self.joined.alike.can_group(self.joined.alike.kind(key)) or _is_literal(key):
                raise NotAlike(f"groups by {key.sql('postgres')} are PostgreSQL's to make")
            found.append(key)
        return found

    def _meant(self, node: exp.Expr) -> exp.Expr:
        """Find what a number or the name of an item stands for in GROUP BY and ORDER BY."""
        if isinstance(node, exp.Literal) and not node.is_string:
            number = int(node.name) if node.name.isdecimal() else 0
            if not 1 <= number <= len(self.items):
                raise NotAlike("PostgreSQL is to say what is wrong with it")
            return self.items[number - 1].unalias()
        if isinstance(node, exp.Column) and not node.table:
            named = [one for one in self.items if one.alias_or_name == node.name]
            if len(named) == 1:
                return named[0].unalias()
            if named:
                raise NotAlike(f"{node.name} may be one of several columns")
            self.joined.qualify(node)
        return node

    def _cell(self, node: exp.Expr, merge: str = "", kind: Kind | None = None) -> int:
        """Find the cell of an expression, or make it."""
        kind = kind or self.joined.alike.kind(node)
        if kind is None or kind.sort in (Sort.WORDS, Sort.NULL):
            raise NotAlike(f"{node.sql('postgres')} is PostgreSQL's to compute")
        for number, cell in enumerate(self.cells):
            if cell.merge == merge and cell.expression == node:
                return number
        self.cells.append(Cell(node.copy(), kind, merge))
        return len(self.cells) - 1

    def _out(self, item: exp.Expr) -> Out:
        if isinstance(item, exp.Avg) or (
            isinstance(item, exp.Filter) and isinstance(item.this, exp.Avg)
        ):
            return self._average(item)
        expression, kind = self._over_cells(item)
        if self.distinct and not self.joined.alike.can_group(kind):
            raise NotAlike(f"{item.sql('postgres')} is PostgreSQL's to make distinct")
        return Out(expression, kind)

    def _average(self, item: exp.Expr) -> Out:
        of = item.find(exp.Avg)
        assert of is not None
        whole, count = item.copy(), item.copy()
        if isinstance(item, exp.Avg):
            whole, count = exp.Sum(this=of.this.copy()), exp.Count(this=of.this.copy())
        else:
            whole.set("this", exp.Sum(this=of.this.copy()))
            count.set("this", exp.Count(this=of.this.copy()))
        total, kind = self._over_cells(whole)
        return Out(total, kind, self._over_cells(count)[0])

    def _over_cells(self, node: exp.Expr) -> tuple[exp.Expr, Kind]:
        """Write an expression over the cells, and tell its kind there."""
        if not self.grouped:
            number = self._cell(node)
            return _cell_column(number), self.cells[number].kind
        written = self._replaced(node)
        kinds = {("", f"c{number}"): cell.kind for number, cell in enumerate(self.cells)}
        kind = Alike(kinds, orders_text=self.joined.orders_text).kind(written)
        if kind is None or kind.sort in (Sort.WORDS, Sort.NULL):
            raise NotAlike(f"{node.sql('postgres')} is PostgreSQL's to compute")
        return written, kind

    def _replaced(self, node: exp.Expr) -> exp.Expr:
        for number, cell in enumerate(self.cells):
            if not cell.merge and cell.expression == node:
                return _cell_column(number)
        inside = node.this if isinstance(node, exp.Filter) else node
        if isinstance(inside, exp.AggFunc):
            return _cell_column(self._aggregate(node, inside))
        if isinstance(node, exp.Column):
            raise NotAlike(f"{node.name} is neither a group nor aggregated")
        made = node.copy()
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                made.set(key, self._replaced(value))
            elif isinstance(value, list):
                made.set(key, [self._replaced(v) if isinstance(v, exp.Expr) else v for v in value])
        return made

    def _aggregate(self, node: exp.Expr, function: exp.AggFunc) -> int:
        if node is not function and not self.joined.alike.is_condition(node.expression.this):
            raise NotAlike(f"{node.sql('postgres')} is PostgreSQL's to compute")
        if function.expressions or function.args.get("order"):
            raise NotAlike(f"{node.sql('postgres')} is PostgreSQL's to compute")
        of = self.joined.alike.kind(function.this)
        match function:
            case exp.Count() if of or isinstance(function.this, exp.Star):
                return self._cell(node, "SUM", INTEGER)
            case exp.Sum() if of and of.sort in (Sort.INTEGER, Sort.NUMERIC):
                return self._cell(node, "SUM", Kind(Sort.NUMERIC, PRECISION_MOST, of.scale))
            case exp.Min() | exp.Max() if of and self.joined.alike.can_order(of):
                return self._cell(node, function.key.upper(), of)
            case exp.LogicalAnd() | exp.LogicalOr() if of == BOOLEAN:
                is_and = isinstance(function, exp.LogicalAnd)
                return self._cell(node, "BOOL_AND" if is_and else "BOOL_OR", BOOLEAN)
        raise NotAlike(f"{node.sql('postgres')} is PostgreSQL's to compute")

    def _order(self) -> Sequence[exp.Ordered]:
        order = self.query.args.get("order")
        return order.expressions if order else ()

    def _ordered(self, one: exp.Ordered) -> str:
        meant = self._meant(one.this)
        written, kind = self._over_cells(meant)
        if not self.joined.alike.can_order(kind):
            raise NotAlike(f"the order of {meant.sql('postgres')} is PostgreSQL's to make")
        ordered = exp.Ordered(this=written, **_direction(one))
        return in_duckdb(ordered)

    def _pushed(self) -> list[exp.Expr]:
        return [
            exp.Ordered(this=self._meant(one.this).copy(), **_direction(one))
            for one in self._order()
        ]

    def _number(self, clause: str) -> int | None:
        found = self.query.args.get(clause)
        if found is None:
            return None
        value = found.args.get("expression")
        if not isinstance(value, exp.Literal) or not value.name.isdecimal():
            raise NotAlike(f"{found.sql('postgres').strip()} is PostgreSQL's to compute")
        return min(int(value.name), LIMIT_MOST)

    def _merged(
        self,
        outs: Sequence[Out],
        keys: Sequence[int],
        condition: exp.Expr | None,
        order: Sequence[str],
        limit: int | None,
        offset: int | None,
    ) -> str:
        values = []
        for number, cell in enumerate(self.cells):
            name = f"c{number}"
            typed = f"CAST({cell.merge}({name}) AS {cell.kind.duckdb})" if cell.merge else name
            values.append(f"{typed} AS {name}")
        kept = "DISTINCT " if self.distinct else ""
        inner = f"SELECT {kept}{', '.join(values)} FROM {PARTS}"  # noqa: S608 - names of ours
        if keys:
            inner += " GROUP BY " + ", ".join(f"c{number}" for number in keys)
        wanted = [_written(out.expression, f"o{number}") for number, out in enumerate(outs)]
        wanted += [_written(o.count, f"n{number}") for number, o in enumerate(outs) if o.count]
        text = f"SELECT {', '.join(wanted)} FROM ({inner}) AS {MERGED}"  # noqa: S608 - names of ours
        if condition is not None:
            text += " WHERE " + in_duckdb(condition)
        if order:
            text += " ORDER BY " + ", ".join(order)
        if limit is not None:
            text += f" LIMIT {limit}"
        return text + (f" OFFSET {offset}" if offset is not None else "")


def _direction(one: exp.Ordered) -> dict[str, bool]:
    """Say where NULLs come: PostgreSQL takes them for the greatest, unless it is told."""
    desc = bool(one.args.get("desc"))
    first = one.args.get("nulls_first")
    return {"desc": desc, "nulls_first": desc if first is None else bool(first)}


def _written(expression: exp.Expr, name: str) -> str:
    return in_duckdb(exp.alias_(expression, name, quoted=True, copy=False))


def _named(expression: exp.Expr, number: int) -> exp.Expr:
    return exp.alias_(expression.copy(), f"c{number}", quoted=True, copy=False)


def _cell_column(number: int) -> exp.Column:
    return exp.column(f"c{number}")


def _is_literal(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal)
