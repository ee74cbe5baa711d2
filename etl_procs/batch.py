"""Batches: what arrives from ingest, and the atomic batch that a procedure is given."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.model import Stream, Value

PARTITION, OFFSET, VALUE, REASON = "_partition", "_offset", "_value", "_reason"

ARRIVAL = pa.schema(
    [
        pa.field(PARTITION, pa.int32(), nullable=False),
        pa.field(OFFSET, pa.int64(), nullable=False),
        pa.field(VALUE, pa.binary()),
        pa.field(REASON, pa.string()),
    ]
)
"""What ingest puts before a stream's own columns: the tuple's position in the stream's topic, its
bytes as they came, and why it could not be decoded (null when it could)."""


class Row(dict[str, Value]):
    """One tuple of a batch, by column name."""

    __slots__ = ("index",)

    def __init__(self, values: Mapping[str, Value], index: int) -> None:
        super().__init__(values)
        self.index = index


@dataclass(frozen=True, slots=True)
class Arrived:
    """Tuples of one stream as ingest hands them over, decoded or not."""

    stream: Stream
    tuples: pa.Table

    def __post_init__(self) -> None:
        expected = [*ARRIVAL.names, *self.stream.columns.names]
        assert self.tuples.column_names == expected, (self.tuples.column_names, expected)

    def after(self, positions: Mapping[int, int]) -> "Arrived":
        """Leave out what lies before `positions` (the next offset of each partition), and order
        the rest by position.
        """
        partitions, offsets = self.tuples[PARTITION], self.tuples[OFFSET]
        keep = pa.chunked_array([pa.repeat(True, len(offsets))])
        for partition, next_offset in positions.items():
            done = pc.and_(pc.equal(partitions, partition), pc.less(offsets, next_offset))
            keep = pc.and_not(keep, done)
        order = [(PARTITION, "ascending"), (OFFSET, "ascending")]
        return Arrived(self.stream, self.tuples.filter(keep).sort_by(order))

    def next_positions(self) -> dict[int, int]:
        """Tell the next offset of each partition, once these tuples are done."""
        last = self.tuples.group_by(PARTITION).aggregate([(OFFSET, "max")])
        return {
            row[PARTITION]: row[f"{OFFSET}_max"] + 1
            for row in last.select([PARTITION, f"{OFFSET}_max"]).to_pylist()
        }

    def decoded(self) -> pa.Table:
        """Give the tuples that could be decoded."""
        return self.tuples.filter(pc.is_null(self.tuples[REASON]))

    def undecoded(self) -> pa.Table:
        """Give the tuples that could not be decoded."""
        return self.tuples.filter(pc.is_valid(self.tuples[REASON]))


@dataclass(frozen=True, slots=True)
class Batch:
    """An atomic batch: tuples of one stream under one id, processed as a unit."""

    stream: Stream
    id: int
    table: pa.Table

    def __len__(self) -> int:
        """Count its tuples."""
        return int(self.table.num_rows)

    def rows(self) -> Iterator[Row]:
        """Give the tuples one by one, in order."""
        for index, values in enumerate(self.table.to_pylist()):
            yield Row(values, index)
