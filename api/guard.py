"""The guard: before anything else is looked at, the key, and the size of the body."""

import secrets
from http import HTTPStatus
from typing import NoReturn

from fastapi import Depends
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problem import problem

# The guard has checked it when a route is reached; this is for the OpenAPI document.
KEYED = [Depends(HTTPBearer(auto_error=False))]

OPEN_PATHS = frozenset({"/livez", "/readyz"})

# The longest SQL that is parsed, escaped as wastefully as JSON allows, and some room.
BODY_BYTES_MAX = 256 * 1024

# Tuples come in bulk; the largest has 8 MiB.
POSTED = "/v1/streams/"
POSTED_BYTES_MAX = 16 * 2**20


class Guard:
    """Lets through requests that show the key, and bodies up to the limit."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        assert key, "there is no default key"
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request in place of the application, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] not in OPEN_PATHS and not self._shows_key(Headers(scope=scope)):
            await _unauthorized(scope, receive, send)
        else:
            most = POSTED_BYTES_MAX if scope["path"].startswith(POSTED) else BODY_BYTES_MAX
            length = Headers(scope=scope).get("content-length", "")
            told = int(length) if length.isdecimal() else 0
            await self._app(scope, _Limited(receive, most, told), send)

    def _shows_key(self, headers: Headers) -> bool:
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        # Compared in constant time, so that a key cannot be found letter by letter.
        same = secrets.compare_digest(shown.strip().encode(), self._key)
        return scheme.lower() == "bearer" and same


class _Limited:
    """A body is not read if it says that it is too long, and counted while it is read: it may have
    come without its length.
    """

    def __init__(self, receive: Receive, most: int, told: int) -> None:
        self._receive = receive
        self._most = self._left = most
        self._told = told

    async def __call__(self) -> Message:
        if self._told > self._most:
            self._refuse()
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            self._refuse()
        return message

    def _refuse(self) -> NoReturn:
        raise HTTPException(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is larger than {self._most} bytes"
        )


async def _unauthorized(scope: Scope, receive: Receive, send: Send) -> None:
    response = problem(
        HTTPStatus.UNAUTHORIZED,
        "Unauthorized",
        "the request shows no key, or not the right one",
        headers={"WWW-Authenticate": "Bearer"},
        hint="Send the header 'Authorization: Bearer KEY'; `headrace up` keeps the key in "
        "secrets/api.key of its data folder.",
    )
    await response(scope, receive, send)
