"""Kept: what a process keeps of one lookup's rows, and how that answers what a body asks for."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from etl_procs.asking import Row
from etl_procs.batch import table_of
from etl_procs.errors import CoreError
from etl_procs.metrics import LookupFigures
from etl_procs.model import Lookup
from etl_procs.records import Codes, Places
from etl_procs.rules import Value
from etl_procs.versions import NOTHING, Asked, Flags, Layout, Stack, Versions

if TYPE_CHECKING:
    from etl_procs.lookups import Lookups

Values: TypeAlias = pa.Array | pa.ChunkedArray | Sequence[Value | None]
"""One column: Arrow's, or a list."""


class TooLarge(Exception):
    """There is not so much memory for it."""


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

    def rows(self) -> list[Row]:
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


class Kept(ABC):
    """What is kept of one lookup, and how it is answered."""

    def __init__(self, lookup: Lookup, figures: LookupFigures, means: "Lookups") -> None:
        self.layout = Layout(lookup)
        self.figures = figures
        self.means = means
        self.stack: Stack | None = None
        """What is in memory, if there is something."""

    @abstractmethod
    def answer(self, cursor: sqlite3.Cursor, question: Question) -> pa.Table:
        """Give a row for each key; NULLs where there is none."""

    @abstractmethod
    def is_open(self, places: Places) -> Flags:
        """Tell for which keys what was found in memory, or not, is no answer."""

    def drop(self) -> None:
        """Let go what is in memory; it comes back when it pays."""
        self.stack = None
        self.measure()

    def measure(self) -> None:
        """Note how much is in memory."""
        self.figures.entries = 0 if self.stack is None else len(self.stack)
        self.figures.bytes = 0 if self.stack is None else self.stack.nbytes

    def find(
        self,
        stack: Stack,
        question: Question,
        changed: Codes,
        ask: Callable[[Question], Sequence[Row]],
    ) -> pa.Table:
        """Answer from a stack, of which some codes have changed; `ask` for the keys left open."""
        layout = self.layout
        rows, places = stack.find(question.asked(layout), changed)
        unknown = question.unknown()
        left = np.flatnonzero(self.is_open(places) & ~unknown)
        places[unknown] = NOTHING
        self.figures.hits += len(places) - len(left)
        self.figures.misses += len(left)
        if len(left):
            found = ask(question.take(left))
            places[left] = np.arange(len(rows), len(rows) + len(left))
            rows = pa.concat_tables([rows, table_of(found, layout.answer)])
        taken = rows.take(pa.array(places, mask=places < 0))
        return taken.cast(layout.given)

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Make the answer of rows, of which there is one for each key."""
        return table_of(rows, self.layout.answer).cast(self.layout.given)

    def gathered(self, pieces: Iterable[Sequence[Row]]) -> Versions:
        """Arrange rows that come piece by piece: the key, the moment, what is given."""
        tables, size = [self.layout.table([])], 0
        for rows in pieces:
            tables.append(self.layout.table(rows))
            size += tables[-1].nbytes
            if size > self.means.bytes_max:
                raise TooLarge
        return Versions.of(self.layout, pa.concat_tables(tables))


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
    names = [*lookup.key, *([lookup.at] if lookup.at else [])]
    columns = [
        _array(of, name, values, type_)
        for name, values, type_ in zip(names, [*given, at], layout.columns, strict=False)
    ]
    if len({len(values) for values in columns}) > 1:
        raise CoreError(
            f"{of} is asked with columns of different lengths",
            hint="Give as many values of each: a row is found for every one.",
        )
    return Question(columns[: len(given)], columns[-1] if lookup.at else None)


def _array(of: str, name: str, values: Any, type_: pa.DataType) -> pa.Array:
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
