"""A check's SQL with one part lacking, or a bound too strict or too lax: broken builds of it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from sqlglot import exp, parse_one

Change = Callable[[Any], Any]

GIVEN = ("batch", "told")
"""The queries that every check may refer to."""

BOUNDS: dict[type[Any], type[Any]] = {
    exp.GTE: exp.GT,
    exp.GT: exp.GTE,
    exp.LTE: exp.LT,
    exp.LT: exp.LTE,
}


def broken(sql: str) -> Iterator[tuple[str, str]]:
    """Tell what may lack in a query, and how it reads then."""
    whole = parse_one(sql, dialect="postgres")
    seen = {whole.sql("postgres")}
    for number, node in enumerate(whole.walk()):
        for what, change in _changes(node) if _is_of_the_check(node) else ():
            copy = whole.copy()
            same = next(each for n, each in enumerate(copy.walk()) if n == number)
            same.replace(change(same))
            text = copy.sql("postgres")
            if text not in seen:
                seen.add(text)
                yield f"{number}, {what}: {node.sql('postgres')}", text
    for batch in _batches(whole):
        series = "GENERATE_SERIES(1, 3) AS n"
        left = f"(SELECT n FROM {series} WHERE n <> {batch}) AS n"
        yield f"without batch {batch}", whole.sql("postgres").replace(series, left, 1)


def _is_of_the_check(node: Any) -> bool:
    given = node if isinstance(node, exp.CTE) else node.find_ancestor(exp.CTE)
    return given is None or given.alias not in GIVEN


def _batches(whole: Any) -> tuple[int, ...]:
    """Name the batches that can be forgotten: of a check that looks at each of them."""
    tables = [table for table in whole.find_all(exp.Table) if _is_of_the_check(table)]
    each = any(table.name == "batch" for table in tables)
    return (1, 2, 3) if each and "batchid = 1" not in whole.sql("postgres") else ()


def _changes(node: Any) -> Iterator[tuple[str, Change]]:
    match node:
        case exp.Sub(expression=exp.Literal(this="0")) | exp.And(expression=exp.Boolean()):
            pass  # nothing lacks then
        case exp.And() | exp.Or() | exp.Add() | exp.Sub():
            yield "without the right", lambda of: of.left.copy()
            if not isinstance(node, exp.Sub):
                yield "without the left", lambda of: of.right.copy()
        case exp.In() if len(node.expressions) > 1:
            for place, value in enumerate(node.expressions):
                yield f"without {value.sql()}", partial(_without, place)
        case exp.Between():
            yield "without the end", lambda of: _bound(exp.GTE, of, "low")
            yield "without the beginning", lambda of: _bound(exp.LTE, of, "high")
            yield "after the beginning", lambda of: _both(exp.GT, exp.LTE, of)
            yield "before the end", lambda of: _both(exp.GTE, exp.LT, of)
        case exp.GTE() | exp.GT() | exp.LTE() | exp.LT():
            yield "with another bound", lambda of: BOUNDS[type(of)](**of.copy().args)
        case exp.Union():
            yield "without the second", lambda of: _alone(of, of.this)
            yield "without the first", lambda of: _alone(of, of.expression)
        case exp.Distinct():
            yield "repeats too", lambda of: of.expressions[0].copy()
        case exp.Coalesce() | exp.Upper() | exp.Filter():
            yield "as it is", lambda of: of.this.copy()
        case exp.Join(side="LEFT") if node.this.name == "dimdate":
            yield (
                "only what has a day",
                lambda of: exp.Join(this=of.this.copy(), on=of.args["on"].copy()),
            )


def _without(place: int, of: Any) -> Any:
    copy = of.copy()
    copy.set("expressions", [v for n, v in enumerate(copy.expressions) if n != place])
    return copy


def _bound(kind: type[Any], of: Any, end: str) -> Any:
    return kind(this=of.this.copy(), expression=of.args[end].copy())


def _both(low: type[Any], high: type[Any], of: Any) -> Any:
    return exp.paren(exp.and_(_bound(low, of, "low"), _bound(high, of, "high")))


def _alone(of: Any, half: Any) -> Any:
    """Give half of a union, with what both refer to."""
    copy = half.copy()
    for name in ("with", "with_"):
        if of.args.get(name):
            copy.set(name, of.args[name].copy())
    return copy
