"""The issuer: tokens (OIDC) that somebody else signs, in place of keys of ours.

The public keys by which they are verified are fetched when they are needed, by https only.
"""

import asyncio
import json
import logging
import re
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import jwt
from anyio import to_thread
from jwt import PyJWK, PyJWTError

from api.errors import IssuerAway, TokenRefused
from api.grant import Grant, Scope
from headrace.clock import Clock
from headrace.config import Api
from headrace.errors import ConfigError

LEEWAY_S = 10
"""So far the issuer's clock may be from ours."""
SUBJECT_CHARS_MAX = 255
"""OIDC allows no more."""
NAME_CHARS_MAX = 64
NOT_PLAIN = re.compile(r"[^A-Za-z0-9._@-]")
WORDS = {scope.value: scope for scope in Scope}

ALGORITHMS = ["RS256", "ES256"]
DISCOVERY = "/.well-known/openid-configuration"

FRESH_S, OLD_S = 300, 3600
"""After so long the keys are fetched anew, and after so long, if they cannot be, are none: what
the issuer has withdrawn is not good for ever, and while it is away for a moment we go on."""
RETRY_S = 10
"""Not more often is the issuer asked, whatever keys are named: anybody can name one."""
ANSWER_S = 5.0
DOCUMENT_BYTES_MAX = 256 * 1024
KEYS_MAX = 100

log = logging.getLogger(__name__)


class Unusable(Exception):
    """What an issuer says is no set of keys that could be taken."""


class SigningKeys:
    """The public keys of one issuer, by name. Used in the one thread of the event loop."""

    def __init__(self, issuer: str, url: str, clock: Clock) -> None:
        self._issuer = issuer
        self._url = url
        self._clock = clock
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._failed = False
        self._fetching = asyncio.Lock()

    async def find(self, name: str) -> PyJWK:
        """Give the key of this name."""
        if self._is_due(name) and not (self._is_good(name) and self._fetching.locked()):
            async with self._fetching:  # one asks, and the others wait for what it is told
                if self._is_due(name):
                    await self._fetch()
        if not self._is_good(name) and self._failed:
            raise IssuerAway(
                f"the keys of {self._issuer} cannot be had now",
                hint="Try again when it answers; a key of `headrace keys create` needs no issuer.",
            )
        if name not in self._keys:
            raise TokenRefused(
                f"the token is signed by a key that {self._issuer} does not have",
                hint="Get a new one from the issuer.",
            )
        return self._keys[name]

    def _is_due(self, name: str) -> bool:
        if name in self._keys and self._age_s() <= FRESH_S:
            return False
        return self._tried_at is None or self._clock.monotonic() - self._tried_at >= RETRY_S

    def _is_good(self, name: str) -> bool:
        return name in self._keys and self._age_s() <= OLD_S

    def _age_s(self) -> float:
        if self._fetched_at is None:
            return float("inf")
        return self._clock.monotonic() - self._fetched_at

    async def _fetch(self) -> None:
        try:
            self._keys = await to_thread.run_sync(_keys, self._issuer, self._url)
        except (OSError, HTTPException, ValueError, RecursionError, Unusable) as error:
            self._failed = True
            log.warning("the keys of %s cannot be had: %s", self._issuer, error)
        else:
            self._failed = False
            self._fetched_at = self._clock.monotonic()
        self._tried_at = self._clock.monotonic()


@dataclass(frozen=True, slots=True)
class Issuer:
    """Who signs tokens, and for whom they must be."""

    name: str
    audience: str
    scope_claim: str
    keys: SigningKeys

    async def grant(self, token: str) -> Grant:
        """Tell what the bearer of a token may do; refuse one that is not good."""
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as error:
            raise _refused("the token is none") from error
        key = await self.keys.find(str(header.get("kid", "")))
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self.audience,
                issuer=self.name,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
        except jwt.PyJWTError as error:
            raise _refused(f"the token is not good: {error}") from error
        subject = claims["sub"]
        if not 0 < len(subject) <= SUBJECT_CHARS_MAX:
            raise _refused("the token's subject is empty, or too long")
        name = NOT_PLAIN.sub("_", subject)[:NAME_CHARS_MAX]
        return Grant(f"oidc:{subject}", name, _scopes(claims.get(self.scope_claim)))


def configured(api: Api, clock: Clock) -> Issuer | None:
    """Make the issuer that is configured, if one is."""
    if not api.oidc_issuer:
        return None
    if not api.oidc_audience:
        raise ConfigError(
            "api.oidc_issuer is set, and api.oidc_audience is not",
            hint="Set it to what the tokens for this API have as aud: others are not for us.",
        )
    check_url("api.oidc_issuer", api.oidc_issuer)
    if api.oidc_jwks_url:
        check_url("api.oidc_jwks_url", api.oidc_jwks_url)
    keys = SigningKeys(api.oidc_issuer, api.oidc_jwks_url, clock)
    return Issuer(api.oidc_issuer, api.oidc_audience, api.oidc_scope_claim, keys)


def check_url(key: str, url: str) -> None:
    """Refuse an address by which somebody on the way could give us keys of theirs."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    host = parts.hostname or ""
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host))
    if not host or not is_safe:
        raise ConfigError(
            f"{key} is {url}, and must begin with https://",
            hint="Only an issuer on this machine (127.0.0.1) may be asked by http://.",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _keys(issuer: str, url: str) -> dict[str, PyJWK]:
    """Ask the issuer for its keys."""
    if not url:
        about = _document(issuer.rstrip("/") + DISCOVERY)
        if about.get("issuer") != issuer:
            raise Unusable(f"it calls itself {about.get('issuer')!r}")
        url = str(about.get("jwks_uri"))
    found = _document(url).get("keys")
    if not isinstance(found, list):
        raise Unusable(f"{url} is no JWKS document: it has no list of keys")
    keys = [key for each in found[:KEYS_MAX] if (key := _key(each)) is not None]
    return {str(key.key_id or ""): key for key in keys}


def _key(document: Any) -> PyJWK | None:
    """Read one key; None, if it is of another kind, or for another use."""
    if not isinstance(document, dict) or document.get("use", "sig") != "sig":
        return None
    try:
        key = PyJWK(document)
    except (PyJWTError, ValueError, TypeError):
        return None
    return key if key.algorithm_name in ALGORITHMS else None


def _document(url: str) -> dict[str, Any]:
    """Get a JSON document; nobody is followed to another address."""
    try:
        check_url("the address of its keys", url)
    except ConfigError as error:
        raise Unusable(error.what) from error
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.netloc, timeout=ANSWER_S)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        body = response.read(DOCUMENT_BYTES_MAX + 1)
    finally:
        connection.close()
    if response.status != 200:
        raise Unusable(f"{url} answers {response.status}")
    if len(body) > DOCUMENT_BYTES_MAX:
        raise Unusable(f"{url} has more than {DOCUMENT_BYTES_MAX} bytes")
    document = json.loads(body)
    if not isinstance(document, dict):
        raise Unusable(f"{url} is no JSON object")
    return document


def _scopes(claim: Any) -> frozenset[Scope]:
    """Take the words that are scopes of ours; others are those of other services."""
    words = claim.split() if isinstance(claim, str) else claim
    if not isinstance(words, list):
        return frozenset()
    return frozenset(WORDS[word] for word in words if isinstance(word, str) and word in WORDS)


def _refused(what: str) -> TokenRefused:
    return TokenRefused(what, hint="Get a new one from the issuer that api.oidc_issuer names.")
