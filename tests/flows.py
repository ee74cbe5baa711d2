"""Small dataflows and arrivals that several tests share."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from etl_procs.batch import ARRIVAL, Arrived
from etl_procs.dataflow import Dataflow
from etl_procs.model import Stream

EXAMPLE = Path(__file__).parent.parent / "examples" / "leaderboard.py"


def arrived(
    stream: Stream, rows: Iterable[tuple[object, ...]], *, partition: int = 0, first: int = 0
) -> Arrived:
    """Make decoded tuples at consecutive offsets of one partition."""
    rows = list(rows)
    schema = pa.schema([*ARRIVAL, *stream.columns.arrow])
    columns = [
        [partition] * len(rows),
        list(range(first, first + len(rows))),
        [repr(row).encode() for row in rows],
        [None] * len(rows),
        *([row[i] for row in rows] for i in range(len(stream.columns.names))),
    ]
    return Arrived(
        stream,
        pa.table(
            [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
        ),
    )


def undecoded(stream: Stream, value: bytes, reason: str, *, offset: int) -> Arrived:
    """Make one tuple that could not be decoded."""
    schema = pa.schema([*ARRIVAL, *(f.with_nullable(True) for f in stream.columns.arrow)])
    row = {"_partition": 0, "_offset": offset, "_value": value, "_reason": reason}
    return Arrived(stream, pa.Table.from_pylist([row], schema))


def joined(*parts: Arrived) -> Arrived:
    """Put arrivals of one stream together, as one micro-batch of several partitions would."""
    return Arrived(
        parts[0].stream,
        pa.concat_tables([part.tuples for part in parts], promote_options="permissive"),
    )


def dataflow(name: str = "shop") -> Dataflow:
    """Declare the smallest dataflow that has everything: a stream, a table and an outlet."""
    flow = Dataflow(name)
    flow.stream("orders", "id INTEGER NOT NULL, item TEXT")
    flow.table(f"{name}_kept", "id INTEGER PRIMARY KEY, item TEXT")
    flow.outlet("sold", "id INTEGER NOT NULL, item TEXT")
    return flow
