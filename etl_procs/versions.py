"""Versions: rows of a dimension, sorted so that a key's version as of a moment is found at once.

Each key has a code of 64 bits, well spread: rows lie by code and moment. A directory tells by the
first bits of a code where its rows are, two or so, and halving finds the version there. So a
search touches a few places, however many rows there are. Codes of texts may coincide: what is
found is compared with what was asked, and where it differs, SQL has to answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.columns import ARROW, Type
from etl_procs.model import Lookup

Codes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]
Texts = npt.NDArray[np.bytes_]
Flags = npt.NDArray[np.bool_]

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio: numbers that follow each other come to lie far apart."""
MOMENT_BYTES_MAX = 64
FIRST, FEW_TEXTS = 10_000, 1_000
EARLIEST = {Type.INTEGER: -(2**63), Type.TEXT: ""}

NOTHING, ELSEWHERE, DOUBTFUL = -1, -2, -3
"""Instead of a place: the key has no version then; nothing is known of it here; ask SQL."""


class Unsortable(Exception):
    """Texts that do not sort as bytes of a bounded width: SQL has to answer."""


class Layout:
    """How a lookup's rows are held; worked out once."""

    def __init__(self, lookup: Lookup) -> None:
        types = {column.name: column.type for column in lookup.table.columns.columns}
        self.lookup = lookup
        self.keys = [_held(types[name]) for name in lookup.key]
        self.moment = types[lookup.at] if lookup.at else None
        self.columns = [*self.keys, *([_held(self.moment)] if self.moment else [])]
        self.columns += [_held(types[name]) for name in lookup.gives]
        self.given = pa.schema([(name, ARROW[types[name]]) for name in lookup.gives])
        self.is_exact = self.keys == [pa.int64()]
        """Whether two keys never have one code."""

    def table(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        """Make a table of rows as SQL gives them: the key, the moment, what is given."""
        columns = list(zip(*rows, strict=True)) or [()] * len(self.columns)
        arrays = [pa.array(c, t) for c, t in zip(columns, self.columns, strict=True)]
        return pa.Table.from_arrays(arrays, names=list(map(str, range(len(arrays)))))

    def gone(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Make the row that says that a key has no version."""
        earliest = [EARLIEST[self.moment]] if self.moment else []
        return (*key, *earliest, *[None] * len(self.given))

    def codes(self, keys: Sequence[pa.Array]) -> Codes:
        """Give each key its code."""
        codes = np.zeros(len(keys[0]), np.uint64)
        for values in keys:
            if pa.types.is_integer(values.type):
                numbers = values.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
            else:
                hashes = map(hash, values.to_pylist())
                numbers = np.fromiter(hashes, np.int64, len(values)).view(np.uint64)
            codes = (codes ^ (codes >> np.uint64(29)) ^ numbers) * SPREAD
        return codes

    def moments(self, values: pa.Array) -> "Moments":
        """Make moments ready to be compared."""
        if self.moment is Type.INTEGER:
            return Moments(values.fill_null(0).to_numpy(zero_copy_only=False))
        encoded = values.fill_null("").dictionary_encode()
        texts = encoded.dictionary.cast(pa.large_binary())
        unsortable = pc.match_substring(texts, b"\0").to_numpy(zero_copy_only=False)
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        return Moments(indices, _bytes(texts), unsortable)


@dataclass(frozen=True, slots=True)
class Moments:
    """Numbers; or the places of texts, of which each is there once, as bytes."""

    values: Numbers
    texts: Texts | None = None
    unsortable: Flags | None = None
    """Which texts have NUL characters: at the end, they are not seen. Of what is asked that does no
    harm: nothing that is held can lie between a text and the same with NUL.
    """

    def take(self, places: Places) -> "Moments":
        """Give some of them."""
        return Moments(self.values[places], self.texts, self.unsortable)

    def ranked(self) -> tuple[Numbers, Texts | None]:
        """Give numbers that lie as the moments do, and the texts that they stand for, in order."""
        if self.texts is None or self.unsortable is None:
            return self.values, None
        if self.texts.itemsize > MOMENT_BYTES_MAX or self.unsortable.any():
            raise Unsortable
        order = np.argsort(self.texts)
        ranks = np.empty(len(order), np.int32)
        ranks[order] = np.arange(len(order))
        return ranks[self.values], self.texts[order]

    def among(self, texts: Texts | None) -> Numbers:
        """Give the number of the last of `texts` that is not after each; -1 before the first."""
        if texts is None or self.texts is None:
            return self.values
        return (np.searchsorted(texts, self.texts, "right") - 1)[self.values]


def _bytes(texts: pa.Array) -> Texts:
    lengths = pc.min_max(pc.binary_length(texts)).as_py()
    longest = lengths["max"] or 1
    if lengths["min"] == longest:  # as dates are: the bytes lie there as they are needed
        first = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset]
        return np.frombuffer(texts.buffers()[2], f"S{longest}", len(texts), int(first))
    # One byte more tells as well as all of them how a longer text compares with what is held.
    return np.array(texts.to_pylist(), f"S{min(longest, MOMENT_BYTES_MAX + 1)}")


@dataclass(frozen=True, slots=True)
class Asked:
    """What is looked for."""

    codes: Codes
    keys: Sequence[pa.Array]
    moments: Moments | None

    def take(self, places: Places) -> "Asked":
        """Give some of them."""
        moments = None if self.moments is None else self.moments.take(places)
        return Asked(self.codes[places], [key.take(pa.array(places)) for key in self.keys], moments)


@dataclass(frozen=True, slots=True)
class Versions:
    """All versions of some keys, in order; a key that has none is there with a row of NULLs."""

    layout: Layout
    codes: Codes
    moments: Numbers | None
    texts: Texts | None
    """What the moments stand for, where they are texts."""
    keys: list[pa.Array]
    """Where codes may coincide: the keys themselves."""
    given: list[pa.Array]
    starts: npt.NDArray[np.int32]
    """The directory: where the rows begin whose codes have these first bits."""
    shift: np.uint64
    halvings: int

    @classmethod
    def of(cls, layout: Layout, rows: pa.Table) -> "Versions":
        """Arrange rows."""
        columns = [_whole(column) for column in rows.columns]
        keys, rest = columns[: len(layout.keys)], columns[len(layout.keys) :]
        codes, moments, texts = layout.codes(keys), None, None
        if layout.moment:
            moments, texts = layout.moments(rest.pop(0)).ranked()
            order = np.lexsort((moments, codes))
        else:
            order = np.argsort(codes, kind="stable")
        return cls._in_order(
            layout,
            codes[order],
            None if moments is None else moments[order],
            texts,
            [key.take(pa.array(order)) for key in ([] if layout.is_exact else keys)],
            [_compact(column).take(pa.array(order)) for column in rest],
        )

    @classmethod
    def _in_order(
        cls,
        layout: Layout,
        codes: Codes,
        moments: Numbers | None,
        texts: Texts | None,
        keys: list[pa.Array],
        given: list[pa.Array],
    ) -> "Versions":
        bits = max(len(codes).bit_length() - 1, 1)
        shift = np.uint64(64 - bits)
        counts = np.bincount((codes >> shift).astype(np.int64), minlength=1 << bits)
        starts = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=starts[1:])
        halvings = int(counts.max()).bit_length()
        return cls(layout, codes, moments, texts, keys, given, starts, shift, halvings)

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """Tell how much memory it takes."""
        arrays: list[Any] = [self.codes, self.starts]
        arrays += [array for array in (self.moments, self.texts) if array is not None]
        arrays += [*self.keys, *self.given]
        return sum(int(array.nbytes) for array in arrays)

    def find(self, asked: Asked) -> Places:
        """Tell, for each key, the place of its version; or one of the words above."""
        codes = asked.codes
        if not len(self):
            return np.full(len(codes), ELSEWHERE)
        low = self._after(asked)
        last = len(self.codes) - 1
        places = low - 1
        missed = (places < 0) | (self.codes[np.maximum(places, 0)] != codes)
        ahead = np.minimum(low, last)
        known = missed & (low <= last) & (self.codes[ahead] == codes)
        compared = np.where(missed, ahead, places)
        if self.layout.lookup.or_earliest:
            places = np.where(known, ahead, places)
        else:
            places[known] = NOTHING
        places[missed & ~known] = ELSEWHERE
        if self.keys:
            same = self._same(compared, asked.keys)
            places[(places != ELSEWHERE) & ~same] = DOUBTFUL
        return places

    def _after(self, asked: Asked) -> Places:
        """Find the first row after each key and moment."""
        bucket = (asked.codes >> self.shift).astype(np.int64)
        low = self.starts[bucket].astype(np.int64)
        high = self.starts[bucket + 1].astype(np.int64)
        last = len(self.codes) - 1
        moments = None if asked.moments is None else asked.moments.among(self.texts)
        for _ in range(self.halvings):
            middle = (low + high) >> 1
            at = np.minimum(middle, last)
            codes = self.codes[at]
            if self.moments is None or moments is None:
                before = codes <= asked.codes
            else:
                before = codes < asked.codes
                before |= (codes == asked.codes) & (self.moments[at] <= moments)
            before &= low < high
            low = np.where(before, middle + 1, low)
            high = np.where(before, high, middle)
        return low

    def _same(self, places: Places, keys: Sequence[pa.Array]) -> Flags:
        same = np.ones(len(places), np.bool_)
        for held, asked in zip(self.keys, keys, strict=True):
            equal = pc.equal(held.take(pa.array(places)), asked)
            same &= equal.fill_null(False).to_numpy(zero_copy_only=False)
        return same

    def with_newer(self, newer: "Versions") -> "Versions":
        """Take what is newer of the keys that it has, and the rest from here."""
        at = np.minimum(np.searchsorted(newer.codes, self.codes), len(newer) - 1)
        kept = np.flatnonzero(newer.codes[at] != self.codes)
        old = pa.array(kept)
        codes = np.concatenate([self.codes[kept], newer.codes])
        order = np.argsort(codes, kind="stable")
        rows = pa.array(order)
        moments, texts = self._moments_with(newer, kept)

        def merged(mine: list[pa.Array], theirs: list[pa.Array]) -> list[pa.Array]:
            pairs = zip(mine, theirs, strict=True)
            return [_joined(one.take(old), other).take(rows) for one, other in pairs]

        return self._in_order(
            self.layout,
            codes[order],
            None if moments is None else moments[order],
            texts,
            merged(self.keys, newer.keys),
            merged(self.given, newer.given),
        )

    def _moments_with(self, newer: "Versions", kept: Places) -> tuple[Numbers | None, Texts | None]:
        """Put the moments of some rows and of all newer ones together."""
        if self.moments is None or newer.moments is None:
            return None, None
        mine, theirs, texts = self.moments[kept], newer.moments, None
        if self.texts is not None and newer.texts is not None:
            texts = np.union1d(self.texts, newer.texts)
            mine = np.searchsorted(texts, self.texts).astype(np.int32)[mine]
            theirs = np.searchsorted(texts, newer.texts).astype(np.int32)[theirs]
        return np.concatenate([mine, theirs]), texts


def _held(type_: Type) -> pa.DataType:
    """Texts of ten million rows may have more bytes than 32 bits can count."""
    return pa.large_string() if type_ is Type.TEXT else ARROW[type_]


def _compact(column: pa.Array) -> pa.Array:
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


def _joined(one: pa.Array, other: pa.Array) -> pa.Array:
    if one.type != other.type:
        one, other = expanded(one), expanded(other)
    return pa.concat_arrays([one, other])


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
