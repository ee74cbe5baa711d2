"""The letter: one tuple, or one batch, that could not be processed, with its reason."""

from dataclasses import dataclass
from typing import Any

from etl_procs.batch import LAST, PARTITION, PLACE, index_of, offset_of
from headrace import arrow


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One tuple, or one batch, that could not be processed: the columns of its row, in order."""

    id: int
    dataflow: str
    unit: str
    stream: str
    batch: int
    reason: str
    attempts: int
    at: str
    row_count: int
    topic: str | None
    partition: int | None
    offset: int | None
    value: bytes | None
    fields: str | None
    data: bytes | None
    replay: int
    index: int | None

    @property
    def is_batch(self) -> bool:
        """Whether it is a whole batch."""
        return self.data is not None

    def rows(self, most: int | None = None) -> list[dict[str, Any]]:
        """Give the tuples of a batch, or the first of them, each with the place it came from."""
        found = [] if self.data is None else arrow.from_bytes(self.data).slice(0, most).to_pylist()
        return [
            {PARTITION: row.pop(PARTITION), **shown_place(row.pop(PLACE)), **row} for row in found
        ]


def shown_place(place: int | None) -> dict[str, int | None]:
    """Write a place as those who look for it in Kafka name it."""
    if place is None:
        return {"_offset": None, "_index": None}
    index = index_of(place)
    return {"_offset": offset_of(place), "_index": None if index == LAST else index}
