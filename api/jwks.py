"""Signing keys: the public keys by which an issuer's tokens are verified, fetched when needed."""

import asyncio
import json
import logging
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from anyio import to_thread
from jwt import PyJWK, PyJWTError

from api.errors import IssuerAway, TokenRefused
from headrace.clock import Clock
from headrace.errors import ConfigError

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
    """The keys of one issuer, by their names. Used in the one thread of the event loop."""

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
