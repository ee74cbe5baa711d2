"""A migration as a plan: a few small stages, each a value that says what running it means.

Who decides makes a plan (`push`, `merge`, `rebuild`); the runner runs it, and nothing else does. As
a text, a stage or a plan is what people are told. What stands in `together` is one transaction of
the warehouse; what stands in `then` follows its commit, stage by stage, and can be repeated.
"""

from dataclasses import dataclass
from itertools import chain

from etl_procs.model import Outlet
from migrations import tables
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

    def __str__(self) -> str:
        what = f"{counted(self.rows, 'row')} ({_sized(self.size)})"
        batches = f"batches {self.after + 1} to {self.through} of partition {self.partition}"
        return f"copy {what} of {batches} into {_delta(self.outlet)}"


@dataclass(frozen=True, slots=True)
class Step:
    """Move the warehouse's ledger from what has arrived to `through`, if nobody else has."""

    place: Place
    arrived: Migrated
    through: int
    core_id: str

    def __str__(self) -> str:
        at = _named(self.place)
        return f"step the ledger of {at} from {self.arrived.batch} to {self.through}"


@dataclass(frozen=True, slots=True)
class Confirm:
    """Tell the core that a warehouse has the batches through `through`.

    It forgets those that every warehouse has confirmed, when they were kept for long enough.
    """

    place: Place
    warehouse: str
    through: int

    def __str__(self) -> str:
        return (
            f"confirm {_named(self.place)} through batch {self.through} to the core, which "
            "forgets what all warehouses have"
        )


@dataclass(frozen=True, slots=True)
class Merge:
    """Bring what is in delta into main - of each key its latest operation - and empty delta."""

    outlet: Outlet

    def __str__(self) -> str:
        key = self.outlet.key
        how = f"by {', '.join(key)}" if key else "by appending"
        return f"merge {_delta(self.outlet)} into {_main(self.outlet)} {how}"


@dataclass(frozen=True, slots=True)
class StepMerged:
    """Say in the warehouse's ledger that what has arrived is in main."""

    dataflow: str

    def __str__(self) -> str:
        return f"say in the ledger that all of {self.dataflow} that has arrived is in main"


@dataclass(frozen=True, slots=True)
class Vacuum:
    """Give the room of delta's old rows free: whoever reads live would read over them."""

    outlet: Outlet

    def __str__(self) -> str:
        return f"vacuum {_delta(self.outlet)}"


@dataclass(frozen=True, slots=True)
class Refill:
    """Replace what is in a table by what live shows in another warehouse, at one point of it."""

    outlet: Outlet

    def __str__(self) -> str:
        return f"replace {_main(self.outlet)} by what the other warehouse has"


@dataclass(frozen=True, slots=True)
class Adopt:
    """Say in the warehouse's ledger what the other one's says, whose rows were copied."""

    place: Place
    arrived: Migrated

    def __str__(self) -> str:
        return f"say in the ledger that {_named(self.place)} is at batch {self.arrived.batch}"


Stage = Copy | Step | Confirm | Merge | StepMerged | Vacuum | Refill | Adopt


@dataclass(frozen=True, slots=True)
class Plan:
    """What a migration does: one transaction of the warehouse, and what follows it."""

    together: tuple[Stage, ...] = ()
    then: tuple[Stage, ...] = ()

    def __str__(self) -> str:
        blocks = [("in one transaction of the warehouse:", self.together), ("then:", self.then)]
        lines = ([title, *(f"  {stage}" for stage in stages)] for title, stages in blocks if stages)
        return "\n".join(chain.from_iterable(lines))


def counted(number: int, what: str) -> str:
    """Write how many there are of something."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _sized(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def _named(place: Place) -> str:
    return f"{place[0]}[{place[1]}]"


def _main(outlet: Outlet) -> str:
    return tables.main(outlet).fullname


def _delta(outlet: Outlet) -> str:
    return tables.delta(outlet).fullname
