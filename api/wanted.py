"""Wanted: of what is staged, the rows that can count for a query: those that meet what it compares
columns with. Who asks for one key among many has no other than its row sent to a warehouse.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from api.cut import Part
from api.few import Few, Shelf, are_few
from api.joined import Source, conditions
from api.kinds import LITERAL_MOST, Sort, of_columns
from api.split import Split
from etl_procs.model import Outlet
from migrations import staged

COMPARED: Mapping[type[exp.Expr], tuple[Any, Any]] = {
    exp.EQ: (pc.equal, pc.equal),
    exp.LT: (pc.less, pc.greater),
    exp.LTE: (pc.less_equal, pc.greater_equal),
    exp.GT: (pc.greater, pc.less),
    exp.GTE: (pc.greater_equal, pc.less_equal),
}
"""How a column is compared with a value, and how where the value stands first."""

READ_ROWS, READ_BYTES = 100_000, 16 * 2**20
"""So much at most is read of what is staged before a plan is chosen."""


class Wanted:
    """What is staged, and can count for a query; it is read when it is asked for."""

    def __init__(self, divided: Split | str, parts: Mapping[Outlet, Part], shelf: Shelf) -> None:
        self._divided = divided
        self._parts = parts
        self._shelf = shelf

    @cached_property
    def parts(self) -> Mapping[Outlet, Part]:
        """Give the parts of the cut, of what is staged with what can count."""
        found = dict(self._parts)
        for outlet, rows in self._met.items():
            ranges = found[outlet].staged if len(rows) else ()
            found[outlet] = replace(found[outlet], staged=ranges, rows=len(rows), size=rows.nbytes)
        return found

    @property
    def held(self) -> Mapping[Outlet, Part]:
        """Give those of which something is staged."""
        return staged_of(self.parts)

    def few(self, outlet: Outlet) -> Few | None:
        """Give what is staged of a table, if it is to be written into the query."""
        part = self.parts[outlet]
        if not are_few(part):
            return None
        rows = self._met.get(outlet)
        return self._shelf.few(outlet, part) if rows is None else Few(rows)

    def rows(self, outlet: Outlet) -> Iterable[pa.Table]:
        """Read it, but for what was read already."""
        if (few := self.few(outlet)) is not None:
            return [few.rows]
        if outlet in self._met:
            return [self._met[outlet]]
        part = self.parts[outlet]
        return staged.carried_of(outlet, part.size, *part.staged)

    @cached_property
    def _met(self) -> Mapping[Outlet, pa.Table]:
        """Give what meets the query's conditions, of what they are looked at for."""
        if isinstance(self._divided, str):
            return {}
        return _read(self._divided, self._parts, self._shelf)


def staged_of(parts: Mapping[Outlet, Part]) -> Mapping[Outlet, Part]:
    """Give those of which something is staged."""
    return {outlet: part for outlet, part in parts.items() if part.staged}


def _read(divided: Split, parts: Mapping[Outlet, Part], shelf: Shelf) -> dict[Outlet, pa.Table]:
    """Read what is staged and can count, where a query has a condition on it. Of rows that are
    hidden from the caller, how many meet it must not be told by the plan.
    """
    named = Counter(source.shown.outlet for source in divided.sources)
    found = {}
    for source in divided.sources:
        outlet, part = source.shown.outlet, parts[source.shown.outlet]
        is_small = part.rows <= READ_ROWS and part.size <= READ_BYTES
        is_asked_for = source.filter and named[outlet] == 1 and not source.shown.where
        if part.staged and is_small and is_asked_for:
            if are_few(part):
                found[outlet] = wanted(source, divided.values, shelf.few(outlet, part).rows)
                continue
            rows = (
                wanted(source, divided.values, some) for some in staged.read(outlet, *part.staged)
            )
            found[outlet] = staged.table(outlet, staged.carried(outlet, rows))
    return found


def wanted(source: Source, values: Mapping[str, str], rows: pa.Table) -> pa.Table:
    """Leave out rows that cannot count; `values` are those of parameters, by their marks.

    Of operations by key a condition on anything but the key says nothing: the last one of a key
    hides what is there, also where it does not meet it.
    """
    outlet = source.shown.outlet
    looking = _Looking({*(outlet.key or outlet.columns.names)}, source, values, rows)
    for condition in conditions(source.filter):
        met = looking.met(condition)
        if met is not None:
            looking.rows = looking.rows.filter(met)
    return looking.rows


class _Looking:
    def __init__(
        self, names: set[str], source: Source, values: Mapping[str, str], rows: pa.Table
    ) -> None:
        self._sorts = {n: k.sort for n, k in of_columns(source.shown.outlet).items() if n in names}
        self._values = values
        self.rows = rows

    def met(self, condition: exp.Expr) -> pa.ChunkedArray | None:
        """Tell which rows meet a condition; None: it cannot be told here."""
        match condition:
            case exp.Paren():
                return self.met(condition.this)
            case exp.Between() if not condition.args.get("symmetric"):
                at = condition.this
                least = self._compared(at, exp.GTE, condition.args["low"])
                most = self._compared(at, exp.LTE, condition.args["high"])
                return None if least is None or most is None else pc.and_(least, most)
            case exp.EQ() | exp.LT() | exp.LTE() | exp.GT() | exp.GTE():
                return self._compared(condition.this, type(condition), condition.expression)
        return None

    def _compared(
        self, one: exp.Expr, how: type[exp.Expr], other: exp.Expr
    ) -> pa.ChunkedArray | None:
        compare, turned = COMPARED[how]
        if not isinstance(one, exp.Column):
            one, other, compare = other, one, turned
        if not isinstance(one, exp.Column) or one.name not in self._sorts:
            return None
        value = self._value(other)
        match self._sorts[one.name]:
            case Sort.INTEGER if isinstance(value, int):
                return compare(self.rows[one.name], value)
            case Sort.TEXT if isinstance(value, str) and how is exp.EQ:  # how it orders is its own
                return compare(self.rows[one.name], value)
        return None

    def _value(self, node: exp.Expr) -> Any:
        """Read a whole number or a text; None where it is neither, or not plainly written."""
        if not isinstance(node, exp.Literal):
            return None
        text = node.sql("postgres", comments=False, copy=False)
        text = self._values.get(text, text)
        if text.isdecimal() and int(text) <= LITERAL_MOST:
            return int(text)
        is_plain = text.startswith("'") and "\\" not in text
        return text[1:-1].replace("''", "'") if is_plain else None
