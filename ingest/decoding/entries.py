"""Entries: what a record holds, one by one: a tuple each, each in its place and with its number.

A plain record is one entry, and so is one that its head makes a punctuation or a dead letter. A
frame holds as many as its header says, and an empty one of them is no tuple.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.decoding import texts
from ingest.decoding.heads import Heads
from ingest.records import SEPARATOR

MISCOUNTED = "not the tuples that its header `frame` says: {}"


class Entries(NamedTuple):
    """The entries of records, in the order of the records."""

    record: np.ndarray
    number: np.ndarray
    """Which of its record's entries it is, from 0 on."""
    is_last: np.ndarray
    is_numbered: np.ndarray
    """A frame that is not one uses up no number: who sends it again, right this time, is heard."""
    values: pa.BinaryArray
    nothing: Sequence[int]
    """The empty ones."""
    reasons: Mapping[int, str]
    """Why an entry cannot be read."""
    data: Sequence[Any] | None = None
    """What is in them, where that is known: objects as JSON has them."""


def entries(values: pa.BinaryArray, heads: Heads) -> Entries:
    """Cut the values of records with heads."""
    framed = (heads.frame > 0) & texts.flags(values.is_valid())
    framed[[*heads.reasons]] = False
    parts = pc.split_pattern(pc.if_else(pa.array(framed), values, None), SEPARATOR)
    found = pc.list_value_length(parts).fill_null(0).to_numpy()
    is_whole = ~framed | (found != heads.frame)
    counts = np.where(is_whole, 1, found)
    first = np.cumsum(counts) - counts
    record = np.repeat(np.arange(len(values)), counts)
    number = np.arange(len(record)) - first[record]
    cut = parts.flatten()
    if is_whole.any():
        in_parts = (np.cumsum(found) - found)[record] + number
        at = np.where(is_whole[record], len(cut) + record, in_parts)
        cut = pa.concat_arrays([cut, values]).take(pa.array(at))
    empty = pc.equal(pc.binary_length(cut), 0).fill_null(False)
    return Entries(
        record,
        number,
        number == counts[record] - 1,
        ~(is_whole & (heads.frame > 0))[record],
        cut,
        texts.rows(texts.flags(empty) & ~is_whole[record]),
        {
            int(first[row]): MISCOUNTED.format(heads.frame[row])
            for row in texts.rows(framed & is_whole)
        },
    )
