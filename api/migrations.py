"""Migrations: asked for under an id of the caller's choice, looked at, and cancelled."""

from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from api.grant import Scope
from api.guard import guarded, needs
from api.line import Line
from api.problem import JSON, problems
from api.values import dump
from migrations import ids, pushing
from migrations.jobs import Jobs
from migrations.places import Places
from migrations.planning import Planned
from migrations.registry import Asked, Idle, Kind, Migration, Registry, State
from migrations.warehouse import DEFAULT

LIST_MAX = 1_000

Id = Annotated[
    str,
    Path(
        pattern=ids.PATTERN,
        max_length=ids.LENGTH_MAX,
        description=f"The id, which the caller chooses: {ids.RULE}.",
    ),
]


Name = Annotated[str, Path(description="The warehouse's name in the configuration.")]


class IdleIn(BaseModel):
    """When the warehouse is idle, and until when that is waited for."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query_s_max: float = Field(
        60.0, ge=0, allow_inf_nan=False, description="No query there has run for longer."
    )
    active_max: int = Field(4, ge=0, description="No more sessions are at work there.")
    deadline_s: float = Field(
        900.0, ge=0, allow_inf_nan=False, description="After this it is done all the same."
    )


class MigrationIn(BaseModel):
    """What is to be done."""

    model_config = ConfigDict(extra="forbid")

    kind: Kind = Field(
        description="pull: bring what the cores have staged into the warehouse; merge: its deltas "
        "into main; retention: have the cores forget what all warehouses have had for long enough; "
        "audit: hold the warehouse against its definition, ledger and cores; rebuild: replace its "
        "tables by those of another warehouse."
    )
    warehouse: str = Field(DEFAULT, description="The warehouse, by its name.")
    dataflows: list[str] | None = Field(None, description="Which dataflows; without it, all.")
    idle: IdleIn | None = Field(None, description="Wait until the warehouse is idle.")
    source: str = Field("", description="Of a rebuild: the warehouse that is copied.")

    def asked(self) -> Asked:
        """Make it a value."""
        flows = None if self.dataflows is None else tuple(self.dataflows)
        idle = Idle(**self.idle.model_dump()) if self.idle else None
        return Asked(self.kind, self.warehouse, flows, idle, self.source)


class ErrorOut(BaseModel):
    """Why it failed."""

    code: str
    what: str
    hint: str


class MigrationOut(BaseModel):
    """A migration, as far as it has come."""

    id: str
    kind: Kind
    warehouse: str
    dataflows: list[str] | None
    idle: IdleIn | None
    source: str
    state: State
    stage: str = Field(description="What it does just now.")
    rows: int = Field(description="What it has committed; what was rolled back does not count.")
    bytes: int
    reached: dict[str, int] = Field(
        description="The batch of each dataflow, or of each of its partitions, that it reached."
    )
    findings: list[str] = Field(
        description="Of an audit that failed: what is wrong; else what is to be known."
    )
    error: ErrorOut | None
    created_at: str
    started_at: str | None
    ended_at: str | None


class MigrationsOut(BaseModel):
    """Migrations, the newest first."""

    migrations: list[MigrationOut]


class FlowOut(BaseModel):
    """How far one dataflow, or one of its partitions, has come in a warehouse."""

    name: str
    committed: int | None = Field(description="The last batch in the core; null: no core yet.")
    arrived: int | None = Field(description="The last batch in the warehouse.")
    merged: int | None = Field(description="The last batch in main.")
    waiting_rows: int | None = Field(description="Rows that the core keeps for a warehouse.")
    moved_at: str | None


class PusherOut(BaseModel):
    """What the engine's pusher to a warehouse does."""

    state: pushing.State
    since: str
    what: str = Field(description="Why nothing is pushed; empty while something is.")
    hint: str = Field(description="What to do.")


class WarehouseOut(BaseModel):
    """A warehouse."""

    name: str
    state: str = Field(description="ok, or what is wrong with its database.")
    pusher: PusherOut | None = Field(description="null: no engine runs.")
    dataflows: list[FlowOut]


class WarehousesOut(BaseModel):
    """All warehouses."""

    warehouses: list[WarehouseOut]


class PlannedOut(BaseModel):
    """What a push of one dataflow, or of one of its partitions, would do."""

    name: str
    together: list[str] | None = Field(
        description="In one transaction of the warehouse; empty: nothing is staged. null: the "
        "warehouse has no tables of it yet."
    )
    then: list[str] = Field(description="After its commit.")


class PlanOut(BaseModel):
    """What would be pushed to a warehouse just now."""

    warehouse: str
    dataflows: list[PlannedOut]


@dataclass(frozen=True, slots=True)
class Moved:
    """What the routes are over."""

    jobs: Jobs
    registry: Registry
    places: Places


def router(moved: Moved) -> APIRouter:
    """Make the routes."""
    jobs, registry, places = moved.jobs, moved.registry, moved.places
    made = APIRouter(prefix="/v1", tags=["migrations"])
    line = Line("requests for migrations")

    @made.put(
        "/migrations/{id}",
        response_model=MigrationOut,
        dependencies=needs(Scope.MIGRATE),
        responses={201: {"model": MigrationOut}, **problems(400, 401, 404, 409, 422, 503)},
    )
    async def put_migration(id: Id, asked: MigrationIn) -> Response:
        """Ask for a migration; the same again is the same one (200), another one refused (409).

        It runs by itself, and goes on after a restart. GET tells how far it is.
        """
        found, is_new = await line.run(lambda: jobs.put(id, asked.asked()))
        status = HTTPStatus.CREATED if is_new else HTTPStatus.OK
        return Response(dump(document(found)), status, media_type=JSON)

    @made.get("/migrations/{id}", response_model=MigrationOut, **guarded(Scope.LOOK, 404, 422, 503))
    async def get_migration(id: Id) -> Response:
        """Tell how far a migration is, or how it ended."""
        return await line.answer(lambda: document(registry.find(id)))

    @made.delete(
        "/migrations/{id}",
        status_code=HTTPStatus.ACCEPTED,
        response_model=MigrationOut,
        **guarded(Scope.MIGRATE, 404, 409, 422, 503),
    )
    async def cancel_migration(id: Id) -> Response:
        """Have a migration stop: what it has committed stays, and nothing is left half-done."""
        return await line.answer(lambda: document(jobs.cancel(id)), HTTPStatus.ACCEPTED)

    @made.get("/migrations", response_model=MigrationsOut, **guarded(Scope.LOOK, 422, 503))
    async def list_migrations(
        state: Annotated[State | None, Query(description="Those in this state.")] = None,
        kind: Annotated[Kind | None, Query(description="Those of this kind.")] = None,
        warehouse: Annotated[str, Query(description="Those of this warehouse.")] = "",
        limit: Annotated[int, Query(ge=1, le=LIST_MAX, description="So many at most.")] = 100,
    ) -> Response:
        """List migrations, the newest first: of a state, a kind, a warehouse, or all."""

        def listed() -> dict[str, Any]:
            found = registry.chosen(state=state, kind=kind, warehouse=warehouse, most=limit)
            return {"migrations": [document(each) for each in found]}

        return await line.answer(listed)

    @made.get("/warehouses", response_model=WarehousesOut, **guarded(Scope.LOOK, 503))
    async def list_warehouses() -> Response:
        """List the warehouses, and how far each has come."""
        return await line.answer(lambda: {"warehouses": places.look()})

    @made.get("/warehouses/{name}", response_model=WarehouseOut, **guarded(Scope.LOOK, 404, 503))
    async def get_warehouse(name: Name) -> Response:
        """Tell how far one warehouse has come, and what is wrong with it, if anything is."""
        return await line.answer(lambda: places.find(name))

    @made.get(
        "/warehouses/{name}/plan",
        response_model=PlanOut,
        **guarded(Scope.LOOK, 400, 404, 409, 503),
    )
    async def plan_push(name: Name) -> Response:
        """Tell what a push would move into a warehouse just now, and how. Nothing is moved."""
        return await line.answer(
            lambda: {"warehouse": name, "dataflows": [_planned(one) for one in places.plan(name)]}
        )

    return made


def document(migration: Migration) -> dict[str, Any]:
    """Write a migration as it is told."""
    told = {**asdict(migration.asked), **asdict(migration), "bytes": migration.size}
    return {name: told[name] for name in MigrationOut.model_fields}


def _planned(one: Planned) -> dict[str, Any]:
    together, then = (one.plan.together, one.plan.then) if one.plan else (None, ())
    return {
        "name": one.name,
        "together": None if together is None else [str(stage) for stage in together],
        "then": [str(stage) for stage in then],
    }
