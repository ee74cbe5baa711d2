"""The issuer: tokens (OIDC) that somebody else signs, in place of keys of ours."""

import re
from dataclasses import dataclass
from typing import Any

import jwt

from api.errors import TokenRefused
from api.grant import Grant, Scope
from api.jwks import ALGORITHMS, SigningKeys, check_url
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


def _scopes(claim: Any) -> frozenset[Scope]:
    """Take the words that are scopes of ours; others are those of other services."""
    words = claim.split() if isinstance(claim, str) else claim
    if not isinstance(words, list):
        return frozenset()
    return frozenset(WORDS[word] for word in words if isinstance(word, str) and word in WORDS)


def _refused(what: str) -> TokenRefused:
    return TokenRefused(what, hint="Get a new one from the issuer that api.oidc_issuer names.")
