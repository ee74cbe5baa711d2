"""Documents: JSON objects, as what the columns declare; or why they are not."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from etl_procs.columns import Column, Type
from ingest.decoding import texts
from ingest.decoding.texts import More, Read

NOT_JSON, NOT_AN_OBJECT = "not JSON", "not a JSON object"
NOT_ALL = "a key is there twice, and not all of its values fit"
TAKEN: dict[Type, set[type]] = {Type.INTEGER: {int}, Type.REAL: {int, float}, Type.TEXT: {str}}
DIGITS_MAX = 1_000
"""What has more is read as a REAL: Python takes a time that grows with their square."""
DEPTH_MAX = 200
DEEP = f"has objects or arrays within more than {DEPTH_MAX} others"
Object = Mapping[str, Any]
NOTHING: Object = {}


class _Twice(Exception):
    """An object has a key twice."""


class _Every(dict[str, Any]):
    """An object, and all that it was made of; which is text, also where it has been replaced."""

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs
        if len(self) < len(pairs):
            for name, value in pairs:
                f"{name}{value if isinstance(value, str) else ''}".encode()


class _Number(str):
    """A number, as it is written."""

    __slots__ = ()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice
    return found


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= DIGITS_MAX else float(digits)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


PLAIN = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse)
EVERY = json.JSONDecoder(object_pairs_hook=_Every, parse_constant=_refuse, parse_int=_whole)
WRITTEN = json.JSONDecoder(parse_int=_Number, parse_float=_Number)


def read(documents: pa.StringArray, columns: Sequence[Column], *, more: bool) -> Read:
    """Give the columns of documents; null stands for what is none."""
    objects: list[Object | None] = []
    broken = {}
    for row, text in enumerate(documents.to_pylist()):
        found = None
        if text is not None:
            try:
                found = _parsed(text)
            except (ValueError, RecursionError):
                broken[row] = NOT_JSON
            else:
                if not isinstance(found, dict):
                    found, broken[row] = None, NOT_AN_OBJECT
                elif text.count("{") + text.count("[") > DEPTH_MAX and _is_deep(found):
                    found, broken[row] = None, DEEP
        objects.append(found)
    of = typed(objects, documents, columns, more=more)
    return of._replace(faults={**of.faults, **broken})


def _parsed(text: str) -> Any:
    try:
        found, end = PLAIN.raw_decode(text)
        if end < len(text):
            found = PLAIN.decode(text)
    except (ValueError, _Twice):  # such as spaces, or very many digits
        found = EVERY.decode(text)
    if "\\u" in text:  # half a pair is no text
        json.dumps(getattr(found, "pairs", found), ensure_ascii=False).encode()
    return found


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [each for of in inner for each in of if isinstance(each, dict | list)]
    return bool(level)


def typed(
    objects: Sequence[Object | None],
    documents: pa.StringArray | None,
    columns: Sequence[Column],
    *,
    more: bool,
) -> Read:
    """Give the columns of objects, and what of them is unknown if it is asked for `more`."""
    given = [NOTHING if each is None else each for each in objects]

    def as_written(row: int) -> Object:
        return given[row] if documents is None else WRITTEN.decode(documents[row].as_py())

    values, faults = [], dict[int, str]()
    for column in columns:
        array, misfits = _column(column, [each.get(column.name) for each in given])
        for row in misfits:
            shown = _json(as_written(row)[column.name])
            faults.setdefault(row, texts.unfit(column, shown))
        if column.required and array.null_count:
            lacking = texts.rows(texts.flags(array.is_null()))
            there = (row for row in lacking if objects[row] is not None)
            texts.add(faults, there, texts.missing(column))
        texts.add(faults, texts.beyond(column, array), texts.told_beyond(column))
        values.append(array)
    known = {column.name: column for column in columns}
    unknown = {}
    for row, each in enumerate(given):
        if isinstance(each, _Every) and len(each.pairs) > len(each):
            of = [(known[name], value) for name, value in each.pairs if name in known]
            if not all(value is None or _is_held(column, value) for column, value in of):
                faults[row] = NOT_ALL
        names = sorted(each.keys() - known.keys()) if more else ()
        if names:
            held = as_written(row)
            unknown[row] = More(names, _json({name: held[name] for name in names}))
    return Read(values, faults, unknown)


def _column(column: Column, values: list[Any]) -> tuple[pa.Array, list[int]]:
    """Make an array of the values that are of a column's type, and list which are not."""
    misfits: list[int] = []
    array = _array(column, values)
    if array is None:
        every = enumerate(values)
        misfits = [row for row, value in every if value is not None and not _fits(column, value)]
        for row in misfits:
            values[row] = None
        array = _array(column, values)
    assert array is not None, "all of them fit"
    return array, misfits


def _array(column: Column, values: Sequence[Any]) -> pa.Array | None:
    """Make an array of values that are of a column's type; nothing, if one is not."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds <= TAKEN[column.type]:
        return None
    if column.type is Type.REAL and int in kinds:
        values = [None if value is None else _real(value) for value in values]
    try:
        return pa.array(values, column.arrow)
    except OverflowError:
        return None


def _fits(column: Column, value: Any) -> bool:
    if column.type is Type.INTEGER:
        return type(value) is int and -(2**63) <= value < 2**63
    return type(value) in TAKEN[column.type]


def _is_held(column: Column, value: Any) -> bool:
    if not _fits(column, value):
        return False
    if column.type is Type.REAL:
        return math.isfinite(_real(value))
    return column.type is not Type.TEXT or "\0" not in value


def _real(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _json(value: Any) -> str:
    """Write JSON, with the keys in their order, and numbers as they were written."""
    if isinstance(value, dict):
        pairs = [f"{_json(key)}:{_json(each)}" for key, each in sorted(value.items())]
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{','.join([_json(each) for each in value])}]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Write what JSON does not have as something that fits no column."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}
    return value
