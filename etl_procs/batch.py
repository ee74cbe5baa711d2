"""Batches: what arrives from ingest, and the atomic batch that a procedure is given."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.model import Stream
from etl_procs.rules import Value

PARTITION, PLACE, VALUE, REASON, MARK = "_partition", "_place", "_value", "_reason", "_mark"
SOURCE, SEQ = "_source", "_seq"

ARRIVAL = pa.schema(
    [
        pa.field(PARTITION, pa.int32(), nullable=False),
        pa.field(PLACE, pa.int64(), nullable=False),
        pa.field(VALUE, pa.binary()),
        pa.field(REASON, pa.string()),
        pa.field(MARK, pa.int64()),
        pa.field(SOURCE, pa.dictionary(pa.int32(), pa.string())),
        pa.field(SEQ, pa.int64()),
    ]
)
"""What ingest puts before a stream's own columns: the tuple's partition and place in the stream's
topic, its bytes as they came, why it could not be decoded (null when it could), if it is no tuple
but a punctuation, what that ends, and if its producer said so, its source and its number there."""

INDEX_BITS = 20
LAST = (1 << INDEX_BITS) - 1
"""The index of the last tuple of a record, and of the only one: the place after it is the next
record's."""
TUPLES_OF_A_RECORD_MAX = LAST

FINISHED = 2**63 - 1
"""The mark after which nothing comes in a partition."""
NOTHING = -(2**63)
"""The mark of what is no tuple, and ends nothing."""


def place_of(offset: int, index: int = LAST) -> int:
    """Make one number of where a tuple is in its partition: its record, and its index there."""
    return offset << INDEX_BITS | index


def offset_of(place: int) -> int:
    """Tell the record of a place."""
    return place >> INDEX_BITS


def index_of(place: int) -> int:
    """Tell the index of a place in its record."""
    return place & LAST


Tuple = tuple[Value, ...]


class Row(dict[str, Value]):
    """One tuple of a batch, by column name."""

    __slots__ = ("batch", "index")

    index: int
    batch: "Batch"


@dataclass(frozen=True, slots=True)
class Arrived:
    """Records of one border stream as ingest hands them over, decoded or not."""

    stream: Stream
    tuples: pa.Table
    through: Mapping[int, int] = field(default_factory=dict)
    """How far the log was read, where the tuples do not tell it: the next place in each partition.
    All that lies before it was handed over.
    """

    def __post_init__(self) -> None:
        expected = [*ARRIVAL.names, *self.stream.columns.names]
        assert self.tuples.column_names == expected, (self.tuples.column_names, expected)

    def after(self, positions: Mapping[int, int]) -> "Arrived":
        """Leave out what lies before `positions` (the next place in each partition), and order
        the rest by position.
        """
        tuples = self.tuples
        for partition, next_place in positions.items():
            done = pc.and_(
                pc.equal(tuples[PARTITION], partition), pc.less(tuples[PLACE], next_place)
            )
            if pc.any(done).as_py():
                tuples = tuples.filter(pc.invert(done))
        if not _is_in_order(tuples):
            tuples = tuples.sort_by([(PARTITION, "ascending"), (PLACE, "ascending")])
        return Arrived(self.stream, tuples, self.through)


def _is_in_order(tuples: pa.Table) -> bool:
    """Tell if tuples lie by position, as they do when they come from Spark: sorting copies all."""
    partition, place = (
        pc.pairwise_diff(tuples[name].combine_chunks()) for name in (PARTITION, PLACE)
    )
    rises = pc.or_(pc.greater(partition, 0), pc.and_(pc.equal(partition, 0), pc.greater(place, 0)))
    return bool(pc.all(rises, min_count=0).as_py())


class Position(NamedTuple):
    """Where a tuple came from: its place in Kafka, and its bytes."""

    partition: int
    place: int
    value: bytes | None


ORIGIN = pa.schema([(name, ARRIVAL.field(name).type) for name in (PARTITION, PLACE, VALUE)])
"""Where a tuple came from; all of it is null for one that was filled in, or made by a procedure."""
Origin = Callable[[], pa.Table]
"""Gives where tuples came from, by ORIGIN; only who asks reads it."""


class Batch:
    """An atomic batch: tuples of one stream under one id, processed as a unit.

    It holds rows or an Arrow table, whichever it was made from, and makes the other when asked.
    """

    __slots__ = ("_came_from", "_origin", "_table", "_tuples", "id", "stream")

    def __init__(
        self,
        stream: Stream,
        id: int,
        *,
        tuples: list[Tuple] | None = None,
        table: pa.Table | None = None,
        origin: Origin | None = None,
    ) -> None:
        assert tuples is not None or table is not None
        self.stream = stream
        self.id = id
        self._tuples = tuples
        self._table = table
        self._origin = origin
        self._came_from: pa.Table | None = None

    @property
    def table(self) -> pa.Table:
        """Its tuples as an Arrow table."""
        if self._table is None:
            self._table = table_of(self._tuples or [], self.stream.columns.arrow)
        return self._table

    @property
    def tuples(self) -> list[Tuple]:
        """Its tuples in the order of the stream's columns; the list is the caller's own."""
        return list(self._held())

    def _held(self) -> list[Tuple]:
        if self._tuples is None:
            self._tuples = tuples_of(self._table)
        return self._tuples

    def __len__(self) -> int:
        """Count its tuples."""
        if self._tuples is None:
            assert self._table is not None
            return int(self._table.num_rows)
        return len(self._tuples)

    def rows(self) -> list[Row]:
        """Give the tuples in order, by column name; the list is the caller's own."""
        names, rows = self.stream.columns.names, []
        for index, values in enumerate(self._held()):
            row = Row(zip(names, values))  # noqa: B905 - strict costs as much again, for each tuple
            row.index = index
            row.batch = self
            rows.append(row)
        return rows

    def row(self, index: int) -> Row:
        """Give one tuple by column name, as to reject it; for those who work with the others."""
        row = Row(zip(self.stream.columns.names, self._held()[index], strict=True))
        row.index = index
        row.batch = self
        return row

    def with_more(self, more: "Batch") -> "Batch":
        """Give its tuples and, after them, those of another one."""
        tuples = self._held() + more._held()
        return Batch(
            self.stream,
            self.id,
            tuples=tuples,
            origin=lambda: pa.concat_tables([self.origin, more.origin]),
        )

    @property
    def origin(self) -> pa.Table:
        """Where its tuples came from."""
        if self._came_from is None:
            given = self._origin() if self._origin else nowhere(len(self))
            self._came_from = given.combine_chunks()
        return self._came_from

    def position(self, index: int) -> Position | None:
        """Tell where a tuple came from; None for one that a procedure made."""
        if self._origin is None:
            return None
        for row in self.origin.slice(index, 1).to_pylist():
            if row[PARTITION] is not None:
                return Position(*row.values())
        return None


def nowhere(count: int) -> pa.Table:
    """Give the origin of tuples that came from nowhere."""
    return pa.table([pa.nulls(count, field.type) for field in ORIGIN], schema=ORIGIN)


class Run(NamedTuple):
    """Consecutive numbers of a source in one partition."""

    partition: int
    source: str
    first: int
    last: int


class Input(NamedTuple):
    """What one border stream gives to a round: its batch, and what became of the log before it."""

    batch: Batch
    undecoded: pa.Table | None
    """The records that could not be decoded, with the columns of ARRIVAL."""
    positions: Mapping[int, int]
    """The next place in each partition that it moves."""
    size: int = 0
    """The bytes of its records, about."""
    numbers: Sequence[Run] = ()
    """The numbers of its tuples in their sources."""
    late: Batch | None = None
    """The tuples that came too late, where they go to a stream of their own."""
    firsts: Mapping[int, int] = MappingProxyType({})
    """The place of its first record in each partition; marks are none."""


class Round(NamedTuple):
    """Batch r of every border stream of a dataflow."""

    id: int
    inputs: tuple[Input, ...]
    """One for each border stream, in the order of their declaration."""
    epoch: int | None = None
    """The interval of event time that it ends, where batches are cut by it."""


def table_of(tuples: Iterable[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    """Make an Arrow table of tuples that fit its schema."""
    columns = list(zip(*tuples, strict=True)) or [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def tuples_of(table: list[Tuple] | pa.Table) -> list[Tuple]:
    """Make tuples of an Arrow table; tuples stay as they are."""
    if isinstance(table, list):
        return table
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
