"""Files without a name, for what is too much to hold; they end with the process, however that ends.

No scale is too large for memory, so nothing that grows with it may be there. A column, a number for
each of many records, is mapped from such a file: the kernel can take its memory back.
"""

import mmap
import os
import random
import weakref
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import numpy.typing as npt

ROOM_LEAST = 1_024


class File:
    """A file that nobody else sees."""

    def __init__(self, folder: Path | None) -> None:
        with TemporaryFile(dir=folder) as file:
            self.handle = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.handle)

    def write(self, data: Any, at: int) -> None:
        """Write all of it; what does not fit on the disk is an error here, and no signal."""
        left = memoryview(data)
        while left:
            written = os.pwrite(self.handle, left, at)
            left, at = left[written:], at + written

    def read(self, size: int, at: int) -> bytes:
        """Read what is there."""
        return os.pread(self.handle, size, at)


class Scratch:
    """Where such files are: in a folder, or where temporary files are."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def file(self) -> File:
        """Begin one."""
        return File(self._folder)


class Column:
    """A number for each of many records."""

    def __init__(self, scratch: Scratch, kind: npt.DTypeLike = np.int64) -> None:
        self._file = scratch.file()
        self._kind = np.dtype(kind)
        self._cells: npt.NDArray[Any] = np.empty(0, self._kind)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Any:
        return self._cells.item(number)

    def __setitem__(self, number: int, value: Any) -> None:
        self._cells[number] = value

    @property
    def values(self) -> npt.NDArray[Any]:
        """Show them, as they are: who changes that changes them."""
        return self._cells[: self._count]

    def append(self, value: Any) -> None:
        """Add one."""
        self._make_room(1)
        self._cells[self._count] = value
        self._count += 1

    def extend(self, values: npt.NDArray[Any]) -> "Column":
        """Add some."""
        self._make_room(len(values))
        self._cells[self._count : self._count + len(values)] = values
        self._count += len(values)
        return self

    def shuffle(self, dice: random.Random) -> None:
        """Bring them into any order."""
        cells: Any = self.values.data
        dice.shuffle(cells)

    def drop(self, count: int) -> None:
        """Remove the first."""
        self._cells[: self._count - count] = self._cells[count : self._count]
        self._count -= count

    def _make_room(self, count: int) -> None:
        room = len(self._cells)
        if self._count + count > room:
            size = max(2 * room, self._count + count, ROOM_LEAST) * self._kind.itemsize
            # A page that finds no room on the disk when it is first touched would end the process.
            os.posix_fallocate(self._file.handle, 0, size)
            self._cells = np.frombuffer(mmap.mmap(self._file.handle, size), self._kind)
