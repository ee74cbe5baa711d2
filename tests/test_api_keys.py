"""Who may do what over REST: each route of the app, by a key's scopes and state."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import iter_route_contexts
from flows import HeldClock
from issuing import OTHER_RSA, Idp, an_idp, issuer_of, token
from serving import KEY, front
from shop import flow
from whole import whole

from api.grant import DESCRIBED, OWNER, Restriction, Scope
from api.guard import OPEN_PATHS, Entrance, Needed
from api.keyring import Keyring
from etl_procs.core import core_path

PAGE = Path(__file__).parent.parent / "docs" / "api.md"
KEEP_TO_TABLES = {
    *("/openapi.json", "/v1/streams/{dataflow}/{stream}", "/v1/tables"),
    *("/v1/query", "/v1/query/explain", "/v1/queries/{id}"),
    *("/v1/continuous", "/v1/continuous/{name}", "/v1/continuous/{name}/retry"),
    *("/v1/continuous/{name}/result", "/v1/continuous/{name}/results"),
}
"""The routes that show no table, or hold an answer to the tables of the caller's key."""
BY_THE_GUARD = (401, 403, 429, 431)


@dataclass(frozen=True, slots=True)
class Routed:
    """A route of the app, and what it declares."""

    method: str
    path: str
    needed: frozenset[Scope] | None
    """None: nothing is declared."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What somebody shows, and how it is to be answered where a key is needed."""

    what: str
    header: str | None
    scopes: frozenset[Scope] | None
    """None: it is not to be let in."""
    code: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def code(self) -> str:
        return str(json.loads(self.body)["code"])


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[Keyring]:
    made = Keyring(tmp_path / "keys.db", HeldClock())
    yield made
    made.close()


@pytest.fixture
def app(tmp_path: Path, keyring: Keyring) -> Iterator[FastAPI]:
    """The whole API, over nothing that answers."""
    (tmp_path / "core").mkdir()
    with whole(core_path(tmp_path), [flow], before=front(Entrance(KEY, keyring))) as app:
        yield app


def routes(app: FastAPI) -> list[Routed]:
    found = []
    for context in iter_route_contexts(app.routes):
        declared = needed(context.dependant) if hasattr(context, "dependant") else None
        methods = context.methods or {"GET"}
        found += [Routed(method, context.path or "", declared) for method in methods]
    return found


def needed(dependant: Dependant) -> frozenset[Scope] | None:
    found = [one.call for one in dependant.dependencies if isinstance(one.call, Needed)]
    return frozenset(scope for one in found for scope in one.scopes) if found else None


async def ask(
    app: FastAPI,
    method: str,
    path: str,
    key: str | None,
    state: dict[str, Any] | None = None,
    query: bytes = b"",
) -> Answer:
    """Ask without a body, and without a server in between."""
    headers = [] if key is None else [(b"authorization", key.encode())]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": headers,
        "client": None,
        "server": None,
        "state": {} if state is None else state,
    }
    came = [{"type": "http.request", "body": b""}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return came.pop(0) if len(came) > 1 else came[0]

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    given = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return Answer(sent[0]["status"], given, b"".join(part.get("body", b"") for part in sent[1:]))


def everything_shown(keyring: Keyring) -> list[Shown]:
    """Make a key for each scope, in each state, and all else that somebody may show."""
    clock = keyring._clock
    assert isinstance(clock, HeldClock)
    shown = [
        Shown("nothing", None, None, "Unauthorized"),
        Shown("another scheme", f"Basic {KEY}", None, "Unauthorized"),
        Shown("the bare key", KEY, None, "Unauthorized"),
        Shown("a key that never was", "Bearer hr_0123456789ab_x", None, "KeyUnknown"),
        Shown("what is no key", "Bearer hr_", None, "KeyUnknown"),
        Shown("a token without an issuer", "Bearer a.b.c", None, "KeyUnknown"),
        Shown("the owner's", f"bearer  {KEY}", frozenset(Scope)),
    ]
    expired = timedelta(seconds=10)
    for scope in Scope:
        only = frozenset({scope})
        _, valid = keyring.create("valid", only)
        _, over = keyring.create("over", only, lasts=expired)
        revoked, gone = keyring.create("gone", only)
        keyring.revoke(revoked.grant.id)
        shown += [
            Shown(f"a key to {scope.value}", f"Bearer {valid}", only),
            Shown(f"an expired key to {scope.value}", f"Bearer {over}", None, "KeyExpired"),
            Shown(f"a revoked key to {scope.value}", f"Bearer {gone}", None, "KeyRevoked"),
            Shown("one with another secret", f"Bearer {valid[:-1]}", None, "KeyUnknown"),
            Shown("one of the scheme Token", f"Token {valid}", None, "Unauthorized"),
        ]
    clock.advance(10)
    return shown


def every_token(idp: Idp) -> list[Shown]:
    """Sign a token for each scope in each state, and such as are for none."""
    shown = [
        Shown("a token without the claim", f"Bearer {token(idp, scope=None)}", frozenset()),
        Shown("one for others' scopes", f"Bearer {token(idp, scope='openid Query')}", frozenset()),
        Shown(
            "one for all scopes",
            f"Bearer {token(idp, scope=[one.value for one in Scope])}",
            frozenset(Scope),
        ),
        Shown("one of the scheme Token", f"Token {token(idp)}", None, "Unauthorized"),
    ]
    for scope in Scope:
        of: dict[str, Any] = {"scope": f"openid {scope.value}"}
        states = {
            "expired": token(idp, exp=-60, **of),
            "not yet valid": token(idp, nbf=60, **of),
            "for another audience": token(idp, aud="others", **of),
            "of another issuer": token(idp, iss="http://127.0.0.1:1", **of),
            "by an unknown key": token(idp, OTHER_RSA, kid="unknown", **of),
            "by another key of that name": token(idp, OTHER_RSA, **of),
            "by the algorithm none": token(idp, "", "none", **of),
            "by a secret of somebody's": token(idp, "s" * 64, "HS256", **of),
            "without a signature": token(idp, **of).rpartition(".")[0] + ".",
        }
        shown.append(
            Shown(f"a token to {scope.value}", f"Bearer {token(idp, **of)}", frozenset({scope}))
        )
        shown += [
            Shown(f"one to {scope.value} {what}", f"Bearer {one}", None, "TokenRefused")
            for what, one in states.items()
        ]
    return shown


def test_every_route_says_which_scopes_it_needs_or_is_open(app: FastAPI) -> None:
    found = routes(app)
    assert {route.path for route in found if route.needed is None} == OPEN_PATHS
    assert {route.path for route in found if route.needed == frozenset()} == {"/openapi.json"}
    assert len(found) > 10


def test_every_route_lets_in_whoever_has_its_scopes_and_nobody_else(
    app: FastAPI, keyring: Keyring
) -> None:
    assert asyncio.run(matrix(app, everything_shown(keyring))) == []


def test_every_route_lets_in_whoever_has_a_token_of_its_scopes_and_nobody_else(
    tmp_path: Path, keyring: Keyring
) -> None:
    (tmp_path / "core").mkdir()
    with an_idp() as idp:
        entrance = Entrance(KEY, keyring, issuer_of(idp, HeldClock()))
        with whole(core_path(tmp_path), [flow], before=front(entrance)) as app:
            assert asyncio.run(matrix(app, every_token(idp))) == []


async def matrix(app: FastAPI, everything: Sequence[Shown]) -> list[str]:
    """Show everything to every route; tell what was answered otherwise than it should be."""
    wrong = []
    for route in routes(app):
        path = route.path.replace("{", "").replace("}", "")
        for shown in everything:
            answer = await ask(app, route.method, path, shown.header)
            if not fits(answer, route, shown):
                wrong.append(f"{route.method} {path}, {shown.what}: {answer.status}")
    return wrong


def fits(answer: Answer, route: Routed, shown: Shown) -> bool:
    if route.needed is None:
        return answer.status not in BY_THE_GUARD
    challenge = answer.headers.get("www-authenticate", "")
    if shown.scopes is None:
        error = "" if shown.code == "Unauthorized" else ' error="invalid_token"'
        is_told = challenge.startswith("Bearer" + error) and bool(error) == ("error" in challenge)
        return answer.status == 401 and answer.code == shown.code and is_told
    if lacks := route.needed - shown.scopes:
        wanted = {f'Bearer error="insufficient_scope", scope="{one.value}"' for one in lacks}
        return answer.status == 403 and answer.code == "ScopeMissing" and challenge in wanted
    return answer.status not in BY_THE_GUARD


def test_what_sources_have_sent_is_traced_for_those_alone_who_may_subscribe(
    app: FastAPI, keyring: Keyring
) -> None:
    path, found = "/v1/tables/shop/sales/trace", []
    for scopes in ({Scope.QUERY}, {Scope.QUERY, Scope.SUBSCRIBE}):
        _, key = keyring.create("one", frozenset(scopes))
        for query in (b"where=id=1", b"where=id=1&tuples=true"):
            answer = asyncio.run(ask(app, "GET", path, f"Bearer {key}", query=query))
            found.append((answer.status, answer.code))
    away = (503, "NotRunning")  # there is no core
    assert found == [away, (403, "ScopeMissing"), away, away]


def test_what_is_not_there_is_told_only_to_whoever_has_a_key(
    app: FastAPI, keyring: Keyring
) -> None:
    _, key = keyring.create("one", frozenset({Scope.POST}))

    async def asked() -> None:
        for method, path, status in (("GET", "/nothing", 404), ("PATCH", "/v1/query", 405)):
            assert (await ask(app, method, path, None)).status == 401
            assert (await ask(app, method, path, f"Bearer {key}")).status == status

    asyncio.run(asked())


def test_a_key_for_some_tables_opens_only_what_keeps_to_them(
    app: FastAPI, keyring: Keyring
) -> None:
    _, key = keyring.create("ann", frozenset(Scope), tables={"shop.sales": Restriction()})
    opened, codes = set(), set()

    async def ask_all() -> None:
        for route in routes(app):
            path = route.path.replace("{", "").replace("}", "")
            answer = await ask(app, route.method, path, f"Bearer {key}")
            if answer.status == 403:
                codes.add(answer.code)
            elif route.needed is not None:
                opened.add(route.path)

    asyncio.run(ask_all())
    assert opened == KEEP_TO_TABLES
    assert codes == {"TablesOnly"}


def test_those_who_answer_are_told_what_the_caller_may_do_and_see(
    app: FastAPI, keyring: Keyring
) -> None:
    tables = {"shop.sales": Restriction(("id",), '("id" = 1)')}
    made, key = keyring.create("ann", frozenset({Scope.LOOK}), tables=tables)

    async def told(key: str | None) -> Any:
        state: dict[str, Any] = {}
        await ask(app, "GET", "/v1/calls", key, state)
        return state.get("grant")

    assert asyncio.run(told(f"Bearer {key}")) == made.grant
    assert asyncio.run(told(f"Bearer {KEY}")) == OWNER
    assert asyncio.run(told(f"Bearer {key}x")) is None


def test_the_page_of_the_api_has_every_scope_and_every_route_with_what_it_needs(
    app: FastAPI,
) -> None:
    page = PAGE.read_text().splitlines()
    wanted = {f"| `{scope.value}` | {what} |" for scope, what in DESCRIBED.items()}
    for route in routes(app):
        words = [f"`{scope.value}`" for scope in Scope if scope in (route.needed or ())]
        whoever = "nothing" if route.needed is None else "any key"
        wanted.add(f"| `{route.method} {route.path}` | {', '.join(words) or whoever} |")
    rows = {match[0] for line in page if (match := re.match(r"\| `[^|]*\|[^|]*\|", line))}
    assert not wanted - rows
    assert not {row for row in rows if re.match(r"\| `[A-Z]+ /", row)} - wanted


def test_the_openapi_document_tells_scopes_and_what_the_guard_answers(app: FastAPI) -> None:
    document = app.openapi()
    (scheme,) = document["components"]["securitySchemes"].values()
    assert all(f"`{scope.value}`: {DESCRIBED[scope]}" in scheme["description"] for scope in Scope)
    told = 0
    for route in routes(app):
        operation = document["paths"].get(route.path, {}).get(route.method.lower())
        if route.needed and operation:
            ((scopes,),) = [list(one.values()) for one in operation["security"]]
            assert set(scopes) == {scope.value for scope in route.needed}
            assert {str(status) for status in BY_THE_GUARD} <= operation["responses"].keys()
            told += 1
    assert told > 8
