"""Questions: what a body asks a lookup for, as Arrow columns, or why it does not fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from etl_procs.errors import CoreError
from etl_procs.records import Places
from etl_procs.rules import Value
from etl_procs.versions import Asked, Flags, Layout

Values: TypeAlias = pa.Array | pa.ChunkedArray | Sequence[Value | None]
"""One column: Arrow's, or a list."""


@dataclass(frozen=True, slots=True)
class Question:
    """Keys, by columns, and the moments as of which they are asked for."""

    keys: list[pa.Array]
    moments: pa.Array | None

    def __len__(self) -> int:
        return len(self.keys[0])

    @property
    def columns(self) -> list[pa.Array]:
        """Give all of it, the moments last."""
        return self.keys if self.moments is None else [*self.keys, self.moments]

    def rows(self) -> list[tuple[Any, ...]]:
        """Give it row by row, as SQL is asked."""
        return list(zip(*(column.to_pylist() for column in self.columns), strict=True))

    def unknown(self) -> Flags:
        """Tell where a key or a moment is NULL: nothing is found there."""
        null = np.zeros(len(self), np.bool_)
        for values in self.columns:
            if values.null_count:
                null |= values.is_null().to_numpy(zero_copy_only=False)
        return null

    def take(self, places: Places) -> "Question":
        """Give some of it."""
        some = pa.array(places)
        moments = None if self.moments is None else self.moments.take(some)
        return Question([column.take(some) for column in self.keys], moments)

    def asked(self, layout: Layout) -> Asked:
        """Make it ready to be looked for."""
        held = None if self.moments is None else layout.moments(self.moments)
        return Asked(layout.codes(self.keys), self.keys, held)


def question(layout: Layout, keys: Any, at: Values | None) -> Question:
    """Make Arrow arrays of what is asked, or say what does not fit."""
    lookup = layout.lookup
    of = f"lookup {lookup.full_name}"
    given = [keys] if len(lookup.key) == 1 else list(keys)
    if len(given) != len(lookup.key):
        raise CoreError(
            f"{of} is asked with {len(given)} columns, and its key has {len(lookup.key)}",
            hint=f"Give it one column for each of {', '.join(lookup.key)}, in this order.",
        )
    if (at is None) == bool(lookup.at):
        raise CoreError(
            f"{of} is asked without a moment" if lookup.at else f"{of} knows no moments",
            hint=f"Give it the values of {lookup.at}: at=[...]."
            if lookup.at
            else "Leave `at` away, or declare the column from whose value on a row is in force.",
        )
    pairs = zip(lookup.key, given, layout.keys, strict=True)
    columns = [_array(of, *pair) for pair in pairs]
    moments = None if at is None else _array(of, lookup.at, at, layout.columns[len(columns)])
    if len({len(values) for values in (*columns, *([] if moments is None else [moments]))}) > 1:
        raise CoreError(
            f"{of} is asked with columns of different lengths",
            hint="Give as many values of each: a row is found for every one.",
        )
    return Question(columns, moments)


def _array(of: str, name: str, values: Values, type_: pa.DataType) -> pa.Array:
    try:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if not isinstance(values, pa.Array):
            values = pa.array(values)
        is_number = pa.types.is_integer(values.type)
        if is_number != pa.types.is_integer(type_) and not pa.types.is_null(values.type):
            raise TypeError(f"it is {values.type}")
        if not is_number and not _is_text(values.type):
            raise TypeError(f"it is {values.type}")
        return values.cast(type_)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        wanted = "INTEGER" if pa.types.is_integer(type_) else "TEXT"
        raise CoreError(
            f"{of} is asked for a {name} that is no {wanted}: {error}",
            hint=f"Give it {wanted} values, as the table's column holds them.",
        ) from error


def _is_text(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        return _is_text(type_.value_type)
    return bool(
        pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_null(type_)
    )
