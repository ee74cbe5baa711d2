"""An answer: rows as Arrow, in columns of PostgreSQL's types, and what they are as of.

Each of PostgreSQL's types is one of Arrow's. Decimals are their text, which is exact; so is what
Arrow has nothing for. A decimal's digits, where its column says how many it has, are kept with it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import LiteralString

import pyarrow as pa
import pyarrow.compute as pc

from api.plans import Moving

NUMERIC = "numeric"

ARROW: dict[str, pa.DataType] = {
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    NUMERIC: pa.string(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "character varying": pa.string(),
    "character": pa.string(),
    "name": pa.string(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}

NOT_FINITE = pa.array(["nan", "inf", "-inf"])
NAMES = pa.array(["NaN", "Infinity", "-Infinity"])


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an answer, with PostgreSQL's name for its type."""

    name: str
    type: str
    digits: tuple[int, int] | None = None
    """Of numeric(p, s), p and s; None: any."""

    @property
    def arrow(self) -> pa.DataType:
        """Name the Arrow type of its values."""
        one = ARROW.get(self.type.removesuffix("[]"), pa.string())
        return pa.list_(one) if self.type.endswith("[]") else one

    @property
    def is_native(self) -> bool:
        """Whether Arrow has the type; if not, its values are written as `text_type`."""
        return self.type.removesuffix("[]") in ARROW

    @property
    def text_type(self) -> LiteralString:
        """Name the type of text that stands for its own."""
        return "text[]" if self.type.endswith("[]") else "text"


@dataclass(frozen=True)
class Head:
    """What is known of an answer before its first row."""

    columns: tuple[Column, ...]
    as_of: Mapping[str, int]
    """The batch of each dataflow, or of each of its partitions, that the rows are as of."""
    freshness: str
    plan: str
    cost_ms: float = 0.0
    moving: Moving | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """Give the schema of its rows."""
        return pa.schema(
            [
                pa.field(column.name, column.arrow, metadata={"headrace.type": column.type})
                for column in self.columns
            ]
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it comes."""

    head: Head
    batches: Iterator[pa.RecordBatch]


def named(numbers: pa.Array) -> pa.Array:
    """Write what is not finite among texts of numbers as PostgreSQL does, and not as Arrow."""
    index = pc.index_in(numbers, NOT_FINITE)
    return numbers if index.null_count == len(index) else pc.coalesce(NAMES.take(index), numbers)
