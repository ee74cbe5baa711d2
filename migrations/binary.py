"""PostgreSQL's binary COPY format, made of Arrow's columns: no row is ever a Python object.

A row is the number of its fields, then of each field its length and its bytes, numbers with the
highest byte first. Numbers that stand side by side and are never NULL are one piece of each row;
a column with NULL is a piece, and so is a text. Arrow joins the pieces, row by row.

A decimal is written with all digits that its column may have. PostgreSQL takes zeros at either end
away as it reads, so that decimals are of one width and laid out as other numbers are.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from migrations import numbers

BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END = b"\xff\xff"

COUNT, LENGTH = ">i2", ">i4"
DIGIT, NEGATIVE = ">i2", 0x4000
"""Of a decimal. What goes before its digits is as wide: their number, weight, sign and scale."""
FIXED = {
    pa.int32(): (">i4", 0),
    pa.int64(): (">i8", 0),
    pa.float64(): (">f8", 0.0),
    pa.bool_(): ("?", False),
}
"""How a type is written, and what stands in for a NULL of it until that is put there."""
NO_LENGTH = -1
NULL = np.array(-1, LENGTH).tobytes()
EMPTY = b""

ROWS_AT_ONCE, BYTES_AT_ONCE = 16_384, 2**22
"""What a processor's cache holds: with a million at once, it takes five times as long."""

Field = tuple[str, "np.ndarray[Any, Any]"]
"""A width, and the value of each row."""


def encoded(table: pa.Table) -> Iterator[memoryview]:
    """Give the rows of a table; they belong between BEGIN and END."""
    at_once = BYTES_AT_ONCE * table.num_rows // max(table.nbytes, 1)
    for batch in table.to_batches(max_chunksize=min(max(at_once, 1), ROWS_AT_ONCE)):
        if batch.num_rows:
            rows = pc.binary_join_element_wise(*_pieces(batch), EMPTY)
            yield memoryview(rows.buffers()[2])


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.Array]:
    """Cut rows into pieces, from the left to the right."""
    count = batch.num_rows
    open_: list[Field] = [(COUNT, np.full(count, batch.num_columns))]
    for column in map(numbers.since_2000, batch.columns):
        if not pa.types.is_decimal(column.type) and column.type not in FIXED:
            lengths = pc.fill_null(pc.binary_length(column), NO_LENGTH)
            yield _laid_out([*open_, (LENGTH, lengths.to_numpy())])
            yield pc.fill_null(column.cast(pa.binary()), EMPTY)
            open_ = []
        elif column.null_count:
            if open_:
                yield _laid_out(open_)
            yield pc.if_else(column.is_valid(), _laid_out(_fixed(column)), NULL)
            open_ = []
        else:
            open_ += _fixed(column)
    if open_:
        yield _laid_out(open_)


def _fixed(column: pa.Array) -> list[Field]:
    if pa.types.is_decimal(column.type):
        return _decimal(column)
    width, stand_in = FIXED[column.type]
    values = pc.fill_null(column, stand_in).to_numpy(zero_copy_only=False)
    return [(LENGTH, np.full(len(column), np.dtype(width).itemsize)), (width, values)]


def _decimal(column: pa.Array) -> list[Field]:
    negative, weight, digits = numbers.decimals(column)
    count = len(column)
    length = np.full(count, np.dtype(DIGIT).itemsize * (4 + len(digits)))
    head = (
        np.full(count, len(digits)),
        np.full(count, weight),
        negative * NEGATIVE,
        np.full(count, column.type.scale),
    )
    return [(LENGTH, length), *((DIGIT, values) for values in (*head, *digits))]


def _laid_out(fields: list[Field]) -> pa.Array:
    """Lay fields of fixed widths side by side, in each row."""
    count = len(fields[0][1])
    rows = np.empty(count, [(str(at), width) for at, (width, _) in enumerate(fields)])
    for at, (_, values) in enumerate(fields):
        rows[str(at)] = values
    size = rows.dtype.itemsize
    ends = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(rows)])
