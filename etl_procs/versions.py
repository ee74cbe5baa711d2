"""Versions: rows of a dimension, sorted so that a key's version as of a moment is found at once.

Each key has a code of 64 bits, well spread: rows lie by code and moment. A directory tells by the
first bits of a code where its rows are, a few, and halving finds the version there. So a search
touches three places that no cache holds, however many rows there are. Codes of texts may coincide:
what is found is compared with what was asked, and where it differs, SQL has to answer.

Versions lie in a stack: a key is answered by the first that knows it. Newer versions of some keys
are put on top; when they are not much fewer than what lies below them, the two are merged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import table_of
from etl_procs.columns import ARROW, Type
from etl_procs.model import Lookup
from etl_procs.records import (
    Codes,
    Numbers,
    Places,
    Records,
    Rows,
    compact,
    expanded,
    joined,
)

Texts = npt.NDArray[np.bytes_]
Flags = npt.NDArray[np.bool_]

SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio: numbers that follow each other come to lie far apart."""
MOMENT_BYTES_MAX = 64
ROOM = 1.5
"""So many times as many rows as begin in one place on average are searched there at first."""
AT_ONCE = 16_384
"""So many keys are looked for at once: what was touched for them is in a cache when it is touched
again. A hundred thousand in ten million rows take a tenth less."""
EARLIEST = {Type.INTEGER: -(2**63), Type.TEXT: ""}

RATIO = 8
"""How much smaller than the one below it the top of the stack stays: it is merged otherwise."""

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
        self.answer = pa.schema([(name, _held(types[name])) for name in lookup.gives])
        """What is given, as it is held."""
        self._rows = pa.schema([(str(n), type_) for n, type_ in enumerate(self.columns)])
        self.is_exact = self.keys == [pa.int64()]
        """Whether two keys never have one code."""

    def table(self, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
        """Make a table of rows as SQL gives them: the key, the moment, what is given."""
        return table_of(rows, self._rows)

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
        ranks = np.searchsorted(texts, self.texts, "right") - 1
        return ranks.astype(np.int32)[self.values]


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
    records: Records
    """In columns: the keys, where codes may coincide, and what is given."""
    texts: Texts | None
    """What the moments stand for, where they are texts."""
    starts: npt.NDArray[np.int32]
    """The directory: where the rows begin whose codes have these first bits."""
    shift: np.uint64
    halvings: int
    """How many find a place among the rows that begin there, if they are as many as usual."""

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
        held = [*([] if layout.is_exact else keys), *map(compact, rest)]
        return cls._in_order(layout, Records.of(codes, moments, held, order), texts)

    @classmethod
    def _in_order(cls, layout: Layout, records: Records, texts: Texts | None) -> "Versions":
        codes = records.rows["code"]
        bits = max(len(codes).bit_length() - 1, 1)
        shift = np.uint64(64 - bits)
        counts = np.bincount((codes >> shift).astype(np.int64), minlength=1 << bits)
        starts = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=starts[1:])
        usual = ROOM * len(codes) / max(int(np.count_nonzero(counts)), 1)
        return cls(layout, records, texts, starts, shift, int(usual).bit_length())

    def __len__(self) -> int:
        return len(self.records.rows)

    @property
    def nbytes(self) -> int:
        """Tell how much memory it takes."""
        texts = 0 if self.texts is None else self.texts.nbytes
        return self.records.nbytes + self.starts.nbytes + texts

    def given(self, rows: Rows, places: Places) -> list[pa.Array]:
        """Give what is given of the rows that `find` found at these places."""
        numbers = range(self._keys, self._keys + len(self.layout.given))
        return [self.records.column(number, rows, places) for number in numbers]

    @property
    def _keys(self) -> int:
        """Tell how many of the columns are the key's."""
        return 0 if self.layout.is_exact else len(self.layout.keys)

    def find(self, asked: Asked) -> tuple[Places, Rows]:
        """Tell, for each key, the place of its version, or one of the words above; and give the
        rows of these places, with any row where there is none.
        """
        count = len(asked.codes)
        places, rows = np.full(count, ELSEWHERE), np.empty(count, self.records.rows.dtype)
        if not len(self):
            return places, rows
        moments = None if asked.moments is None else asked.moments.among(self.texts)
        for first in range(0, count, AT_ONCE):
            some = slice(first, first + AT_ONCE)
            keys = [key[some] for key in asked.keys]
            of = None if moments is None else moments[some]
            places[some] = self._find(asked.codes[some], keys, of, rows[some])
        return places, rows

    def _find(
        self, codes: Codes, keys: Sequence[pa.Array], moments: Numbers | None, rows: Rows
    ) -> Places:
        bucket = (codes >> self.shift).astype(np.int64)
        low = self.starts.take(bucket, mode="clip").astype(np.int64)
        low = np.minimum(self._after(low, codes, moments, self.halvings), len(self))
        places = low - 1
        self.records.rows.take(places, out=rows, mode="clip")
        missed = np.flatnonzero((rows["code"] != codes) | (low == 0))
        compared = places
        if len(missed):
            ahead = np.minimum(low[missed], len(self) - 1)
            self.records.replace(rows, missed, ahead)
            known = (rows["code"][missed] == codes[missed]) & (low[missed] == ahead)
            compared = places.copy()
            compared[missed] = ahead
            first = ahead if self.layout.lookup.or_earliest else NOTHING
            places[missed] = np.where(known, first, ELSEWHERE)
        if not self.layout.is_exact:
            same = self._same(rows, compared, keys)
            places[(places != ELSEWHERE) & ~same] = DOUBTFUL
        return places

    def _after(self, low: Places, codes: Codes, moments: Numbers | None, halvings: int) -> Places:
        """Find the first row after each key and moment, from `low` on. Where more rows begin there
        than so many halvings tell apart, go on behind them.
        """
        end = low + ((1 << halvings) - 1)
        for halving in reversed(range(halvings)):
            before = self._before(low + ((1 << halving) - 1), codes, moments)
            low += before.astype(np.int64) << halving
        left = np.flatnonzero((low == end) & (end < len(self)))
        if len(left):
            rest = None if moments is None else moments[left]
            low[left] = self._after(low[left], codes[left], rest, halvings + 1)
        return low

    def _before(self, places: Places, codes: Codes, moments: Numbers | None) -> Flags:
        """Tell which rows are not after what is asked; behind the last, it stands for all."""
        heads = self.records.head(places)
        held: Codes = heads["code"]
        if moments is None:
            return held <= codes
        before: Flags = held == codes
        before &= heads["moment"] <= moments
        before |= held < codes
        return before

    def _same(self, rows: Rows, places: Places, keys: Sequence[pa.Array]) -> Flags:
        same = np.ones(len(places), np.bool_)
        for number, asked in enumerate(keys):
            equal = pc.equal(self.records.column(number, rows, places), asked)
            same &= equal.fill_null(False).to_numpy(zero_copy_only=False)
        return same

    def with_newer(self, newer: "Versions") -> "Versions":
        """Take what is newer of the keys that it has, and the rest from here."""
        mine, theirs = self.records.rows["code"], newer.records.rows["code"]
        at = np.minimum(np.searchsorted(theirs, mine), len(newer) - 1)
        kept, new = np.flatnonzero(theirs[at] != mine), np.arange(len(newer))
        rows = self.records.rows.take(kept)
        codes = np.concatenate([rows["code"], theirs])
        moments, texts = self._moments_with(newer, rows)
        columns = [
            joined(
                self.records.column(number, rows, kept),
                newer.records.column(number, newer.records.rows, new),
            )
            for number in range(self._keys + len(self.layout.given))
        ]
        order = np.argsort(codes, kind="stable")
        return self._in_order(self.layout, Records.of(codes, moments, columns, order), texts)

    def _moments_with(self, newer: "Versions", kept: Rows) -> tuple[Numbers | None, Texts | None]:
        """Put the moments of some rows and of all newer ones together."""
        if self.layout.moment is None:
            return None, None
        mine, theirs, texts = kept["moment"], newer.records.rows["moment"], None
        if self.texts is not None and newer.texts is not None:
            texts = np.union1d(self.texts, newer.texts)
            mine = np.searchsorted(texts, self.texts).astype(np.int32)[mine]
            theirs = np.searchsorted(texts, newer.texts).astype(np.int32)[theirs]
        return np.concatenate([mine, theirs]), texts


class Stack:
    """Versions of one lookup's rows."""

    def __init__(self, layout: Layout, base: Versions) -> None:
        self._layout = layout
        self._held = [base]

    def __len__(self) -> int:
        return sum(map(len, self._held))

    @property
    def base(self) -> Versions:
        """Give the oldest and largest."""
        return self._held[0]

    @property
    def nbytes(self) -> int:
        """Tell how much memory it takes."""
        return sum(versions.nbytes for versions in self._held)

    def put_on_top(self, newer: Versions) -> None:
        """Take in all versions of some keys, if there are some."""
        if not len(newer):
            return
        stack = [*self._held, newer]
        while len(stack) > 1 and len(stack[-1]) * RATIO > len(stack[-2]):
            newest = stack.pop()
            stack[-1] = stack[-1].with_newer(newest)
        self._held = stack

    def find(self, asked: Asked, changed: Codes) -> tuple[pa.Table, Places]:
        """Give the rows that answer, and for each key the place of its own among them, or NOTHING,
        or DOUBTFUL.
        """
        places = np.full(len(asked.codes), NOTHING)
        left = np.arange(len(places))
        if len(changed):
            at = np.minimum(np.searchsorted(changed, asked.codes), len(changed) - 1)
            doubtful = changed[at] == asked.codes
            places[doubtful] = DOUBTFUL
            left = np.flatnonzero(~doubtful)
        pieces, count = [], 0
        for versions in reversed(self._held):
            found, rows = versions.find(asked if len(left) == len(places) else asked.take(left))
            here = np.flatnonzero(found >= 0)
            pieces.append(self._rows(versions.given(rows.take(here), found[here])))
            places[left] = np.where(found == ELSEWHERE, NOTHING, found)
            places[left[here]] = np.arange(count, count + len(here))
            count += len(here)
            left = left[found == ELSEWHERE]
            if not len(left):
                break
        return pa.concat_tables(pieces), places

    def _rows(self, columns: list[pa.Array]) -> pa.Table:
        names = self._layout.given.names
        return pa.Table.from_arrays(list(map(expanded, columns)), names=names)


def _held(type_: Type) -> pa.DataType:
    """Texts of ten million rows may have more bytes than 32 bits can count."""
    return pa.large_string() if type_ is Type.TEXT else ARROW[type_]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole
