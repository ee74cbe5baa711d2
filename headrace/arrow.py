"""Arrow IPC: how rows travel between rooms and lie in a blob."""

from typing import cast

import pyarrow as pa


def to_bytes(table: pa.Table) -> bytes:
    """Write a table as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return cast(bytes, sink.getvalue().to_pybytes())


def from_bytes(data: bytes) -> pa.Table:
    """Read back what `to_bytes` wrote."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()
