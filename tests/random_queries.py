"""Random queries over the outlets of `every`, in all that the island answers."""

from random import Random

NUMBERS = ("n", "p", "w")
EVERY = "nrtbdmpw"
DIRECTIONS = ["", "DESC", "NULLS FIRST", "DESC NULLS LAST"]
LITERALS = {
    "id": ["0", "7", "13", "39"],
    "n": ["0", "3", "-2", "1099511627776"],
    "r": ["0.5", "1", "'NaN'"],
    "t": ["'a'", "'b'", "''", "'\\'"],
    "b": ["true", "false"],
    "d": ["DATE '2000-01-01'", "'2026-05-06'"],
    "m": ["TIMESTAMP '2026-05-06 12:00:00'", "'2026-05-06'"],
    "p": ["0", "0.5", "12.34", "-100"],
    "w": ["0", "0.0000000001", "1.5"],
}


class Queries:
    """Makes one query after another from a seed."""

    def __init__(self, seed: int, tables: tuple[str, str] = ("facts", "states")) -> None:
        self.random = Random(seed)  # noqa: S311 - repeatable on purpose
        self.alias = ""
        self.tables = tables

    def query(self) -> str:
        """Make a query, or two that are put together."""
        kind = self.random.random()
        if kind < 0.06:
            operation = self.random.choice(["UNION", "UNION ALL", "INTERSECT", "EXCEPT"])
            one, other = (self._plain("n, t, d") for _ in range(2))
            return f"{one} {operation} {other}"
        if kind < 0.12:
            inner = self._plain("id, n, t, p")
            return f"WITH c AS ({inner}) SELECT t, count(*), sum(p) FROM c GROUP BY t"
        if kind < 0.2:
            return self._windowed()
        if kind < 0.32:
            return self._joined()
        return self._of_one_table()

    def _of_one_table(self) -> str:
        table = self.random.choice(self.tables)
        self.alias = self.random.choice(["", "", "x"])
        source = f"{table} {self.alias}".strip()
        where = f" WHERE {self.condition(2)}" if self.random.random() < 0.6 else ""
        kind = self.random.random()
        if kind < 0.35:
            return self._aggregated(source, where)
        if kind < 0.5:
            keys = self._some([c for c in EVERY if c != "r"], 2)
            return f"SELECT DISTINCT {', '.join(map(self.column, keys))} FROM {source}{where}"
        if kind < 0.6:
            return f"SELECT * FROM {source}{where}"
        items = [self.value(self.random.choice(EVERY), 2) for _ in range(self._few())]
        items.append(self.column("id"))
        text = f"SELECT {', '.join(items)} FROM {source}{where}"
        if kind < 0.8:
            return text
        order = [
            f"{self.column(c)} {self.random.choice(DIRECTIONS)}"
            for c in self._some([c for c in EVERY if c != "r"], 2)
        ]
        # All columns at the end: of rows that are equal, any may come.
        order += [self.column(c) for c in ("id", *"ntbdmpw")]
        limit = f" LIMIT {self.random.randrange(8)}" if self.random.random() < 0.7 else ""
        offset = f" OFFSET {self.random.randrange(4)}" if self.random.random() < 0.3 else ""
        return f"{text} ORDER BY {', '.join(order)}{limit}{offset}"

    def _aggregated(self, source: str, where: str) -> str:
        keys = self._some([c for c in EVERY if c != "r"], 2) if self.random.random() < 0.7 else []
        groups = [self.random.choice([self.column(c), self.value(c, 1)]) for c in keys]
        found = [self.aggregate() for _ in range(self._few())]
        text = f"SELECT {', '.join([*groups, *found])} FROM {source}{where}"
        if groups:
            numbered = self.random.random() < 0.5
            names = [str(n + 1) for n in range(len(groups))] if numbered else groups
            text += f" GROUP BY {', '.join(names)}"
        if self.random.random() < 0.3:
            text += f" HAVING {self.aggregate(plain=True)} IS NOT NULL AND count(*) > 1"
        if groups and self.random.random() < 0.5:
            text += f" ORDER BY {', '.join(str(n + 1) for n in range(len(groups)))}"
            if self.random.random() < 0.6:
                text += f" LIMIT {self.random.randrange(1, 5)}"
        return text

    def aggregate(self, *, plain: bool = False) -> str:
        """Make an aggregate."""
        function = self.random.choice(["count", "sum", "avg", "min", "max", "bool_or", "star"])
        if function == "star":
            text = "count(*)"
        elif function == "bool_or":
            text = f"{self.random.choice(['bool_or', 'bool_and'])}({self.value('b', 1)})"
        elif function in ("sum", "avg"):
            text = f"{function}({self.value(self.random.choice(NUMBERS), 1)})"
        else:
            text = f"{function}({self.value(self.random.choice('ntdmpw'), 1)})"
        if not plain and self.random.random() < 0.25:
            text += f" FILTER (WHERE {self.condition(1)})"
        if not plain and self.random.random() < 0.1:
            text = f"coalesce({text}, NULL)"
        return text

    def _windowed(self) -> str:
        self.alias = ""
        order = "ORDER BY id, n, t, d, m, p, w, b"
        function = self.random.choice(
            ["row_number()", "rank()", "sum(p)", "count(*)", "lag(n)", "first_value(t)", "max(d)"]
        )
        part = self.random.choice(["", "PARTITION BY b ", "PARTITION BY t "])
        frame = self.random.choice(["", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"])
        if function in ("row_number()", "rank()", "lag(n)"):
            frame = ""
        return f"SELECT id, {function} OVER ({part}{order}{frame}) FROM states"

    def _joined(self) -> str:
        kind = self.random.choice(["JOIN", "LEFT JOIN", "FULL JOIN", "RIGHT JOIN"])
        other, one = self.tables
        on = self.random.choice(["x.id = y.id", "x.d = y.d AND x.n < y.n"])
        if kind == "FULL JOIN":
            on = "x.id = y.id"
        self.alias = "x"
        where = f" WHERE {self.condition(1)}" if self.random.random() < 0.4 else ""
        if self.random.random() < 0.4:
            inside = f"SELECT id FROM {other} WHERE n > 0"
            return f"SELECT x.id, x.t FROM {one} x WHERE x.id IN ({inside})"
        items = self.random.choice(["x.id, y.t, x.p", "x.t, count(*), sum(y.p)"])
        group = " GROUP BY x.t" if "count" in items else ""
        return f"SELECT {items} FROM {one} x {kind} {other} y ON {on}{where}{group}"

    def joined_twice(self) -> str:
        """Make a join of three tables, in whichever order."""
        other, one = self.tables
        of = self.random.sample([other, one, one], 3)
        kinds = self.random.choices(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"], k=2)
        if self.random.random() < 0.5:
            kinds = ["JOIN", "JOIN"]
        ons = ["x.id = y.id", self.random.choice(["y.id = z.id", "x.id = z.id", "y.d = z.d"])]
        if kinds[1] == "JOIN" and self.random.random() < 0.5:
            ons[1] += " AND y.n <= z.n"
        conditions = ["x.n > -3", "y.t = z.t", "z.b", "y.p < 100", "x.m IS NULL OR z.m IS NULL"]
        found = self.random.sample(conditions, self.random.randrange(3))
        where = f" WHERE {' AND '.join(f'({one})' for one in found)}" if found else ""
        items, group = self.random.choice(
            [
                ("x.id, y.t, z.p, z.d", ""),
                ("x.t, count(*), sum(y.p), avg(z.w)", " GROUP BY x.t ORDER BY 2 DESC, 1 LIMIT 4"),
                ("count(*), min(y.d), sum(x.n)", ""),
            ]
        )
        return (
            f"SELECT {items} FROM {of[0]} x {kinds[0]} {of[1]} y ON {ons[0]} "
            f"{kinds[1]} {of[2]} z ON {ons[1]}{where}{group}"
        )

    def _plain(self, items: str) -> str:
        self.alias = ""
        table = self.random.choice(self.tables)
        return f"SELECT {items} FROM {table} WHERE {self.condition(1)}"

    def column(self, name: str) -> str:
        """Name a column."""
        return f"{self.alias}.{name}" if self.alias and self.random.random() < 0.7 else name

    def value(self, kind: str, depth: int) -> str:
        """Make an expression of a column's kind."""
        found = self.random.random()
        if depth == 0 or found < 0.5:
            return self.column(kind)
        if kind in NUMBERS and found < 0.75:
            operator = self.random.choice("+-*" if kind != "w" else "+-")
            return f"({self.value(kind, depth - 1)} {operator} {self.literal(kind)})"
        if found < 0.85:
            condition = self.condition(depth - 1)
            other = self.random.choice([self.column(kind), "NULL"])
            return f"CASE WHEN {condition} THEN {self.column(kind)} ELSE {other} END"
        if kind == "t":
            return self.random.choice(["upper({})", "{} || '!'", "left({}, 1)"]).format(
                self.column("t")
            )
        return f"coalesce({self.column(kind)}, {self.column(kind)})"

    def literal(self, kind: str) -> str:
        """Write a value of a kind, and at times something about it."""
        about = self.random.choice(["", "", "", " /* it's */", " -- one '\n"])
        return self.random.choice(LITERALS[kind]) + about

    def condition(self, depth: int) -> str:
        """Make a condition."""
        found = self.random.random()
        if depth > 0 and found < 0.35:
            one, other = self.condition(depth - 1), self.condition(depth - 1)
            return f"({one} {self.random.choice(['AND', 'OR'])} {other})"
        if depth > 0 and found < 0.42:
            return f"NOT {self.condition(depth - 1)}"
        kind = self.random.choice([*EVERY, "id", "id"])
        column = self.column(kind)
        if found < 0.5:
            return f"{column} IS {self.random.choice(['', 'NOT '])}NULL"
        if found < 0.58:
            return f"{column} IN ({self.literal(kind)}, {self.literal(kind)})"
        if found < 0.64 and kind not in "bt":
            return f"{column} BETWEEN {self.literal(kind)} AND {self.literal(kind)}"
        if found < 0.7:
            return f"{self.column('t')} LIKE {self.random.choice(QUOTED)}"
        if found < 0.76:
            return f"{column} IS DISTINCT FROM {self.literal(kind)}"
        if found < 0.8:
            return self.column("b")
        operator = self.random.choice(["=", "<>", "<", "<=", ">", ">="])
        return f"{column} {operator} {self.random.choice([self.literal(kind), self.column(kind)])}"

    def _some(self, of: list[str], most: int) -> list[str]:
        return self.random.sample(of, self.random.randrange(1, most + 1))

    def _few(self) -> int:
        return self.random.randrange(1, 4)


QUOTED = ["'a%'", "'%b%'", "'_'", "'z\\%'", "''"]
