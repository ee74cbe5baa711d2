"""A continuous query that stands: what is registered, and what this process knows of it."""

from dataclasses import dataclass

from api.registered import Query
from headrace.errors import HeadraceError


@dataclass(slots=True)
class Standing:
    """A query that is registered, and what this process knows of it."""

    query: Query
    reached: tuple[int, ...]
    """Where it was looked at the last time: in the last result, or unchanged since."""
    error: HeadraceError | None = None
    """Why it could not be answered the last time."""
    failed_at: tuple[int, ...] = ()
    """The newest batches then."""
    retry_at: float = 0.0
    is_answering: bool = False
    is_bringing: bool = False
    brought: tuple[int, ...] = ()
    """Through which of its results nothing is to be brought any more."""
    attempts: int = 0
    unbrought: HeadraceError | None = None
    """Why its oldest result could not be brought the last time."""
    bring_at: float = 0.0


def bug_of(error: Exception) -> HeadraceError:
    """Tell what nobody foresaw, without our insides."""
    return HeadraceError(
        f"this is a bug in Headrace: {type(error).__name__}",
        hint="The API's log tells more: `headrace logs api`.",
    )
