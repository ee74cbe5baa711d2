"""The REST API."""

import logging
from asyncio import Task, create_task, gather, shield, wait_for
from collections.abc import Callable, Iterable, Mapping
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
from api.island import check_core, check_warehouse
from api.metrics import Figures
from api.openapi import ABOUT, Described, operation_id
from api.problem import RETRY_AFTER_S
from api.queries import Queries
from api.values import dump
from headrace.errors import HeadraceError, NotRunning
from migrations.errors import Away

# What anybody may know of what is wrong; the first that fits counts.
AWAY = "does not answer"
UNREADY: tuple[tuple[type[HeadraceError], str], ...] = (
    (Away, AWAY),
    (NotReady, "its tables are not there yet"),
    (NotRunning, "is not there yet"),
    (HeadraceError, "refuses"),
)

OK = "ok"
PATIENCE_S = 6.0
"""Longer than a connection is waited for."""

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
    setting = queries.setting
    core = Side("core", partial(check_core, setting))
    warehouses = {
        place.name: Side(place.name, partial(check_warehouse, place, setting))
        for place in setting.warehouses
    }

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
        found = await _readiness(core, warehouses)
        status = HTTPStatus.OK if found.ready else HTTPStatus.SERVICE_UNAVAILABLE
        later = {} if found.ready else {"Retry-After": str(RETRY_AFTER_S)}
        return Response(dump(found.model_dump()), status, later, "application/json")

    return app


class Side:
    """One of those that are asked whether they are ready: once for all who want to know."""

    def __init__(self, name: str, check: Callable[[], None]) -> None:
        self._name = name
        self._check = check
        self._thread = CapacityLimiter(1)
        self._asked: Task[str] | None = None
        self._logged = ""

    async def says(self) -> str:
        """Ask, or wait with those who have asked; one that hangs does not answer."""
        if self._asked is None or self._asked.done():
            asking = to_thread.run_sync(self._checked, limiter=self._thread, abandon_on_cancel=True)
            self._asked = create_task(asking)
        try:
            return await wait_for(shield(self._asked), PATIENCE_S)
        except TimeoutError:
            return AWAY

    def _checked(self) -> str:
        """Anybody may ask, so the details go to the log only, and once."""
        try:
            self._check()
        except HeadraceError as error:
            if self._logged != error.what:
                log.warning("not ready: %s: %s", self._name, error.what)
            self._logged = error.what
            return next(words for kind, words in UNREADY if isinstance(error, kind))
        self._logged = ""
        return OK


async def _readiness(core: Side, warehouses: Mapping[str, Side]) -> Readiness:
    """Ask all sides at once: one that is away takes its time."""
    said, *found = await gather(core.says(), *(side.says() for side in warehouses.values()))
    named = dict(zip(warehouses, found, strict=True))
    return Readiness(ready={said, *found} == {OK}, core=said, warehouses=named)
