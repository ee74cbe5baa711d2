"""Abroad: the lookups into tables of warehouses, which are asked, or copied, or one of the two.

What is asked is answered from the state that is committed there at that moment: nothing of it is
remembered. A copy answers as long as it is not older than was said. A warehouse that does not
answer lets the batch wait: that a key is not there is never said for it.
"""

import logging
import sqlite3

import numpy as np
import pyarrow as pa

from etl_procs.asking import Row
from etl_procs.copies import Copy
from etl_procs.costs import Choice
from etl_procs.errors import Unanswered
from etl_procs.kept import Kept, Means, TooLarge
from etl_procs.metrics import LookupFigures
from etl_procs.model import Foreign, Lookup, Strategy
from etl_procs.owned import why_not
from etl_procs.questions import Question
from etl_procs.stack import Stack
from etl_procs.versions import Layout, Unsortable

log = logging.getLogger(__name__)

RENEWED_FROM = 0.5
"""From this part of its age on a copy is renewed: so long a warehouse may be away unnoticed."""
AGAIN_S, AGAIN = 1.0, 10
"""After a renewal that failed, the next is not tried for so long, or so many times as long as that
took: each holds the core's write lock."""
UNCHANGED = np.zeros(0, np.uint64)


class Abroad(Kept):
    """A lookup into a table of a warehouse."""

    def __init__(
        self, lookup: Lookup, foreign: Foreign, figures: LookupFigures, means: Means
    ) -> None:
        super().__init__(Layout(lookup), figures)
        self._foreign = foreign
        self._means = means
        self._copy: Copy | None = None
        self._renewed_from = 0.0
        """When the copy may be renewed, if it is still valid; a renewal has failed."""
        self._choice: Choice | None = None
        """None if it is only asked."""
        if lookup.strategy is not Strategy.WAREHOUSE:
            period_s = lookup.max_age_s * RENEWED_FROM
            has_version = bool(foreign.version)
            self._choice = Choice(lookup.strategy, period_s, means.clock, changes=has_version)
        self._say()

    @property
    def stack(self) -> Stack | None:
        """Give what is in memory, if there is something."""
        return None if self._copy is None else self._copy.stack

    def drop(self) -> None:
        """Let the copy go."""
        self._copy = None
        if self._choice is not None:
            self._choice.gone("others needed the memory")
        self.measure()

    def answer(self, cursor: sqlite3.Cursor, question: Question) -> pa.Table:
        """Give a row for each key; NULLs where there is none."""
        began = self._means.clock.monotonic()
        try:
            return self._found(question)
        except Unanswered:
            self.figures.waits += 1
            raise
        finally:
            self._say()
            self._means.excuse(self._means.clock.monotonic() - began)

    def _found(self, question: Question) -> pa.Table:
        keys = len(question) - int(np.count_nonzero(question.unknown()))
        stack = self._current(keys)
        if stack is None:
            self.figures.misses += len(question)
            found = self.table(self._ask(question))
        else:
            found = self.find(stack, question, UNCHANGED, self._ask)
        if self._choice is not None:
            self._choice.answered(keys)
        return found

    def _ask(self, question: Question) -> list[Row]:
        """Ask the warehouse once for each key and moment."""
        began = self._means.clock.monotonic()
        rows = question.rows()
        known = [row for row in rows if None not in row]
        numbers = {row: number for number, row in enumerate(dict.fromkeys(known), 1)}
        found: dict[int, Row] = {}
        if numbers:
            answers = self._means.warehouses().ask(self.layout.lookup, list(numbers))
            found = {number: tuple(given) for number, *given in answers}
            if self._choice is not None:
                took = self._means.clock.monotonic() - began
                self._choice.asked(len(known), len(numbers), took)
        nothing = (None,) * len(self.layout.given)
        return [found.get(numbers.get(row, 0), nothing) for row in rows]

    def _current(self, keys: int) -> Stack | None:
        """Give a copy that is young enough, if one is to answer."""
        if self._choice is None:
            return None
        before = self._choice.strategy
        warehouses = self._means.warehouses()
        strategy = self._choice.choose(keys, lambda: warehouses.count(self._foreign))
        if strategy is not before:
            self._tell()
        if strategy is Strategy.WAREHOUSE:
            self._copy, self.figures.age_s = None, 0.0
            self.measure()
            return None
        try:
            self._renew()
        except (TooLarge, Unsortable) as error:
            self._give_up(why_not(error))
        return self.stack

    def _renew(self) -> None:
        """Read the copy, if there is none, or it is old; one that may still answer does so while
        the warehouse is away.
        """
        assert self._choice is not None
        means, max_age_s, copy = self._means, self.layout.lookup.max_age_s, self._copy
        began = means.clock.monotonic()
        if copy is not None:
            self.figures.age_s = copy.age_s
            if copy.age_s < max_age_s * RENEWED_FROM:
                return
            if copy.age_s <= max_age_s and began < self._renewed_from:
                return
        else:
            copy = Copy(self.layout, self._foreign, means.clock, means.bytes_max)
        try:
            self._read(copy)
        except Unanswered:
            self.figures.age_s = copy.age_s
            if copy.stack is None or copy.age_s > max_age_s:
                raise
            now = means.clock.monotonic()
            self._renewed_from = now + max(AGAIN_S, AGAIN * (now - began))
            return
        if copy.age_s > max_age_s * (1 - RENEWED_FROM):  # it would be renewed with every question
            self._copy, self.figures.age_s = None, 0.0
            self.measure()
            self._choice.gone("to read it took longer than a renewal may, for how old it may be")
            self._tell()
            return
        self._copy, self._renewed_from = copy, 0.0
        self.figures.age_s = copy.age_s
        means.make_room(self)

    def _read(self, copy: Copy) -> None:
        assert self._choice is not None
        began = self._means.clock.monotonic()
        rows = copy.read(self._means.warehouses())
        took = self._means.clock.monotonic() - began
        if copy.is_anew:
            self._choice.copied(rows, took)
        else:
            self._choice.kept(took)
        self.figures.builds += 1

    def _give_up(self, why: str) -> None:
        """Only ask from now on."""
        self._choice = self._copy = None
        self.measure()
        self.figures.why = why
        log.warning("lookup %s is asked of the warehouse: %s", self.layout.lookup.full_name, why)

    def _tell(self) -> None:
        """Say what was chosen, and why."""
        assert self._choice is not None
        name, chosen = self.layout.lookup.full_name, self._choice
        log.info("lookup %s: %s from now on: %s", name, chosen.strategy.value, chosen.why)

    def _say(self) -> None:
        """Note how it is answered now."""
        if self._choice is None:
            self.figures.strategy = Strategy.WAREHOUSE.value
            return
        self.figures.strategy, self.figures.why = self._choice.strategy.value, self._choice.why
