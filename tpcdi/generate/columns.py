"""Columns of rows by the thousand, and how they become text: Arrow does the work."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

Ints = npt.NDArray[np.int64]
Table = Any  # pyarrow has no types

MONEY = pa.decimal128(15, 2)


def money(cents: Ints) -> Any:
    """Make amounts of cents; without division, since their bytes are those of a decimal."""
    halves = np.empty((len(cents), 2), np.int64)
    halves[:, 0] = cents
    halves[:, 1] = cents >> 63
    return pa.Array.from_buffers(MONEY, len(cents), [None, pa.py_buffer(halves)])


def moments(seconds: Ints) -> Any:
    """Make moments of seconds."""
    return pa.array(seconds).cast(pa.timestamp("s"))


def days(seconds: Ints) -> Any:
    """Make the dates of moments."""
    return pa.array((seconds // 86_400).astype(np.int32)).cast(pa.date32())


def picked(pool: Any, index: npt.NDArray[Any]) -> Any:
    """Pick values of a pool."""
    return pool.take(pa.array(index))


def pick(rng: np.random.Generator, there: Ints) -> Ints:
    """Pick for each row one of so many that are there."""
    return (rng.random(len(there)) * there).astype(np.int64)


def lines(table: Table, delimiter: str) -> list[bytes]:
    """Write rows as the lines of a file."""
    written = pa.BufferOutputStream()
    write(table, written, delimiter, "\n")
    text: bytes = written.getvalue().to_pybytes()
    return text.splitlines()


def write(table: Table, out: Any, delimiter: str, eol: str) -> None:
    """Write rows where Arrow can write."""
    options = csv.WriteOptions(
        include_header=False, delimiter=delimiter, quoting_style="none", eol=eol
    )
    csv.write_csv(table, out, options)
