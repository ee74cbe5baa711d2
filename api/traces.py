"""Traces: a span for each request (OpenTelemetry), sent where the configuration says; else none."""

from typing import TYPE_CHECKING

from fastapi.telemetry import TelemetryConfig
from starlette.types import Scope

from api.guard import OPEN_PATHS
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


def telemetry(provider: "TracerProvider | None") -> TelemetryConfig:
    """Say what FastAPI tells of requests: their spans, if there is where to send them."""
    if provider is None:
        return OFF
    return {**OFF, "tracing": True, "tracer_provider": provider, "exclude": _is_open}


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


def _is_open(scope: Scope) -> bool:
    return scope["path"] in OPEN_PATHS
