"""Random expressions over the columns of some tables, of every type that a column can have."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random

from etl_procs import Outlet
from etl_procs.columns import Column, Type

NUMBERS = (Type.INTEGER, Type.NUMERIC)
ORDERED = (Type.INTEGER, Type.NUMERIC, Type.TEXT, Type.DATE, Type.TIMESTAMP)
"""Of these there is a least one and a greatest one, to PostgreSQL."""
GROUPED = (*ORDERED, Type.BOOLEAN)
"""Of doubles, -0.0 and 0.0 are one group, and either may stand for it."""
LITERALS = {
    Type.INTEGER: ["0", "3", "7", "13", "39", "-2", "1099511627776"],
    Type.REAL: ["0.5", "1", "'NaN'"],
    Type.TEXT: ["'a'", "'b'", "''", "'\\'"],
    Type.BOOLEAN: ["true", "false"],
    Type.DATE: ["DATE '2000-01-01'", "'2026-05-06'"],
    Type.TIMESTAMP: ["TIMESTAMP '2026-05-06 12:00:00'", "'2026-05-06'"],
    Type.NUMERIC: ["0", "0.5", "12.34", "-100", "0.0000000001", "1.5"],
}
PATTERNS = ["'a%'", "'%b%'", "'_'", "'z\\%'", "''"]
SIMPLE = ["count", "sum", "avg", "min", "max", "bool_or", "star"]
ORDERED_SETS = [
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY {2})",
    "percentile_disc(0.25) WITHIN GROUP (ORDER BY {0} DESC)",
    "mode() WITHIN GROUP (ORDER BY {1})",
    "string_agg({1}, ',' ORDER BY {1} DESC)",
    "array_agg({2} ORDER BY {2} NULLS FIRST)",
    "count(DISTINCT {1})",
    "sum(DISTINCT {0})",
    "stddev_pop({2})",
    "variance({0})",
]
INTEGER, REAL, TEXT, BOOLEAN, DATE, TIMESTAMP, NUMERIC = Type
CALLS: dict[Type, list[tuple[str, Type, Type]]] = {
    INTEGER: [
        *(("length({})", TEXT, TEXT), ("strpos({}, {})", TEXT, TEXT), ("-{}", INTEGER, INTEGER)),
        *(("({} - ({} - 1))", INTEGER, INTEGER), ("{} % 7", INTEGER, INTEGER)),
        *(("greatest({}, {})", INTEGER, INTEGER), ("abs({}) / 3", INTEGER, INTEGER)),
        *(("({} - {} - 1)", INTEGER, INTEGER), ("CAST({} AS bigint)", NUMERIC, NUMERIC)),
        *(("nullif({}, {})", INTEGER, INTEGER), ("CAST({} AS integer)", BOOLEAN, BOOLEAN)),
    ],
    REAL: [("abs({})", REAL, REAL), ("{}::double precision", INTEGER, INTEGER)],
    TEXT: [
        *(("upper({})", TEXT, TEXT), ("left({}, 1)", TEXT, TEXT), ("reverse({})", TEXT, TEXT)),
        *(("{} || '!'", TEXT, TEXT), ("({} || {})", TEXT, TEXT), ("concat({}, {})", TEXT, INTEGER)),
        *(("substring({} FROM 2 FOR 3)", TEXT, TEXT), ("trim(BOTH 'a' FROM {})", TEXT, TEXT)),
        *(("replace({}, 'a', {})", TEXT, TEXT), ("split_part({}, '_', 1)", TEXT, TEXT)),
        *(("{}::text", INTEGER, INTEGER), ("CAST({} AS text)", DATE, DATE)),
        *(("{}::varchar(3)", TEXT, TEXT), ("CAST({} AS text)", TIMESTAMP, TIMESTAMP)),
        *(("concat_ws('/', {}, {})", TEXT, NUMERIC), ("md5({})", TEXT, TEXT)),
        *(("CAST({} AS text)", BOOLEAN, BOOLEAN), ("trim({})", TEXT, TEXT)),
    ],
    BOOLEAN: [
        *(("{} ILIKE 'A%'", TEXT, TEXT), ("{} ~ '^[ab]'", TEXT, TEXT), ("{} !~* 'B'", TEXT, TEXT)),
        *(("{} SIMILAR TO '(a|b)%'", TEXT, TEXT), ("{} LIKE 'z!%' ESCAPE '!'", TEXT, TEXT)),
        *(("{} NOT LIKE '_b%'", TEXT, TEXT), ("({} > {}) IS NOT TRUE", INTEGER, NUMERIC)),
        *(("({} = {}) = false", INTEGER, INTEGER), ("NOT {} IN (1, 2)", INTEGER, INTEGER)),
        *(("{} NOT BETWEEN 1 AND 7", INTEGER, INTEGER), ("{} IS UNKNOWN", BOOLEAN, BOOLEAN)),
        *(("{} = ANY (ARRAY[3, 7, NULL])", INTEGER, INTEGER), ("NOT ({} <> {})", DATE, DATE)),
        *(("({0}, {1}) < ({1}, 3)", INTEGER, INTEGER), ("starts_with({}, 'a')", TEXT, TEXT)),
        *(("({} IS NOT DISTINCT FROM {})", INTEGER, NUMERIC), ("{} > {}", TIMESTAMP, DATE)),
    ],
    DATE: [
        *(("CAST({} AS date)", TIMESTAMP, TIMESTAMP), ("{} - 1", DATE, DATE)),
        *(("least({}, {})", DATE, DATE), ("{} + 2", DATE, DATE)),
    ],
    TIMESTAMP: [
        *(("date_trunc('month', {})", TIMESTAMP, TIMESTAMP), ("{} + INTERVAL '1 day'", DATE, DATE)),
        *(("{} - INTERVAL '90 minutes'", TIMESTAMP, TIMESTAMP), ("{}::timestamp", DATE, DATE)),
    ],
    NUMERIC: [
        *(("round({}, 1)", NUMERIC, NUMERIC), ("trunc({}, 1)", NUMERIC, NUMERIC)),
        *(("ceil({})", NUMERIC, NUMERIC), ("extract(year FROM {})", DATE, DATE)),
        *(("{} / 4.0", INTEGER, INTEGER), ("extract(epoch FROM {})", TIMESTAMP, TIMESTAMP)),
        *(("({} - ({} - 0.5))", NUMERIC, NUMERIC), ("{}::numeric(20, 3)", INTEGER, INTEGER)),
        *(("{} * {}", NUMERIC, INTEGER), ("- {}", NUMERIC, NUMERIC)),
    ],
}
"""What gives values of a type, and of which types are those that it is made of."""


@dataclass(frozen=True, slots=True)
class Place:
    """A table in a FROM, by its alias or by its own name."""

    alias: str
    outlet: Outlet

    @property
    def text(self) -> str:
        return f"{self.outlet.name} {self.alias}".strip()


@dataclass(frozen=True, slots=True)
class Named:
    """A column, as it is written where it stands."""

    text: str
    column: Column


class Expressions:
    """Makes what may stand in a SELECT over some places."""

    def __init__(self, random: Random, places: Sequence[Place], *, is_alike: bool = False) -> None:
        self.random = random
        self._is_alike = is_alike
        """Whether only such are made as mean the same to every engine."""
        self.places = places
        names = [column.name for place in places for column in place.outlet.columns.columns]
        self._shared = {name for name in names if names.count(name) > 1}

    def columns(self, types: Collection[Type] = tuple(Type)) -> list[Named]:
        """Give all columns of some types."""
        return [
            Named(self._written(place, column), column)
            for place in self.places
            for column in place.outlet.columns.columns
            if column.type in types
        ]

    def column(self, types: Collection[Type] = tuple(Type)) -> Named | None:
        """Choose one, if there is any; those of keys more often."""
        found = self.columns(types)
        keys = {name for place in self.places for name in place.outlet.key}
        some = [one for one in found if one.column.name in keys]
        if some and self.random.random() < 0.2:
            found = some
        return self.random.choice(found) if found else None

    def grouped(self, most: int) -> list[str]:
        """Choose some columns, each of which two rows can share."""
        found = [one.text for one in self.columns(GROUPED)]
        return self.random.sample(found, min(len(found), self.random.randrange(1, most + 1)))

    def total(self) -> list[str]:
        """Give what no two rows share, or only such rows as do not differ, as good as surely."""
        return [one.text for one in self.columns(GROUPED)]

    def value(self, types: Collection[Type], depth: int) -> str:
        """Make an expression of one of some types."""
        of = self.column(types)
        if of is None:
            type_ = self.random.choice(list(types))
            name = {Type.INTEGER: "bigint", Type.REAL: "double precision"}.get(type_, type_.value)
            return f"CAST({self.random.choice(LITERALS[type_])} AS {name})"
        found, type_ = self.random.random(), of.column.type
        if depth == 0 or found < 0.5:
            return of.text
        if type_ in NUMBERS and found < 0.75:
            operator = self.random.choice("+-*")
            return f"({self.value([type_], depth - 1)} {operator} {self.literal(type_)})"
        if found < 0.85:
            condition = self.condition(depth - 1)
            other = self.random.choice([of.text, "NULL"])
            return f"CASE WHEN {condition} THEN {of.text} ELSE {other} END"
        if found < 0.9 or self._is_alike:
            return f"coalesce({of.text}, {of.text})"
        return self.called(type_, depth)

    def called(self, type_: Type, depth: int) -> str:
        """Make what only PostgreSQL computes."""
        form, *of = self.random.choice(CALLS[type_])
        return form.format(*(self.value([one], depth - 1) for one in of))

    def literal(self, type_: Type) -> str:
        """Write a value of a type, and at times something about it."""
        about = self.random.choice(["", "", "", " /* it's */", " -- one '\n"])
        return self.random.choice(LITERALS[type_]) + about

    def condition(self, depth: int) -> str:
        """Make a condition."""
        found = self.random.random()
        if depth > 0 and found < 0.35:
            one, other = self.condition(depth - 1), self.condition(depth - 1)
            return f"({one} {self.random.choice(['AND', 'OR'])} {other})"
        if depth > 0 and found < 0.42:
            return f"NOT {self.condition(depth - 1)}"
        if depth > 0 and found < 0.48 and not self._is_alike:
            return f"({self.called(Type.BOOLEAN, depth)})"
        of = self.column()
        assert of is not None, self.places
        column, type_ = of.text, of.column.type
        if found < 0.53:
            return f"{column} IS {self.random.choice(['', 'NOT '])}NULL"
        if found < 0.58:
            return f"{column} IN ({self.literal(type_)}, {self.literal(type_)})"
        if found < 0.64 and type_ not in (Type.BOOLEAN, Type.TEXT):
            return f"{column} BETWEEN {self.literal(type_)} AND {self.literal(type_)}"
        if found < 0.7 and (text := self.column([Type.TEXT])):
            return f"{text.text} LIKE {self.random.choice(PATTERNS)}"
        if found < 0.76:
            return f"{column} IS DISTINCT FROM {self.literal(type_)}"
        if found < 0.8 and (flag := self.column([Type.BOOLEAN])):
            return flag.text
        operator = self.random.choice(["=", "<>", "<", "<=", ">", ">="])
        alike = [one.text for one in self.columns([type_])]
        other = self.random.choice([self.literal(type_), self.random.choice(alike)])
        return f"{column} {operator} {other}"

    def aggregate(self, *, plain: bool = False, simple: bool = False) -> str:
        """Make an aggregate."""
        is_simple = simple or self._is_alike or self.random.random() < 0.8
        function = self.random.choice(SIMPLE if is_simple else ORDERED_SETS)
        if function == "star":
            text = "count(*)"
        elif function == "bool_or":
            of = self.value([Type.BOOLEAN], 1)
            text = f"{self.random.choice(['bool_or', 'bool_and'])}({of})"
        elif function in ORDERED_SETS:
            text = function.format(*(self.value([one], 1) for one in (NUMERIC, TEXT, INTEGER)))
        elif function in ("sum", "avg"):
            text = f"{function}({self.value([self.random.choice(NUMBERS)], 1)})"
        else:
            text = f"{function}({self.value([self.random.choice(ORDERED)], 1)})"
        if not plain and self.random.random() < 0.25:
            text += f" FILTER (WHERE {self.condition(1)})"
        if not plain and self.random.random() < 0.1:
            text = f"coalesce({text}, NULL)"
        return text

    def joined(self, one: Place, other: Place) -> str:
        """Make the condition of a join: columns that have one name, or else one type, are equal."""
        columns = [
            (a, b)
            for a in one.outlet.columns.columns
            for b in other.outlet.columns.columns
            if a.type is b.type and a.type not in (Type.REAL, Type.BOOLEAN)
        ]
        alike = [pair for pair in columns if pair[0].name == pair[1].name]
        keys = [pair for pair in alike if {pair[0].name} & {*one.outlet.key, *other.outlet.key}]
        a, b = self.random.choice(self.random.choice([keys, keys, alike]) or alike or columns)
        return f"{one.alias}.{a.name} = {other.alias}.{b.name}"

    def _written(self, place: Place, column: Column) -> str:
        is_clear = column.name not in self._shared
        if place.alias and not (is_clear and self.random.random() < 0.3):
            return f"{place.alias}.{column.name}"
        return column.name
