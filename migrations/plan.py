"""A migration as a plan: a few small stages, each a value that says what running it means.

Who decides makes a plan (`push`, `merge`, `rebuild`); the runner runs it, and nothing else does;
the explainer writes it for people. What stands in `together` is one transaction of the warehouse;
what stands in `then` follows its commit, stage by stage, and can be repeated.
"""

from dataclasses import dataclass

from etl_procs.model import Outlet
from migrations.ledger import Migrated, Place


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY what an outlet has staged in the batches of (after, through] into delta.

    Both sides count what was copied and sum it up, and must agree.
    """

    outlet: Outlet
    partition: int
    after: int
    through: int
    rows: int
    """As they were staged; what later ones of their key have overtaken is not copied."""
    size: int


@dataclass(frozen=True, slots=True)
class Step:
    """Move the warehouse's ledger from what has arrived to `through`, if nobody else has."""

    place: Place
    arrived: Migrated
    through: int
    core_id: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """Tell the core that a warehouse has the batches through `through`.

    It forgets those that every warehouse has confirmed, when they were kept for long enough.
    """

    place: Place
    warehouse: str
    through: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Bring what is in delta into main - of each key its latest operation - and empty delta."""

    outlet: Outlet


@dataclass(frozen=True, slots=True)
class StepMerged:
    """Say in the warehouse's ledger that what has arrived is in main."""

    dataflow: str


@dataclass(frozen=True, slots=True)
class Vacuum:
    """Give the room of delta's old rows free: whoever reads live would read over them."""

    outlet: Outlet


@dataclass(frozen=True, slots=True)
class Refill:
    """Replace what is in a table by what live shows in another warehouse, at one point of it."""

    outlet: Outlet


@dataclass(frozen=True, slots=True)
class Adopt:
    """Say in the warehouse's ledger what the other one's says, whose rows were copied."""

    place: Place
    arrived: Migrated


Stage = Copy | Step | Confirm | Merge | StepMerged | Vacuum | Refill | Adopt


@dataclass(frozen=True, slots=True)
class Plan:
    """What a migration does: one transaction of the warehouse, and what follows it."""

    together: tuple[Stage, ...] = ()
    then: tuple[Stage, ...] = ()
