"""The REST API."""

import logging
from asyncio import gather
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from http import HTTPStatus

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, FastAPI
from pydantic import BaseModel
from starlette.responses import PlainTextResponse, Response

from api import metrics, page
from api import queries as of_queries
from api.errors import NotReady
from api.front import Front
from api.grant import Scope
from api.guard import guarded
from api.island import Setting, check_core, check_warehouse
from api.metrics import Figures
from api.openapi import ABOUT, Described, operation_id
from api.problem import RETRY_AFTER_S
from api.queries import Queries
from api.values import dump
from headrace.errors import HeadraceError, NotRunning
from migrations.errors import Away

# What anybody may know of what is wrong; the first that fits counts.
UNREADY: tuple[tuple[type[HeadraceError], str], ...] = (
    (Away, "does not answer"),
    (NotReady, "its tables are not there yet"),
    (NotRunning, "is not there yet"),
    (HeadraceError, "refuses"),
)

OK = "ok"

TAG: list[str | Enum] = ["the API"]

log = logging.getLogger(__name__)


class Readiness(BaseModel):
    """Whether queries can be answered, and what keeps each side from it, in fixed words."""

    ready: bool
    core: str
    warehouses: dict[str, str]


def create(queries: Queries, figures: Figures, front: Front, parts: Iterable[APIRouter]) -> FastAPI:
    """Make the API over what it serves, behind what every request passes."""
    app = Described(
        title="Headrace",
        description=ABOUT,
        generate_unique_id_function=operation_id,
        separate_input_output_schemas=False,
        docs_url=None,  # its pages load scripts from outside
        redoc_url=None,
        openapi_url=None,  # it would be there for everybody
        telemetry=front.telemetry,
        redirect_slashes=False,
    )
    front.install(app)
    app.include_router(of_queries.router(queries))
    app.include_router(page.router())
    for part in parts:
        app.include_router(part)
    logged: dict[str, str] = {}
    sides = CapacityLimiter(1 + len(queries.setting.warehouses))

    @app.get(
        "/metrics",
        tags=TAG,
        response_class=PlainTextResponse,
        **guarded(Scope.LOOK),
    )
    async def tell_metrics() -> Response:
        """Tell what the engine measures and the core holds, in Prometheus' text format.

        With the key, as every other path: the names of dataflows are nobody else's business.
        """
        text = await to_thread.run_sync(figures.text, list(queries.recent.metrics()))
        return Response(text, headers={"Content-Type": metrics.MEDIA_TYPE})

    @app.get("/livez", tags=TAG)
    async def livez() -> dict[str, bool]:
        """Tell that the API's process lives."""
        return {"live": True}

    @app.get("/readyz", tags=TAG, response_model=Readiness, responses={503: {"model": Readiness}})
    async def readyz() -> Response:
        """Tell whether queries can be answered at every freshness in every warehouse, and if not,
        why.
        """
        found = await _readiness(queries.setting, logged, sides)
        status = HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE
        later = {} if found.ready else {"Retry-After": str(RETRY_AFTER_S)}
        return Response(dump(found.model_dump()), status, later, "application/json")

    return app


async def _readiness(setting: Setting, logged: dict[str, str], sides: CapacityLimiter) -> Readiness:
    """Ask all sides at once: one that is away takes its time, which only other probes wait for."""
    checks: list[tuple[str, Callable[[Setting], None]]] = [("core", check_core)]
    checks += [(place.name, partial(check_warehouse, place)) for place in setting.warehouses]
    asked = (partial(_checked, side, check, setting, logged) for side, check in checks)
    core, *found = await gather(*(to_thread.run_sync(ask, limiter=sides) for ask in asked))
    named = {place.name: said for place, said in zip(setting.warehouses, found, strict=True)}
    return Readiness(ready={core, *found} == {OK}, core=core, warehouses=named)


def _checked(
    side: str, check: Callable[[Setting], None], setting: Setting, logged: dict[str, str]
) -> str:
    """Ask one side. Anybody may ask, so the details go to the log only, and once."""
    try:
        check(setting)
    except HeadraceError as error:
        if logged.get(side) != error.what:
            log.warning("not ready: %s: %s", side, error.what)
        logged[side] = error.what
        return next(words for kind, words in UNREADY if isinstance(error, kind))
    logged.pop(side, None)
    return OK
