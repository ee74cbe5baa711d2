"""Traces: a span for each request at a collector, and nothing where none is configured."""

import gzip
import logging
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from serving import front, serving
from shop import island_over

from api import front as before
from api.island import Island
from etl_procs.reader import Reader
from headrace.errors import ConfigError

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@dataclass
class Collector:
    """A collector on this machine, and the spans that it got."""

    url: str = ""
    paths: set[str] = field(default_factory=set)
    spans: list[Span] = field(default_factory=list)
    service: str = ""

    def take(self, path: str, body: bytes) -> None:
        self.paths.add(path)
        found = ExportTraceServiceRequest()
        found.ParseFromString(body)
        for resource in found.resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.service = named["service.name"]
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            made.take(self.path, body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def island(tmp_path: Path) -> Island:
    return island_over(NOWHERE, Reader(tmp_path / "core" / "partition-0.db"))


def attributes(span: Span) -> dict[str, object]:
    found = {}
    for one in span.attributes:
        kind = one.value.WhichOneof("value")
        found[one.key] = getattr(one.value, kind)
    return found


def test_each_request_is_one_span_with_route_status_and_id_within_the_callers_trace(
    island: Island, collector: Collector
) -> None:
    provider = before.provider(f"{collector.url}/")
    assert provider is not None
    with serving(island, before=replace(front(), spans=provider)) as client:
        path = "/v1/migrations/x"
        client.send("GET", "/v1/calls", X_Request_Id="mine", traceparent=f"00-{TRACE}-{PARENT}-01")
        client.send("POST", "/v1/query", '{"sql": "SELECT 1"}')
        client.send("GET", path, key=None)
        client.send("GET", "/livez", key=None)
        provider.shutdown()
    assert collector.paths == {"/v1/traces"}
    assert collector.service == before.SERVICE
    calls, query, refused = collector.spans
    assert (calls.trace_id.hex(), calls.parent_span_id.hex()) == (TRACE, PARENT)
    told = attributes(calls)
    assert told["http.route"] == "/v1/calls"
    assert told["http.response.status_code"] == 200
    assert told["headrace.request_id"] == "mine"
    assert calls.name == "GET /v1/calls"
    assert attributes(query)["http.response.status_code"] == 503
    assert query.trace_id.hex() != TRACE
    assert attributes(refused)["http.response.status_code"] == 401


def test_an_answer_does_not_wait_for_a_collector_that_is_away(
    island: Island, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    provider = before.provider("http://127.0.0.1:1")
    assert provider is not None
    with serving(island, before=replace(front(), spans=provider)) as client:
        assert client.send("GET", "/v1/calls").status == 200
    provider.shutdown()


def test_nothing_is_traced_where_no_collector_is_configured_whatever_the_environment_says(
    island: Island, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    assert before.provider("") is None
    with serving(island) as client:
        assert client.send("GET", "/v1/calls").status == 200
    assert not collector.paths


def test_a_collector_without_the_packages_for_it_is_a_mistake_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'headrace\[otel\]'"):
        before.provider("http://127.0.0.1:4318")
