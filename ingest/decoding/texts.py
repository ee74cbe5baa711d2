"""Texts: fields that are texts, as what the columns declare; or why they are not."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.columns import Column, Type

SHOWN_CHARACTERS = 100
"""How much of a value its reason quotes; the dead letter holds all of its bytes."""
NEEDED = {
    Type.INTEGER: "INTEGER (64 bits, no point, no exponent)",
    Type.REAL: "REAL",
    Type.TEXT: "TEXT",
}
WHOLE = re.compile(r"([+-]?)0*+([0-9]{0,19})")
DECIMAL = re.compile(r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
NOT_UTF8 = "not UTF-8"


class More(NamedTuple):
    """The unknown fields of a tuple."""

    names: Sequence[str]
    kept: str
    """All that is in them, as JSON."""


class Fields(NamedTuple):
    """The fields of tuples that are texts, by column; and why there are none, by row."""

    columns: Sequence[pa.StringArray]
    broken: Mapping[int, str]
    more: Mapping[int, More]


class Read(NamedTuple):
    """The values of tuples, by column; and what is wrong with a tuple, by row."""

    values: Sequence[pa.Array]
    faults: Mapping[int, str]
    more: Mapping[int, More]


def decoded(
    values: pa.BinaryArray, is_tuple: np.ndarray, reasons: dict[int, str]
) -> pa.StringArray:
    """Give tuples as texts, and null for all else; note in `reasons` which are not UTF-8."""
    asked = values if is_tuple.all() else pc.if_else(pa.array(is_tuple), values, None)
    try:
        return asked.cast(pa.string())
    except pa.ArrowInvalid:
        each = [_decoded(value) for value in asked.to_pylist()]
    for row in np.flatnonzero(is_tuple).tolist():
        if each[row] is None:
            reasons[row] = NOT_UTF8
            is_tuple[row] = False
    return pa.array(each, pa.string())


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def holds(texts: pa.Array, *parts: bytes) -> bool:
    """Tell if there is one of some bytes in any of many texts."""
    _, offsets, data = texts.buffers()
    if data is None:
        return False
    ends = np.frombuffer(offsets, np.int32)
    held = data[int(ends[texts.offset]) : int(ends[texts.offset + len(texts)])].to_pybytes()
    return any(part in held for part in parts)


def flags(given: pa.BooleanArray) -> np.ndarray:
    """Give what is true as numpy has it."""
    found: np.ndarray = given.to_numpy(zero_copy_only=False)
    return found


def rows(where: np.ndarray) -> list[int]:
    """List where something is true."""
    return np.flatnonzero(where).tolist()


def whole(texts: pa.StringArray) -> pa.Int64Array:
    """Read whole numbers of 64 bits: digits with or without a sign; null for all else."""
    if not holds(texts, b"x", b"X"):  # Arrow takes 0x1F for one
        try:
            return texts.cast(pa.int64())
        except pa.ArrowInvalid:
            pass
    return pa.array([_whole(text) for text in texts.to_pylist()], pa.int64())


def _whole(text: str | None) -> int | None:
    found = None if text is None or text in ("", "+", "-") else WHOLE.fullmatch(text)
    if found is None:
        return None
    number = int(found[1] + (found[2] or "0"))  # Python refuses very many digits, be they zeros
    return number if -(2**63) <= number < 2**63 else None


def real(texts: pa.StringArray) -> pa.DoubleArray:
    """Read numbers; null for all else. What is beyond all is infinite."""
    try:
        numbers = texts.cast(pa.float64())
        if np.isfinite(numbers.fill_null(0).to_numpy(zero_copy_only=False)).all():
            return numbers
    except pa.ArrowInvalid:
        pass
    return pa.array([_real(text) for text in texts.to_pylist()], pa.float64())


def _real(text: str | None) -> float | None:
    return None if text is None or DECIMAL.fullmatch(text) is None else float(text)


def _as_they_are(texts: pa.StringArray) -> pa.StringArray:
    return texts


READ = {Type.INTEGER: whole, Type.REAL: real, Type.TEXT: _as_they_are}


def typed(fields: Fields, bodies: pa.StringArray, columns: Sequence[Column]) -> Read:
    """Give the columns of tuples; `bodies` is null where there is none."""
    faults = dict(fields.broken)
    is_tuple = flags(bodies.is_valid()).copy()
    is_tuple[[*faults]] = False
    values = []
    for column, given in zip(columns, fields.columns, strict=True):
        read = READ[column.type](given)
        values.append(read)
        if column.required and given.null_count:
            add(faults, rows(is_tuple & flags(given.is_null())), missing(column))
        if read.null_count > given.null_count:
            for row in rows(flags(given.is_valid()) & flags(read.is_null())):
                faults.setdefault(row, unfit(column, given[row].as_py()))
        add(faults, beyond(column, read), told_beyond(column))
    return Read(values, faults, fields.more)


def add(faults: dict[int, str], where: Iterable[int], reason: str) -> None:
    """Note a reason; the first one counts."""
    for row in where:
        faults.setdefault(row, reason)


def missing(column: Column) -> str:
    """Say that a value that must be there is not."""
    return f"{column.name} is missing"


def unfit(column: Column, shown: str) -> str:
    """Say that a value is none of a column's."""
    beginning = shown[:SHOWN_CHARACTERS].replace("\0", "\\0")
    return f"{column.name} is no {NEEDED[column.type]}: {beginning}"


def beyond(column: Column, values: pa.Array) -> list[int]:
    """List the values that are of the column's type, and that it cannot hold."""
    if column.type is Type.REAL:
        return rows(flags(pc.is_inf(values).fill_null(False)))
    if column.type is Type.TEXT and holds(values, b"\0"):
        return rows(flags(pc.match_substring(values, "\0").fill_null(False)))
    return []


def told_beyond(column: Column) -> str:
    """Say of a value that it cannot be held."""
    what = "is larger than a REAL can be" if column.type is Type.REAL else "holds a NUL character"
    return f"{column.name} {what}"
