"""The front: what every request passes before it comes to a route."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.responses import JSONResponse, Response

from api import issuer, problem, traces
from api.access import Access
from api.guard import Entrance, Guard, needs
from api.keyring import Keyring
from api.limits import Limits
from headrace.clock import Clock
from headrace.config import Api

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


@dataclass(frozen=True, slots=True)
class Front:
    """Who comes in, how often, and what is told of it."""

    entrance: Entrance
    limits: Limits
    clock: Clock
    spans: "TracerProvider | None" = None

    @property
    def telemetry(self) -> TelemetryConfig:
        """What FastAPI tells of requests."""
        return traces.telemetry(self.spans)

    def install(self, app: FastAPI) -> None:
        """Put it before the routes of `app`, which describes itself to whoever has a key."""

        async def describe() -> Response:
            """Give the OpenAPI document."""
            return JSONResponse(app.openapi())

        app.add_api_route(
            "/openapi.json",
            describe,
            dependencies=needs(keeps_to_tables=True),
            include_in_schema=False,
        )
        problem.install(app)
        app.add_middleware(Guard, entrance=self.entrance, limits=self.limits)
        app.add_middleware(Access, clock=self.clock)  # the last one is the outermost


def front(api: Api, key: str, keyring: Path, clock: Clock) -> Front:
    """Make it as it is configured."""
    return Front(
        Entrance(key, Keyring(keyring, clock), issuer.configured(api, clock)),
        Limits(api.rate_per_s, api.at_once_max, clock),
        clock,
        traces.provider(api.otel_endpoint),
    )
