"""Records: columns side by side, so that all of a row lies in one place of memory.

To touch a place that no cache holds takes as long as all that is computed with it: 8 ns, and a row
that is spread over an array for each column takes that for each. So numbers lie in records, and
texts too, as numbers, where there are few different ones; other texts lie in columns beside them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Codes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]
Rows = npt.NDArray[np.void]

HEAD = ("code", "moment")
"""What is searched by lies in a record's first piece."""
FIRST, FEW_TEXTS = 10_000, 1_000
SMALL = np.iinfo(np.int32)
PIECE = 16
"""A record has a multiple of so many bytes. 16 or 32 are moved without a call for each, so more of
them are on their way at once: rows of 32 bytes are read in half the time of those of 24."""


@dataclass(frozen=True, slots=True)
class Records:
    """Rows in an order: of each its code, its moment if there are moments, and its columns."""

    rows: Rows
    numbered: dict[int, pa.Array]
    """What the numbers stand for, in columns that hold few different texts."""
    texts: dict[int, pa.Array]
    """The columns that hold others."""

    @classmethod
    def of(
        cls, codes: Codes, moments: Numbers | None, columns: Sequence[pa.Array], order: Places
    ) -> "Records":
        """Lay columns side by side, in an order."""
        fields: dict[str, Numbers] = {"code": codes}
        if moments is not None:
            fields["moment"] = _smaller(moments)
        numbered, texts = {}, {}
        for number, column in enumerate(columns):
            if pa.types.is_large_string(column.type):
                texts[number] = column.take(pa.array(order))
                continue
            if pa.types.is_dictionary(column.type):
                numbered[number], column = column.dictionary, column.indices
            if column.null_count:
                fields[_null(number)] = column.is_null().to_numpy(zero_copy_only=False)
                column = column.fill_null(0)
            fields[str(number)] = _smaller(column.to_numpy(zero_copy_only=False))
        rows = np.empty(len(codes), _type(fields))
        for name, values in fields.items():
            rows[name] = values.take(order)
        return cls(rows, numbered, texts)

    def head(self, places: Places) -> Rows:
        """Give the codes and moments of some; of the last, for what lies behind it."""
        return self.rows.take(places, mode="clip")

    def replace(self, rows: Rows, at: Places, places: Places) -> None:
        """Put the rows of some places among others."""
        whole = f"V{self.rows.itemsize}"  # field by field would take seven times as long
        rows.view(whole)[at] = self.rows.view(whole)[places]

    @property
    def nbytes(self) -> int:
        """Tell how much memory they take."""
        arrays = [self.rows, *self.numbered.values(), *self.texts.values()]
        return sum(int(array.nbytes) for array in arrays)

    def column(self, number: int, rows: Rows, places: Places) -> pa.Array:
        """Give a column of the rows that were taken from these places."""
        if number in self.texts:
            return self.texts[number].take(pa.array(places))
        names, values = rows.dtype.names or (), rows[str(number)]
        nulls = rows[_null(number)].copy() if _null(number) in names else None
        if number in self.numbered:
            indices = pa.array(values.astype(np.int32), mask=nulls)
            return pa.DictionaryArray.from_arrays(indices, self.numbered[number])
        is_real = values.dtype.kind == "f"
        return pa.array(values.astype(np.float64 if is_real else np.int64), mask=nulls)


def _type(fields: Mapping[str, Numbers]) -> np.dtype[np.void]:
    """Place fields so that little is empty between them: a moment may have 4 bytes, and 12 with
    its code.
    """
    sizes = {name: (4, 8, 1).index(values.itemsize) for name, values in fields.items()}
    names = sorted(fields, key=lambda name: (name not in HEAD, name != "code", sizes[name]))
    tight = np.dtype([(name, fields[name].dtype) for name in names], align=True)
    assert tight.fields is not None
    formats, offsets, *_ = zip(*(tight.fields[name] for name in names), strict=True)
    size = -(-tight.itemsize // PIECE) * PIECE
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})


def _null(number: int) -> str:
    return f"{number} is null"


def _smaller(values: Numbers) -> Numbers:
    """Hold integers in 32 bits, if they fit."""
    if values.dtype != np.int64 or not len(values):
        return values
    fit = SMALL.min <= values.min() and values.max() <= SMALL.max
    return values.astype(np.int32) if fit else values


def compact(column: pa.Array) -> pa.Array:
    """Hold texts of which there are few as their numbers: a third of the memory, and of what is
    touched. (To find out that there are many would cost more than a look at the first.)
    """
    if not pa.types.is_large_string(column.type):
        return column
    if len(column[:FIRST].unique()) > FEW_TEXTS:
        return column
    encoded = column.dictionary_encode()
    return encoded if len(encoded.dictionary) <= FEW_TEXTS else column


def expanded(column: pa.Array) -> pa.Array:
    """Give a column's values themselves."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def joined(one: pa.Array, other: pa.Array) -> pa.Array:
    """Put one column behind another."""
    if one.type != other.type:
        one, other = expanded(one), expanded(other)
    return pa.concat_arrays([one, other])
