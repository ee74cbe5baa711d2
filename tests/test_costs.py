"""Costs: a lookup is asked or copied, whichever was measured to cost less."""

import pytest
from flows import HeldClock
from hypothesis import given
from hypothesis import strategies as st

from etl_procs import Strategy
from etl_procs.abroad import KEPT_FROM, Choice, Line

ASK, COPY = Strategy.WAREHOUSE, Strategy.REPLICA
PERIOD_S = 30.0


class World:
    """A warehouse in which all takes as long as is said."""

    def __init__(
        self,
        *,
        rows: int,
        key_s: float = 1e-5,
        statement_s: float = 1e-3,
        row_s: float = 5e-6,
        changed_s: float | None = None,
        lacking: float = 0.0,
        declared: Strategy = Strategy.AUTO,
    ) -> None:
        self.clock = HeldClock()
        self.rows, self.row_s, self.changed_s = rows, row_s, changed_s
        self.key_s, self.statement_s = key_s, statement_s
        self.lacking = lacking
        """How many of the keys are not there: they are asked for beside a copy, too."""
        has_version = changed_s is not None
        self.choice = Choice(declared, PERIOD_S, self.clock, changes=has_version)
        self.spent = 0.0
        self.asking_alone = 0.0
        """What it would have taken to ask always."""
        self._copied_at: float | None = None

    def look(self, keys: int) -> Strategy:
        """Look up so many keys, as the choice says."""
        chosen = self.choice.choose(keys, lambda: self.rows)
        lacking = round(self.lacking * keys)
        self.asking_alone += self.statement_s + keys * self.key_s
        asked = keys if chosen is ASK else lacking
        if asked:
            took = self.statement_s + asked * self.key_s
            self.choice.asked(asked, asked, took)
            self.spent += took
        if chosen is ASK:
            self._copied_at = None
        elif self._copied_at is None or self.changed_s is None:
            if self._copied_at is None or self.clock.monotonic() - self._copied_at >= PERIOD_S:
                self.choice.copied(self.rows, self.rows * self.row_s)
                self.spent += self.rows * self.row_s
                self._copied_at = self.clock.monotonic()
        elif self.clock.monotonic() - self._copied_at >= PERIOD_S:
            self.choice.kept(self.changed_s)
            self.spent += self.changed_s
            self._copied_at = self.clock.monotonic()
        self.choice.answered(keys, lacking)
        return chosen

    def live(self, seconds: float, *, every_s: float, keys: int) -> list[Strategy]:
        """Look up so many keys, again and again; give what was chosen, once in a row."""
        chosen: list[Strategy] = []
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            now = self.look(keys)
            if now is not (chosen[-1] if chosen else None):
                chosen.append(now)
            self.clock.advance(every_s)
        return chosen


def test_a_small_table_and_many_keys_are_copied_and_a_large_one_and_few_keys_are_asked() -> None:
    assert World(rows=1_000).live(300, every_s=1, keys=10_000)[-1] is COPY
    assert World(rows=10_000_000).live(300, every_s=1, keys=10) == [ASK]


def test_it_switches_when_keys_become_many_and_back_when_they_become_few() -> None:
    world = World(rows=100_000)
    assert world.live(100, every_s=1, keys=10) == [ASK]
    assert world.live(100, every_s=1, keys=10_000) == [ASK, COPY]
    assert "to ask for" in world.choice.why
    assert "100,000 rows costs 5 us for each" in world.choice.why
    assert world.live(100, every_s=1, keys=10) == [COPY, ASK]


def test_a_table_that_changes_little_is_copied_where_one_that_is_read_anew_is_asked() -> None:
    """Ten million rows take 50 s to copy; asking takes 12 s of each period."""
    keys = {"every_s": 1.0, "keys": 40_000}
    assert World(rows=10_000_000).live(3_000, **keys) == [ASK]  # type: ignore[arg-type]
    little = World(rows=10_000_000, changed_s=0.01)
    assert little.live(3_000, **keys) == [ASK, COPY]  # type: ignore[arg-type]
    much = World(rows=10_000_000, changed_s=40.0)
    assert much.live(3_000, **keys)[-1] is ASK  # type: ignore[arg-type]


def test_a_table_that_grows_is_copied_no_more() -> None:
    world = World(rows=1_000)
    assert world.live(100, every_s=1, keys=1_000)[-1] is COPY
    world.rows = 10_000_000
    assert world.live(100, every_s=1, keys=1_000)[-1] is ASK


def test_keys_that_are_not_there_are_asked_for_and_no_table_is_copied_for_them() -> None:
    assert World(rows=100_000, lacking=0.5).live(300, every_s=1, keys=10_000) == [ASK, COPY]
    assert World(rows=100_000, lacking=1.0).live(300, every_s=1, keys=10_000) == [ASK]
    world = World(rows=100_000)
    assert world.live(100, every_s=1, keys=10_000) == [ASK, COPY]
    world.lacking = 1.0
    assert world.live(100, every_s=1, keys=10_000) == [COPY, ASK]


def test_a_declared_replica_is_asked_only_while_others_have_its_memory() -> None:
    world = World(rows=100_000, declared=COPY)
    assert world.live(100, every_s=1, keys=1) == [COPY]
    world.choice.gone("others needed the memory")
    assert world.live(100, every_s=1, keys=10_000) == [ASK, COPY]


def test_what_was_not_answered_was_not_spent() -> None:
    world = World(rows=100_000)
    for _ in range(100):
        assert world.choice.choose(10_000, lambda: world.rows) is ASK


def test_the_same_key_many_times_costs_as_much_as_once() -> None:
    world = World(rows=100_000)
    for _ in range(100):
        world.choice.asked(10_000, 1, 1e-3)
        world.choice.answered(10_000, 0)
        assert world.choice.choose(10_000, lambda: world.rows) is ASK


@given(
    rows=st.sampled_from([100, 10_000, 1_000_000]),
    lives=st.lists(
        st.tuples(st.sampled_from([0.01, 1.0, 45.0]), st.sampled_from([1, 100, 10_000])),
        min_size=1,
        max_size=6,
    ),
    changed_s=st.sampled_from([None, 0.001, 1.0]),
    lacking=st.sampled_from([0.0, 0.1, 1.0]),
)
def test_whatever_comes_it_costs_not_much_more_than_to_ask_always(
    rows: int, lives: list[tuple[float, int]], changed_s: float | None, lacking: float
) -> None:
    world = World(rows=rows, changed_s=changed_s, lacking=lacking)
    world.live(10, every_s=1, keys=500)  # what things cost is measured by then
    world.spent = world.asking_alone = 0.0
    for every_s, keys in lives:
        world.live(min(100 * every_s, 300), every_s=every_s, keys=keys)
    copy_s = rows * world.row_s + (changed_s or 0)
    assert world.spent <= KEPT_FROM * world.asking_alone + len(lives) * 3 * copy_s


def test_a_line_finds_what_a_statement_and_a_key_cost() -> None:
    line = Line()
    for keys in (10, 1_000, 20_000, 10, 5_000, 100, 10_000, 10, 1, 50_000):
        line.add(keys, 2e-3 + keys * 3e-6)
    fixed, each = line.fitted()
    assert fixed == pytest.approx(2e-3, rel=0.5)
    assert each == pytest.approx(3e-6, rel=0.1)
