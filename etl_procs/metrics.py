"""Metrics: what a core counts and measures about itself; a restart begins them anew."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

BUCKETS = 28
"""A bucket for each power of two of microseconds: the last holds a minute and more."""

BOUNDS = tuple(f"{2**i / 1e6:g}" for i in range(BUCKETS))
"""The upper bound of each bucket, in seconds; the last has none, in truth."""


@dataclass(slots=True)
class Histogram:
    """How often something took how long; buckets double."""

    counts: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    sum_s: float = 0.0

    def add(self, durations: Iterable[float]) -> None:
        """Count durations, in seconds."""
        counts, most = self.counts, BUCKETS - 1
        for seconds in durations:
            counts[min(int(seconds * 1e6).bit_length(), most)] += 1
            self.sum_s += seconds

    def as_dict(self) -> dict[str, Any]:
        """Give count, sum, and for each bucket that has some: its upper bound and its count."""
        return {
            "count": sum(self.counts),
            "sum_s": self.sum_s,
            "buckets": {bound: n for bound, n in zip(BOUNDS, self.counts, strict=True) if n},
        }


@dataclass(slots=True)
class LookupFigures:
    """What became of the keys that one lookup was asked for."""

    hits: int = 0
    """Keys that its index answered, or its copy."""
    misses: int = 0
    """Keys that SQL answered, or the warehouse: they had changed, were few, were not found in the
    copy, or nothing was kept.
    """
    builds: int = 0
    """How often the index, or the copy, was read from the table; of a copy, also what changed."""
    entries: int = 0
    """Versions in the index."""
    bytes: int = 0
    """Memory that it takes."""
    behind: int = 0
    """Changes that it did not have when it was asked last; SQL answered for their keys."""
    strategy: str = "owned"
    """By which it is answered now."""
    why: str = ""
    """Why, if that was chosen."""
    age_s: float = 0.0
    """How old the copy was that answered last."""
    waits: int = 0
    """Questions that the warehouse did not answer; they are asked again."""


@dataclass(slots=True)
class Metrics:
    """What one core has done since it was opened."""

    commits: int = 0
    """Groups of batches that were committed."""
    rollbacks: int = 0
    """Groups that were rolled back whole, and run again."""
    batches: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Batches that were committed, by dataflow."""
    tuples: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Tuples that came from outside, of batches that were committed, by dataflow.stream."""
    aborts: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Attempts of units that failed, by dataflow.unit."""
    dead_batches: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Batches that a unit has given up, by dataflow.unit."""
    dead_tuples: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Tuples that did not decode or were rejected, by dataflow."""
    units: dict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    """How long one unit took for one batch, by dataflow.unit."""
    groups: Histogram = field(default_factory=Histogram)
    """How long one group took, its commit included."""
    group_sizes: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Groups, by the power of two that their number of batches reaches."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The watermark: the last interval or punctuation that a dataflow has closed."""
    parked: dict[str, int] = field(default_factory=dict)
    """Rows in tables that park, by dataflow.table."""
    lookups: dict[str, LookupFigures] = field(default_factory=dict)
    """What became of lookups, by dataflow.lookup."""

    def group(self, batches: int, seconds: float) -> None:
        """Count one group that was committed."""
        self.commits += 1
        self.groups.add([seconds])
        self.group_sizes[1 << (batches - 1).bit_length() if batches else 0] += 1

    def as_dict(self) -> dict[str, Any]:
        """Give all of them, ready for JSON."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}


def _plain(value: Any) -> Any:
    match value:
        case Histogram():
            return value.as_dict()
        case LookupFigures():
            return asdict(value)
        case dict():  # the worker may add one meanwhile: a list is made in one step
            return {str(name): _plain(of) for name, of in sorted(list(value.items()))}  # noqa: C414
    return value
