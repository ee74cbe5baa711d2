"""Places: where in a caller's text a token, a node, a statement or what cannot be read begins."""

import re
from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Any, TypeVar

from sqlglot import Dialect, exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.parsers.postgres import PostgresParser
from sqlglot.tokenizer_core import Token, TokenType

DIALECT = "postgres"

STOPPED = re.compile(r"(.*) from \d+:(\d+)")
"""What sqlglot says of a string without an end, and its offset."""

ALIKE_LEAST, ALIKE_MOST = 2, 20
"""So many words are the same in both, this one and those beside it, or it is chance; and no more
are looked at on either side.
"""

Place = tuple[int | None, int | None]
"""Line and column, from 1."""

NOWHERE: Place = None, None

Node = TypeVar("Node", bound=exp.Expr)


class Placing(PostgresParser):
    """A parser that keeps the places of what is refused, where sqlglot keeps none."""

    def expression(
        self, instance: Node, token: Token | None = None, comments: list[str] | None = None
    ) -> Node:
        """Make a node; one that has no others in it is the word that was read last."""
        parts = (value for value in instance.args.values() if value)
        if token is None and not any(isinstance(part, (exp.Expr, list)) for part in parts):
            token = self._prev
        return super().expression(instance, token, comments)

    def _parse_types(self, *args: Any, **more: Any) -> exp.Expr | None:
        begins = self._curr
        return _begun(super()._parse_types(*args, **more), begins)

    def _parse_placeholder(self) -> exp.Expr | None:
        begins = self._curr
        found = super()._parse_placeholder()
        return None if found is None else found.update_positions(begins)

    def _parse_locks(self) -> list[exp.Lock]:
        begins = self._curr
        return [lock.update_positions(begins) for lock in super()._parse_locks()]


def tokenized(sql: str) -> list[Token]:
    """Take a text apart."""
    tokens = Dialect.get_or_raise(DIALECT).tokenize(f"{sql}\n")  # else it misreads '' at the end
    begins = _begins(sql)
    for token in tokens:  # after a $1, sqlglot has lost count of lines and columns
        token.line = bisect(begins, token.start)
        token.col = token.end + 1 - begins[token.line - 1]
    return tokens


def parsed(tokens: Sequence[Token], sql: str) -> list[exp.Expr]:
    """Make a tree of each statement."""
    dialect = Dialect.get_or_raise(DIALECT)
    parser = Placing(dialect=dialect, error_level=ErrorLevel.IMMEDIATE)
    return [tree for tree in parser.parse(list(tokens), sql) if tree is not None]


def of_node(node: exp.Expr) -> Place:
    """Tell the place of a node, or of the first thing in it that has one."""
    for part in node.walk(bfs=False):
        if "line" in part.meta:
            # sqlglot keeps where a token ends; people look for where it begins.
            return part.meta["line"], part.meta["col"] - (part.meta["end"] - part.meta["start"])
    return NOWHERE


def of_token(token: Token) -> Place:
    """Tell the place of a token."""
    return token.line, token.col - (token.end - token.start)


def of_offset(sql: str, offset: int) -> Place:
    """Tell the place of a character."""
    begins = _begins(sql)
    line = bisect(begins, offset)
    return line, offset + 1 - begins[line - 1]


def of_statement(tokens: Sequence[Token], number: int) -> Place:
    """Tell where a statement begins, from 0 on; if nothing is in it, where the text ends."""
    ends = [token.token_type is TokenType.SEMICOLON for token in tokens]
    begins = [
        token
        for token, (before, is_end) in zip(tokens, pairwise([True, *ends]), strict=True)
        if before and not is_end
    ]
    found = [*begins[number:], *tokens[-1:]]
    return of_token(found[0]) if found else NOWHERE


def of_sent(sql: str, sent: str, offset: int) -> Place:
    """Tell the place of what stands at a character of a text that was made of this one: of the same
    words, the one that has most of the same words beside it, if one has.
    """
    ours, own = tokenized(sent) if sent else [], tokenized(sql)
    at = bisect([token.start for token in ours], offset) - 1
    if at < 0:
        return NOWHERE
    said, made = ([token.text.lower() for token in of] for of in (own, ours))
    found = [(_alike(said, n, made, at), token) for n, token in enumerate(own)]
    most = max(count for count, _ in found)
    best = [token for count, token in found if count == most]
    return of_token(best[0]) if most >= ALIKE_LEAST and len(best) == 1 else NOWHERE


def _alike(some: Sequence[str], n: int, others: Sequence[str], m: int) -> int:
    """Count how many words are the same from one of each text on, to both sides."""
    if some[n] != others[m]:
        return 0
    after = zip(some[n : n + ALIKE_MOST], others[m : m + ALIKE_MOST], strict=False)
    before = zip(
        some[max(n - ALIKE_MOST, 0) : n][::-1],
        others[max(m - ALIKE_MOST, 0) : m][::-1],
        strict=False,
    )
    return sum(len([*takewhile(lambda pair: pair[0] == pair[1], of)]) for of in (after, before))


def of_error(error: SqlglotError, sql: str) -> tuple[str, Place]:
    """Tell what sqlglot cannot read, and its place; the beginning, if it does not say where."""
    if isinstance(error, ParseError) and error.errors:
        first = error.errors[0]
        what, near = first["description"].partition(" but got <Token")[0], first["highlight"]
        return f"{what} near {near!r}", (first["line"], first["col"] - max(len(near) - 1, 0))
    stopped = STOPPED.fullmatch(str(error.__cause__))
    if stopped:
        return stopped[1], of_offset(sql, int(stopped[2]))
    # What stops it with other words is a comment that has no end.
    return str(error), of_offset(sql, max(sql.rfind("/*"), 0))


def _begun(node: exp.Expr | None, token: Token) -> exp.Expr | None:
    if node is not None and "line" not in node.meta:
        node.update_positions(token)
    return node


def _begins(sql: str) -> list[int]:
    return [0, *(n + 1 for n, char in enumerate(sql) if char == "\n")]
