"""A question: a query at an open cut, with what each plan for it would cost, and how it is run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from api import costs, plans, sources
from api.answer import Column, Head
from api.catalogue import Shown
from api.costs import Rates, Staged
from api.cut import Cut, Part, There
from api.errors import QueryRefused
from api.finish import (
    CELLS,
    TYPES,
    Finisher,
    gathered,
    gathered_sql,
    island_sql,
    needed,
    of_cells,
)
from api.joined import Source
from api.kinds import of_columns
from api.plans import Candidate, Decision, Plan
from api.resolve import Template
from api.shims import Shim
from api.split import Split
from etl_procs.model import Outlet
from migrations import staged, tables


@dataclass(frozen=True, slots=True)
class Question:
    """A query at an open cut."""

    template: Template
    tables: tuple[Shown, ...]
    split: Split | str
    columns: tuple[Column, ...]
    at: Cut
    freshness: str
    homes: Mapping[Outlet, Shim]
    """Who holds each table."""
    place: Shim
    """Who answers, if one can alone."""
    rates: Rates

    def decision(self, wanted: Plan | None) -> Decision:
        """Choose a plan."""
        if len(set(self.homes.values())) > 1:
            gather = self._gather()
            if gather.cost_ms is None:
                raise QueryRefused(
                    f"no warehouse has all of its tables, and the island cannot: {gather.why_not}",
                    hint="Ask one warehouse at a time, or route the tables to one.",
                )
            return Decision(gather, (gather,), "its tables are in several warehouses")
        if not any(part.staged for part in self.at.parts.values()):
            alone = Candidate(Plan.WAREHOUSE, 0.0, sql={self.place.name: self._there()})
            return Decision(alone, (alone,), "nothing that the query reads is staged")
        is_divided = isinstance(self.split, str) or len(self.split.sources) == 1
        return plans.decide((self._ship(), self._split() if is_divided else self._gather()), wanted)

    def head(self, decision: Decision) -> Head:
        """Tell what is known of the answer before its first row."""
        chosen = decision.chosen
        cost_ms = chosen.cost_ms or 0.0
        return Head(self.columns, self.at.as_of, self.freshness, chosen.plan.value, cost_ms)

    def run(self, decision: Decision, finisher: Finisher) -> Iterator[pa.RecordBatch]:
        """Ask, and give the rows as they come."""
        match decision.chosen.plan:
            case Plan.WAREHOUSE:
                return self.place.rows(self._there(), self.columns)
            case Plan.SHIP:
                return self.place.rows(self._shipped(), self.columns)
            case Plan.SPLIT:
                return self._parts(finisher)
            case Plan.GATHER:
                return self._gathered(finisher)

    def explained(self, decision: Decision) -> dict[str, Any]:
        """Write down how it would be answered."""
        return {
            "plan": decision.chosen.plan.value,
            "because": decision.because,
            "candidates": [
                {**asdict(candidate), "plan": candidate.plan.value}
                for candidate in decision.candidates
            ],
            "tables": [
                {
                    "table": outlet.full_name,
                    "warehouse": self.homes[outlet].name,
                    "there": part.there.value,
                    "staged_rows": part.rows,
                    "staged_bytes": part.size,
                }
                for outlet, part in self.at.parts.items()
            ],
            "as_of": dict(self.at.as_of),
            "freshness": self.freshness,
        }

    def _there(self) -> str:
        return self.template.filled(
            [
                sources.there(shown, self.at.parts[shown.outlet]).as_string(None)
                for shown in self.tables
            ]
        )

    def _with_staged(self) -> str:
        """Write the query over what is there and what is shipped."""
        texts = []
        for shown in self.tables:
            part = self.at.parts[shown.outlet]
            if part.staged:
                shipped = self.place.shipped(shown.outlet)
                texts.append(sources.whole(shown, part, shipped).as_string(None))
            else:
                texts.append(sources.there(shown, part).as_string(None))
        return self.template.filled(texts)

    def _part_there(self, divided: Split) -> str:
        (source,) = divided.sources
        shown = source.shown
        shipped = self.place.shipped(shown.outlet)
        there = sources.there_unless(shown, self.at.parts[shown.outlet], shipped)
        return divided.there.filled([there.as_string(None)])

    def _staged(self) -> Staged:
        held = [(o, part) for o, part in self.at.parts.items() if part.staged]
        keyed = [len(o.key) / len(o.columns.names) for o, _ in held if o.key]
        return Staged(
            rows=sum(part.rows for _, part in held),
            size=sum(part.size for _, part in held),
            tables=len(held),
            keys_share=max(keyed, default=0.0),
        )

    def _ship(self) -> Candidate:
        query = self.place.estimate(self._there())
        adds_rows = isinstance(self.split, Split) and not self.split.merged
        cost = costs.shipped(self.rates, query, self._staged(), adds_rows=adds_rows)
        return Candidate(Plan.SHIP, cost, sql={self.place.name: self._with_staged()})

    def _split(self) -> Candidate:
        if isinstance(self.split, str):
            return Candidate(Plan.SPLIT, why_not=self.split)
        if others := self._foreign_types():
            return Candidate(Plan.SPLIT, why_not=f"the island makes no {others[0]}")
        (source,) = self.split.sources
        plain = sources.there(source.shown, self.at.parts[source.shown.outlet])
        part = self.place.estimate(self.split.there.filled([plain.as_string(None)]))
        cost = costs.split(self.rates, part, self._staged())
        sql = {self.place.name: self._part_there(self.split), "island": island_sql(self.split)}
        return Candidate(Plan.SPLIT, cost, sql=sql)

    def _shipped(self) -> str:
        for outlet, part in self.at.parts.items():
            if part.staged:
                rows = staged.carried(outlet, staged.read(outlet, *part.staged))
                self.place.ship(outlet, rows)
        return self._with_staged()

    def _parts(self, finisher: Finisher) -> Iterator[pa.RecordBatch]:
        assert isinstance(self.split, Split)
        (source,) = self.split.sources
        outlet = source.shown.outlet
        held = self._held(outlet)
        if outlet.key:
            self.place.ship(outlet, [held.select(list(outlet.key))])
        there = self.place.rows(self._part_there(self.split), of_cells(self.split.cells))
        return finisher.finish(self.split, self.columns, there, held)

    def _foreign_types(self) -> list[str]:
        return [column.type for column in self.columns if column.type not in TYPES]

    def _held(self, outlet: Outlet) -> pa.Table:
        found = list(staged.carried(outlet, staged.read(outlet, *self.at.parts[outlet].staged)))
        return pa.concat_tables(found) if found else tables.arrow(outlet).empty_table()

    def _gather(self) -> Candidate:
        if isinstance(self.split, str):
            return Candidate(Plan.GATHER, why_not=self.split)
        if others := self._foreign_types():
            return Candidate(Plan.GATHER, why_not=f"the island makes no {others[0]}")
        asked = [(self.homes[s.shown.outlet], self._fetched(s)[0]) for s in self.split.sources]
        cost = costs.gathered(
            self.rates, [home.estimate(text) for home, text in asked], self._staged()
        )
        names = {gathered(n)[1] for n, s in enumerate(self.split.sources) if self._part(s).staged}
        sql: dict[str, str] = {}
        for home, text in asked:
            sql[home.name] = "; ".join(filter(None, [sql.get(home.name), text]))
        return Candidate(Plan.GATHER, cost, sql={**sql, "island": gathered_sql(self.split, names)})

    def _part(self, source: Source) -> Part:
        return self.at.parts[source.shown.outlet]

    def _fetched(self, source: Source) -> tuple[str, tuple[Column, ...]]:
        """Write what is asked of a warehouse of one table, and tell the columns of that."""
        outlet, part = source.shown.outlet, self._part(source)
        names = list(needed(source))
        if part.staged:
            names += [name for name in outlet.key if name not in names]
        shown = Shown(outlet, tuple(names), source.shown.where)
        kinds = of_columns(outlet)
        columns = tuple(Column(name, CELLS[kinds[name].sort]) for name in names)
        return sources.filtered(shown, part, source.filter).as_string(None), columns

    def _gathered(self, finisher: Finisher) -> Iterator[pa.RecordBatch]:
        assert isinstance(self.split, Split)
        given: dict[str, pa.Table] = {}
        for number, source in enumerate(self.split.sources):
            there, here = gathered(number)
            outlet = source.shown.outlet
            text, columns = self._fetched(source)
            schema = pa.schema([pa.field(column.name, column.arrow) for column in columns])
            rows = self.homes[outlet].rows(text, columns)
            given[there] = pa.Table.from_batches(rows, schema=schema)
            if self._part(source).staged:
                given[here] = self._held(outlet)
        return finisher.gather(self.split, self.columns, given)


def live(template: Template, tables: Sequence[Shown]) -> str:
    """Write a query over all that has arrived, as it is there at any time."""
    part = Part(There.LIVE)
    return template.filled([sources.there(shown, part).as_string(None) for shown in tables])


def nothing(template: Template, tables: Sequence[Shown]) -> str:
    """Write a query over no rows: it says what types its columns have, wherever tables are."""
    return template.filled([sources.nothing(shown).as_string(None) for shown in tables])
