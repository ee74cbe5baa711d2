"""Records, as many as there may be: in a file, each in a slot of its own."""

import marshal
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, Generic, TypeVar

import pyarrow as pa

from tpcdi.generate.columns import Ints, Table
from tpcdi.generate.scratch import Scratch

Value = TypeVar("Value", str, tuple[Any, ...])
Record = dict[str, Any]

ROWS_AT_ONCE = 8_192
"""Of prospects, this many are 13 MB of texts."""

FRESH_MOST = 256
"""Written one by one, they would take 4 % of the time in which all is generated."""

SINCE = "since"
"""The column that is no text: when a record came, in seconds."""


class Slots(Generic[Value]):
    """Values that take so many bytes each at most; the last of them are yet to be written."""

    def __init__(self, scratch: Scratch, size: int) -> None:
        self._file = scratch.file()
        self._size = size
        self._written = 0
        self._fresh: list[Value] = []

    def __len__(self) -> int:
        return self._written + len(self._fresh)

    def __getitem__(self, number: int) -> Value:
        if number < self._written:
            return self._value(self._file.read(self._size, number * self._size))
        return self._fresh[number - self._written]

    def __setitem__(self, number: int, value: Value) -> None:
        if number >= self._written:
            self._fresh[number - self._written] = value
        else:
            self._file.write(self._cells(value), number * self._size)

    def append(self, value: Value) -> int:
        """Add one, and tell its number."""
        self._fresh.append(value)
        if len(self._fresh) == FRESH_MOST:
            self._write()
        return len(self) - 1

    def between(self, first: int, last: int) -> list[Value]:
        """Give those from one to before another."""
        self._write()
        size = self._size
        cells = memoryview(self._file.read(size * (last - first), size * first))
        return [self._value(cells[start : start + size]) for start in range(0, len(cells), size)]

    def _write(self) -> None:
        cells = b"".join(self._cells(value).ljust(self._size) for value in self._fresh)
        self._file.write(cells, self._written * self._size)
        self._written += len(self._fresh)
        self._fresh = []

    def _cells(self, value: Value) -> bytes:
        cells = marshal.dumps(value)
        assert len(cells) <= self._size, f"{len(cells)} bytes: {value}"
        return cells

    def _value(self, cells: bytes | memoryview) -> Value:
        value: Value = marshal.loads(cells)  # noqa: S302 - nobody else can have written it
        return value


class Records:
    """Records that have the same columns."""

    def __init__(self, scratch: Scratch, columns: tuple[str, ...], size: int) -> None:
        self.columns = columns
        self._cells = itemgetter(*columns)
        self._slots: Slots[tuple[Any, ...]] = Slots(scratch, size)

    def __len__(self) -> int:
        return len(self._slots)

    def __getitem__(self, number: int) -> Record:
        return dict(zip(self.columns, self._slots[number], strict=True))

    def __setitem__(self, number: int, record: Mapping[str, Any]) -> None:
        self._slots[number] = self._cells(record)

    def __iter__(self) -> Iterator[Record]:
        for first in range(0, len(self), ROWS_AT_ONCE):
            for cells in self._slots.between(first, min(first + ROWS_AT_ONCE, len(self))):
                yield dict(zip(self.columns, cells, strict=True))

    def append(self, record: Mapping[str, Any]) -> int:
        """Add one, and tell its number."""
        return self._slots.append(self._cells(record))

    def tables(self, order: Ints | None = None) -> Iterator[Table]:
        """Show them, or some, as tables of a bounded size; texts, but for moments."""
        count = len(self) if order is None else len(order)
        for first in range(0, max(count, 1), ROWS_AT_ONCE):
            last = min(first + ROWS_AT_ONCE, count)
            if order is None:
                rows = self._slots.between(first, last)
            else:
                rows = [self._slots[number] for number in order[first:last].tolist()]
            columns = zip(*rows, strict=True) if rows else [()] * len(self.columns)
            yield pa.table(
                {
                    name: pa.array(cells, pa.int64() if name == SINCE else pa.string())
                    for name, cells in zip(self.columns, columns, strict=True)
                }
            )
