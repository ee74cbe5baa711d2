"""Arrow IPC: how rows travel between rooms and processes, and lie in a blob."""

import os
import sys
from importlib.util import find_spec
from typing import cast

import pyarrow as pa

if find_spec("dateutil") is None:
    # Of each number of Python's, Arrow asks if it is of this package, and Python would look for it
    # on the disk each time: a tenth of what a core does in small batches.
    sys.modules["dateutil"] = None  # type: ignore[assignment]


def to_bytes(table: pa.Table, *, compressed: bool = False) -> bytes:
    """Write a table as one Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if compressed else None)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return cast(bytes, sink.getvalue().to_pybytes())


def from_bytes(data: bytes) -> pa.Table:
    """Read back what `to_bytes` wrote."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def to_memory(table: pa.Table) -> int:
    """Write a table into memory that another process can be given; return its descriptor."""
    descriptor = os.memfd_create("arrow")
    try:
        with (
            pa.OSFile(f"/proc/self/fd/{descriptor}", "wb") as sink,
            pa.ipc.new_stream(sink, table.schema) as writer,
        ):
            writer.write_table(table)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def from_memory(descriptor: int) -> pa.Table:
    """Map what `to_memory` wrote: nothing is copied. The descriptor is closed."""
    try:
        mapped = pa.memory_map(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    with pa.ipc.open_stream(mapped) as reader:
        return reader.read_all()
