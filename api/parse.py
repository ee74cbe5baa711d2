"""Parsing: text to one SELECT of which every node is allowed, or a refusal with its place."""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from itertools import pairwise
from typing import cast

from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.optimizer.normalize_identifiers import normalize_identifiers
from sqlglot.tokenizer_core import Token, TokenType

from api import grammar, places
from api.errors import QueryRefused
from api.kinds import BY_ORDER, COMPARISONS, DAY, LITERAL_MOST, MARK, MOMENT
from api.places import DIALECT, NOWHERE, Place

# It would write texts of callers, line ends and all, into our log; what it means is a refusal.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

# What may stand before JOIN as a part of it, and before a column or an alias that is called so.
BEFORE_JOIN = frozenset(
    {
        TokenType.INNER, TokenType.LEFT, TokenType.RIGHT, TokenType.FULL, TokenType.OUTER,
        TokenType.CROSS, TokenType.NATURAL, TokenType.ALIAS, TokenType.DOT,
    }
)  # fmt: skip

# What does not change how PostgreSQL names a column after the function inside.
AROUND = (exp.Window, exp.WithinGroup, exp.Filter, exp.Cast, exp.Paren, exp.Case)

# A person's or a tool's query; the parser takes 2 ms for each kilobyte.
SQL_CHARS_MAX = 32_768

WORD = re.compile(r"[A-Za-z_]+")
NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
NOT_TEXT = re.compile("[\0\ud800-\udfff]")
DIGITS = re.compile(r"_[0-9]")

ONE_SELECT = "Send one SELECT; it may have CTEs, joins, subqueries, set operations and aggregates."
ALLOWED = "docs/querying.md lists what the island answers."


Parameter = None | bool | int | float | str | Sequence["Parameter"]
"""A value that stands for $1, $2 and so on."""

COMPARED = (*COMPARISONS, *BY_ORDER, exp.In)
"""Where a value of a type may stand for every other: all else may depend on which it is."""


def parse(
    sql: str, parameters: Sequence[Parameter] = (), marked: AbstractSet[int] = frozenset()
) -> exp.Query:
    """Parse `sql`, refuse what is not allowed, and fold names as PostgreSQL does.

    In the places of the parameters whose numbers are `marked` are marks, for `put`.
    """
    statement = _bound(_one_statement(sql), parameters, marked)
    for node in statement.walk():
        _check(node, sql)
        node.pop_comments()  # else they would be written with whatever is made of a part of it
    for select in statement.find_all(exp.Select):
        select.set("expressions", [_named(item, sql) for item in select.expressions])
    return normalize_identifiers(statement, dialect=DIALECT)


@contextmanager
def flat() -> Iterator[None]:
    """Refuse what is nested more deeply than Python looks at."""
    try:
        yield
    except RecursionError as error:
        raise QueryRefused("the query is nested too deeply", hint="Flatten it.") from error


def compared(sql: str) -> frozenset[int]:
    """Name the parameters that stand in comparisons alone."""
    found: dict[bool, set[int]] = {True: set(), False: set()}
    for node in _one_statement(sql).find_all(exp.Parameter):
        if node.name.isdecimal():
            found[isinstance(node.parent, COMPARED)].add(int(node.name))
    return frozenset(found[True] - found[False])


def is_any(value: Parameter) -> bool:
    """Tell whether, where it is compared, all of its type are looked at as this value is."""
    if isinstance(value, str):
        return not (NOT_TEXT.search(value) or DAY.fullmatch(value) or MOMENT.fullmatch(value))
    return type(value) is int and 0 <= value <= LITERAL_MOST


def values(parameters: Sequence[Parameter], marked: AbstractSet[int]) -> dict[str, str]:
    """Give what stands in the place of each mark: all engines write such values alike."""
    given = [(number, parameters[number - 1]) for number in marked]
    return {_sql(_mark(v, n)): _sql(_literal(v, n)) for n, v in given}


def _sql(node: exp.Expr) -> str:
    return node.sql(DIALECT, copy=False)


def put(text: str, values: Mapping[str, str]) -> str:
    """Put values in the places of their marks."""
    for mark, value in values.items():
        text = text.replace(mark, value)
    return text


def _mark(value: Parameter, number: int) -> exp.Literal:
    return exp.Literal(this=f"{MARK}{number}_", is_string=isinstance(value, str))


def render(query: exp.Query) -> str:
    """Write a query as PostgreSQL's SQL: every name quoted, no comment left. It may change it."""
    try:
        return query.sql(
            dialect=DIALECT,
            identify=True,
            comments=False,
            unsupported_level=ErrorLevel.RAISE,
            copy=False,
        )
    except SqlglotError as error:
        raise QueryRefused(f"the query cannot be written: {error}", hint=ALLOWED) from error


def refuse(node: exp.Expr, what: str, hint: str) -> QueryRefused:
    """Make the refusal of one node."""
    return _refused(what, hint, places.of_node(node))


def _refused(what: str, hint: str, place: Place) -> QueryRefused:
    line, column = place
    return QueryRefused(what, hint=hint, line=line, column=column)


def placed(error: QueryRefused, sql: str) -> QueryRefused:
    """Tell where in the caller's text that is which PostgreSQL refuses in ours."""
    place = places.of_sent(sql, error.sent, error.offset)
    return error if place == NOWHERE else _refused(error.what, error.hint, place)


def _one_statement(sql: str) -> exp.Query:
    if len(sql) > SQL_CHARS_MAX:
        raise QueryRefused(
            f"the query has {len(sql)} characters, and {SQL_CHARS_MAX} are allowed",
            hint="Shorten it; long lists of values can often be a range or a join.",
        )
    no_text = NOT_TEXT.search(sql)
    if no_text:
        what = "the query has a NUL character or half a surrogate pair in it"
        raise _refused(what, "Take it out.", places.of_offset(sql, no_text.start()))
    try:
        tokens = places.tokenized(sql)
        _check_intervals(tokens)
        parsed = places.parsed(list(_with_inner(tokens)), sql)
    except SqlglotError as error:
        what, place = places.of_error(error, sql)
        raise _refused(f"this is not SQL: {what}", ONE_SELECT, place) from error
    if len(parsed) != 1:
        what = f"there are {len(parsed)} statements in the text"
        raise _refused(what, ONE_SELECT, places.of_statement(tokens, 1))
    if not isinstance(parsed[0], (*grammar.QUERIES, exp.Subquery)):
        what = "the statement is not a SELECT"
        raise _refused(what, ONE_SELECT, places.of_statement(tokens, 0))
    return cast(exp.Query, parsed[0])


def _bound(
    statement: exp.Query, parameters: Sequence[Parameter], marked: AbstractSet[int]
) -> exp.Query:
    """Put values in the places of parameters: as nodes of the tree, never as text."""
    used = set()
    for node in list(statement.find_all(exp.Parameter)):
        number = int(node.name) if node.name.isdecimal() else 0
        if not 1 <= number <= len(parameters):
            raise refuse(
                node,
                f"there is no value for {node.sql(DIALECT)}",
                f"{len(parameters)} parameters were sent: the first is $1.",
            )
        used.add(number)
        stands = _mark if number in marked else _literal
        try:
            node.replace(stands(parameters[number - 1], number))
        except QueryRefused as error:
            raise refuse(node, error.what, error.hint) from error
    unused = set(range(1, len(parameters) + 1)) - used
    if unused:
        raise QueryRefused(
            f"the query does not use ${min(unused)}",
            hint=f"{len(parameters)} parameters were sent; write $1 where the first belongs.",
        )
    return statement


def _literal(value: Parameter, number: int) -> exp.Expr:
    match value:
        case None:
            return exp.Null()
        case bool():
            return exp.Boolean(this=value)
        case int():
            return exp.paren(exp.Literal.number(value)) if value < 0 else exp.Literal.number(value)
        case float():
            return exp.cast(exp.Literal.string(repr(value)), exp.DType.DOUBLE)
        case str() if not NOT_TEXT.search(value):
            return exp.Literal.string(value)
        case list() | tuple():
            return exp.Array(expressions=[_literal(one, number) for one in value])
    raise QueryRefused(
        f"the value of ${number} is not one that PostgreSQL has",
        hint="A parameter is null, a boolean, a number, a text without NUL, or a list of these.",
    )


def _check_intervals(tokens: Sequence[Token]) -> None:
    """Refuse INTERVAL '1 day ago': sqlglot takes the one amount out and drops the rest."""
    for before, token in pairwise(tokens):
        if before.token_type is TokenType.INTERVAL and token.token_type is TokenType.STRING:
            amounts = exp.INTERVAL_STRING_RE.findall(token.text)
            if len(amounts) == 1 and not exp.INTERVAL_STRING_RE.fullmatch(token.text):
                what = f"the interval {token.text!r} is not an amount and a unit"
                hint = f"Write '{token.text}'::interval."
                raise _refused(what, hint, places.of_token(token))


def _with_inner(tokens: Sequence[Token]) -> Iterator[Token]:
    """Write INNER before a bare JOIN: without ON, sqlglot could not tell it from a comma."""
    before = None
    for token in tokens:
        if token.token_type is TokenType.JOIN and before not in BEFORE_JOIN:
            yield Token(TokenType.INNER, "INNER", token.line, token.col, token.start, token.end)
        yield token
        before = token.token_type


def _check(node: exp.Expr, sql: str) -> None:
    if type(node) not in grammar.ALLOWED:
        raise refuse(node, f"{_called(node, sql)} is not allowed here", ALLOWED)
    if isinstance(node, exp.Join) and _lacks_condition(node):
        hint = "Write JOIN ... ON or USING; CROSS JOIN, if each row with each is meant."
        raise refuse(node, "a JOIN has neither ON nor USING", hint)
    complaint = _complaint(node)
    if complaint:
        raise refuse(node, f"{complaint} is not allowed here", ALLOWED)


def _complaint(node: exp.Expr) -> str | None:
    """Say what is wrong with a node whose kind is allowed."""
    match node:
        case exp.DataType() if node.this not in grammar.TYPES:
            return f"the type {node.sql(DIALECT).lower()}"
        case exp.Var() if not WORD.fullmatch(node.name):
            return f"the word {node.name!r}"
        case exp.Group() if node.args.get("all"):
            return "GROUP BY ALL"  # which only DuckDB has
        case exp.Limit() if node.expressions:
            return "LIMIT ... BY"
        case exp.Star() if any(node.args.values()):
            return "a * that leaves out or replaces columns"
        case exp.Column() if node.args.get("db"):
            return f"a column named with its schema, {node.sql(DIALECT)},"
        case exp.CurrentTimestamp() | exp.CurrentDate() if any(node.args.values()):
            return "a current time with a precision"  # sqlglot would drop it
        case exp.Lateral() if not isinstance(node.this, exp.Subquery):
            return "LATERAL before anything but a subquery"
        case exp.Window() if isinstance(node.this, exp.Window):
            return "an OVER behind another"  # which sqlglot reads, and PostgreSQL does not
        case exp.Alias() if node.this.is_number and DIGITS.match(node.alias):
            # PostgreSQL reads 1_000 as a number, sqlglot as 1 AS _000.
            return "a number with _ between its digits"
    return None


def _lacks_condition(join: exp.Join) -> bool:
    if join.args.get("on") or join.args.get("using") or join.method == "NATURAL":
        return False
    return bool(join.side) or join.kind not in ("", "CROSS")


def _named(item: exp.Expr, sql: str) -> exp.Expr:
    """Name a column as PostgreSQL would: sqlglot writes some functions by another name."""
    if isinstance(item, exp.Pow) and not _written(item, sql):
        return exp.alias_(item, "?column?", quoted=True)  # a ^ b, which sqlglot writes power(a, b)
    inside: exp.Expr | None = item
    while isinstance(inside, AROUND):
        inside = inside.args.get("default") if isinstance(inside, exp.Case) else inside.this
    written = _written(inside, sql)
    return exp.alias_(item, written.lower(), quoted=True) if written else item


def _written(node: exp.Expr | None, sql: str) -> str | None:
    """Give a function's name as it is in the text, if sqlglot has kept its place."""
    if not isinstance(node, (exp.Func, exp.Mod)) or "start" not in node.meta:
        return None
    name = sql[node.meta["start"] : node.meta["end"] + 1]
    return name if NAME.fullmatch(name) else None


def _called(node: exp.Expr, sql: str) -> str:
    if isinstance(node, exp.Anonymous):
        return f"the function {node.name.lower()}"
    if isinstance(node, exp.Func):
        return f"the function {(_written(node, sql) or node.sql_name()).lower()}"
    return grammar.CALLED.get(type(node), node.key.upper())
