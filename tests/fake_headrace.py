"""A stand-in for Headrace's API, as DAGs see it: migrations, warehouses, and its troubles."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

KEY = "a key for tests"

Answer = tuple[int, dict[str, Any]]


def problem(status: int, code: str, detail: str = "it says why") -> Answer:
    return status, {"status": status, "code": code, "detail": detail, "hint": "it says what to do"}


@dataclass
class Headrace:
    """What the API knows; a test looks into it and changes it while it serves."""

    port: int = 0
    migrations: dict[str, dict[str, Any]] = field(default_factory=dict)
    warehouses: list[dict[str, Any]] = field(default_factory=list)
    requests: Counter[str] = field(default_factory=Counter)
    """How often each method was called."""
    begun: int = 0
    """How many migrations were really begun."""
    troubles: list[Answer] = field(default_factory=list)
    """What is answered first, instead of what was asked for."""
    errors: list[str] = field(default_factory=list)
    """The codes that the next migrations fail with."""
    holding: threading.Event = field(default_factory=threading.Event)
    """Set: migrations run and do not end."""
    alerts: list[dict[str, Any]] = field(default_factory=list)
    """What was posted to its webhook."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def forget(self) -> None:
        """Know nothing, as in the beginning; but keep the port."""
        vars(self).update(vars(Headrace(self.port)))

    def answer(self, method: str, path: str, key: str, body: Any) -> Answer:
        """Answer one request."""
        with self.lock:
            self.requests[method] += 1
            if self.troubles:
                return self.troubles.pop(0)
            if method == "POST":
                self.alerts.append(body)
                return 200, {}
            if key != f"Bearer {KEY}":
                return problem(401, "Unauthorized")
            if path == "/v1/warehouses":
                return 200, {"warehouses": self.warehouses}
            if path.startswith("/v1/migrations?"):
                return 200, {"migrations": list(self.migrations.values())[::-1]}
            id_ = unquote(path.removeprefix("/v1/migrations/"))
            return {"PUT": self._put, "GET": self._get, "DELETE": self._delete}[method](id_, body)

    def _put(self, id_: str, body: dict[str, Any]) -> Answer:
        there = self.migrations.get(id_)
        if there is not None:
            same = all(there[name] == value for name, value in body.items())
            return (200, there) if same else problem(409, "MigrationConflict")
        self.begun += 1
        now = datetime.now(UTC).isoformat()
        times = {"created_at": now, "started_at": now, "ended_at": None}
        done = {"stage": "", "rows": 0, "bytes": 0, "reached": {}, "findings": [], "error": None}
        self.migrations[id_] = {"id": id_, **body, "state": "running", **done, **times}
        return 201, self.migrations[id_]

    def _get(self, id_: str, _body: object) -> Answer:
        there = self.migrations.get(id_)
        if there is None:
            return problem(404, "MigrationUnknown")
        if there["state"] == "running" and not self.holding.is_set():
            self._end(there)
        return 200, there

    def _end(self, there: dict[str, Any]) -> None:
        there["ended_at"] = datetime.now(UTC).isoformat()
        if self.errors:
            error = {"code": self.errors.pop(0), "what": "it failed", "hint": "mend it"}
            there |= {"state": "failed", "error": error, "findings": ["a key is there twice"]}
        else:
            there |= {"state": "succeeded", "rows": 12, "bytes": 340, "reached": {"shop": 12}}

    def _delete(self, id_: str, _body: object) -> Answer:
        there = self.migrations.get(id_)
        if there is None:
            return problem(404, "MigrationUnknown")
        if there["state"] != "running":
            return problem(409, "MigrationEnded")
        there["state"] = "cancelled"
        return 202, there


@contextmanager
def serving(headrace: Headrace) -> Iterator[Headrace]:
    """Serve it, at the port it had before if it had one: so it is restarted."""

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            key = self.headers.get("Authorization", "")
            status, document = headrace.answer(self.command, self.path, key, body)
            raw = json.dumps(document).encode()
            self.send_response(status)
            if status == 503:
                self.send_header("Retry-After", "1")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_PUT = do_DELETE = do_POST = _respond  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", headrace.port), Handler)
    headrace.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield headrace
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
