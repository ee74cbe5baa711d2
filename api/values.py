"""Values of an answer, as JSON can carry them without loss.

Integers are written in full. What JSON has no form for is text, in PostgreSQL's own spelling:
decimals, NaN and the infinities, dates and times (ISO 8601), bytes (hex).
"""

import json
import math
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any

AS_THEY_ARE = frozenset({int, str, bool, type(None)})


def to_json(value: Any) -> Any:
    """Make a JSON value of one of PostgreSQL's."""
    if type(value) in AS_THEY_ARE:
        return value
    match value:
        case float():
            return not_finite(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return format(value, "f")  # str() of a small one has an exponent
        case list() | tuple():
            return [to_json(item) for item in value]
        case bytes():
            return "\\x" + value.hex()
    return str(value)


def dump(document: object) -> bytes:
    """Write a JSON document, of values of ours too; what JSON cannot hold is a bug."""
    text = json.dumps(document, default=_plain, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii")


def _plain(value: object) -> object:
    if is_dataclass(value):
        return {of.name: getattr(value, of.name) for of in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no form in JSON")


def not_finite(value: float) -> float | str:
    """Make text of a number that JSON has no form for."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
