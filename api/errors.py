"""What can go wrong with a request.

HeadraceError
├── Busy                as many of them run and wait as may
│   └── Overtaken       batches come faster than all sides can be looked at
├── WorkerEnded         the process that answered has ended before it was done
├── NotRunning
│   ├── NotReady        the warehouse does not yet have what the query asks for
│   └── IssuerAway      whoever signs tokens does not say by which keys
└── Refused
    ├── QueryRefused    the SQL is not what the island answers; with its place in the text
    ├── Unfinished      the island cannot compute what the parts of a query give
    ├── TooSlow         the query takes longer than is allowed
    ├── TooLarge        the answer has more rows, or bytes, than are allowed
    ├── TooMuchMemory   the query takes more memory than is allowed
    ├── NoSuchTable     there is no table of this name
    ├── NoSuchRow       no row is as it is asked for
    ├── QueryUnknown    there is no query of this id
    ├── QueryCancelled  somebody has asked that the query ends
    ├── CursorRefused   the cursor is not one of this list
    ├── NotYet          the batch that is asked for has not been committed
    ├── NoLonger        the batch that is asked for is not kept any more
    │   └── Forgotten   nor are others that a subscription would go on with
    ├── Unpublished     nothing is kept of the stream for those who subscribe to it
    ├── Unauthorized    the request shows no key
    │   └── KeyUnknown  or one that nobody has made
    │       ├── KeyExpired
    │       ├── KeyRevoked
    │       └── TokenRefused
    ├── ScopeMissing    the key is good, and not for this
    ├── TablesOnly      the key is for some tables, and this may show others
    ├── TooManyRequests a key's requests are more than it may make
    ├── HeadersTooLarge
    ├── KeyMissing      there is no key of this id
    ├── ContinuousUnknown   there is no continuous query of this name
    ├── ContinuousConflict  another one has the name
    ├── WebhookRefused  nothing may be posted to that address
    └── Undelivered     a webhook has not taken what was posted
"""

import re
from typing import Any

from headrace.errors import HeadraceError, NotRunning, Refused

CANCELLED = "somebody has asked that the query ends"
SLOW = (
    "Ask for less at once. The limits are api.query_timeout_ms and, for lines, CSV and Arrow, "
    "api.stream_timeout_ms."
)

NOT_OF_A_DESCRIPTION = re.compile(r"[^ !#-\[\]-~]")
"""What may not stand between the quotes of a challenge."""


class Busy(HeadraceError):
    """As many of them run and wait as may; the same one may be answered in a moment."""


class Overtaken(Busy):
    """Batches have come each time before all sides were looked at; between two, they can be."""


class NotReady(NotRunning):
    """The warehouse does not yet have what the query asks for."""


class QueryRefused(Refused):
    """The SQL is not what the island answers."""

    def __init__(
        self, what: str, *, hint: str, line: int | None = None, column: int | None = None
    ) -> None:
        place = f" (line {line}, column {column})" if line is not None else ""
        super().__init__(what + place, hint=hint)
        self.line = line
        self.column = column
        self.sent, self.offset = "", 0
        """What was sent to PostgreSQL, if that refuses it, and the character that it names."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refused_again, (self.what, self.hint, self.line, self.column)


class Unfinished(Refused):
    """The island cannot compute what the parts of a query give."""


class NoSuchTable(Refused):
    """There is no table of this name."""


class NoSuchRow(Refused):
    """No row is as it is asked for."""


class TooSlow(Refused):
    """The query takes longer than is allowed."""


class TooLarge(Refused):
    """The answer has more rows, or bytes, than are allowed."""


class TooMuchMemory(Refused):
    """The query takes more memory than is allowed."""


class WorkerEnded(HeadraceError):
    """The process that answered the query has ended before it was done."""


class QueryUnknown(Refused):
    """There is no query of this id."""


class QueryCancelled(Refused):
    """Somebody has asked that the query ends."""


class CursorRefused(Refused):
    """The cursor is not one of this list."""


class NotYet(Refused):
    """The batch that is asked for has not been committed."""


class NoLonger(Refused):
    """The batch that is asked for is not kept any more."""


class Forgotten(NoLonger):
    """Some of the batches that a subscription would go on with are not kept any more."""

    def __init__(self, what: str, *, hint: str, oldest: str) -> None:
        super().__init__(what, hint=hint)
        self.oldest = oldest
        """The position behind which all that is left can be had."""


class Unpublished(Refused):
    """Nothing is kept of the stream for those who subscribe to it."""


class IssuerAway(NotRunning):
    """Whoever signs tokens does not say by which keys: nobody knows whether a token is good."""


class Unauthorized(Refused):
    """The request shows no key."""

    @property
    def challenge(self) -> str:
        """What the header WWW-Authenticate says (RFC 6750)."""
        return "Bearer"


class KeyUnknown(Unauthorized):
    """The request shows a key that nobody has made."""

    @property
    def challenge(self) -> str:
        """What the header WWW-Authenticate says: why the key opens nothing."""
        told = NOT_OF_A_DESCRIPTION.sub("?", self.what)
        return f'Bearer error="invalid_token", error_description="{told}"'


class KeyExpired(KeyUnknown):
    """The key has been good until a while ago."""


class KeyRevoked(KeyUnknown):
    """The key was revoked."""


class TokenRefused(KeyUnknown):
    """The token is not one of the configured issuer's for us, or not good now."""


class ScopeMissing(Refused):
    """The key is good, and not for this."""

    def __init__(self, what: str, *, hint: str, scope: str = "") -> None:
        super().__init__(what, hint=hint)
        self.scope = scope

    @property
    def challenge(self) -> str:
        """What the header WWW-Authenticate says: for which scope to ask."""
        return f'Bearer error="insufficient_scope", scope="{self.scope}"'


class TablesOnly(Refused):
    """The key is for some tables, and this may show others."""


class TooManyRequests(Refused):
    """A key's requests are more than it may make, in a second or at once."""

    def __init__(self, what: str, *, hint: str, after_s: int = 1) -> None:
        super().__init__(what, hint=hint)
        self.after_s = after_s


class HeadersTooLarge(Refused):
    """The request's headers are larger than is read."""


class KeyMissing(Refused):
    """There is no key of this id."""


class ContinuousUnknown(Refused):
    """There is no continuous query of this name."""


class ContinuousConflict(Refused):
    """Another continuous query has the name."""


class WebhookRefused(Refused):
    """Nothing may be posted to that address."""


class Undelivered(Refused):
    """A webhook has not taken what was posted to it."""


def _refused_again(what: str, hint: str, line: int | None, column: int | None) -> QueryRefused:
    made = QueryRefused(what, hint=hint)  # which tells its place already
    made.line, made.column = line, column
    return made
