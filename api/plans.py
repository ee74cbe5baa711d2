"""Plans: the ways to answer a query at a cut, what each would cost, and which one is taken."""

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum


class Plan(Enum):
    """A way to answer a query."""

    WAREHOUSE = "warehouse"
    """One warehouse answers alone: nothing of what the query reads is staged."""
    SHIP = "ship"
    """What a warehouse lacks - what is staged, what others have - is sent to it, and it answers."""
    SPLIT = "split"
    """The warehouse and the island each compute a part, and the island makes one answer of both."""
    GATHER = "gather"
    """The rows that may count are brought to the island, from one warehouse or several."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan, and what it would cost; or why it cannot be."""

    plan: Plan
    cost_ms: float | None = None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Moving:
    """What a query takes because rows of its tables are staged, and what moving them would."""

    tables: tuple[str, ...]
    spent_ms: float
    """So much less the query would take if they had been pushed."""
    once_ms: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen, of what."""

    chosen: Candidate
    candidates: tuple[Candidate, ...]
    because: str
    moving: Moving | None = None
    """None: nothing is staged that could be moved."""


@dataclass(slots=True)
class Weighed:
    """What was last decided of a query, of what, and until when that stands."""

    of: Hashable = None
    until: float = 0.0
    decision: Decision | None = None


def decide(candidates: tuple[Candidate, ...], wanted: Plan | None) -> Decision:
    """Choose the cheapest that can be, or the one that is wanted."""
    possible = [c for c in candidates if c.cost_ms is not None]
    if wanted is not None:
        for candidate in possible:
            if candidate.plan is wanted:
                return Decision(candidate, candidates, "it was asked for")
    chosen = min(possible, key=lambda candidate: candidate.cost_ms or 0.0)
    others = [c for c in possible if c is not chosen]
    if not others:
        return Decision(chosen, candidates, "it is the only one that can be")
    next_best = min(c.cost_ms or 0.0 for c in others)
    return Decision(chosen, candidates, f"{chosen.cost_ms:.1f} ms are less than {next_best:.1f} ms")
