"""The guard: before anything else is looked at, who asks, how often, and how large it is."""

import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any, NoReturn

from fastapi import Security
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import grant, page, problem
from api.errors import HeadersTooLarge, ScopeMissing, TablesOnly, Unauthorized
from api.grant import DESCRIBED, OWNER, Grant
from api.issuer import Issuer
from api.keyring import PREFIX, Keyring, unknown
from api.limits import Limits
from headrace.errors import HeadraceError

Admitted = Callable[[], Awaitable[Grant]]
"""Tells what whoever asks may do now; refuses a key that is over."""

OPEN_PATHS = frozenset({"/livez", "/readyz", *page.PATHS})
"""What holds nothing of anybody's."""

# The longest SQL that is parsed, escaped as wastefully as JSON allows, and some room.
BODY_BYTES_MAX = 256 * 1024

# Tuples come in bulk; the largest has 8 MiB.
POSTED = "/v1/streams/"
POSTED_BYTES_MAX = 16 * 2**20

HEADERS_BYTES_MAX = 16 * 1024
HEADERS_BYTES_READ = 4 * HEADERS_BYTES_MAX
"""For the server: it answers more than this by 400 and hangs up, without asking us."""

SCHEME = "key"
ABOUT = "A key, or a token of the configured OIDC issuer. Scopes:\n" + "\n".join(
    f"* `{scope.value}`: {what}" for scope, what in DESCRIBED.items()
)


class Needed(HTTPBearer):
    """What a route needs: a key that has these scopes. Without any, a key of whatever scope."""

    def __init__(self, scopes: tuple[grant.Scope, ...], keeps_to_tables: bool) -> None:
        super().__init__(scheme_name=SCHEME, description=ABOUT)
        self.scopes = scopes
        self.keeps_to_tables = keeps_to_tables

    async def __call__(self, request: HTTPConnection) -> None:
        """Refuse a key that lacks one, or that is for some tables, where all would be seen."""
        held: Grant = request.state.grant
        missing = [scope for scope in self.scopes if scope not in held.scopes]
        if missing:
            scope = missing[0].value
            raise ScopeMissing(
                f"{held.name} may not do this: its key lacks the scope {scope}",
                hint=f"It takes a key with it: `headrace keys create NAME --scope {scope}`.",
                scope=scope,
            )
        if held.tables is not None and not self.keeps_to_tables:
            raise TablesOnly(
                f"the key of {held.name} is for {', '.join(held.tables)}, and this may show more",
                hint="It takes a key for all tables: `headrace keys create` without --table.",
            )


def needs(*scopes: grant.Scope, keeps_to_tables: bool = False) -> list[Any]:
    """Declare for a route which scopes a key must have; every route does.

    Keys that are for some tables only are refused, unless the route keeps to them, or shows none.
    """
    return [Security(Needed(scopes, keeps_to_tables), scopes=[scope.value for scope in scopes])]


def guarded(scope: grant.Scope, *statuses: int, keeps_to_tables: bool = False) -> dict[str, Any]:
    """Declare for a route what it needs, and by which problems it may answer besides."""
    return {
        "dependencies": needs(scope, keeps_to_tables=keeps_to_tables),
        "responses": problem.problems(401, *statuses),
    }


class Entrance:
    """Who comes in: the owner by one key, others by keys of their own or by tokens."""

    def __init__(
        self, key: str, keyring: Keyring | None = None, issuer: Issuer | None = None
    ) -> None:
        assert key, "there is no default key"
        self._key = key.encode()
        self._keyring = keyring
        self._issuer = issuer

    async def admit(self, headers: Headers) -> Grant:
        """Tell what whoever asks may do; refuse who shows nothing that is good."""
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        shown = rest.strip()
        if scheme.lower() != "bearer" or not shown:
            raise Unauthorized(
                "the request shows no key",
                hint="Send the header 'Authorization: Bearer KEY'; `headrace keys create` makes "
                "one, and `headrace up` keeps the owner's in secrets/api.key of its data folder.",
            )
        # Compared in constant time, so that a key cannot be found letter by letter.
        if secrets.compare_digest(shown.encode(), self._key):
            return OWNER
        if self._keyring is not None and shown.startswith(PREFIX):
            return self._keyring.grant(shown)
        if self._issuer is not None and shown.count(".") == 2:
            return await self._issuer.grant(shown)
        raise unknown()


class Guard:
    """Lets through requests that show a key, at their rate, and bodies up to the limit."""

    def __init__(self, app: ASGIApp, entrance: Entrance, limits: Limits) -> None:
        self._app = app
        self._entrance = entrance
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request in place of the application, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        most = POSTED_BYTES_MAX if scope["path"].startswith(POSTED) else BODY_BYTES_MAX
        length = headers.get("content-length", "")
        limited = _Limited(receive, most, int(length) if length.isdecimal() else 0)
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, limited, send)
            return
        try:
            _check_size(headers)
            held = await self._entrance.admit(headers)
            # Before it is counted: the line in the log names whose requests are too many.
            # What goes on for long asks again whether it still may.
            state = scope.setdefault("state", {})
            state["grant"], state["admitted"] = held, partial(self._entrance.admit, headers)
            place = self._limits.enter(held)
        except HeadraceError as error:
            await problem.refusal(error)(scope, receive, send)
            return
        with place:
            await self._app(scope, limited, send)


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


def _check_size(headers: Headers) -> None:
    size = sum(len(name) + len(value) for name, value in headers.raw)
    if size > HEADERS_BYTES_MAX:
        raise HeadersTooLarge(
            f"the request's headers have {size} bytes, and {HEADERS_BYTES_MAX} are read",
            hint="Send smaller ones; is a token or a cookie of others among them?",
        )
