"""Lookups: how each is answered, and what became of its questions."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.grant import Scope
from api.guard import guarded
from api.line import Line
from api.resources import Resources
from etl_procs.model import Foreign, Lookup, Strategy

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
    line = Line("requests for lookups")
    known = [one for flow in resources.dataflows.values() for one in flow.lookups.values()]

    @made.get("", **guarded(Scope.LOOK, 503))
    async def list_lookups() -> LookupsOut:
        """List the lookups: from what each is answered, hits, misses, size and age."""
        living = await line.run(resources.living)
        figures = [found.figures["lookups"] if found else {} for found in living]
        return LookupsOut(lookups=[_lookup(lookup, figures) for lookup in known])

    return made


def _lookup(lookup: Lookup, living: Sequence[Mapping[str, Any]]) -> LookupOut:
    """Tell what a lookup is, and what each partition that was asked in it has measured."""
    table = lookup.table
    partitions = [
        {
            "partition": partition,
            "answers_from": ANSWERED_FROM[Strategy(of[lookup.full_name]["strategy"])],
            **of[lookup.full_name],
        }
        for partition, of in enumerate(living)
        if lookup.full_name in of
    ]
    return LookupOut.model_validate(
        {
            **{one.name: getattr(lookup, one.name) for one in fields(lookup)},
            "name": lookup.full_name,
            "table": table.name,
            "warehouse": table.warehouse if isinstance(table, Foreign) else None,
            "partitions": partitions,
        }
    )
