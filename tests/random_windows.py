"""Random windows: each function, frame and order for which there is one answer."""

from random_expressions import NUMBERS, ORDERED, Expressions

from etl_procs.columns import Type

OF_ROWS = [
    *(
        "row_number()",
        "ntile({n})",
        "lag({v})",
        "lag({v}, {n})",
        "lead({v}, {n})",
        "first_value({v})",
    ),
    *("last_value({v})", "nth_value({v}, {n})", "string_agg({t}, ',')", "lead({i}, {n}, 0)"),
]
"""What depends on which row comes first: no two may be equal to its order."""
OF_PEERS = ["rank()", "dense_rank()", "percent_rank()", "cume_dist()"]
UNFRAMED = ("row_number", "ntile", "lag", "lead", *(one[:-2] for one in OF_PEERS))
STEPS = {
    Type.INTEGER: ["0", "2", "10"],
    Type.NUMERIC: ["0", "2.5", "100"],
    Type.DATE: ["INTERVAL '1 day'", "INTERVAL '30 years'"],
    Type.TIMESTAMP: ["INTERVAL '1 second'", "INTERVAL '12 days'"],
}
"""How far a RANGE may reach, by the type of what it is ordered by."""


class Windows:
    """Makes windows over what some expressions are over."""

    def __init__(self, of: Expressions) -> None:
        self._of = of
        self._random = of.random

    def call(self) -> tuple[str, str]:
        """Make a function, and the window over which it has one answer."""
        kind = self._random.random()
        if kind < 0.4:
            function = self._random.choice(OF_ROWS).format(
                v=self._of.value(ORDERED, 1),
                t=self._of.value([Type.TEXT], 1),
                i=self._of.value([Type.INTEGER], 0),
                n=self._random.randrange(1, 4),
            )
            order = self._total()
        elif kind < 0.6:
            function, order = self._random.choice(OF_PEERS), self._some()
        else:
            function, order = self._aggregate(), self._random.choice([self._total(), self._some()])
        frame = "" if function.startswith(UNFRAMED) else self._frame(order)
        parts = [self._partition(), f"ORDER BY {', '.join(order)}" if order else "", frame]
        return function, " ".join(part for part in parts if part)

    def _aggregate(self) -> str:
        text = self._of.aggregate(plain=True, simple=True)
        if self._random.random() < 0.3:
            text += f" FILTER (WHERE {self._of.condition(1)})"
        return text

    def _partition(self) -> str:
        by = self._of.grouped(3) if self._random.random() < 0.6 else []
        return f"PARTITION BY {', '.join(by)}" if by else ""

    def _some(self) -> list[str]:
        """Choose an order in which rows may be peers; of one column, a RANGE may have steps."""
        if self._random.random() < 0.4 and (one := self._of.column(list(STEPS))):
            return [one.text + self._random.choice(["", " DESC"])]
        return self._of.grouped(2)

    def _total(self) -> list[str]:
        first = [
            f"{one} {self._random.choice(['', 'DESC', 'NULLS FIRST'])}".strip()
            for one in self._of.grouped(2)
        ]
        return [*first, *self._of.total()]

    def _frame(self, order: list[str]) -> str:
        """Choose a frame; of ROWS, only where no two rows are peers."""
        unit = self._random.choice(["", "RANGE", "GROUPS", "ROWS"])
        is_total = len(order) >= len(self._of.total())
        if not unit or (unit == "ROWS" and not is_total) or (unit == "GROUPS" and not order):
            return ""
        steps = ["1", "2", "0"]
        if unit == "RANGE":
            steps = self._steps(order)
        before = [f"{step} PRECEDING" for step in steps]
        after = [f"{step} FOLLOWING" for step in steps]
        bounds = ["UNBOUNDED PRECEDING", *before, "CURRENT ROW", *after, "UNBOUNDED FOLLOWING"]
        if not order:  # all rows are peers, and nothing is between them
            bounds = ["UNBOUNDED PRECEDING", "CURRENT ROW", "UNBOUNDED FOLLOWING"]
        begin = self._random.randrange(len(bounds) - 1)
        if begin <= len(before) and self._random.random() < 0.2:
            return f"{unit} {bounds[begin]}"
        end = self._random.randrange(max(begin, 1), len(bounds))
        return f"{unit} BETWEEN {bounds[begin]} AND {bounds[end]}"

    def _steps(self, order: list[str]) -> list[str]:
        if len(order) != 1:
            return []
        name = order[0].removesuffix(" DESC")
        of = [c for c in self._of.columns(list(STEPS)) if name in (c.text, c.text.split(".")[-1])]
        return [self._random.choice(STEPS[of[0].column.type])] if of else []


def windowed(of: Expressions, source: str) -> str:
    """Make a query with windows, some of which may have a name."""
    random, windows = of.random, Windows(of)
    items = [*random.sample(of.total(), min(2, len(of.total())))]
    named = ""
    for number in range(random.randrange(1, 4)):
        function, window = windows.call()
        if not named and random.random() < 0.25:
            named = f" WINDOW w AS ({window})"
            is_framed = window.endswith(("PRECEDING", "ROW", "FOLLOWING"))
            items.append(f"{function} OVER {'w' if is_framed else random.choice(['w', '(w)'])}")
        else:
            items.append(f"{function} OVER ({window}) AS w{number}")
    where = f" WHERE {of.condition(1)}" if random.random() < 0.4 else ""
    return f"SELECT {', '.join(items)} FROM {source}{where}{named}"


def ranked_groups(of: Expressions, source: str) -> str:
    """Make a window over groups."""
    key, found = of.grouped(1)[0], f"sum({of.value([of.random.choice(NUMBERS)], 1)})"
    window = f"ORDER BY {found} DESC, {key}"
    return (
        f"SELECT {key}, {found}, rank() OVER ({window}), sum(count(*)) OVER ({window}) "
        f"FROM {source} GROUP BY {key}"
    )
