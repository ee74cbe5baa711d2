"""The API over real HTTP: a server of a test's own, a client, and what a problem looks like."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from fastapi import FastAPI

from api import calls as of_calls
from api import (
    continuous_routes,
    dead_letters,
    declared,
    lookups,
    migrations,
    status,
    subscriptions,
)
from api import streams as of_streams
from api.app import create
from api.continuous import Continuous
from api.front import Front
from api.guard import HEADERS_BYTES_READ, Entrance
from api.island import Island
from api.limits import Limits
from api.metrics import Figures
from api.migrations import Moved
from api.queries import Queries
from api.resources import Resources
from api.streams import Streams
from api.subscriptions import Subscriptions
from etl_procs.calls import Callers
from etl_procs.dataflow import Dataflow
from etl_procs.measured import Measured
from headrace import config
from headrace.clock import Clock, SystemClock
from headrace.crash import CrashPoints

LIMITS = config.Api(query_workers=2, query_rows_max=1_000)
KEY = "a key for tests"


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Client:
    port: int

    def send(
        self,
        method: str,
        path: str,
        body: str | bytes | Iterator[bytes] | None = None,
        *,
        key: str | None = f"Bearer {KEY}",
        type_: str | None = "application/json",
        **more: str,
    ) -> Reply:
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        if type_ is not None:
            headers["Content-Type"] = type_
        if key is not None:
            headers["Authorization"] = key
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, named, response.read())
        finally:
            connection.close()

    def ask(self, sql: str, freshness: str = "staged") -> Reply:
        return self.send("POST", "/v1/query", json.dumps({"sql": sql, "freshness": freshness}))


def front(
    entrance: Entrance | None = None,
    clock: Clock | None = None,
    *,
    rate_per_s: int = 0,
    at_once_max: int = 100,
) -> Front:
    """Make what stands before the routes: for the key of tests, at any rate."""
    clock = clock or SystemClock()
    return Front(entrance or Entrance(KEY), Limits(rate_per_s, at_once_max, clock), clock)


def no_engine() -> list[Measured | None]:
    return [None]


def calls_on(path: Path, *flows: Dataflow) -> Callers:
    """Make the calls of these dataflows on a core in a data folder."""
    known = {flow.name: flow for flow in flows}
    return Callers(path.parent.parent, known, config.Core(), CrashPoints())


@contextmanager
def serving(
    island: Island,
    calls: Callers | None = None,
    living: Callable[[], list[Measured | None]] = no_engine,
    streams: Streams | None = None,
    moved: Moved | None = None,
    limits: config.Api = LIMITS,
    before: Front | None = None,
    subscribed: Subscriptions | None = None,
    resources: Resources | None = None,
    continuous: Continuous | None = None,
    pages: Path | None = None,
) -> Iterator[Client]:
    cores = island.setting.cores
    made = calls or calls_on(cores[0])
    kept = TemporaryDirectory()
    queries = Queries(island.setting, limits, pages or Path(kept.name) / "pages", SystemClock())
    figures = Figures(cores, living)
    parts = [of_calls.router(made)]
    if streams:
        parts.append(of_streams.router(streams))
    if moved:
        parts.append(migrations.router(moved))
        parts.append(status.router(status.Status(figures, moved, queries)))
    if subscribed:
        parts.append(subscriptions.router(subscribed))
    if resources:
        parts += [of.router(resources) for of in (declared, lookups, dead_letters)]
    if continuous:
        parts.append(continuous_routes.router(continuous))
    app = create(queries, figures, before or front(), parts)
    try:
        with served(app) as client:
            yield client
    finally:
        queries.close()
        made.close()
        kept.cleanup()


@contextmanager
def served(app: FastAPI) -> Iterator[Client]:
    """Serve an app until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings = uvicorn.Config(
        app, log_level="critical", h11_max_incomplete_event_size=HEADERS_BYTES_READ
    )
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield Client(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()


def assert_problem(reply: Reply, status: int, code: str) -> dict[str, Any]:
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = reply.document
    assert (document["status"], document["code"]) == (status, code)
    assert document["detail"]
    return document
