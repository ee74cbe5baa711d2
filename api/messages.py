"""Messages: what the API and the workers that answer its queries say to each other. A worker says
several at once.
"""

from typing import Any, NamedTuple

from api.formats import Format
from api.island import Asked, Setting
from api.pages import Keep
from api.plans import Moving

TOO_LARGE = 77
"""The exit code of a worker that took more memory than it may."""


class Start(NamedTuple):
    """The first word."""

    setting: Setting
    memory_mb_max: int


class Ask(NamedTuple):
    """A query, and how its answer is written."""

    id: str
    asked: Asked
    format: Format
    rows_max: int
    """More rows are refused; 0: any number."""
    keep: Keep | None = None
    """How what comes after the first page is kept; None: there are no pages."""
    request: str = ""
    """The id of the request that has caused it."""


class Explain(NamedTuple):
    """A query of which is to be told how it would be answered."""

    asked: Asked
    id: str = ""
    request: str = ""


class Explained(NamedTuple):
    """How it would be."""

    document: dict[str, Any]


class Cancel(NamedTuple):
    """The query of this id is to end."""

    id: str


class Begun(NamedTuple):
    """There is an answer; its pieces follow."""

    as_of: dict[str, int]
    freshness: str
    plan: str
    cost_ms: float
    """What the plan was expected to take."""
    moving: Moving | None = None


class Done(NamedTuple):
    """All of an answer was said."""

    rows: int
    seconds: float
