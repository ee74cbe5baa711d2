"""The status: all that the status page shows, from what is derived already."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from api import gauges, migrations, picture
from api.dead_letters import ReasonOut
from api.grant import Scope
from api.guard import guarded
from api.look import Look
from api.metrics import Figures
from api.migrations import MigrationOut, Moved, WarehouseOut
from api.picture import Edge, Kind
from api.problem import JSON
from api.queries import Queries
from api.recent import Query
from api.values import dump
from etl_procs import measured
from etl_procs.dataflow import Dataflow
from etl_procs.dead_letters import DeadLetters
from etl_procs.measured import FlowView
from etl_procs.model import Outlet
from etl_procs.reader import Reader, Snapshot
from headrace.clock import SystemClock
from headrace.errors import NotRunning
from migrations.registry import State

WAIT_S = 1.0
"""So long is waited for a warehouse; one that is slow, or away, is told as it was seen last."""
MIGRATIONS = 10
REASONS = 50


class NodeOut(BaseModel):
    """A node of a dataflow's picture."""

    id: str
    kind: Kind
    name: str
    unit: str = Field(description="Of a procedure, or a stream that one gives: what commits as one")
    nested: bool = Field(description="Whether several procedures commit as one with it.")
    figures: dict[str, float | None] = Field(
        description="tuples_per_s, batches_per_s, waiting_tuples, oldest_s, p50_s, aborts, "
        "dead_batches, parked_rows, staged_rows, staged_bytes: those that it has. null: no engine "
        "measures. p50_s is within a factor of two, and since the engine began."
    )


class DrawnOut(BaseModel):
    """A dataflow: how it is, and its picture."""

    name: str
    places: dict[str, FlowView] = Field(description="By its name, or those of its partitions.")
    nodes: list[NodeOut]
    edges: list[Edge]


class EngineOut(BaseModel):
    """The engine."""

    up: bool = Field(description="Whether all of its workers live and measure.")
    measured_at: datetime | None


class LookedUpOut(BaseModel):
    """A lookup of a living engine, over all partitions."""

    name: str = Field(description="As DATAFLOW.LOOKUP.")
    strategy: str
    hits: int
    misses: int


class ParkedOut(BaseModel):
    """Rows that wait in a table that parks, over all partitions."""

    dataflow: str
    table: str
    rows: int


class SeenOut(WarehouseOut):
    """A warehouse, as it was seen."""

    seen_s: float = Field(description="How long ago that was.")


class StatusOut(BaseModel):
    """How everything is."""

    at: datetime
    engine: EngineOut
    dataflows: list[DrawnOut]
    warehouses: list[SeenOut] = Field(description="Those that were seen since the API began.")
    migrations: list[MigrationOut] = Field(description="Those at work, and the last ten.")
    dead_letters: list[ReasonOut] = Field(description="The most frequent first.")
    parked: list[ParkedOut] = Field(description="Of tables in which any wait.")
    lookups: list[LookedUpOut]
    queries: list[Query] = Field(
        description="The last of this key, or with the scope `operate`, of all; the newest first."
    )


@dataclass(frozen=True, slots=True)
class _Held:
    """What the cores hold."""

    batches: list[dict[str, int]]
    letters: list[dict[str, tuple[int, int]]]
    reasons: list[dict[str, Any]]
    staged: dict[str, tuple[int, int]]
    """Rows and bytes, by outlet."""


NOTHING = _Held([], [], [], {})


class Status:
    """Where all of it comes from."""

    def __init__(self, figures: Figures, moved: Moved, queries: Queries) -> None:
        self._figures = figures
        self._registry = moved.registry
        self._queries = queries
        self._flows = moved.places.dataflows
        self._clock = SystemClock()
        self._pictures = {
            name: picture.draw(flow, moved.places.warehouses) for name, flow in self._flows.items()
        }
        self._here = Look(self._document, self._clock)
        # Each by itself: one that is away takes seconds, and the others are not kept waiting.
        self._there = [
            Look(replace(moved.places, warehouses=[place]).look, self._clock)
            for place in moved.places.warehouses
        ]

    async def document(self, request: Request) -> dict[str, Any]:
        """Tell how everything is, to whoever asks."""
        here, *there = await asyncio.gather(
            self._here.seen(), *(look.seen(WAIT_S) for look in self._there)
        )
        assert here is not None
        found = self._queries.recent.seen_by(request.state.grant)
        return {
            **here[0],
            "warehouses": [
                {**asdict(place), "seen_s": ago}
                for seen in there
                if seen is not None
                for places, ago in [seen]
                for place in places
            ],
            "queries": found,
        }

    def _document(self) -> dict[str, Any]:
        living = self._figures.living()
        held = self._held()
        figures = [None if found is None else found.figures for found in living]
        known = [found for found in figures if found is not None]
        return {
            "at": self._clock.now(),
            "engine": {
                "up": bool(living) and None not in living,
                "measured_at": min((of.at for of in living if of is not None), default=None),
            },
            "dataflows": [
                {
                    "name": name,
                    "places": self._places(flow, held, figures),
                    "nodes": [
                        {**asdict(n), "figures": gauges.of_node(name, n, known, held.staged)}
                        for n in self._pictures[name].nodes
                    ],
                    "edges": self._pictures[name].edges,
                }
                for name, flow in self._flows.items()
            ],
            "migrations": self._migrations(),
            "dead_letters": held.reasons,
            "parked": _parked(known),
            "lookups": _lookups(known),
        }

    def _held(self) -> _Held:
        """Look at the cores; nothing before there are any."""
        try:
            with ExitStack() as opened:
                cores = [opened.enter_context(Reader(p).snapshot()) for p in self._figures.cores]
                tallies = DeadLetters(*(core.connection for core in cores)).tallies()
                return _Held(
                    [core.batches() for core in cores],
                    [core.dead_letters.counts() for core in cores],
                    [tally._asdict() for tally in tallies[:REASONS]],
                    {
                        outlet.full_name: _staged(cores[: flow.partitions], outlet)
                        for flow in self._flows.values()
                        for outlet in flow.outlets.values()
                    },
                )
        except NotRunning:
            return NOTHING

    def _places(
        self, flow: Dataflow, held: _Held, figures: Sequence[Mapping[str, Any] | None]
    ) -> dict[str, FlowView]:
        of_cores = list(zip(held.batches, held.letters, figures, strict=False))[: flow.partitions]
        return {
            flow.place(partition): measured.view(
                flow.name, batches.get(flow.name, 0), letters.get(flow.name, (0, 0))[0], of
            )
            for partition, (batches, letters, of) in enumerate(of_cores)
        }

    def _migrations(self) -> list[dict[str, Any]]:
        """Give those that are at work, and the last ones, each once."""
        chosen = [
            self._registry.chosen(state=state, most=MIGRATIONS)
            for state in (State.RUNNING, State.WAITING, None)
        ]
        found = {each.id: migrations.document(each) for each in chain(*chosen)}
        return list(found.values())


def router(status: Status) -> APIRouter:
    """Make the route."""
    made = APIRouter(prefix="/v1", tags=["the API"])

    @made.get("/status", response_model=StatusOut, **guarded(Scope.LOOK))
    async def tell_status(request: Request) -> Response:
        """Tell how everything is, in one document.

        Dataflows as pictures, with figures of each node, warehouses, migrations, dead letters by
        reason, parked rows, lookups, and the queries of late. The page at `/` shows it.
        """
        return Response(dump(await status.document(request)), media_type=JSON)

    return made


def _staged(cores: Sequence[Snapshot], outlet: Outlet) -> tuple[int, int]:
    """Tell the rows and bytes of an outlet that some warehouse has not confirmed."""
    found = []
    for core in cores:
        confirmed = core.confirmed(outlet.dataflow).values()
        last = core.batch(outlet.dataflow)
        found.append(core.measure(outlet, min(confirmed, default=0), last))
    return sum(rows for rows, _ in found), sum(size for _, size in found)


def _parked(figures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: Counter[str] = Counter()
    for of in figures:
        found.update(of["parked"])
    names = [(name.partition("."), rows) for name, rows in found.most_common() if rows]
    return [{"dataflow": flow, "table": table, "rows": rows} for (flow, _, table), rows in names]


def _lookups(figures: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for of in figures:
        for name, figure in of["lookups"].items():
            held = found.setdefault(name, {"name": name, "hits": 0, "misses": 0})
            held["strategy"] = figure["strategy"]
            held["hits"] += figure["hits"]
            held["misses"] += figure["misses"]
    return list(found.values())
