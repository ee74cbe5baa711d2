"""Pieces: what of a join each engine is asked for in one go, and the join of the pieces here.

A piece is a table, or several that one engine joins by itself: those of which nothing is staged.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from sqlglot import exp

from api.joined import Source, conditions, tables
from api.kinds import Kind, of_columns
from api.resolve import Template
from api.split import Split, tables_of


@dataclass(frozen=True, slots=True)
class Piece:
    """What one engine is asked for."""

    sources: tuple[Source, ...]
    columns: Mapping[str, Kind]
    """By the names that they have in the piece."""
    asked: Template
    """In the engine's dialect, with a mark for each source."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """All of a query's, and what is made of them."""

    pieces: tuple[Piece, ...]
    here: Template
    """The query's part in DuckDB's SQL, with a mark for each piece."""


def groups(divided: Split, engines: Sequence[object]) -> list[tuple[int, ...]]:
    """Find the tables that can be joined before others are, by the engine that has them; None is
    the engine of one of which rows are staged.

    Where a join makes up rows for what finds no partner, the order of joins counts: then only the
    first tables of the query can be.
    """
    if not _are_inner(divided.part):
        first = tuple(takewhile(lambda n: engines[n] is engines[0], range(len(engines))))
        return [first] if engines[0] is not None and len(first) > 1 else []
    numbers = {source.name: number for number, source in enumerate(divided.sources)}
    group_of: dict[int, tuple[int, ...]] = {number: (number,) for number in range(len(engines))}
    for condition in _conditions(divided.part):
        named = [numbers[name] for name in tables(condition)]
        if named and engines[named[0]] is not None and len({engines[n] for n in named}) == 1:
            merged = tuple(sorted({n for one in named for n in group_of[one]}))
            group_of.update(dict.fromkeys(merged, merged))
    return [group for group in dict.fromkeys(group_of.values()) if len(group) > 1]


def cut(
    divided: Split,
    dialects: Sequence[str],
    staged: Container[int],
    together: Sequence[tuple[int, ...]] = (),
) -> Pieces:
    """Ask for groups of tables as joined, and for each other table by itself: where rows of it are
    staged, also for its key.
    """
    of = {number: group for group in together for number in group}
    firsts = [n for n in range(len(divided.sources)) if of.get(n, (n,))[0] == n]
    made = tuple(
        _joined(divided, of[n], dialects[n])
        if n in of
        else _alone(divided, n, dialects[n], with_key=n in staged)
        for n in firsts
    )
    if not together:
        return Pieces(made, divided.asked("duckdb"))
    return Pieces(made, divided.written(_over(divided, of, firsts), "duckdb"))


def _alone(divided: Split, number: int, dialect: str, *, with_key: bool) -> Piece:
    source, table = divided.sources[number], tables_of(divided.part)[number]
    kinds = of_columns(source.shown.outlet)
    names = dict.fromkeys([*source.needed, *(source.shown.outlet.key if with_key else ())])
    query = exp.select(*(exp.column(n, table=source.name, quoted=True) for n in names))
    query.set("from_", exp.From(this=table.copy()))
    if source.filter is not None:
        query.set("where", exp.Where(this=source.filter.copy()))
    return Piece((source,), {name: kinds[name] for name in names}, divided.written(query, dialect))


def _joined(divided: Split, group: tuple[int, ...], dialect: str) -> Piece:
    """Join a group of tables as the query does, and keep what it or its other joins read."""
    found = tables_of(divided.part)
    sources = tuple(divided.sources[number] for number in group)
    query, columns = exp.Select(), {}
    for number, source in zip(group, sources, strict=True):
        kinds = of_columns(source.shown.outlet)
        for name in source.needed:
            column = exp.column(name, table=source.name, quoted=True)
            columns[_renamed(number, name)] = kinds[name]
            query.append("expressions", exp.alias_(column, _renamed(number, name), quoted=True))
    query.set("from_", exp.From(this=found[group[0]].copy()))
    if _are_inner(divided.part):
        query.set("joins", [_crossed(found[number]) for number in group[1:]])
        held = _within(divided, group)
    else:
        query.set("joins", [join.copy() for join in divided.part.args["joins"][: len(group) - 1]])
        held = [source.filter for source in sources if source.filter is not None]
    query.set("where", _where(held))
    return Piece(sources, columns, divided.written(query, dialect))


def _over(divided: Split, of: Mapping[int, tuple[int, ...]], firsts: Sequence[int]) -> exp.Select:
    """Write the query's part over groups, each under the name of its first table."""
    part, found = divided.part.copy(), tables_of(divided.part)
    numbers = {source.name: number for number, source in enumerate(divided.sources)}
    if _are_inner(part):
        done = [one for group in set(of.values()) for one in _within(divided, group)]
        part.set("where", _where([one for one in _conditions(part) if one not in done]))
        part.args["from_"].set("this", found[firsts[0]].copy())
        part.set("joins", [_crossed(found[number]) for number in firsts[1:]])
    else:
        part.set("joins", part.args["joins"][len(of) - 1 :])
    for column in part.find_all(exp.Column):
        if (number := numbers[column.table]) in of:
            first = divided.sources[of[number][0]].name
            column.set("this", exp.to_identifier(_renamed(number, column.name), quoted=True))
            column.set("table", exp.to_identifier(first, quoted=True))
    return part


def _renamed(number: int, name: str) -> str:
    return f"{number}_{name}"


def _are_inner(part: exp.Select) -> bool:
    return not any(join.side for join in part.args.get("joins") or ())


def _crossed(table: exp.Table) -> exp.Join:
    return exp.Join(this=table.copy(), kind="CROSS")


def _conditions(part: exp.Select) -> list[exp.Expr]:
    """Give what must hold of a row where all joins are inner, wherever it is written."""
    joins = part.args.get("joins") or ()
    clauses = [part.args.get("where"), *(join.args.get("on") for join in joins)]
    return [one for clause in clauses for one in conditions(clause)]


def _within(divided: Split, group: tuple[int, ...]) -> list[exp.Expr]:
    """Give the conditions that are about tables of a group alone."""
    names = {divided.sources[number].name for number in group}
    return [one for one in _conditions(divided.part) if tables(one) and tables(one) <= names]


def _where(held: Sequence[exp.Expr]) -> exp.Where | None:
    return exp.Where(this=exp.and_(*(one.copy() for one in held))) if held else None
