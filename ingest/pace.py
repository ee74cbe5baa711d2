"""The pace: how many records Spark reads at once, so that they hold about so many tuples.

A record is one tuple, or a frame of thousands. Spark's own limit counts records, and is fixed when
its query begins; so reading begins cautiously, and again with another limit when one is needed.
"""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import LAST, PLACE

FIRST_RECORDS = 2_000
FULL_SHARE = 0.9
"""Spark divides what it may read among the partitions, and rounds down in each."""
FULL_TIMES = 5
"""So many times one after the other is as much read as may be, before more may be: to begin again
takes a second, in which a stream that is merely catching its breath falls behind."""
MB = 2**20


DECODED = 3
"""A tuple takes about so many times the bytes when it is decoded."""


@dataclass(slots=True)
class Pace:
    """How much is read at once, at most about: of tuples, and of megabytes decoded."""

    tuples_max: int
    mb_max: int
    records: int = 0
    full_times: int = 0

    def __post_init__(self) -> None:
        self.records = self.records or min(FIRST_RECORDS, self.tuples_max)

    def begin(self, records: int, tuples: int, size: int) -> None:
        """Begin with what suits these records, which are some of the first that are read."""
        if records:
            self.records = self._fitting(records, self._fill(tuples, DECODED * size))

    def changes(self, read: pa.Table) -> bool:
        """Take note of what was read at once; tell whether `records` is another limit now."""
        # The last tuple of each record has the last index.
        records = pc.sum(pc.equal(pc.bit_wise_and(read[PLACE], LAST), LAST)).as_py() or 0
        if not records:
            return False
        fill = self._fill(len(read), read.nbytes)
        fitting = self._fitting(records, fill)
        full = records >= FULL_SHARE * self.records
        self.full_times = self.full_times + 1 if full else 0
        if fill > 2 or (self.full_times >= FULL_TIMES and fitting >= 2 * self.records):
            changed = fitting != self.records
            self.records = fitting
            return changed
        return False

    @property
    def is_full(self) -> bool:
        """Tell whether the last reading was as much as may be: there is more."""
        return self.full_times > 0

    def _fill(self, tuples: int, size: int) -> float:
        return max(tuples / self.tuples_max, size / (self.mb_max * MB))

    def _fitting(self, records: int, fill: float) -> int:
        return max(1, min(int(records / fill), self.tuples_max))
