"""The client: ask a stack from Python; an answer is Arrow, pandas, polars, or rows of values.

    with connect() as headrace:
        answer = headrace.query("SELECT name, count(*) FROM votes WHERE name > $1 GROUP BY 1", "E")
        print(answer.as_of, answer.pandas())

An answer is whole, or there is none: one that is cut off, or fails amid its rows, raises. The tree
of errors stands in `replies`.
"""

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Self
from urllib.parse import quote, urlencode, urlsplit
from uuid import UUID

from headrace import config
from headrace.answers import Answer
from headrace.errors import ConfigError
from headrace.replies import (
    BadRequest,
    BrokenOff,
    ClientError,
    Conflict,
    Denied,
    Problem,
    Reply,
    ServerFailed,
    Unavailable,
    Unreachable,
    problem_of,
)

__all__ = [
    "Answer", "BadRequest", "BrokenOff", "Client", "ClientError", "Conflict", "Denied", "Problem",
    "ServerFailed", "Unavailable", "Unreachable", "connect",
]  # fmt: skip

ARROW, LINES, JSON = (
    "application/vnd.apache.arrow.stream",
    "application/x-ndjson",
    "application/json",
)
TIMEOUT_S = 600.0
"""For the next byte: a query may compute for long before its first."""
ANSWER_S = 90.0
"""For waiting in line, for tuples to be read back, and for the answer to travel."""


def connect(
    url: str | None = None, key: str | None = None, *, timeout_s: float = TIMEOUT_S
) -> "Client":
    """Make a client of the API at `url`, http://host:port; of the stack that runs in the data
    folder, if none is given. The key, too, is the configured one or the data folder's.
    """
    if url is None or key is None:
        known = config.load().config
        url, key = url or f"http://{address_of(known)}", key or key_of(known)
    return Client(url, key, timeout_s)


def of(known: config.Config) -> "Client":
    """Make a client of the API that a configuration means."""
    timeout_s = known.api.query_timeout_ms / 1000 + ANSWER_S
    return Client(f"http://{address_of(known)}", key_of(known), timeout_s)


class Client:
    """A client of one API. Threads may share it: each request has a connection of its own, that is
    used again by the next one.
    """

    def __init__(self, url: str, key: str, timeout_s: float = TIMEOUT_S) -> None:
        at = urlsplit(url)
        if at.scheme not in ("http", "https") or not at.hostname:
            raise Unreachable(f"{url} is no address of an API", hint="Say http://host:port.")
        kind = HTTPSConnection if at.scheme == "https" else HTTPConnection
        self._made = partial(kind, at.hostname, at.port, timeout=timeout_s)
        self._at, self._key = at.netloc, key
        self._idle: list[HTTPConnection] = []

    def query(
        self,
        sql: str,
        *parameters: Any,
        freshness: str | None = None,
        as_of: Mapping[str, int] | None = None,
        max_lag_s: float | None = None,
        plan: str | None = None,
    ) -> "Answer":
        """Ask one SELECT; `parameters` are the values of $1, $2 and so on."""
        moment = {"freshness": freshness, "as_of": as_of, "max_lag_s": max_lag_s}
        asked = _asked(sql, parameters, plan=plan, **moment)
        return Answer(self._send("POST", "/v1/query", asked, accept=ARROW))

    def explain(
        self,
        sql: str,
        *parameters: Any,
        freshness: str | None = None,
        as_of: Mapping[str, int] | None = None,
        max_lag_s: float | None = None,
        plan: str | None = None,
    ) -> dict[str, Any]:
        """Have it told how a query would be answered."""
        moment = {"freshness": freshness, "as_of": as_of, "max_lag_s": max_lag_s}
        asked = _asked(sql, parameters, plan=plan, **moment)
        return dict(self._send("POST", "/v1/query/explain", asked).document())

    def post(
        self,
        stream: str,
        rows: Sequence[Mapping[str, Any]],
        *,
        source: str | None = None,
        seq: int | None = None,
    ) -> dict[str, Any]:
        """Post tuples into DATAFLOW.STREAM, whose format is JSON. With a source and the number of
        the first tuple in it, posting them again has no further effect.
        """
        sent = {"source": source, "seq": seq}
        query = urlencode({name: value for name, value in sent.items() if value is not None})
        body = [{name: _json(value) for name, value in row.items()} for row in rows]
        path = f"{_path('streams', stream)}?{query}"
        return dict(self._send("POST", path, body, is_repeatable=seq is not None).document())

    def call(
        self, name: str, *, idempotency_key: str | None = None, **arguments: Any
    ) -> list[dict[str, Any]]:
        """Make a call, DATAFLOW.NAME; with a key, at most once. Give the rows that it returns."""
        more = {} if idempotency_key is None else {"Idempotency-Key": idempotency_key}
        body = {name: _json(value) for name, value in arguments.items()}
        path, is_repeatable = _path("calls", name), idempotency_key is not None
        reply = self._send("POST", path, body, is_repeatable=is_repeatable, **more)
        return list(reply.document()["rows"])

    def subscribe(
        self, name: str, after: str | None = None, *, table: bool = False, limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Give each batch of DATAFLOW.STREAM, or of a table, as it is committed: once and whole,
        with its `rows` and its `position`, after which another subscription goes on.
        """
        asked = {"after": after, "limit": limit}
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        lines = self.lines(f"{_path('tables' if table else 'streams', name)}/batches?{query}")
        with closing(lines):
            for line in lines:
                told = json.loads(line)
                if "batch" in told:
                    yield told

    def ask(self, method: str, path: str, asked: object = None) -> Any:
        """Ask what has no method of its own here; give the document that is the answer."""
        return self._send(method, path, asked).document()

    def lines(self, path: str) -> Generator[bytes, None, None]:
        """Give each line of JSON as it comes; raise what goes wrong amid them."""
        reply = self._send("GET", path, accept=LINES)
        try:
            for line in reply.lines():
                if line.startswith(b'{"error":'):
                    raise problem_of(json.loads(line)["error"])
                if line:
                    yield line
        finally:
            reply.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(
        self,
        method: str,
        path: str,
        asked: object = None,
        *,
        accept: str = JSON,
        is_repeatable: bool = True,
        **more: str,
    ) -> Reply:
        headers = {"Authorization": f"Bearer {self._key}", "Accept": accept, **more}
        body = None
        if asked is not None:
            headers["Content-Type"] = JSON
            body = json.dumps(asked, allow_nan=False).encode()
        while True:
            # The server may have closed one that was idle. What must not be done twice takes none.
            is_used = is_repeatable and bool(self._idle)
            connection = self._idle.pop() if is_used else self._made()
            try:
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                break
            except (OSError, HTTPException) as error:
                connection.close()
                if not is_used or isinstance(error, TimeoutError):
                    raise Unreachable(
                        f"the API at {self._at} does not answer: {error or type(error).__name__}",
                        hint="Run `headrace up`; `headrace status` shows which part is missing.",
                    ) from error
        reply = Reply(connection, response, self._idle)
        if response.status >= 400:
            raise reply.problem()
        return reply


def _asked(sql: str, parameters: Sequence[Any], **asked: object) -> dict[str, Any]:
    given = {name: value for name, value in asked.items() if value is not None}
    return {"sql": sql, "parameters": [_json(value) for value in parameters], **given}


def _json(value: Any) -> Any:
    """Write a value as JSON has it; what it has not, as the text that is exact."""
    match value:
        case list() | tuple():
            return [_json(one) for one in value]
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case float() if value - value != 0:
            return str(value)
    return value


def _path(kind: str, name: str) -> str:
    dataflow, dot, of = name.partition(".")
    if not (dataflow and dot and of):
        raise ClientError(f"{name!r} is not DATAFLOW.NAME", hint="Say both, with a dot between.")
    return f"/v1/{kind}/{quote(dataflow, safe='')}/{quote(of, safe='')}"


def address_of(known: config.Config) -> str:
    """Find the API, host:port: as configured, or as the supervisor has written."""
    if known.api.port:
        host = known.api.host
        return f"{'127.0.0.1' if host in ('0.0.0.0', '') else host}:{known.api.port}"  # noqa: S104
    try:
        stack = json.loads((known.home / "run" / "stack.json").read_text(encoding="utf-8"))
        return str(stack["parts"]["api"]["address"])
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        raise Unreachable(
            f"no API is known: no stack runs in {known.home}, and api.port is not set",
            hint="Run `headrace up`, or name the API: --set api.port=... (in Python: "
            "connect('http://host:port', key)).",
        ) from None


def key_of(known: config.Config) -> str:
    """Give the key of the API: the configured one, or the one that `up` has made."""
    path = known.home / "secrets" / "api.key"
    if known.api.key:
        return known.api.key
    if path.is_file():
        return path.read_text(encoding="ascii").strip()
    raise ConfigError(
        f"there is no key for the API: api.key is not set, and {path} is not there",
        hint="Set HEADRACE_API_KEY (in Python: give it to connect()); `headrace up` makes one.",
    )
