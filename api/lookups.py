"""Lookups: how each is answered, and what became of its questions."""

from dataclasses import fields
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from api.grant import Scope
from api.guard import needs
from api.line import Line
from api.problem import JSON, problems
from api.resources import Resources
from api.values import dump
from etl_procs.metrics import LookupFigures
from etl_procs.model import Foreign, Lookup, Strategy

AT_ONCE, WAITING_MAX = 4, 64

ANSWERED_FROM = {
    Strategy.OWNED: "an index over the core's table",
    Strategy.WAREHOUSE: "the warehouse, by SQL",
    Strategy.REPLICA: "a copy of the warehouse's table",
}


class LookupFiguresOut(BaseModel):
    """What a living engine has measured of a lookup in one partition."""

    partition: int
    strategy: Strategy = Field(description="By which it is answered now.")
    answers_from: str = Field(description="What that is.")
    why: str = Field(description="Why, if that was chosen.")
    hits: int = Field(description="Keys that its index answered, or its copy.")
    misses: int = Field(description="Keys that SQL answered, or the warehouse.")
    builds: int = Field(description="How often the index, or the copy, was read from its table.")
    entries: int = Field(description="Versions in the index, or the copy.")
    bytes: int = Field(description="Memory that it takes.")
    behind: int = Field(description="Changes that it did not have when it was asked last.")
    age_s: float = Field(description="How old the copy was that answered last.")
    waits: int = Field(description="Questions that the warehouse did not answer.")


class LookupOut(BaseModel):
    """A lookup as it is declared, and as it does."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "bourse.rate_of",
                    "table": "public.rates",
                    "warehouse": "default",
                    "key": ["currency"],
                    "at": "since",
                    "gives": ["rate"],
                    "or_earliest": False,
                    "strategy": "auto",
                    "max_age_s": 60.0,
                    "partitions": [
                        {
                            "partition": 0,
                            "strategy": "replica",
                            "answers_from": "a copy of the warehouse's table",
                            "why": "a copy costs less than to ask",
                            "hits": 48211,
                            "misses": 12,
                            "builds": 1,
                            "entries": 5102,
                            "bytes": 163264,
                            "behind": 0,
                            "age_s": 12.5,
                            "waits": 0,
                        }
                    ],
                }
            ]
        }
    )

    name: str = Field(description="As DATAFLOW.LOOKUP.")
    table: str = Field(description="The table of the core, or SCHEMA.TABLE of the warehouse.")
    warehouse: str | None = Field(description="Whose table it is; null: the core's own.")
    key: list[str]
    at: str = Field(description="The column from whose value on a version is in force; or none.")
    gives: list[str]
    or_earliest: bool = Field(
        description="Whether the earliest version answers for a moment before it."
    )
    strategy: Strategy = Field(description="As it is declared.")
    max_age_s: float = Field(description="How old a copy may be that answers.")
    partitions: list[LookupFiguresOut] = Field(
        description="Since the engine's start; those that it has not been asked in are left out, "
        "and all while no engine runs."
    )


class LookupsOut(BaseModel):
    """All lookups."""

    lookups: list[LookupOut]


def router(resources: Resources) -> APIRouter:
    """Make the route."""
    made = APIRouter(prefix="/v1/lookups", tags=["lookups"])
    line = Line("requests for lookups", at_once=AT_ONCE, waiting_max=WAITING_MAX)

    @made.get(
        "",
        response_model=LookupsOut,
        responses=problems(401, 503),
        dependencies=needs(Scope.LOOK),
    )
    async def list_lookups() -> Response:
        """List the lookups: from what each is answered, hits, misses, size and age."""
        return Response(await line.run(partial(_lookups, resources)), media_type=JSON)

    return made


def _lookups(resources: Resources) -> bytes:
    living = [found.figures["lookups"] if found else {} for found in resources.living()]
    known = [one for flow in resources.dataflows.values() for one in flow.lookups.values()]
    told = [
        described(
            lookup,
            [
                measured(partition, figures[lookup.full_name])
                for partition, figures in enumerate(living)
                if lookup.full_name in figures
            ],
        )
        for lookup in known
    ]
    return dump(LookupsOut(lookups=told).model_dump(mode="json"))


def measured(partition: int, figures: dict[str, Any]) -> LookupFiguresOut:
    """Tell what was measured in a partition."""
    found = LookupFigures(**{one.name: figures[one.name] for one in fields(LookupFigures)})
    strategy = Strategy(found.strategy)
    return LookupFiguresOut(
        partition=partition,
        strategy=strategy,
        answers_from=ANSWERED_FROM[strategy],
        **{
            name: getattr(found, name)
            for name in LookupFiguresOut.model_fields
            if name not in ("partition", "strategy", "answers_from")
        },
    )


def described(lookup: Lookup, partitions: list[LookupFiguresOut]) -> LookupOut:
    """Tell what a lookup is, and does."""
    table = lookup.table
    return LookupOut(
        name=lookup.full_name,
        table=table.name,
        warehouse=table.warehouse if isinstance(table, Foreign) else None,
        key=list(lookup.key),
        at=lookup.at,
        gives=list(lookup.gives),
        or_earliest=lookup.or_earliest,
        strategy=lookup.strategy,
        max_age_s=lookup.max_age_s,
        partitions=partitions,
    )
