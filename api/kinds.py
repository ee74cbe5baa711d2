"""Kinds: which expressions mean the same to PostgreSQL and to DuckDB, for every value.

What is staged is looked at by DuckDB and what has arrived by PostgreSQL, so a query can be divided
between them only if both compute the same. Here that is said of the few kinds of values that tables
have, and of what is known to agree: everything else has no kind, and is left to PostgreSQL.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from sqlglot import exp

from etl_procs.columns import PRECISION_MOST, Type
from etl_procs.model import Outlet


class Sort(Enum):
    """A sort of values."""

    INTEGER = "integer"
    REAL = "real"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    NUMERIC = "numeric"
    WORDS = "words"
    """A text in quotes, which is of the sort that its place wants."""
    NULL = "null"


@dataclass(frozen=True, slots=True)
class Kind:
    """What values of an expression are."""

    sort: Sort
    precision: int = 0
    scale: int = 0
    is_literal: bool = False

    @property
    def duckdb(self) -> str:
        """Name DuckDB's type of them."""
        if self.sort is Sort.NUMERIC:
            return f"DECIMAL({self.precision},{self.scale})"
        return DUCKDB[self.sort]


INTEGER, REAL, TEXT, BOOLEAN, DATE, TIMESTAMP, WORDS, NULL = (
    Kind(sort)
    for sort in (
        *(Sort.INTEGER, Sort.REAL, Sort.TEXT, Sort.BOOLEAN, Sort.DATE, Sort.TIMESTAMP),
        *(Sort.WORDS, Sort.NULL),
    )
)
DUCKDB = {
    Sort.INTEGER: "BIGINT",
    Sort.REAL: "DOUBLE",
    Sort.TEXT: "VARCHAR",
    Sort.BOOLEAN: "BOOLEAN",
    Sort.DATE: "DATE",
    Sort.TIMESTAMP: "TIMESTAMP",
}
OF_COLUMNS = {
    Type.INTEGER: INTEGER,
    Type.REAL: REAL,
    Type.TEXT: TEXT,
    Type.BOOLEAN: BOOLEAN,
    Type.DATE: DATE,
    Type.TIMESTAMP: TIMESTAMP,
}

NUMBERS = (Sort.INTEGER, Sort.NUMERIC)
INTEGER_DIGITS = 19
"""Of a bigint among decimals."""
NARROW = 18
"""Digits of decimals that DuckDB computes with in 64 bits, also where what comes out has more."""
WIDE = "headrace_wide"
"""What a node's meta call the type of its first part by which DuckDB computes with more digits."""
LITERAL_MOST = 2**31 - 1
"""A larger one is of another type, to each of them its own."""

MARK = f"headrace_{secrets.token_hex(16)}_"
"""Of a parameter: it stands for a whole number up to that, or for a text that is no date. Nobody
who writes a query can know it, so no text of theirs can hold it.
"""

OUTLETS = 1_000
"""Of so many, the kinds of columns are remembered."""

DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")
DECIMAL = re.compile(r"([0-9]+)\.([0-9]+)")

COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
BY_ORDER = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)


class Alike:
    """Tells the kind of expressions over some columns."""

    def __init__(self, columns: Mapping[tuple[str, str], Kind], *, orders_text: bool) -> None:
        """Over columns by the names of their tables, or of none, and their own."""
        self._columns = columns
        self._orders_text = orders_text
        """Whether PostgreSQL orders text by its bytes, as DuckDB does."""

    def kind(self, node: exp.Expr | None) -> Kind | None:
        """Tell what a scalar expression gives; None: not known to be the same to both."""
        match node:
            case exp.Column():
                return self._columns.get((node.table, node.name))
            case exp.Paren():
                return self.kind(node.this)
            case exp.Literal():
                return _literal(node)
            case exp.Boolean():
                return BOOLEAN
            case exp.Null():
                return NULL
            case exp.Cast():
                return self._cast(node)
            case exp.Add() | exp.Sub() | exp.Mul():
                return self._arithmetic(node)
            case exp.And() | exp.Or() | exp.Not():
                return self._logical(node)
            case exp.Is() if isinstance(node.expression, (exp.Null, exp.Boolean)):
                wanted = BOOLEAN if isinstance(node.expression, exp.Boolean) else None
                found = self.kind(node.this)
                return BOOLEAN if found and wanted in (None, found) else None
            case exp.In() if not node.args.get("query") and node.expressions:
                return self._same([node.this, *node.expressions])
            case exp.Between() if not node.args.get("symmetric"):
                parts = [node.this, node.args["low"], node.args["high"]]
                return self._same(parts, ordered=True)
            case exp.Like() if _is_plain(node.expression):
                return BOOLEAN if self.kind(node.this) == TEXT else None
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                return self._same([node.this, node.expression])
            case exp.Case():
                return self._case(node)
            case exp.Coalesce():
                return self._one_kind([node.this, *node.expressions])
        if isinstance(node, COMPARISONS):
            return self._same([node.this, node.expression], ordered=isinstance(node, BY_ORDER))
        return None

    def is_condition(self, node: exp.Expr | None) -> bool:
        """Tell whether a condition holds for the same rows to both."""
        return node is None or self.kind(node) == BOOLEAN

    def can_group(self, kind: Kind | None) -> bool:
        """Tell whether both make the same groups: -0.0 and 0.0 are one, and either may show."""
        return kind is not None and kind.sort not in (Sort.REAL, Sort.WORDS, Sort.NULL)

    def can_order(self, kind: Kind | None) -> bool:
        """Tell whether both put such values in the same order."""
        return self.can_group(kind) and (kind != TEXT or self._orders_text)

    def _cast(self, node: exp.Cast) -> Kind | None:
        to, of = node.to.this, node.this
        if isinstance(of, exp.Literal) and of.is_string:
            if to is exp.DType.DATE and DAY.fullmatch(of.name):
                return DATE
            if to is exp.DType.TIMESTAMP and MOMENT.fullmatch(of.name):
                return TIMESTAMP
        return None

    def _arithmetic(self, node: exp.Binary) -> Kind | None:
        left, right = self.kind(node.this), self.kind(node.expression)
        if left is None or right is None or (left.is_literal and right.is_literal):
            return None  # two literals are of smaller types, each to its own rules
        if left.sort is right.sort is Sort.INTEGER:
            return INTEGER
        if left.sort not in NUMBERS or right.sort not in NUMBERS:
            return None
        (p1, s1), (p2, s2) = _digits(left), _digits(right)
        if isinstance(node, exp.Mul):
            precision, scale = p1 + p2, s1 + s2
        else:
            scale = max(s1, s2)
            precision = max(p1 - s1, p2 - s2) + scale + 1
        node.meta.pop(WIDE, None)
        if precision > NARROW and max(map(_held, (left, right))) <= NARROW:
            node.meta[WIDE] = Kind(Sort.NUMERIC, NARROW + 1, s1).duckdb
        return Kind(Sort.NUMERIC, precision, scale) if precision <= PRECISION_MOST else None

    def _logical(self, node: exp.Expr) -> Kind | None:
        parts = [node.this, node.args.get("expression")]
        return (
            BOOLEAN if all(part is None or self.kind(part) == BOOLEAN for part in parts) else None
        )

    def _same(self, parts: Sequence[exp.Expr], *, ordered: bool = False) -> Kind | None:
        """Tell whether values are compared the same."""
        kinds = [self.kind(part) for part in parts]
        if any(kind is None for kind in kinds) or all(kind and kind.is_literal for kind in kinds):
            return None
        sorts = {kind.sort for kind in kinds if kind} - {Sort.NULL}
        if Sort.WORDS in sorts:
            words = [part.name for part, k in zip(parts, kinds, strict=True) if k == WORDS]
            sorts.discard(Sort.WORDS)
            if not all(_fits(word, sorts) for word in words):
                return None
        if sorts <= set(NUMBERS) or len(sorts) == 1:
            of_text = Sort.TEXT in sorts
            return BOOLEAN if not (ordered and of_text) or self._orders_text else None
        return BOOLEAN if sorts <= {*NUMBERS, Sort.REAL} else None

    def _case(self, node: exp.Case) -> Kind | None:
        ifs = node.args.get("ifs") or []
        if node.this is not None or not all(self.is_condition(one.this) for one in ifs):
            return None
        default = node.args.get("default")
        return self._one_kind([*(one.args["true"] for one in ifs), default or exp.Null()])

    def _one_kind(self, parts: Sequence[exp.Expr]) -> Kind | None:
        """Tell the kind of one of some values: only if all are of it, scale and all."""
        kinds = {self.kind(part) for part in parts} - {NULL}
        if len(kinds) != 1:
            return None
        (kind,) = kinds
        return None if kind is None or kind.is_literal or kind == WORDS else kind


@lru_cache(OUTLETS)
def of_columns(outlet: Outlet) -> Mapping[str, Kind]:
    """Tell the kinds of an outlet's columns."""
    return {
        column.name: Kind(Sort.NUMERIC, column.precision, column.scale)
        if column.type is Type.NUMERIC
        else OF_COLUMNS[column.type]
        for column in outlet.columns.columns
    }


def _literal(node: exp.Literal) -> Kind | None:
    if node.is_string:
        return WORDS
    is_mark = node.name.startswith(MARK)
    if is_mark or (node.name.isdecimal() and int(node.name) <= LITERAL_MOST):
        return Kind(Sort.INTEGER, is_literal=True)
    found = DECIMAL.fullmatch(node.name)
    if found and len(node.name) <= PRECISION_MOST:
        whole, part = len(found[1].lstrip("0")), len(found[2])
        return Kind(Sort.NUMERIC, max(whole + part, 1), part, is_literal=True)
    return None


def _digits(kind: Kind) -> tuple[int, int]:
    if kind.sort is Sort.NUMERIC:
        return kind.precision, kind.scale
    return INTEGER_DIGITS, 0


def _held(kind: Kind) -> int:
    """Tell how many digits DuckDB gives to values; to a literal, not more than it has."""
    return 0 if kind.sort is Sort.INTEGER and kind.is_literal else _digits(kind)[0]


def in_duckdb(node: exp.Expr) -> str:
    """Write in DuckDB's SQL what has kinds. It may change it."""
    for one in list(node.find_all(exp.Add, exp.Sub, exp.Mul)):
        if wide := one.meta.get(WIDE):
            one.set("this", exp.cast(one.this, wide, copy=False, dialect="duckdb"))
    return node.sql("duckdb", identify=True, copy=False)


def _fits(word: str, sorts: set[Sort]) -> bool:
    """Tell whether a text in quotes is read the same by both where such a value is wanted."""
    if sorts == {Sort.TEXT}:
        return True
    if sorts == {Sort.DATE}:
        return bool(DAY.fullmatch(word))
    return sorts == {Sort.TIMESTAMP} and bool(MOMENT.fullmatch(word) or DAY.fullmatch(word))


def _is_plain(pattern: exp.Expr) -> bool:
    """Tell whether a pattern means the same: PostgreSQL takes a backslash as an escape."""
    return isinstance(pattern, exp.Literal) and pattern.is_string and "\\" not in pattern.name
