"""The letter: one tuple, or one batch, that could not be processed, with its reason."""

import base64
import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from etl_procs.batch import LAST, PARTITION, PLACE, index_of, offset_of
from headrace import arrow


class Kind(Enum):
    """Why something is a dead letter."""

    UNDECODED = "undecoded"
    """A tuple that did not decode."""
    REJECTED = "rejected"
    """A tuple that a procedure rejected."""
    FAILED = "failed"
    """A batch with which a procedure failed until its attempts were used up."""


@dataclass(frozen=True, slots=True)
class Sought:
    """Which letters are meant; what is empty is any."""

    dataflow: str = ""
    stream: str = ""
    procedure: str = ""
    kind: str = ""
    reason: str = ""
    """A text that the reason holds."""
    since: str = ""
    """From this moment on: ISO 8601, in UTC."""


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

    @property
    def kind(self) -> Kind:
        """Why it is one."""
        if self.is_batch:
            return Kind.FAILED
        return Kind.REJECTED if self.unit else Kind.UNDECODED

    def rows(self, most: int | None = None) -> list[dict[str, Any]]:
        """Give the tuples of a batch, or the first of them, each with the place it came from."""
        found = [] if self.data is None else arrow.from_bytes(self.data).slice(0, most).to_pylist()
        return [
            {PARTITION: row.pop(PARTITION), **shown_place(row.pop(PLACE)), **row} for row in found
        ]

    def document(self, most: int | None = None) -> dict[str, Any]:
        """Write it out, with all tuples of a batch or the first of them; bytes as text where they
        are text, and in base64 where they are not.
        """
        told = asdict(self)
        told["replay"] = bool(self.replay)
        told["fields"] = None if self.fields is None else json.loads(self.fields)
        told |= text_or_base64("value", told.pop("value"))
        if told.pop("data") is not None:
            told["rows"] = [
                {**row, **text_or_base64("_value", row.pop("_value"))} for row in self.rows(most)
            ]
        return told


def text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    """Give bytes as text where they are text, and under another name in base64 where not."""
    try:
        return {name: None if value is None else value.decode("utf-8")}
    except UnicodeDecodeError:
        assert value is not None
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}


def shown_place(place: int | None) -> dict[str, int | None]:
    """Write a place as those who look for it in Kafka name it."""
    if place is None:
        return {"_offset": None, "_index": None}
    index = index_of(place)
    return {"_offset": offset_of(place), "_index": None if index == LAST else index}
