"""The flow: one dataflow on one core, and where it is as of its last commit."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from etl_procs import pending
from etl_procs.batch import Batch, Round
from etl_procs.execution import Plan
from etl_procs.intake import Intake
from etl_procs.metrics import Histogram
from headrace.errors import HeadraceError


@dataclass(slots=True)
class Flow:
    """One dataflow on one core, as of its last commit."""

    plan: Plan
    intake: Intake
    done: dict[str, int]
    """The last batch of each procedure."""
    last: int
    """The last round that was begun; units that have not done it are still to come."""
    pending: dict[pending.Key, Batch]
    """What has been given and somebody has still to take: all of it is on disk."""
    latencies: Mapping[str, Histogram]
    """How long its units take, by their names."""
    queue: deque[Round] = field(default_factory=deque)
    """Rounds that were cut and are in no commit yet."""
    failures: dict[tuple[str, int], list[HeadraceError]] = field(default_factory=dict)
    """What went wrong so far with a unit on a batch that took the whole group down with it."""

    @property
    def name(self) -> str:
        """The dataflow's name."""
        return self.plan.dataflow.name

    def round(self, number: int, last: int) -> Round | None:
        """Look at a round that waits, by its place in the queue; cut it if it comes next.

        `last` is the batch before it: dead letters that run again are batches too.
        """
        if number == len(self.queue):
            self.intake.batch = last
            cut = self.intake.next()
            if cut is None:
                return None
            self.queue.append(cut)
        return self.queue[number]

    @property
    def is_amid_a_round(self) -> bool:
        """Whether the last group ended before every unit had done the last round."""
        return any(batch < self.last for batch in self.done.values())


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of the batches of one group."""

    dataflow: str
    first: int
    through: int
    """The last batch that the whole dataflow has done."""
    tuples: int
    dead_tuples: int
    staged: int

    def with_next(self, other: "Committed") -> "Committed":
        """Take this group and the next one together."""
        return Committed(
            self.dataflow,
            self.first,
            other.through,
            self.tuples + other.tuples,
            self.dead_tuples + other.dead_tuples,
            self.staged + other.staged,
        )
