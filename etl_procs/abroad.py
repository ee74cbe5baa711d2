"""Abroad: the lookups into tables of warehouses, which are asked, or copied, or one of the two.

What is asked is answered from the state that is committed there at that moment: nothing of it is
remembered. A copy answers as long as it is not older than was said; for what it does not find, the
warehouse is asked. One that does not answer lets the batch wait: that a key is not there is never
said for it.

Which of the two is chosen by what both were measured to cost. Time is divided into periods, as long
as a copy lasts. In each, asking has cost so much, or would have, beyond what is asked beside a copy
too. When that is as much as to copy the table, and to keep the copy for a period, it is copied: so
whatever comes, about twice of what was necessary is spent at most. When it is less than half of
what it takes to keep it, it goes.
"""

import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from etl_procs.asking import Row
from etl_procs.errors import Unanswered
from etl_procs.kept import Kept, Question, TooLarge
from etl_procs.metrics import LookupFigures
from etl_procs.model import Foreign, Lookup, Strategy
from etl_procs.owned import why_not
from etl_procs.records import Places
from etl_procs.versions import Flags, Stack, Unsortable, Versions

if TYPE_CHECKING:
    from etl_procs.lookups import Lookups
from collections.abc import Callable
from dataclasses import dataclass

from headrace.clock import Clock

log = logging.getLogger(__name__)

RENEWED_FROM = 0.5
"""From this part of its age on a copy is renewed: so long a warehouse may be away unnoticed."""
AGAIN_S, AGAIN = 1.0, 10
"""After a renewal that failed, the next is not tried for so long, or so many times as long as that
took: each holds the core's write lock."""
UNCHANGED = np.zeros(0, np.uint64)

ROW_S = 5e-6
"""What it takes to copy a row, until one was copied."""
PRIOR = ((1.0, 0.5e-3), (10_000.0, 0.2))
"""Keys, and how long it takes to ask for so many, as long as little was measured."""
PRIOR_WEIGHT = 0.01
FADING = 0.9
"""What is left of the weight of each statement with the next one."""
KEPT_FROM = 2
"""A copy goes when to keep it costs so many times what to ask would."""


@dataclass(slots=True)
class Line:
    """Seconds as they grow with a count: the line that fits best, the newest counting most."""

    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, count: int, seconds: float) -> None:
        """Take in what was measured."""
        self.weight = FADING * self.weight + 1
        self.x = FADING * self.x + count
        self.y = FADING * self.y + seconds
        self.xx = FADING * self.xx + count * count
        self.xy = FADING * self.xy + count * seconds

    def at(self, count: int) -> float:
        """Tell how long so many would take."""
        fixed, each = self.fitted()
        return fixed + each * count

    def fitted(self) -> tuple[float, float]:
        """Tell the seconds of a statement, and of each key."""
        weight, x, y, xx, xy = self.weight, self.x, self.y, self.xx, self.xy
        for count, seconds in PRIOR:
            weight += PRIOR_WEIGHT
            x += PRIOR_WEIGHT * count
            y += PRIOR_WEIGHT * seconds
            xx += PRIOR_WEIGHT * count * count
            xy += PRIOR_WEIGHT * count * seconds
        each = max((weight * xy - x * y) / (weight * xx - x * x), 0.0)
        return max((y - each * x) / weight, 0.0), each


class Choice:
    """Chooses for one lookup between asking and a copy."""

    def __init__(self, declared: Strategy, period_s: float, clock: Clock, *, changes: bool) -> None:
        self._may_leave = declared is Strategy.AUTO
        self.strategy = Strategy.WAREHOUSE if self._may_leave else declared
        self.why = ""
        self._period_s = period_s
        self._clock = clock
        self._asking = Line()
        self._distinct = 1.0
        """How many of the keys of a question are asked for, when all are: so many the last time."""
        self._lacking = 0.0
        """How many of the keys of a question a copy does not spare, as they are not there."""
        self._row_s = ROW_S
        self._is_counted = False
        self._rows: int | None = None
        """How many rows there were when they were counted last."""
        self._keeping_s = self._asking.at(1) if changes else None
        """What a copy costs in a period; if all is read anew, as much as at first."""
        self._begin(clock.monotonic(), 0.0)

    def choose(self, keys: int, count: Callable[[], int]) -> Strategy:
        """Say how so many keys are to be answered; `count` asks for the number of rows."""
        now = self._clock.monotonic()
        if now > self._since + self._period_s:
            self._turn(now)
        if self.strategy is not Strategy.REPLICA:
            if self._rows is None or not self._is_counted:
                self._rows, self._is_counted = count(), True
            spent = self._spent + self._spares(keys)
            if spent >= max(self._rows * self._row_s, self._keeping()):
                self._switch(Strategy.REPLICA, keys)
        return self.strategy

    def answered(self, keys: int, lacking: int) -> None:
        """Take note that so many keys were answered, of which a copy lacks some: to ask for the
        others costs so much, or would.
        """
        if keys:
            self._lacking = lacking / keys
        self._spent += self._spares(keys)
        self._statements += bool(keys)
        self._keys += keys

    def asked(self, keys: int, distinct: int, seconds: float) -> None:
        """Take note of what a statement took that asked for the distinct ones of so many keys."""
        if self.strategy is not Strategy.REPLICA:
            self._distinct = distinct / keys
        self._asking.add(distinct, seconds)

    def copied(self, rows: int, seconds: float) -> None:
        """Take note of what it took to copy the table."""
        self._rows = rows
        self._row_s = seconds / max(rows, 1)

    def kept(self, seconds: float) -> None:
        """Take note of what it took to bring the copy up to date."""
        self._keeping_s = seconds

    def gone(self, why: str) -> None:
        """Take note that the copy is gone; it comes back by the same rule."""
        self.strategy, self.why = Strategy.WAREHOUSE, why
        self._begin(self._clock.monotonic(), 0.0)

    def _turn(self, now: float) -> None:
        """Look at a period that is over."""
        keeping_s = self._keeping()
        is_kept = self.strategy is Strategy.REPLICA
        if is_kept and self._may_leave and KEPT_FROM * self._spent < keeping_s:
            self._switch(Strategy.WAREHOUSE)
        # What asking costs beyond the keeping of a copy adds up, until that is as much as one.
        self._begin(now, 0.0 if is_kept else max(0.0, self._spent - keeping_s))

    def _begin(self, now: float, spent: float) -> None:
        self._since, self._spent = now, spent
        self._statements = self._keys = 0
        self._is_counted = False

    def _costs(self, keys: int) -> float:
        """Tell what it takes to ask for so many keys."""
        return self._asking.at(max(round(keys * self._distinct), 1)) if keys else 0.0

    def _spares(self, keys: int) -> float:
        """Tell how much less asking there is with a copy, when there are so many keys."""
        return self._costs(keys) - self._costs(round(keys * self._lacking))

    def _keeping(self) -> float:
        if self._keeping_s is not None:
            return self._keeping_s
        return float("inf") if self._rows is None else self._rows * self._row_s

    def _switch(self, strategy: Strategy, keys: int = 0) -> None:
        """Answer so from now on; so many keys are being asked for."""
        self.strategy = strategy
        spent, statements = self._spent + self._spares(keys), self._statements + bool(keys)
        keys += self._keys
        fixed, each = self._asking.fitted()
        rows = "the table" if self._rows is None else f"{self._rows:,} rows"
        self.why = (
            f"in {self._period_s:g} s, to ask for {keys:,} keys by {statements:,} "
            f"statements costs {spent:.3g} s more without a copy ({1e3 * fixed:.3g} ms each, and "
            f"{1e6 * each:.3g} us for a key); to copy {rows} costs {1e6 * self._row_s:.3g} us for "
            f"each, and to keep the copy {self._keeping():.3g} s"
        )


class Abroad(Kept):
    """A lookup into a table of a warehouse."""

    def __init__(
        self, lookup: Lookup, foreign: Foreign, figures: LookupFigures, means: "Lookups"
    ) -> None:
        super().__init__(lookup, figures, means)
        self._foreign = foreign
        self._clock = means.clock
        self._nothing: Row = (None,) * len(self.layout.given)
        self._version = ""
        self._as_of = 0.0
        """Nothing is missing in the copy that was committed before. (Monotonic time.)"""
        self._renewed_from = 0.0
        """When the copy may be renewed, if it is still valid; a renewal has failed."""
        self._choice: Choice | None = None
        """None if it is only asked."""
        if lookup.strategy is not Strategy.WAREHOUSE:
            period_s = lookup.max_age_s * RENEWED_FROM
            has_version = bool(foreign.version)
            self._choice = Choice(lookup.strategy, period_s, means.clock, changes=has_version)
        self._say()

    def drop(self) -> None:
        """Let the copy go; it comes back when it pays."""
        self._let_go()
        if self._choice is not None:
            self._choice.gone("others needed the memory")

    def answer(self, cursor: sqlite3.Cursor, question: Question) -> pa.Table:
        """Give a row for each key; NULLs where there is none."""
        began = self._clock.monotonic()
        try:
            return self._found(question)
        except Unanswered:
            self.figures.waits += 1
            raise
        finally:
            self._say()
            self.means.excuse(self._clock.monotonic() - began)

    def _found(self, question: Question) -> pa.Table:
        keys = len(question) - int(np.count_nonzero(question.unknown()))
        stack = self._current(keys)
        if stack is None:
            self.figures.misses += len(question)
            rows = self._ask(question)
            found, lacking = self.table(rows), keys - sum(row is not self._nothing for row in rows)
        else:
            before = self.figures.misses
            found = self.find(stack, question, UNCHANGED, self._ask)
            lacking = self.figures.misses - before
        if self._choice is not None:
            self._choice.answered(keys, lacking)
        return found

    def is_open(self, places: Places) -> Flags:
        """Tell what a copy has not found: it may have come since."""
        return places < 0

    def _ask(self, question: Question) -> list[Row]:
        """Ask the warehouse once for each key and moment."""
        began = self._clock.monotonic()
        rows = question.rows()
        known = [row for row in rows if None not in row]
        numbers = {row: number for number, row in enumerate(dict.fromkeys(known), 1)}
        found: dict[int, Row] = {}
        if numbers:
            answers = self.means.warehouses().ask(self.layout.lookup, list(numbers))
            found = {number: tuple(given) for number, *given in answers}
            if self._choice is not None:
                took = self._clock.monotonic() - began
                self._choice.asked(len(known), len(numbers), took)
        return [found.get(numbers.get(row, 0), self._nothing) for row in rows]

    def _current(self, keys: int) -> Stack | None:
        """Give a copy that is young enough, if one is to answer."""
        choice = self._choice
        if choice is None:
            return None
        before = choice.strategy
        strategy = choice.choose(keys, lambda: self.means.warehouses().count(self._foreign))
        if strategy is not before:
            self._tell(choice)
        if strategy is Strategy.WAREHOUSE:
            self._let_go()
            return None
        try:
            self._renew(choice)
        except (TooLarge, Unsortable) as error:
            self._let_go()
            self._choice, self.figures.why = None, why_not(error)
            name, why = self.layout.lookup.full_name, self.figures.why
            log.warning("lookup %s is asked of the warehouse: %s", name, why)
        return self.stack

    def _renew(self, choice: Choice) -> None:
        """Read the copy, if there is none, or it is old; one that may still answer does so while
        the warehouse is away.
        """
        max_age_s, began = self.layout.lookup.max_age_s, self._clock.monotonic()
        if self.stack is not None:
            age_s = self.figures.age_s = began - self._as_of
            if age_s < max_age_s * RENEWED_FROM:
                return
            if age_s <= max_age_s and began < self._renewed_from:
                return
        try:
            self._read(choice)
        except Unanswered:
            now = self._clock.monotonic()
            if self.stack is None or now - self._as_of > max_age_s:
                raise
            self.figures.age_s = now - self._as_of
            self._renewed_from = now + max(AGAIN_S, AGAIN * (now - began))
            return
        self.figures.age_s = self._clock.monotonic() - self._as_of
        self._renewed_from = 0.0
        if self.figures.age_s > max_age_s * (1 - RENEWED_FROM):  # renewed with every question
            self._let_go()
            choice.gone("to read it took longer than a renewal may, for how old it may be")
            self._tell(choice)
        else:
            self.means.make_room(self)

    def _read(self, choice: Choice) -> None:
        """Make the copy new: read all rows, or what has changed, if that can be told."""
        as_of, version = self._clock.monotonic(), ""
        if self._foreign.version:
            version = self.means.warehouses().version(self._foreign)
        is_same = self._foreign.version and version == self._version and self.stack is not None
        rows: Versions | None = None
        if not is_same and not self._took_newer():
            rows = self._rows("")
            self.stack = Stack(self.layout, rows)
        self._as_of, self._version = as_of, version
        took = self._clock.monotonic() - as_of
        if rows is None:
            choice.kept(took)
        else:
            choice.copied(len(rows), took)
        self.figures.builds += 1

    def _took_newer(self) -> bool:
        """Take in what has come after the version that is held, if that can be told. If there is
        nothing, although the version is another, it went back: rows were put in place of all.
        """
        if self.stack is None or not self._version:
            return False
        newer = self._rows(self._version)
        self.stack.put_on_top(newer)
        return len(newer) > 0

    def _rows(self, after: str) -> Versions:
        """Read the rows of those keys that have a version after one; all, without one."""
        with closing(self.means.warehouses().read(self.layout.lookup, after)) as pieces:
            return self.gathered(pieces)

    def _let_go(self) -> None:
        super().drop()
        self.figures.age_s = 0.0

    def _tell(self, choice: Choice) -> None:
        """Say what was chosen, and why."""
        name, strategy = self.layout.lookup.full_name, choice.strategy.value
        log.info("lookup %s: %s from now on: %s", name, strategy, choice.why)

    def _say(self) -> None:
        """Note how it is answered now."""
        if self._choice is None:
            self.figures.strategy = Strategy.WAREHOUSE.value
            return
        self.figures.strategy, self.figures.why = self._choice.strategy.value, self._choice.why
