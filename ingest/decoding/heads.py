"""Heads: what a record's headers say of its tuples, or why there are none in it.

Of a header that is there twice, the first counts. A bad one makes the whole record a dead letter.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.batch import FINISHED, TUPLES_OF_A_RECORD_MAX
from etl_procs.rules import ByInterval, ByPunctuation, Rule
from ingest import records as wire
from ingest.decoding import texts

FRAME_TUPLES_MAX = TUPLES_OF_A_RECORD_MAX - 1
BATCH_MAX = 10**18 - 1
NO_BATCH_ID = "its header `punctuation` is no batch id: a whole number"
NO_BATCH_IDS = "its header `punctuation` means nothing: the stream is not cut by punctuation"
NO_COMPLETE = (
    f"its header `complete` is no event time: a whole number from {2 - 2**63} to {2**63 - 2}"
)
NO_COMPLETES = "its header `complete` means nothing: the stream is not cut by event time"
NO_TIME = "its header `time` is no INTEGER (64 bits, no point, no exponent)"
NO_SEQ = "its header `seq` is no number of a tuple: 0 to 2^63-1, for the last of a frame too"
NO_FRAME = f"its header `frame` is no number of tuples: 1 to {FRAME_TUPLES_MAX:,}"
NO_SOURCE = f"its header `source` is no name: 1 to {wire.SOURCE_BYTES_MAX:,} bytes of UTF-8"
NOT_PAIRED = "of its headers `source` and `seq`, one is missing"
NO_OVERSIZE = "its header `oversize` is no number of bytes"
TOO_LONG = f"a tuple of {{}} bytes, more than {wire.TUPLE_BYTES_MAX:,}; this is its beginning"
HAS_VALUE = "its header `{}` makes it a punctuation, and it has a value"
NO_VERSION = f"its header `wire` is no version that is known here: {wire.VERSION}"
MARKS = (wire.PUNCTUATION, wire.COMPLETE, wire.FINISHED)
NUMBERS = (wire.PUNCTUATION, wire.COMPLETE, wire.SEQ, wire.TIME, wire.FRAME, wire.OVERSIZE)
HEADERS = (*NUMBERS, wire.FINISHED, wire.SOURCE, wire.WIRE)
SEQ_MAX = 2**63 - 1


class Heads(NamedTuple):
    """What is known of records by their headers."""

    source: pa.StringArray
    seq: pa.Int64Array
    time: pa.Int64Array
    frame: np.ndarray
    """How many tuples a frame has; 0 of what is none."""
    marks: dict[int, int]
    """What a record ends, if it is a punctuation."""
    reasons: dict[int, str]
    """Why a record is a dead letter."""


class Reader:
    """Reads the headers of a stream's records."""

    def __init__(self, rule: Rule | None) -> None:
        self._knows_batches = isinstance(rule, ByPunctuation)
        self._interval = rule.length if isinstance(rule, ByInterval) else 0

    def read(self, headers: pa.ListArray, values: pa.BinaryArray) -> Heads:
        """Read the headers of records with these values."""
        said = _Said(headers)
        frame = said.number(wire.FRAME)
        is_mark = said.has(wire.PUNCTUATION) | said.has(wire.COMPLETE) | said.has(wire.FINISHED)
        is_frame = ~is_mark & said.is_number(wire.FRAME, 1, FRAME_TUPLES_MAX)
        bad_frame = ~is_mark & said.has(wire.FRAME) & ~is_frame
        tuples = np.clip(frame, 1, FRAME_TUPLES_MAX)
        is_seq = said.is_number(wire.SEQ, 0, SEQ_MAX) & (
            said.number(wire.SEQ) <= SEQ_MAX - (tuples - 1)
        )
        is_source = said.is_source()
        reasons: dict[int, str] = {}

        def note(where: np.ndarray, reason: str) -> None:
            texts.add(reasons, texts.rows(where), reason)

        note(said.has(wire.WIRE) & ~said.is_text(wire.WIRE, wire.VERSION), NO_VERSION)
        marks = self._marks(said, values, note)
        note(said.has(wire.SOURCE) != said.has(wire.SEQ), NOT_PAIRED)
        note(said.has(wire.SOURCE) & ~is_source, NO_SOURCE)
        note(said.has(wire.SEQ) & ~is_seq, NO_SEQ)
        note(said.has(wire.TIME) & ~said.is_number(wire.TIME), NO_TIME)
        sizes = said.numbers(wire.OVERSIZE, said.is_number(wire.OVERSIZE, 0, SEQ_MAX))
        for row, size in sizes.items():
            reasons.setdefault(row, TOO_LONG.format(size))
        note(said.has(wire.OVERSIZE), NO_OVERSIZE)
        note(bad_frame, NO_FRAME)
        unnumbered = ~(is_source & is_seq & ~bad_frame)
        return Heads(
            said.texts(wire.SOURCE, but=unnumbered),
            pa.array(said.number(wire.SEQ), mask=unnumbered),
            pa.array(said.number(wire.TIME), mask=~said.is_number(wire.TIME)),
            np.where(is_frame, frame, 0),
            {row: mark for row, mark in marks.items() if row not in reasons},
            reasons,
        )

    def _marks(
        self, said: "_Said", values: pa.BinaryArray, note: Callable[[np.ndarray, str], None]
    ) -> dict[int, int]:
        """Give what records end; note what is wrong with those that are to end something."""
        marks = dict.fromkeys(texts.rows(said.has(wire.FINISHED)), FINISHED)
        if self._knows_batches:
            good = said.is_number(wire.PUNCTUATION, 0, BATCH_MAX)
            marks |= said.numbers(wire.PUNCTUATION, good)
            note(said.has(wire.PUNCTUATION) & ~good, NO_BATCH_ID)
        else:
            note(said.has(wire.PUNCTUATION), NO_BATCH_IDS)
        if self._interval:
            good = said.is_number(wire.COMPLETE, 1 - FINISHED, FINISHED - 1)
            times = said.numbers(wire.COMPLETE, good)
            marks |= {row: at // self._interval for row, at in times.items()}
            note(said.has(wire.COMPLETE) & ~good, NO_COMPLETE)
        else:
            note(said.has(wire.COMPLETE), NO_COMPLETES)
        if any(said.has(name).any() for name in MARKS):
            has_value = pc.greater(pc.binary_length(values), 0).fill_null(False)
            for name in MARKS:
                note(said.has(name) & texts.flags(has_value), HAS_VALUE.format(name))
        return marks


class _Said:
    """The headers that mean something, by name and record."""

    def __init__(self, headers: pa.ListArray) -> None:
        self._count = len(headers)
        given: dict[str, dict[int, bytes | None]] = {}
        flat = headers.flatten()
        for record, name, value in zip(
            pc.list_parent_indices(headers).to_pylist(),
            pc.struct_field(flat, 0).to_pylist(),
            pc.struct_field(flat, 1).to_pylist(),
            strict=True,
        ):
            if name in HEADERS:
                given.setdefault(name, {}).setdefault(record, value)
        self._has = {name: self._where(of) for name, of in given.items()}
        self._texts = {name: self._spread(of) for name, of in given.items()}
        self._numbers = {name: texts.whole(self._texts[name]) for name in given if name in NUMBERS}

    def has(self, name: str) -> np.ndarray:
        """Tell which records have a header."""
        return self._has.get(name, np.zeros(self._count, bool))

    def texts(self, name: str, *, but: np.ndarray | None = None) -> pa.StringArray:
        """Give its texts; null where there is none, or in some rows."""
        found = self._texts.get(name)
        if found is None:
            return pa.nulls(self._count, pa.string())
        return found if but is None else pc.if_else(pa.array(but), None, found)

    def is_text(self, name: str, text: str) -> np.ndarray:
        """Tell where a header is a text."""
        return texts.flags(pc.equal(self.texts(name), text).fill_null(False))

    def is_source(self) -> np.ndarray:
        """Tell where the source has a name that it may have."""
        names = self.texts(wire.SOURCE)
        size = pc.binary_length(names)
        good = pc.and_(pc.greater(size, 0), pc.less_equal(size, wire.SOURCE_BYTES_MAX))
        if texts.holds(names, b"\0"):
            good = pc.and_(good, pc.invert(pc.match_substring(names, "\0")))
        return texts.flags(good.fill_null(False))

    def number(self, name: str) -> np.ndarray:
        """Give its numbers; 0 where there is none."""
        found = self._numbers.get(name)
        return np.zeros(self._count, np.int64) if found is None else found.fill_null(0).to_numpy()

    def is_number(self, name: str, low: int | None = None, high: int | None = None) -> np.ndarray:
        """Tell where a header is a number; where one from 0 on is asked for, one without a sign."""
        found = self._numbers.get(name)
        if found is None:
            return np.zeros(self._count, bool)
        good = found.is_valid()
        if low is not None and high is not None:
            good = pc.and_kleene(
                good, pc.and_(pc.greater_equal(found, low), pc.less_equal(found, high))
            )
        if low is not None and low >= 0:
            signed = pc.match_substring_regex(self._texts[name], "^[+-]")
            good = pc.and_kleene(good, pc.invert(signed))
        return texts.flags(good.fill_null(False))

    def numbers(self, name: str, where: np.ndarray) -> dict[int, int]:
        """Give its numbers in some records."""
        found = self.number(name)
        return {row: int(found[row]) for row in texts.rows(where)}

    def _where(self, of: Mapping[int, object]) -> np.ndarray:
        there = np.zeros(self._count, bool)
        there[[*of]] = True
        return there

    def _spread(self, of: Mapping[int, bytes | None]) -> pa.StringArray:
        """Make texts of bytes, each in its record's row; null of what is none."""
        every: list[bytes | None] = [None] * self._count
        for record, value in of.items():
            every[record] = value
        given = pa.array(every, pa.binary())
        return texts.decoded(given, texts.flags(given.is_valid()).copy(), {})
