"""Numbers as PostgreSQL holds them, made of Arrow's by columns: days and microseconds since 2000,
and decimals as digits of base 10,000.

A decimal of Arrow's is an integer that counts units of its last place, in 16 bytes. Digits of base
10,000 are counted from the point, so to both of its sides the first and the last may be short.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DAYS, MICROSECONDS = 10_957, 946_684_800_000_000
"""What lies between 1970, from where Arrow counts, and 2000."""

BASE, PLACES = 10_000, 4
NARROW = 18
"""So many decimal places fit into 64 bits with a sign."""
WORD_BITS, WORDS = 32, 5
"""And the 41 that there can be, into so many words."""

Values = np.ndarray[Any, Any]


class Decimals(NamedTuple):
    """Decimals of one column: as many digits for each, those that are 0 too."""

    negative: Values
    weight: int
    """The first digit counts 10,000 to the power of this."""
    digits: list[Values]


def since_2000(column: pa.Array) -> pa.Array:
    """Give times as PostgreSQL counts them, and other values as they are."""
    if pa.types.is_date32(column.type):
        return pc.subtract(column.view(pa.int32()), pa.scalar(DAYS, pa.int32()))
    if pa.types.is_timestamp(column.type):
        return pc.subtract(column.view(pa.int64()), pa.scalar(MICROSECONDS, pa.int64()))
    return column


def decimals(column: pa.Array) -> Decimals:
    """Give the digits of decimals; where there is NULL, of anything."""
    whole = -(-(column.type.precision - column.type.scale) // PLACES)
    behind = -(-column.type.scale // PLACES)
    negative, words = _words(column, PLACES * behind - column.type.scale)
    digits = [_last_digit(words) for _ in range(whole + behind)]
    return Decimals(negative, whole - 1, digits[::-1])


def _words(column: pa.Array, more: int) -> tuple[Values, list[Values]]:
    """Give the signs of decimals and, with so many places more, their amounts: one number that has
    them whole or, where these are large, the highest of several first.
    """
    precision, scale = column.type.precision + more, column.type.scale + more
    halves = np.frombuffer(column.buffers()[1], np.int64, 2 * (column.offset + len(column)))
    low, high = halves[2 * column.offset :].reshape(-1, 2).T
    if precision <= NARROW:
        return low < 0, [np.abs(low).view(np.uint64) * np.uint64(10**more)]
    wide = pc.abs(column).cast(pa.decimal256(precision, scale))
    words = np.frombuffer(wide.buffers()[1], np.uint32).reshape(-1, 8)
    words = words[wide.offset : wide.offset + len(wide)]
    return high < 0, [words[:, at].astype(np.uint64) for at in reversed(range(WORDS))]


def _last_digit(words: list[Values]) -> Values:
    """Divide numbers by the base, and give what remains."""
    rest = np.zeros(1, np.uint64)
    for at, word in enumerate(words):
        word = word + (rest << np.uint64(WORD_BITS))
        words[at] = word // np.uint64(BASE)
        rest = word - words[at] * np.uint64(BASE)
    return rest
