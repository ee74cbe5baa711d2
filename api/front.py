"""The front: what every request passes before it comes to a route, and where its span goes."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from starlette.responses import JSONResponse, Response

from api import issuer, problem
from api.access import Access
from api.guard import OPEN_PATHS, Entrance, Guard, needs
from api.keyring import Keyring
from api.limits import Limits
from headrace.clock import Clock
from headrace.config import Api
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider


SERVICE = "headrace-api"
PATH = "/v1/traces"
EXPORT_S_MAX = 2
"""So long the last spans keep the API from ending, where no collector answers."""

OFF: TelemetryConfig = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,  # by the environment, of which only the configuration reads
}


@dataclass(frozen=True, slots=True)
class Front:
    """Who comes in, how often, and what is told of it."""

    entrance: Entrance
    limits: Limits
    clock: Clock
    spans: "TracerProvider | None" = None

    @property
    def telemetry(self) -> TelemetryConfig:
        """What FastAPI tells of requests: their spans, if there is where to send them."""
        if self.spans is None:
            return OFF
        return {
            **OFF,
            "tracing": True,
            "tracer_provider": self.spans,
            "exclude": lambda scope: scope["path"] in OPEN_PATHS,
        }

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
        provider(api.otel_endpoint),
    )


def provider(endpoint: str) -> "TracerProvider | None":
    """Make what sends spans to a collector; empty: nothing."""
    if not endpoint:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            f"api.otel_endpoint is set, and there is no {error.name} here",
            hint="pip install 'headrace[otel]', or leave it empty.",
        ) from error
    made = TracerProvider(resource=Resource.create({"service.name": SERVICE}))
    exporter = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + PATH, timeout=EXPORT_S_MAX)
    made.add_span_processor(BatchSpanProcessor(exporter))
    return made
