"""Costs: whether to ask a warehouse or to copy its table, by what both were measured to cost.

Time is divided into periods, as long as a copy lasts. In each, asking has cost so much, or would
have. When that is as much as to copy the table, and to keep the copy for a period, it is copied: so
whatever comes, about twice of what was necessary is spent at most. When it is less than half of
what it takes to keep the copy, the copy goes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from etl_procs.model import Strategy
from headrace.clock import Clock

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
        """How many of the keys of a question were asked for, the last time."""
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
            spent = self._spent + self._costs(keys)
            if spent >= max(self._rows * self._row_s, self._keeping()):
                self._switch(Strategy.REPLICA, keys)
        return self.strategy

    def answered(self, keys: int) -> None:
        """Take note that so many keys were answered: to ask for them costs so much, or would."""
        self._spent += self._costs(keys)
        self._statements += bool(keys)
        self._keys += keys

    def asked(self, keys: int, distinct: int, seconds: float) -> None:
        """Take note of what a statement took that asked for the distinct ones of so many keys."""
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

    def _keeping(self) -> float:
        if self._keeping_s is not None:
            return self._keeping_s
        return float("inf") if self._rows is None else self._rows * self._row_s

    def _switch(self, strategy: Strategy, keys: int = 0) -> None:
        """Answer so from now on; so many keys are being asked for."""
        self.strategy = strategy
        spent, statements = self._spent + self._costs(keys), self._statements + bool(keys)
        keys += self._keys
        fixed, each = self._asking.fitted()
        rows = "the table" if self._rows is None else f"{self._rows:,} rows"
        self.why = (
            f"in {self._period_s:g} s, to ask for {keys:,} keys by {statements:,} "
            f"statements costs {spent:.3g} s ({1e3 * fixed:.3g} ms each, and "
            f"{1e6 * each:.3g} us for a key); to copy {rows} costs {1e6 * self._row_s:.3g} us for "
            f"each, and to keep the copy {self._keeping():.3g} s"
        )
