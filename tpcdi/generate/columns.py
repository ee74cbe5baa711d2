"""Columns of rows by the thousand, and how they become text: Arrow does the work."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Table = Any  # pyarrow has no types

MONEY = pa.decimal128(15, 2)


def money(cents: Ints, valid: Bools | None = None) -> Any:
    """Make amounts of cents; without division, since their bytes are those of a decimal."""
    halves = np.empty((len(cents), 2), np.int64)
    halves[:, 0] = cents
    halves[:, 1] = cents >> 63
    whole = pa.Array.from_buffers(MONEY, len(cents), [None, pa.py_buffer(halves)])
    return whole if valid is None else pc.if_else(pa.array(valid), whole, None)


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


def table_of(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    """Make a table of records."""
    return pa.table({name: pa.array([each[name] for each in records]) for name in columns})


def lines(table: Table, delimiter: str) -> list[bytes]:
    """Write rows as the lines of a file."""
    written = pa.BufferOutputStream()
    csv.write_csv(table, written, _options(delimiter, "\n"))
    text: bytes = written.getvalue().to_pybytes()
    return text.splitlines()


def _options(delimiter: str, eol: str) -> csv.WriteOptions:
    return csv.WriteOptions(
        include_header=False, delimiter=delimiter, quoting_style="none", eol=eol
    )


class Writer:
    """A file of delimited rows, written table by table."""

    def __init__(self, path: Path, delimiter: str, eol: str, tell: Callable[[int], None]) -> None:
        self._path = path
        self._options = _options(delimiter, eol)
        self._tell = tell
        self._writer: Any = None

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, table: Table) -> None:
        """Append rows."""
        if self._writer is None:
            self._writer = csv.CSVWriter(self._path, table.schema, write_options=self._options)
        self._writer.write_table(table)
        self._tell(table.num_rows)
