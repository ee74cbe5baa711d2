"""The flow: one dataflow on one core, and where it is as of its last commit."""

from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from etl_procs import pending
from etl_procs.batch import Batch, Round
from etl_procs.execution import Plan
from etl_procs.history import History
from etl_procs.intake import Intake
from etl_procs.metrics import Histogram
from headrace.errors import HeadraceError

CAREFUL_GROUPS = 16
"""After a failure, so many groups run with savepoints: however often something fails, no more than
one group in so many runs twice."""

Key = tuple[str, int]
"""A unit's name and the number of a round: of the queue, counted from the start of the engine, or
below 0 for dead letters that run again.
"""


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
    history: History
    tuples: dict[str, int]
    """How many tuples it has taken from outside, by dataflow.stream."""
    queue: deque[Round] = field(default_factory=deque)
    """Rounds that were cut and are in no commit yet."""
    begun: int = 0
    """Rounds of the queue that are in a commit."""
    failures: dict[Key, list[HeadraceError]] = field(default_factory=dict)
    """What went wrong so far with a unit on a round, and took the whole group down with it."""
    careful: int = 0
    """Groups that are still to run with savepoints, because something has failed of late."""
    apart: bool = False
    """Whether one of the failures has ended its transaction by itself."""
    rests_until: float = 0.0
    """Until then, others have their turn: a warehouse did not answer it. (Monotonic time.)"""

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

    def note(self, key: Key, failures: list[HeadraceError], *, ended: bool) -> None:
        """Note what went wrong with a unit on a round, and has ended the group."""
        self.failures[key] = failures
        self.careful = CAREFUL_GROUPS
        self.apart = self.apart or ended

    def settle(self, begun: int, failed: Collection[Key]) -> None:
        """Take note that a group has committed, which has begun so many rounds of the queue, and in
        which these units have failed on their way.
        """
        self.begun += begun
        for _ in range(begun):
            for taken in self.queue.popleft().inputs:
                self.tuples[taken.batch.stream.full_name] += len(taken.batch)
        self.failures = {
            key: failures
            for key, failures in self.failures.items()
            # Dead letters run again before new rounds, or somebody has dropped them.
            if key not in failed and (key[1] >= self.begun or (key[1] < 0 and not begun))
        }
        self.apart = self.apart and bool(self.failures)
        self.careful = CAREFUL_GROUPS if failed else max(self.careful - 1, 0)

    @property
    def is_amid_a_round(self) -> bool:
        """Whether the last group ended before every unit had done the last round."""
        return any(batch < self.last for batch in self.done.values())


class Committed(NamedTuple):
    """What became of the batches of one group."""

    dataflow: str
    first: int
    through: int
    """The last batch that the whole dataflow has done."""
    tuples: int
    dead_tuples: int
    staged: int
    staged_bytes: int

    def with_next(self, other: "Committed") -> "Committed":
        """Take this group and the next one together."""
        counts = (one + more for one, more in zip(self[3:], other[3:], strict=True))
        return Committed(self.dataflow, self.first, other.through, *counts)
