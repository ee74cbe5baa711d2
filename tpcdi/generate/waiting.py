"""Rows of a file whose time is to come: on disk, by when they are due."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tpcdi.generate.columns import Table
from tpcdi.generate.scratch import File, Scratch

TRADE, CASH, HOLDING = "Trade.txt", "CashTransaction.txt", "HoldingHistory.txt"
WATCH = "WatchHistory.txt"
DUE = {TRADE: "T_DTS", CASH: "CT_DTS", HOLDING: "due", WATCH: "W_DTS"}
"""The column that says when a row's time comes."""

ROWS_AT_ONCE = 65_536


class Part:
    """Rows in pieces, in the order in which they came."""

    def __init__(self, file: File) -> None:
        self.file = file
        self._pieces: list[tuple[int, int]] = []
        self._end = 0

    def put(self, rows: Table) -> None:
        """Add rows."""
        written = pa.BufferOutputStream()
        with pa.ipc.new_stream(written, rows.schema) as stream:
            stream.write_table(rows)
        data = written.getvalue()
        self.file.write(data, self._end)
        self._pieces.append((data.size, self._end))
        self._end += data.size

    def pieces(self) -> Iterator[Table]:
        """Give the rows."""
        return (pa.ipc.open_stream(self.file.read(*piece)).read_all() for piece in self._pieces)


class Waiting:
    """What waits, by file, in parts between some moments: what is in one is often due at once."""

    def __init__(self, scratch: Scratch, bounds: Sequence[int] = ()) -> None:
        self._scratch = scratch
        self._bounds = bounds
        self._parts: dict[str, dict[int, Part]] = {file: {} for file in DUE}
        self._spare: list[File] = []

    def put(self, file: str, rows: Table) -> None:
        """Let rows wait."""
        times = rows[DUE[file]].to_numpy().astype(np.int64)
        numbers = np.searchsorted(self._bounds, times, "right")
        order = np.argsort(numbers, kind="stable")
        rows, numbers = rows.take(pa.array(order)), numbers[order]
        cuts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
        for start, end in itertools.pairwise([*cuts, len(numbers)]):
            self._put(file, int(numbers[start]), rows.slice(start, end - start))

    def take(self, file: str, until: int) -> list[Table]:
        """Take the rows that are due before a moment; of those of one time the first first."""
        due: list[Table] = []
        for number in self._begun(file, until):
            part = self._parts[file].pop(number)
            if number < len(self._bounds) and self._bounds[number] <= until:
                due += part.pieces()
            else:
                due += self._take(file, number, part, until)
            self._spare.append(part.file)
        return due

    def count(self, until: int) -> int:
        """Count the rows that are due before a moment."""
        return sum(
            pc.sum(before(rows[DUE[file]], until)).as_py() or 0
            for file, parts in self._parts.items()
            for number in self._begun(file, until)
            for rows in parts[number].pieces()
        )

    def pieces(self, file: str) -> Iterator[Table]:
        """Give all that waits."""
        for _, part in sorted(self._parts[file].items()):
            yield from part.pieces()

    def _take(self, file: str, number: int, part: Part, until: int) -> Iterator[Table]:
        left: list[Table] = []
        for rows in part.pieces():
            is_due = before(rows[DUE[file]], until)
            yield rows.filter(is_due)
            left.append(rows.filter(pc.invert(is_due)))
            if sum(each.num_rows for each in left) > ROWS_AT_ONCE:
                self._put(file, number, pa.concat_tables(left))
                left = []
        if left:
            self._put(file, number, pa.concat_tables(left))

    def _put(self, file: str, number: int, rows: Table) -> None:
        parts = self._parts[file]
        if number not in parts:
            parts[number] = Part(self._spare.pop() if self._spare else self._scratch.file())
        parts[number].put(rows)

    def _begun(self, file: str, until: int) -> list[int]:
        starts = [0, *self._bounds]
        return sorted(number for number in self._parts[file] if starts[number] < until)


def before(times: pa.ChunkedArray, moment: int) -> pa.ChunkedArray:
    """Tell which times are before a moment."""
    return pc.less(times, pa.scalar(moment, pa.timestamp("s")))
