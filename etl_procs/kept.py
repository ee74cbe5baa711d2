"""Kept: what a process keeps of one lookup's rows, in memory that all lookups share."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from etl_procs.asking import Row, Warehouses
from etl_procs.metrics import LookupFigures
from etl_procs.questions import Question
from etl_procs.records import Codes
from etl_procs.stack import Stack
from etl_procs.versions import DOUBTFUL, Layout
from headrace.clock import Clock


class TooLarge(Exception):
    """There is not so much memory for it."""


@dataclass(frozen=True, slots=True)
class Means:
    """What all lookups of a connection that writes share."""

    snapshot: Callable[[], sqlite3.Connection]
    """Gives a connection that sees what is committed."""
    make_room: Callable[["Kept"], None]
    """Lets others go, until all fit; raises TooLarge if they do not."""
    excuse: Callable[[float], None]
    """Told how long something took that is not the fault of who asked."""
    bytes_max: int
    clock: Clock
    warehouses: Callable[[], Warehouses]
    """Gives the connections by which tables of warehouses are asked."""


class Kept(ABC):
    """What is kept of one lookup, and how it is answered."""

    def __init__(self, layout: Layout, figures: LookupFigures) -> None:
        self.layout = layout
        self.figures = figures

    @property
    @abstractmethod
    def stack(self) -> Stack | None:
        """Give what is in memory, if there is something."""

    @abstractmethod
    def drop(self) -> None:
        """Let go what is in memory; it comes back when it pays."""

    @abstractmethod
    def answer(self, cursor: sqlite3.Cursor, question: Question) -> pa.Table:
        """Give a row for each key; NULLs where there is none."""

    def measure(self) -> None:
        """Note how much is in memory."""
        stack = self.stack
        self.figures.entries = 0 if stack is None else len(stack)
        self.figures.bytes = 0 if stack is None else stack.nbytes

    def find(
        self,
        stack: Stack,
        question: Question,
        changed: Codes,
        ask: Callable[[Question], Sequence[Row]],
    ) -> pa.Table:
        """Answer from a stack; `ask` for the keys whose codes have changed, or which coincide."""
        layout = self.layout
        rows, places = stack.find(question.asked(layout), changed)
        places[question.unknown()] = -1
        left = np.flatnonzero(places == DOUBTFUL)
        self.figures.hits += len(places) - len(left)
        self.figures.misses += len(left)
        if len(left):
            found = ask(question.take(left))
            places[left] = np.arange(len(rows), len(rows) + len(left))
            rows = pa.concat_tables([rows, self._rows(found)])
        taken = rows.take(pa.array(places, mask=places < 0))
        return taken.cast(layout.given)

    def table(self, rows: Sequence[Row]) -> pa.Table:
        """Make the answer of rows, of which there is one for each key."""
        return self._rows(rows).cast(self.layout.given)

    def _rows(self, rows: Sequence[Row]) -> pa.Table:
        given = self.layout.given
        types = self.layout.columns[-len(given) :]
        columns = list(zip(*rows, strict=True)) or [()] * len(types)
        arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=True)]
        return pa.Table.from_arrays(arrays, names=given.names)
