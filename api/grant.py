"""Grants: what one caller may do, see, and how often."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Scope(Enum):
    """Something that a key may be allowed; every route names the scopes that it needs."""

    QUERY = "query"
    SUBSCRIBE = "subscribe"
    POST = "post"
    CALL = "call"
    MIGRATE = "migrate"
    OPERATE = "operate"
    LOOK = "look"


DESCRIBED: Mapping[Scope, str] = {
    Scope.QUERY: "ask SQL, have it explained, and cancel one's own queries",
    Scope.SUBSCRIBE: "subscribe to committed output, and register continuous queries",
    Scope.POST: "post tuples into streams",
    Scope.CALL: "make calls",
    Scope.MIGRATE: "ask for migrations, and cancel them",
    Scope.OPERATE: "change what runs: replay and drop dead letters, and the like",
    Scope.LOOK: "see status, metrics and lists",
}


@dataclass(frozen=True, slots=True)
class Restriction:
    """What of one table may be seen."""

    columns: tuple[str, ...] | None = None
    """None: all of them."""
    where: str = ""
    """A predicate in PostgreSQL's SQL over the table's own columns; empty: all rows."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What a caller may do. The guard puts it into the request's state, as `grant`."""

    id: str
    """Of whom it is; no two callers have the same."""
    name: str
    """What logs call it."""
    scopes: frozenset[Scope]
    tables: Mapping[str, Restriction] | None = None
    """By DATAFLOW.OUTLET: no other table is to be seen. None: all of them are, whole."""
    rate_per_s: int | None = None
    """None: what `api.rate_per_s` says."""


OWNER = Grant("owner", "owner", frozenset(Scope))
"""Whoever has the data folder."""
