"""Tokens of an OIDC issuer: which are good, and what happens while it changes or is away."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from flows import HeldClock
from issuing import EC, EC_384, OTHER_RSA, RSA, Idp, an_idp, issuer_of, public, token
from serving import KEY, Reply, assert_problem, front, serving
from shop import island_over

from api import issuer as tokens
from api.errors import IssuerAway, TokenRefused
from api.grant import Grant, Scope
from api.guard import Entrance
from api.issuer import Issuer, configured
from etl_procs.reader import Reader
from headrace.config import Api
from headrace.errors import ConfigError

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def idp() -> Iterator[Idp]:
    with an_idp() as made:
        yield made


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def issuer(idp: Idp, clock: HeldClock) -> Issuer:
    return issuer_of(idp, clock)


def ask(issuer: Issuer, *tokens: str) -> list[Grant]:
    async def all_of_them() -> list[Grant]:
        return [await issuer.grant(one) for one in tokens]

    return asyncio.run(all_of_them())


# Which are good


def test_a_token_grants_the_words_of_its_claim_that_are_scopes_of_ours(
    idp: Idp, issuer: Issuer
) -> None:
    by_rsa, by_ec = ask(issuer, token(idp), token(idp, EC, "ES256", "e", scope=["call", "x", 1]))
    assert by_rsa == Grant("oidc:ann@example", "ann@example", frozenset({Scope.QUERY, Scope.LOOK}))
    assert by_ec.scopes == {Scope.CALL}
    assert [one.scopes for one in ask(issuer, token(idp, scope=None))] == [frozenset()]
    assert [one.scopes for one in ask(issuer, token(idp, scope={"query": 1}))] == [frozenset()]


def test_the_claim_can_have_another_name(idp: Idp, clock: HeldClock) -> None:
    issuer = issuer_of(idp, clock, oidc_scope_claim="roles")
    assert ask(issuer, token(idp, roles=["post"]))[0].scopes == {Scope.POST}


def test_a_token_may_be_for_others_too_and_a_little_early_or_late(idp: Idp, issuer: Issuer) -> None:
    good = [
        token(idp, aud=["others", "headrace"]),
        token(idp, exp=-3),
        token(idp, nbf=3),
    ]
    assert len(ask(issuer, *good)) == 3


def test_what_logs_call_a_bearer_cannot_break_a_line(idp: Idp, issuer: Issuer) -> None:
    (grant,) = ask(issuer, token(idp, sub="a\n=b " + "c" * 200))
    assert grant.name == "a__b_" + "c" * 59
    assert grant.id == "oidc:a\n=b " + "c" * 200


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"exp": -60}, "expired"),
        ({"exp": None}, "exp"),
        ({"nbf": 60}, "not yet valid"),
        ({"aud": "others"}, "udience"),
        ({"aud": None}, "aud"),
        ({"iss": "http://127.0.0.1:1"}, "ssuer"),
        ({"iss": None}, "iss"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "subject"),
        ({"sub": "a" * 256}, "subject"),
    ],
)
def test_a_token_that_is_not_for_us_or_not_now_is_refused(
    idp: Idp, issuer: Issuer, claims: dict[str, Any], says: str
) -> None:
    with pytest.raises(TokenRefused, match=says):
        ask(issuer, token(idp, **claims))


def test_only_the_issuers_signatures_of_two_kinds_are_taken(idp: Idp, issuer: Issuer) -> None:
    idp.keys += [
        public(RSA, "enc", use="enc"),
        public(RSA, "rs512", alg="RS512"),
        public(EC_384, "p384"),
        {"kty": "oct", "kid": "oct", "k": "c2VjcmV0"},
        {"kty": "new", "kid": "new"},
    ]
    secret = "s" * 64
    bad = [
        token(idp, OTHER_RSA),
        token(idp, RSA, "RS512"),
        token(idp, RSA, "PS256"),
        token(idp, EC, "ES256", "r"),
        token(idp, RSA, "RS256", "e"),
        token(idp, secret, "HS256"),
        token(idp, "secret" * 8, "HS256", "oct"),
        token(idp, RSA, "RS256", "enc"),
        token(idp, RSA, "RS512", "rs512"),
        token(idp, EC_384, "ES384", "p384"),
        token(idp, kid="unknown"),
        token(idp)[:-4] + "AAAA",
        token(idp, "", "none"),
        "a.b.c",
        "..",
        token(idp).rpartition(".")[0] + ".",
    ]
    assert ask(issuer, token(idp))
    for one in bad:
        with pytest.raises(TokenRefused):
            ask(issuer, one)


def test_a_key_without_a_name_is_for_tokens_that_name_none(idp: Idp, issuer: Issuer) -> None:
    unnamed = public(RSA, "")
    del unnamed["kid"]
    idp.keys = [unnamed]
    plain = jwt.encode(jwt.decode(token(idp), options={"verify_signature": False}), RSA, "RS256")
    assert ask(issuer, plain)


# What the issuer changes, and when it is away


def test_its_keys_are_fetched_once_for_many_tokens(idp: Idp, issuer: Issuer) -> None:
    async def at_once() -> None:
        await asyncio.gather(*(issuer.grant(token(idp)) for _ in range(20)))

    asyncio.run(at_once())
    ask(issuer, *[token(idp, EC, "ES256", "e")] * 20)
    assert idp.times == 1


def test_a_new_key_is_known_as_soon_as_it_signs_and_a_withdrawn_one_within_minutes_no_more(
    idp: Idp, issuer: Issuer, clock: HeldClock
) -> None:
    ask(issuer, token(idp))
    idp.keys = [public(OTHER_RSA, "new")]
    clock.advance(tokens.RETRY_S)
    assert ask(issuer, token(idp, OTHER_RSA, kid="new"))
    assert idp.times == 2
    with pytest.raises(TokenRefused):
        ask(issuer, token(idp))
    idp.keys = []
    clock.advance(tokens.FRESH_S + 1)
    with pytest.raises(TokenRefused):
        ask(issuer, token(idp, OTHER_RSA, kid="new"))


def test_whoever_names_unknown_keys_does_not_have_the_issuer_asked_each_time(
    idp: Idp, issuer: Issuer, clock: HeldClock
) -> None:
    for n in range(50):
        with pytest.raises(TokenRefused):
            ask(issuer, token(idp, kid=f"unknown {n}"))
        clock.advance(tokens.RETRY_S / 25)
    assert 2 <= idp.times <= 3
    assert ask(issuer, token(idp))


def test_an_issuer_that_is_away_is_not_the_bearers_fault(
    idp: Idp, issuer: Issuer, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    idp.answers["/keys?v=1"] = (500, b"inner secrets")
    with pytest.raises(IssuerAway) as told:
        ask(issuer, token(idp))
    assert "cannot be had now" in str(told.value)
    assert "/keys?v=1 answers 500" in caplog.text
    assert "inner secrets" not in caplog.text + str(told.value)
    idp.answers.clear()
    with pytest.raises(IssuerAway):  # it is not asked again so soon
        ask(issuer, token(idp))
    clock.advance(tokens.RETRY_S)
    assert ask(issuer, token(idp))


def test_keys_that_are_known_are_good_for_a_while_after_the_issuer_went_away(
    idp: Idp, issuer: Issuer, clock: HeldClock
) -> None:
    ask(issuer, token(idp))
    idp.answers["/keys?v=1"] = (503, b"")
    clock.advance(tokens.OLD_S)
    assert ask(issuer, token(idp))
    with pytest.raises(IssuerAway):
        ask(issuer, token(idp, kid="unknown"))
    clock.advance(1)
    with pytest.raises(IssuerAway):
        ask(issuer, token(idp))


def test_nobody_waits_for_a_slow_issuer_whose_key_is_known(
    idp: Idp, issuer: Issuer, clock: HeldClock
) -> None:
    async def asked() -> None:
        await issuer.grant(token(idp))
        clock.advance(tokens.FRESH_S + 1)
        idp.gate.clear()
        waits = asyncio.create_task(issuer.grant(token(idp)))
        before = len(idp.asked)
        while len(idp.asked) == before:
            await asyncio.sleep(0.001)
        assert await issuer.grant(token(idp))
        assert not waits.done()
        idp.gate.set()
        assert await waits

    asyncio.run(asked())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (tokens.DISCOVERY, b"{}"),
        (tokens.DISCOVERY, b'{"issuer": "http://127.0.0.1:1", "jwks_uri": "http://127.0.0.1:1"}'),
        (tokens.DISCOVERY, b"[]"),
        (tokens.DISCOVERY, b"<html>"),
        (tokens.DISCOVERY, b"\xff"),
        (tokens.DISCOVERY, b"[" * 100_000),
        ("/keys?v=1", b'{"keys": {}}'),
        ("/keys?v=1", b" " * (tokens.DOCUMENT_BYTES_MAX + 1)),
    ],
)
def test_what_is_no_issuers_document_is_as_if_it_were_away(
    idp: Idp, issuer: Issuer, path: str, body: bytes
) -> None:
    idp.answers[path] = (200, body)
    with pytest.raises(IssuerAway):
        ask(issuer, token(idp))


@pytest.mark.parametrize(
    "address", ["http://issuer.example/keys", "file:///etc/passwd", "gopher://127.0.0.1/", "None"]
)
def test_keys_are_not_fetched_where_somebody_on_the_way_could_change_them(
    idp: Idp, issuer: Issuer, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    idp.answers[tokens.DISCOVERY] = (
        200,
        json.dumps({"issuer": idp.url, "jwks_uri": address}).encode(),
    )
    with pytest.raises(IssuerAway):
        ask(issuer, token(idp))
    assert "must begin with https://" in caplog.text


def test_an_address_of_its_keys_needs_no_discovery(idp: Idp, clock: HeldClock) -> None:
    issuer = issuer_of(idp, clock, oidc_jwks_url=f"{idp.url}/keys?v=1")
    assert ask(issuer, token(idp))
    assert idp.asked == ["/keys?v=1"]


def test_no_more_keys_are_taken_than_a_limit(idp: Idp, issuer: Issuer) -> None:
    idp.keys = [public(EC, f"e{n}") for n in range(tokens.KEYS_MAX + 1)]
    assert ask(issuer, token(idp, EC, "ES256", f"e{tokens.KEYS_MAX - 1}"))
    with pytest.raises(TokenRefused):
        ask(issuer, token(idp, EC, "ES256", f"e{tokens.KEYS_MAX}"))


def test_a_configuration_that_would_take_others_tokens_is_refused(clock: HeldClock) -> None:
    assert configured(Api(), clock) is None
    for settings, says in (
        ({"oidc_issuer": "https://a.example"}, "oidc_audience is not"),
        ({"oidc_issuer": "http://a.example", "oidc_audience": "h"}, "must begin with https://"),
        ({"oidc_issuer": "a.example", "oidc_audience": "h"}, "must begin with https://"),
        ({"oidc_issuer": "https://[", "oidc_audience": "h"}, "must begin with https://"),
        (
            {
                "oidc_issuer": "https://a.example",
                "oidc_audience": "h",
                "oidc_jwks_url": "http://a.example",
            },
            "oidc_jwks_url is http",
        ),
    ):
        with pytest.raises(ConfigError, match=says):
            configured(Api(**settings), clock)  # type: ignore[arg-type]


def test_a_bearer_is_answered_by_its_scopes_its_token_and_whether_the_issuer_is_there(
    idp: Idp, issuer: Issuer, clock: HeldClock, tmp_path: Path
) -> None:
    island = island_over(NOWHERE, Reader(tmp_path / "core.db"))
    with serving(island, before=front(Entrance(KEY, None, issuer))) as client:

        def ask_with(shown: str) -> Reply:
            return client.send("GET", "/v1/calls", key=f"Bearer {shown}")

        assert ask_with(token(idp)).status == 200
        assert ask_with(KEY).status == 200
        lacking = ask_with(token(idp, scope="query"))
        assert assert_problem(lacking, 403, "ScopeMissing")["detail"].startswith("ann@example may")
        refused = ask_with(token(idp, exp=-60))
        told = assert_problem(refused, 401, "TokenRefused")["detail"]
        assert told == "the token is not good: Signature has expired"
        challenge = f'Bearer error="invalid_token", error_description="{told}"'
        assert refused.headers["www-authenticate"] == challenge
        idp.answers["/keys?v=1"] = (503, b"")
        clock.advance(tokens.RETRY_S)
        away = ask_with(token(idp, kid="unknown"))
        assert_problem(away, 503, "IssuerAway")
        assert away.headers["retry-after"] == "1"


def test_a_challenge_is_one_line_of_ascii_whatever_it_tells_of() -> None:
    refused = TokenRefused('of "a\\b"\r\nSet-Cookie: é', hint="")
    told = "of ?a?b???Set-Cookie: ?"
    assert refused.challenge == f'Bearer error="invalid_token", error_description="{told}"'
