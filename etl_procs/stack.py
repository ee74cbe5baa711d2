"""The stack: versions on top of each other, the newest first to be asked.

A key is answered by the first that knows it. Newer versions of some keys are put on top; as soon as
they are not much fewer than what lies below them, the two are merged.
"""

import numpy as np
import pyarrow as pa

from etl_procs.records import Codes, Places, expanded
from etl_procs.versions import (
    DOUBTFUL,
    ELSEWHERE,
    NOTHING,
    Asked,
    Layout,
    Versions,
)

RATIO = 8
"""How much smaller than the one below it the top of the stack stays: it is merged otherwise."""


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
