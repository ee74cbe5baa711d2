"""Random queries over any tables of a catalogue, in all that the island answers."""

from collections.abc import Sequence
from random import Random

import every
from random_expressions import GROUPED, NUMBERS, ORDERED, Expressions, Place
from random_windows import ranked_groups, windowed

from etl_procs import Outlet
from etl_procs.columns import Type

DIRECTIONS = ["", "DESC", "NULLS FIRST", "DESC NULLS LAST"]
OUTER = ["LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
SETS = ["UNION", "UNION ALL", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"]


class Queries:
    """Makes one query after another from a seed."""

    def __init__(self, seed: int, tables: Sequence[Outlet] = (every.facts, every.states)) -> None:
        self.random = Random(seed)  # noqa: S311 - repeatable on purpose
        self.tables = tables

    def query(self) -> str:
        """Make a query: half of them can be divided, the others are of all that there is."""
        found = self.random.random()
        if found < 0.45:
            return self._of_one_table()
        if found < 0.6:
            return self.joined(self._chosen(self.random.choice([2, 2, 3])))
        makers = [
            *(self._windowed, self._windowed, self._windowed, self._put_together, self._with),
            *(self._correlated, self._correlated, self._lateral, self._distinct_on),
            *(self._grouping_sets, self._recursive, self._with_values, self._using),
        ]
        return self.random.choice(makers)()

    def condition(self, table: Outlet) -> str:
        """Make a condition over a table's own columns."""
        return self._over(Place("", table)).condition(2)

    def joined(self, tables: Sequence[Outlet]) -> str:
        """Make a join of some tables, in the order in which they come."""
        places = [Place(alias, table) for alias, table in zip("xyz", tables, strict=False)]
        over = self._over(*places, is_alike=self.random.random() < 0.7)
        outer = [] if self.random.random() < 0.5 else OUTER
        source = places[0].text
        for number, place in enumerate(places[1:], 1):
            kind = self.random.choice(["JOIN", "JOIN", *outer])
            on = over.joined(self.random.choice(places[:number]), place)
            between = self._over(*places[: number + 1])
            if kind != "FULL JOIN" and self.random.random() < 0.2:
                on += f" AND {between.condition(0)}"
            source += f" {kind} {place.text} ON {on}"
        where = f" WHERE {over.condition(1)}" if self.random.random() < 0.5 else ""
        if self.random.random() < 0.5 or len(places) > 2:
            return self._aggregated(over, source, where)
        items = [over.value(tuple(Type), 1) for _ in range(self._few())]
        return f"SELECT {', '.join(items)} FROM {source}{where}"

    def _of_one_table(self) -> str:
        place = Place(self.random.choice(["", "", "x"]), self._table())
        over = self._over(place, is_alike=self.random.random() < 0.5)
        where = f" WHERE {over.condition(2)}" if self.random.random() < 0.6 else ""
        kind = self.random.random()
        if kind < 0.4:
            return self._aggregated(over, place.text, where)
        if kind < 0.5:
            return f"SELECT DISTINCT {', '.join(over.grouped(2))} FROM {place.text}{where}"
        if kind < 0.6:
            return f"SELECT * FROM {place.text}{where}"
        items = [over.value(tuple(Type), 2) for _ in range(self._few())]
        if kind < 0.8:
            return f"SELECT {', '.join(items)} FROM {place.text}{where}"
        named = [f"{item} AS v{number}" for number, item in enumerate(items)]
        return f"SELECT {', '.join(named)} FROM {place.text}{where} {self._ordered(over)}"

    def _ordered(self, over: Expressions) -> str:
        """Order rows so that there is one answer: of rows that are equal, any may come."""
        order = [f"{one} {self.random.choice(DIRECTIONS)}" for one in over.grouped(2)]
        text = f"ORDER BY {', '.join([*order, *over.total()])}"
        limit = f" LIMIT {self.random.randrange(8)}" if self.random.random() < 0.7 else ""
        offset = f" OFFSET {self.random.randrange(4)}" if self.random.random() < 0.3 else ""
        return text + limit + offset

    def _aggregated(self, over: Expressions, source: str, where: str) -> str:
        keys = over.grouped(2) if self.random.random() < 0.7 else []
        groups = [self.random.choice([key, over.value(GROUPED, 1)]) for key in keys]
        found = [over.aggregate() for _ in range(self._few())]
        text = f"SELECT {', '.join([*groups, *found])} FROM {source}{where}"
        if groups:
            numbers = [str(number) for number in range(1, len(groups) + 1)]
            text += f" GROUP BY {', '.join(self.random.choice([numbers, groups]))}"
        if self.random.random() < 0.3:
            text += f" HAVING {over.aggregate(plain=True)} IS NOT NULL AND count(*) > 1"
        if groups and self.random.random() < 0.5:
            text += f" ORDER BY {', '.join(str(n + 1) for n in range(len(groups)))}"
            if self.random.random() < 0.6:
                text += f" LIMIT {self.random.randrange(1, 5)}"
        return text

    def _grouping_sets(self) -> str:
        place = Place("", self._table())
        over = self._over(place)
        keys = over.grouped(3)
        several = ", ".join(keys)
        groups = self.random.choice(
            [
                f"ROLLUP ({several})",
                f"CUBE ({several})",
                f"GROUPING SETS (({several}), ({keys[0]}), ())",
                f"{keys[-1]}, ROLLUP ({several})",
            ]
        )
        found = f"{over.aggregate()}, {over.aggregate()}"
        return f"SELECT {several}, {found} FROM {place.text} GROUP BY {groups}"

    def _windowed(self) -> str:
        if self.random.random() < 0.3:
            one, other = (
                Place(alias, table) for alias, table in zip("xy", self._chosen(2), strict=True)
            )
            over = self._over(one, other)
            return windowed(over, f"{one.text} JOIN {other.text} ON {over.joined(one, other)}")
        place = Place(self.random.choice(["", "x"]), self._table())
        made = self.random.choice([windowed, windowed, ranked_groups])
        return made(self._over(place), place.text)

    def _put_together(self) -> str:
        types = self.random.sample(GROUPED, self._few())
        parts = [self._typed(types) for _ in range(self.random.choice([2, 2, 3]))]
        first, second, *more = parts
        text = f"{first} {self.random.choice(SETS)} {second}"
        for one in more:
            text = f"({text}) {self.random.choice(SETS)} {one}"
        if self.random.random() < 0.5:
            order = ", ".join(str(number) for number in range(1, len(types) + 1))
            text += f" ORDER BY {order} LIMIT {self.random.randrange(1, 9)}"
        return text

    def _typed(self, types: Sequence[Type]) -> str:
        place = Place("", self._table())
        over = self._over(place)
        items = ", ".join(over.value([type_], 1) for type_ in types)
        return f"SELECT {items} FROM {place.text} WHERE {over.condition(1)}"

    def _with(self) -> str:
        place = Place("", self._table())
        over = self._over(place)
        inner = f"SELECT {', '.join(over.total())} FROM {place.text} WHERE {over.condition(1)}"
        key = over.grouped(1)[0]
        if self.random.random() < 0.5:
            return f"WITH c AS ({inner}) SELECT {key}, count(*) FROM c GROUP BY {key}"
        both = f"SELECT count(*) FROM c UNION ALL SELECT count(*) FROM {place.outlet.name}"
        outer = f"SELECT {key}, count(*) FROM ({inner}) AS s GROUP BY {key}"
        return self.random.choice([f"WITH c AS ({inner}) {both}", outer])

    def _correlated(self) -> str:
        one, other = (
            Place(alias, table) for alias, table in zip("xy", self._chosen(2), strict=True)
        )
        outer, inner, both = self._over(one), self._over(other), self._over(one, other)
        same = f"{both.joined(one, other)} AND {inner.condition(1)}"
        inside = f"FROM {other.text} WHERE {same}"
        type_ = self.random.choice([t for t in ORDERED if inner.columns([t])])
        left, right = outer.value([type_], 0), inner.value([type_], 0)
        condition = self.random.choice(
            [
                f"EXISTS (SELECT 1 {inside})",
                f"NOT EXISTS (SELECT 1 {inside})",
                f"{left} IN (SELECT {right} {inside})",
                f"{left} NOT IN (SELECT {right} FROM {other.text} WHERE {inner.condition(1)})",
                f"{left} >= ALL (SELECT {right} {inside})",
                f"{left} < ANY (SELECT {right} {inside})",
                f"({left}, {left}) IN (SELECT {right}, {right} {inside})",
                f"{left} = (SELECT max({right}) {inside})",
            ]
        )
        items = outer.total()[:3]
        scalar = self.random.choice(["count(*)", f"min({right})", f"max({right})"])
        if self.random.random() < 0.4:
            items.append(f"(SELECT {scalar} {inside}) AS of")
        return f"SELECT {', '.join(items)} FROM {one.text} WHERE {condition}"

    def _lateral(self) -> str:
        one, other = (
            Place(alias, table) for alias, table in zip("xy", self._chosen(2), strict=True)
        )
        inner, both = self._over(other), self._over(one, other)
        value, total = inner.value(GROUPED, 1), ", ".join(inner.total())
        inside = (
            f"SELECT {value} AS v FROM {other.text} WHERE {both.joined(one, other)} "
            f"ORDER BY {total} LIMIT {self.random.randrange(1, 4)}"
        )
        join, on = self.random.choice([("CROSS JOIN", ""), ("LEFT JOIN", " ON true")])
        items = ", ".join(f"x.{name}" for name in one.outlet.columns.names[:3])
        return f"SELECT {items}, z.v FROM {one.text} {join} LATERAL ({inside}) AS z{on}"

    def _distinct_on(self) -> str:
        place = Place("", self._table())
        over = self._over(place)
        keys = over.grouped(2)
        order = [f"{key} {self.random.choice(DIRECTIONS)}" for key in keys]
        text = f"SELECT DISTINCT ON ({', '.join(keys)}) {', '.join(over.total())}"
        return f"{text} FROM {place.text} ORDER BY {', '.join([*order, *over.total()])}"

    def _recursive(self) -> str:
        place = Place("y", self._table([Type.INTEGER]))
        over = self._over(place)
        of = over.columns([Type.INTEGER])[0]
        return (
            "WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 9) "
            f"SELECT i, count(y.{of.column.name}), {over.aggregate()} FROM c "
            f"LEFT JOIN {place.text} ON i = y.{of.column.name} GROUP BY i"
        )

    def _with_values(self) -> str:
        place = Place("x", self._table([Type.INTEGER]))
        over = self._over(place)
        of = over.columns([Type.INTEGER])[0]
        rows = ", ".join(
            f"({number}, 'of {number}')" for number in range(self.random.randrange(1, 9))
        )
        return (
            f"SELECT v.name, {over.aggregate()} FROM (VALUES {rows}) AS v (k, name) "
            f"{self.random.choice(['JOIN', *OUTER])} {place.text} ON v.k = x.{of.column.name} "
            "GROUP BY v.name"
        )

    def _using(self) -> str:
        one = self._table()
        alike = [
            (other, column.name)
            for other in self.tables
            for column in other.columns.columns
            if column.type in NUMBERS and column in one.columns.columns
        ]
        if not alike:
            return self._of_one_table()
        other, name = self.random.choice(alike)
        kind = self.random.choice(["JOIN", *OUTER])
        items = self.random.choice([f"{name}, count(*)", f"coalesce({name}, 0), count({name})"])
        return (
            f"SELECT {items} FROM {one.name} x {kind} {other.name} y USING ({name}) GROUP BY {name}"
        )

    def _over(self, *places: Place, is_alike: bool = False) -> Expressions:
        return Expressions(self.random, places, is_alike=is_alike)

    def _table(self, types: Sequence[Type] = ()) -> Outlet:
        """Choose a table; one that has columns of these types."""
        return self.random.choice(
            [of for of in self.tables if {*types} <= {c.type for c in of.columns.columns}]
        )

    def _chosen(self, count: int) -> list[Outlet]:
        return self.random.choices(self.tables, k=count)

    def _few(self) -> int:
        return self.random.randrange(1, 4)
