"""A question: a query at an open cut, with what each plan for it would cost, and how it is run."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from api import costs, pieces, plans
from api.answer import Column, Head
from api.catalogue import Shown
from api.costs import Rates, Staged
from api.cut import Cut, Part, There
from api.duck import TYPES
from api.few import Shelf, are_few
from api.finish import (
    CELLS,
    STAGED,
    THERE,
    Finisher,
    gathered,
    gathered_sql,
    island_sql,
    of_cells,
)
from api.joined import Source
from api.kinds import Kind, of_columns
from api.pieces import Piece, Pieces
from api.plans import Candidate, Decision, Moving, Plan, Weighed
from api.resolve import Template
from api.shims import Shim, Whole
from api.split import Split
from api.wanted import Wanted, staged_of
from etl_procs.model import Kept, Outlet
from migrations import staged, tables

SPREAD = "no warehouse has all of its tables"
NOTHING = "nothing is staged that can count for the query"
LITTLE = "what is staged and can count is less than what it takes to weigh plans"
LITTLE_ROWS, LITTLE_BYTES = 100, 64 * 2**10
"""With so little staged to add, a query is asked as a whole without a look at other plans."""
WEIGHED_S = 60.0
"""So long a query that is asked again, of about as much that is staged, is not weighed again."""


@dataclass(frozen=True)
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
    place: Whole
    """Who answers, if one can alone."""
    rates: Rates
    island_bytes: int
    """More than this is not brought to the island, if a warehouse can answer."""
    weighed: Weighed
    shelf: Shelf
    now: float

    @property
    def is_spread(self) -> bool:
        """Whether no warehouse has all of its tables."""
        return not set(self.homes.values()) <= {self.place}

    def decision(self, plan: Plan | None) -> Decision:
        """Choose a plan, the one that is wanted if it can be, or what was chosen a moment ago."""
        amounts = (
            (p.there, p.rows.bit_length(), p.size.bit_length()) for p in self._wanted.parts.values()
        )
        values = () if isinstance(self.split, str) else tuple(self.split.values.items())
        of, last = (plan, values, *amounts), self.weighed
        if last.decision is None or last.of != of or self.now >= last.until:
            last.decision = self.weigh(plan)
            last.of, last.until = of, self.now + WEIGHED_S
        return last.decision

    def weigh(self, plan: Plan | None, *, in_full: bool = False) -> Decision:
        """Choose a plan by what each would cost; in full, where little is staged, too."""
        if self.is_spread:
            divided = self._split() if len(set(self.homes.values())) == 1 else self._gather()
            if not (divided.why_not or in_full or plan is Plan.SHIP):
                return Decision(divided, (divided,), SPREAD)
            decision = plans.decide((self._ship_lent(), divided), plan or divided.plan)
            cannot = f", and the island cannot: {divided.why_not}" if divided.why_not else ""
            return replace(decision, because=SPREAD + cannot)
        if not self._wanted.held:
            query = self.place.estimate(self._there()) if in_full else None
            alone = Candidate(Plan.WAREHOUSE, costs.asked(self.rates, query) if query else 0.0)
            return Decision(alone, (alone,), NOTHING)
        if self._is_little and plan in (None, Plan.SHIP) and not in_full:
            ship = Candidate(Plan.SHIP, 0.0)
            return Decision(ship, (ship,), LITTLE, self._moving(ship, ship))
        is_divided = isinstance(self.split, str) or len(self.split.sources) == 1
        ship, other = self._ship(), self._split() if is_divided else self._gather()
        decision = plans.decide((ship, other), plan)
        if self._is_little and plan is None and other.cost_ms is not None:
            decision = replace(decision, chosen=ship, because=LITTLE)
        return replace(decision, moving=self._moving(decision.chosen, ship))

    @property
    def _is_little(self) -> bool:
        """Whether of all that is staged only so little can count that nothing need be weighed."""
        held = self._wanted.held.values()
        rows, size = sum(part.rows for part in held), sum(part.size for part in held)
        return rows <= LITTLE_ROWS and size <= LITTLE_BYTES

    @cached_property
    def _wanted(self) -> Wanted:
        return Wanted(self.split, self.at.parts, self.shelf)

    def _moving(self, chosen: Candidate, ship: Candidate) -> Moving | None:
        """Compare with what it would take if what is shipped were there already."""
        held = staged_of(self.at.parts)
        if any(isinstance(outlet, Kept) for outlet in held):
            return None  # no migration takes a stream
        once_ms = costs.moved(self.rates, self._measured(held).values())
        sent_ms = costs.sent(self.rates, self._measured(self._wanted.held).values())
        spent_ms = (chosen.cost_ms or 0.0) - ((ship.cost_ms or 0.0) - sent_ms)
        return Moving(tuple(outlet.full_name for outlet in held), max(spent_ms, 0.0), once_ms)

    def head(self, decision: Decision) -> Head:
        """Tell what is known of the answer before its first row."""
        chosen = decision.chosen
        cost_ms = chosen.cost_ms or 0.0
        return Head(
            self.columns,
            self.at.as_of,
            self.freshness,
            chosen.plan.value,
            cost_ms,
            decision.moving,
        )

    def run(self, decision: Decision, finisher: Finisher) -> Iterator[pa.RecordBatch]:
        """Ask, and give the rows as they come."""
        match decision.chosen.plan:
            case Plan.WAREHOUSE:
                return self.place.rows(self._there(), self.columns)
            case Plan.SHIP:
                return self.place.rows(self._shipped(), self.columns)
            case Plan.SPLIT:
                return self._divided(finisher)
            case Plan.GATHER:
                return self._gathered(finisher)

    def explained(self, decision: Decision) -> dict[str, Any]:
        """Write down how it would be answered."""
        return {
            "plan": decision.chosen.plan.value,
            "because": decision.because,
            "candidates": [
                {
                    **asdict(candidate),
                    "plan": candidate.plan.value,
                    "sql": {} if candidate.why_not else self._sql(candidate.plan),
                }
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

    def _sql(self, plan: Plan) -> Mapping[str, str]:
        """Write what would be asked of each engine, by its name."""
        match plan:
            case Plan.WAREHOUSE:
                return {self.place.name: self._there()}
            case Plan.SHIP:
                sql = {self.place.name: self._with_staged()}
                for outlet in self._lent:
                    home, asked = self.homes[outlet], self._all_of(outlet)
                    sql[home.name] = "; ".join(filter(None, [sql.get(home.name), asked]))
                return sql
            case Plan.SPLIT:
                return self._sql_split()
            case Plan.GATHER:
                return self._sql_gathered()

    def _sql_split(self) -> dict[str, str]:
        assert isinstance(self.split, Split)
        home = self.homes[self.split.sources[0].shown.outlet]
        held = {STAGED} if any(self._part(s).staged for s in self.split.sources) else set()
        sql = {home.name: self._part_there(self.split, home)}
        if held or self.split.merged:
            sql["island"] = island_sql(self.split, {THERE, *held})
        return sql

    def _sql_gathered(self) -> dict[str, str]:
        assert isinstance(self.split, Split)
        sql: dict[str, str] = {}
        *_, made = self._cheapest
        for piece in made.pieces:
            name = self._home(piece).name
            sql[name] = "; ".join(filter(None, [sql.get(name), self._asked(piece)]))
        held = {gathered(n)[1] for n, piece in enumerate(made.pieces) if self._held_of(piece)}
        sql["island"] = gathered_sql(self.split, made, held)
        return sql

    def _there(self) -> str:
        return self.template.filled(
            [self.place.there(shown, self._wanted.parts[shown.outlet]) for shown in self.tables]
        )

    def _with_staged(self) -> str:
        """Write the query over what is there and what is shipped."""
        texts = []
        for shown in self.tables:
            part = self._wanted.parts[shown.outlet]
            if shown.outlet in self._lent:
                part = self.place.lent(shown.outlet, part)
            texts.append((self.place.whole if part.staged else self.place.there)(shown, part))
        return self.template.filled(texts)

    def _part_there(self, divided: Split, home: Shim) -> str:
        """Write the part that is asked of an engine, of what it has and what was not shipped."""
        texts = []
        for source in divided.sources:
            part = self._part(source)
            unless = part.staged and source.shown.outlet.key
            written = self.place.there_unless if unless else home.there
            texts.append(written(source.shown, part))
        return divided.asked(home.dialect).filled(texts)

    def _measured(self, parts: Mapping[Outlet, Part]) -> dict[Outlet, Staged]:
        """Tell how much is staged of tables."""
        read = {shown.outlet: len(shown.columns) for shown in self.tables}
        return {
            outlet: Staged(
                rows=part.rows,
                size=part.size,
                copied=len(tables.arrow(outlet)),
                written=read[outlet] + len(outlet.key),
                keys=len(outlet.key),
                keys_share=len(outlet.key) / len(outlet.columns.names),
                is_written=are_few(part),
            )
            for outlet, part in parts.items()
        }

    def _ship(self) -> Candidate:
        query = self.place.estimate(self._there())
        adds_rows = isinstance(self.split, Split) and not self.split.merged
        held = list(self._measured(self._wanted.held).values())
        return Candidate(Plan.SHIP, costs.shipped(self.rates, query, held, adds_rows=adds_rows))

    def _ship_lent(self) -> Candidate:
        """Weigh bringing what the warehouse lacks to it, from whoever has it."""
        fetched = [
            (self.homes[outlet].estimate(self._all_of(outlet)), len(outlet.columns.names))
            for outlet in self._lent
        ]
        held = self._measured(self._wanted.held).values()
        return Candidate(Plan.SHIP, costs.lent(self.rates, fetched, held))

    @cached_property
    def _lent(self) -> list[Outlet]:
        """Name the tables of which the warehouse is lent what others have."""
        others = [outlet for outlet, home in self.homes.items() if home is not self.place]
        return [o for o in others if self._wanted.parts[o].there is not There.NONE]

    def _all_of(self, outlet: Outlet) -> str:
        """Write what asks for all that its holder has of a table."""
        shown = Shown(outlet, outlet.columns.names)
        return self.homes[outlet].there(shown, self._wanted.parts[outlet])

    def _split(self) -> Candidate:
        if why_not := self._why_not():
            return Candidate(Plan.SPLIT, why_not=why_not)
        assert isinstance(self.split, Split)
        outlet = self.split.sources[0].shown.outlet
        home = self.homes[outlet]
        plain = [home.there(source.shown, self._part(source)) for source in self.split.sources]
        part = home.estimate(self.split.asked(home.dialect).filled(plain))
        return Candidate(
            Plan.SPLIT, costs.split(self.rates, part, self._measured(self._wanted.held).get(outlet))
        )

    def _why_not(self) -> str:
        """Say why the island cannot compute any of it."""
        if isinstance(self.split, str):
            return self.split
        others = [column.type for column in self.columns if column.type not in TYPES]
        return f"the island makes no {others[0]}" if others else ""

    def _shipped(self) -> str:
        for outlet in self._wanted.held:
            self.place.ship(outlet, self._wanted.few(outlet) or self._wanted.rows(outlet))
        for outlet in self._lent:
            rows = self.homes[outlet].rows(self._all_of(outlet), _as_asked(of_columns(outlet)))
            self.place.lend(outlet, rows)
        return self._with_staged()

    def _divided(self, finisher: Finisher) -> Iterator[pa.RecordBatch]:
        assert isinstance(self.split, Split)
        source = self.split.sources[0]
        outlet = source.shown.outlet
        home, part, rows = self.homes[outlet], self._part(source), self._wanted.rows(outlet)
        if part.size <= staged.HELD_BYTES:
            rows = [staged.table(outlet, rows)]
        if part.staged and outlet.key:
            keys = rows if isinstance(rows, list) else self._wanted.rows(outlet)
            of_keys = (some.select(list(outlet.key)) for some in keys)
            self.place.ship(outlet, self._wanted.few(outlet) or of_keys)
        there = home.rows(self._part_there(self.split, home), of_cells(self.split.cells))
        schema = tables.arrow(outlet)
        return finisher.finish(
            self.split, self.columns, there, (schema, rows) if part.staged else None
        )

    def _here(self, outlet: Outlet) -> pa.Table | None:
        """Give what is staged of a table to the island, if anything is."""
        is_held = self._wanted.parts[outlet].staged
        return staged.table(outlet, self._wanted.rows(outlet)) if is_held else None

    def _gather(self) -> Candidate:
        if why_not := self._why_not():
            return Candidate(Plan.GATHER, why_not=why_not)
        cost_ms, size, _ = self._cheapest
        if size > self.island_bytes:
            return Candidate(Plan.GATHER, why_not=f"some {size:,} bytes would be brought here")
        return Candidate(Plan.GATHER, cost_ms)

    @cached_property
    def _cheapest(self) -> tuple[float, int, Pieces]:
        """Cut the query into pieces, with joins made by engines where that costs less."""
        assert isinstance(self.split, Split)
        sources = self.split.sources
        held = {n for n, source in enumerate(sources) if self._part(source).staged}
        homes = [self.homes[source.shown.outlet] for source in sources]
        dialects = [home.dialect for home in homes]
        ways = [pieces.cut(self.split, dialects, held)]
        free = [None if n in held else home for n, home in enumerate(homes)]
        if groups := pieces.groups(self.split, free):
            ways.append(pieces.cut(self.split, dialects, held, groups))
        return min(((*self._cost_and_size(way), way) for way in ways), key=lambda of: of[0])

    def _cost_and_size(self, made: Pieces) -> tuple[float, int]:
        fetched = [self._home(piece).estimate(self._asked(piece)) for piece in made.pieces]
        held = self._measured(self._wanted.held).values()
        size = sum(estimate.rows * estimate.width for estimate in fetched)
        size += sum(one.size for one in held)
        return costs.gathered(self.rates, fetched, held), round(size)

    def _part(self, source: Source) -> Part:
        return self._wanted.parts[source.shown.outlet]

    def _home(self, piece: Piece) -> Shim:
        return self.homes[piece.sources[0].shown.outlet]

    def _held_of(self, piece: Piece) -> bool:
        return bool(self._part(piece.sources[0]).staged)

    def _asked(self, piece: Piece) -> str:
        """Write what is asked of an engine for a piece."""
        home, texts = self._home(piece), []
        for source in piece.sources:
            outlet, is_only = source.shown.outlet, len(piece.sources) == 1
            names = tuple(piece.columns) if is_only else source.needed
            texts.append(home.there(Shown(outlet, names, source.shown.where), self._part(source)))
        return piece.asked.filled(texts)

    def _gathered(self, finisher: Finisher) -> Iterator[pa.RecordBatch]:
        assert isinstance(self.split, Split)
        *_, made = self._cheapest
        given: dict[str, pa.Table] = {}
        for number, piece in enumerate(made.pieces):
            there, here = gathered(number)
            columns = _as_asked(piece.columns)
            schema = pa.schema([pa.field(column.name, column.arrow) for column in columns])
            rows = self._home(piece).rows(self._asked(piece), columns)
            given[there] = pa.Table.from_batches(rows, schema=schema)
            held = self._here(piece.sources[0].shown.outlet)
            if held is not None:
                given[here] = held
        return finisher.gather(self.split, made, self.columns, given)


def _as_asked(kinds: Mapping[str, Kind]) -> list[Column]:
    """Give columns as an engine is asked for them."""
    return [Column(name, CELLS[kind.sort]) for name, kind in kinds.items()]
