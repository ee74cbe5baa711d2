"""The REST API."""

import logging
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from anyio import to_thread
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import PlainTextResponse, Response

from api import calls, metrics, migrations, problem, streams
from api.calls import Calls
from api.cut import Freshness
from api.errors import NotReady
from api.guard import KEYED, Guard
from api.island import Answer, Island
from api.line import Line
from api.metrics import Figures
from api.migrations import Moved
from api.problem import problems
from api.streams import Streams
from api.values import dump, rows_to_json
from headrace.errors import HeadraceError, NotRunning
from migrations.errors import Away

# Two cores' worth of queries and some that wait for the disk; PostgreSQL takes 100 connections.
QUERIES_AT_ONCE = 8
QUERIES_WAITING_MAX = 32

# What anybody may know of what is wrong; the first that fits counts.
UNREADY: tuple[tuple[type[HeadraceError], str], ...] = (
    (Away, "does not answer"),
    (NotReady, "its tables are not there yet"),
    (NotRunning, "is not there yet"),
    (HeadraceError, "refuses"),
)

log = logging.getLogger(__name__)


class QueryIn(BaseModel):
    """A query, and how fresh its answer must be."""

    model_config = ConfigDict(extra="forbid")

    sql: str = Field(
        description="One SELECT in PostgreSQL's dialect.",
        examples=["SELECT contestant, count(*) FROM votes GROUP BY contestant"],
    )
    freshness: Freshness = Field(
        Freshness.STAGED,
        description="staged: all that the core has committed; delta: what has arrived in the "
        "warehouse; main: what is merged there.",
    )


class ColumnOut(BaseModel):
    """A column of the answer, with PostgreSQL's name for its type."""

    name: str
    type: str


class QueryOut(BaseModel):
    """An answer. Decimals, NaN, infinities, dates and times are text; integers are exact."""

    columns: list[ColumnOut]
    rows: list[list[Any]]
    as_of: dict[str, int] = Field(
        description="The batch of each dataflow that it is as of; of one with partitions, the "
        "batch of each: `bank[0]`, `bank[1]`."
    )
    freshness: Freshness


class Readiness(BaseModel):
    """Whether queries can be answered, and what keeps each side from it, in fixed words."""

    ready: bool
    core: str
    warehouse: str


def create(
    island: Island,
    made: Calls,
    figures: Figures,
    key: str,
    taken: Streams | None = None,
    moved: Moved | None = None,
) -> FastAPI:
    """Make the API over what it serves; callers must show `key`."""
    app = FastAPI(
        title="Headrace",
        description="One answer over what is staged and what has arrived, and all that feeds it.",
        docs_url=None,  # its pages load scripts from outside
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(Guard, key=key)
    problem.install(app)
    app.include_router(calls.router(made))
    if taken is not None:
        app.include_router(streams.router(taken))
    if moved is not None:
        app.include_router(migrations.router(moved))
    line = Line("queries", at_once=QUERIES_AT_ONCE, waiting_max=QUERIES_WAITING_MAX)
    logged: dict[str, str] = {}

    @app.post(
        "/v1/query",
        response_model=QueryOut,
        responses=problems(400, 401, 409, 413, 422, 503),
        dependencies=KEYED,
    )
    async def query(asked: Annotated[QueryIn, ...]) -> Response:
        """Answer one SELECT at one consistent point."""
        body = await line.run(partial(_answered, island, asked))
        return Response(body, media_type="application/json")

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses=problems(401),
        dependencies=KEYED,
    )
    async def tell_metrics() -> Response:
        """Tell what the engine measures and the core holds, in Prometheus' text format.

        With the key, as every other path: the names of dataflows are nobody else's business.
        """
        text = await to_thread.run_sync(figures.text)
        return Response(text, headers={"Content-Type": metrics.MEDIA_TYPE})

    @app.get("/livez")
    async def livez() -> dict[str, bool]:
        """Tell that the API's process lives."""
        return {"live": True}

    @app.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
    async def readyz() -> Response:
        """Tell whether queries can be answered at every freshness, and if not, why."""
        found = await to_thread.run_sync(_readiness, island, logged)
        status = HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(dump(found.model_dump()), status, media_type="application/json")

    return app


def _answered(island: Island, asked: QueryIn) -> bytes:
    answer = island.query(asked.sql, asked.freshness)
    return dump(_document(answer))


def _document(answer: Answer) -> dict[str, Any]:
    return {
        "columns": [{"name": column.name, "type": column.type} for column in answer.columns],
        "rows": rows_to_json(answer.rows),
        "as_of": answer.as_of,
        "freshness": answer.freshness.value,
    }


def _readiness(island: Island, logged: dict[str, str]) -> Readiness:
    """Ask both sides. Anybody may ask, so the details go to the log only, and once."""
    found = {}
    for side, check in (("core", island.check_core), ("warehouse", island.check_warehouse)):
        try:
            check()
        except HeadraceError as error:
            if logged.get(side) != error.what:
                log.warning("not ready: %s: %s", side, error.what)
            logged[side] = error.what
            found[side] = next(words for kind, words in UNREADY if isinstance(error, kind))
        else:
            found[side] = "ok"
            logged.pop(side, None)
    return Readiness(ready=all(said == "ok" for said in found.values()), **found)
