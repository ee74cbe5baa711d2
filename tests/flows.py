"""Small dataflows, arrivals and a clock that several tests share."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from etl_procs import Dataflow, Stream, by_punctuation
from etl_procs.batch import ARRIVAL, Arrived, index_of, offset_of, place_of

EXAMPLE = Path(__file__).parent.parent / "examples" / "leaderboard.py"

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class HeldClock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


def arrived(
    stream: Stream, rows: Iterable[Sequence[object]], *, partition: int = 0, first: int = 0
) -> Arrived:
    """Make decoded tuples at consecutive offsets of one partition."""
    return _arrived(
        stream,
        [
            (partition, place_of(n), repr(row).encode(), None, None, None, None, *row)
            for n, row in enumerate(rows, first)
        ],
    )


def undecoded(
    stream: Stream, value: bytes, reason: str, *, offset: int, partition: int = 0
) -> Arrived:
    """Make one tuple that could not be decoded."""
    nothing = [None] * len(stream.columns.names)
    return _arrived(
        stream, [(partition, place_of(offset), value, reason, None, None, None, *nothing)]
    )


def punctuation(stream: Stream, batch: int, *, offset: int, partition: int = 0) -> Arrived:
    """Make the record that ends a batch in one partition of a stream that is cut by it."""
    nothing = [None] * len(stream.columns.names)
    return _arrived(
        stream, [(partition, place_of(offset), None, None, batch, None, None, *nothing)]
    )


def offsets(positions: Mapping[int, int]) -> dict[int, int]:
    """Name the next record of each partition, where all before it are consumed whole."""
    assert not any(map(index_of, positions.values())), positions
    return {partition: offset_of(place) for partition, place in positions.items()}


def joined(*parts: Arrived) -> Arrived:
    """Put arrivals of one stream together, as one micro-batch of several partitions would."""
    return Arrived(parts[0].stream, pa.concat_tables([part.tuples for part in parts]))


def in_chunks(tuples: pa.Table) -> pa.Table:
    """Give tuples as Spark hands them over: several tables, one after the other, each with sources
    of its own.
    """
    pieces = [tuples.slice(at, 2).to_pylist() for at in range(0, max(len(tuples), 1), 2)]
    return pa.concat_tables([pa.Table.from_pylist(piece, tuples.schema) for piece in pieces])


def ended(
    stream: Stream, rows: Iterable[Sequence[object]], *, batch: int, partition: int = 0, first: int
) -> Arrived:
    """Make tuples, and after them the punctuation that makes a batch of them."""
    rows = list(rows)
    end = punctuation(stream, batch, offset=first + len(rows), partition=partition)
    return joined(arrived(stream, rows, partition=partition, first=first), end)


def dataflow(name: str = "shop") -> Dataflow:
    """Declare the smallest dataflow that has everything: a stream, a table and an outlet."""
    flow = Dataflow(name)
    flow.stream("orders", "id INTEGER NOT NULL, item TEXT", batches=by_punctuation())
    flow.table(f"{name}_kept", "id INTEGER PRIMARY KEY, item TEXT")
    flow.outlet("sold", "id INTEGER NOT NULL, item TEXT")
    return flow


def _arrived(stream: Stream, rows: list[tuple[object, ...]]) -> Arrived:
    # As ingest hands them over, a column that is required may lack in what is no tuple.
    schema = pa.schema([*ARRIVAL, *(f.with_nullable(True) for f in stream.columns.arrow)])
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return Arrived(stream, pa.table(arrays, schema=schema))
