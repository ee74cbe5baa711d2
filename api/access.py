"""Access: every request has an id, a line in the log, and an answer."""

import logging
import re
import secrets

from opentelemetry import trace
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import problem
from api.guard import OPEN_PATHS
from headrace import telemetry
from headrace.clock import Clock

HEADER = "X-Request-Id"
PLAIN = re.compile(r"[A-Za-z0-9._:-]{1,64}")
"""Ids that are taken from whoever asks: they stand in log lines."""
ID_BYTES = 8

ATTRIBUTE = "headrace.request_id"

OFTEN = OPEN_PATHS | {"/v1/status"}

log = logging.getLogger(__name__)


class Access:
    """The outermost layer. What nobody has caught below is told as a bug, and logged."""

    def __init__(self, app: ASGIApp, clock: Clock) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered, under its id."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        request = given if PLAIN.fullmatch(given) else secrets.token_hex(ID_BYTES)
        telemetry.REQUEST.set(request)  # each request runs in a context of its own
        trace.get_current_span().set_attribute(ATTRIBUTE, request)
        started = self._clock.monotonic()
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            log.info("whoever asked has gone before the request was read")
        except Exception as error:
            if status:  # half of an answer is out: that its connection ends tells that it is half
                raise
            log.error("a bug", exc_info=error)
            await problem.bug()(scope, receive, answer)
        finally:
            self._log(scope, status, self._clock.monotonic() - started)

    def _log(self, scope: Scope, status: int, seconds: float) -> None:
        if scope["path"] in OFTEN and status == 200:
            return  # it is asked every few seconds, and nothing is to be known of it
        route = getattr(scope.get("route"), "path_format", "-")
        held = scope.get("state", {}).get("grant")
        log.info(
            "method=%s route=%s status=%s ms=%.1f key=%s",
            scope["method"],
            route,
            status or "-",
            seconds * 1000,
            held.name if held else "-",
        )
