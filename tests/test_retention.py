"""Retention: what a core keeps for its warehouses, for how long, and what it does at its limit."""

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import shop
from flows import HeldClock
from trial import Trial

from etl_procs.core import core_path
from etl_procs.errors import StagedFull
from etl_procs.origin import Origin
from headrace import config
from headrace.crash import CrashPoints

HERE, THERE = "here", "there"


class Calendar(HeldClock):
    """A clock whose date stands still, too."""

    date = datetime(2026, 11, 19, tzinfo=UTC)

    def now(self) -> datetime:
        return self.date


@pytest.fixture
def calendar() -> Calendar:
    return Calendar()


@pytest.fixture
def keeping(store: shop.Shop, calendar: Calendar) -> Iterator[Origin]:
    """The shop's core, which keeps batches for a minute after both warehouses have them."""
    settings = config.Core(keep_s=60)
    with closing(Origin(store.path, settings, CrashPoints(), calendar)) as origin:
        origin.feed("shop", [HERE, THERE])
        yield origin


def test_a_batch_is_kept_for_a_time_after_the_last_warehouse_has_confirmed_it(
    store: shop.Shop, keeping: Origin, calendar: Calendar
) -> None:
    store.sell((1, 1.0, None))
    store.sell((2, 1.0, None))
    assert keeping.confirm("shop", HERE, 2) == 0
    calendar.date += timedelta(minutes=5)
    assert keeping.confirm("shop", THERE, 1) == 0
    calendar.date += timedelta(seconds=59)
    assert keeping.confirm("shop", THERE, 2) == 0
    assert store.unsent() == 2
    calendar.date += timedelta(seconds=1)
    assert keeping.forget("shop") == 1
    assert store.unsent() == 1
    calendar.date += timedelta(seconds=59)
    assert keeping.forget("shop") == 2
    assert store.unsent() == 0


def test_what_is_kept_for_a_time_waits_for_no_warehouse(store: shop.Shop, keeping: Origin) -> None:
    store.sell((1, 1.0, None))
    keeping.confirm("shop", HERE, 1)
    with store.reader.snapshot() as snapshot:
        assert snapshot.waiting("shop") == 1
    keeping.confirm("shop", THERE, 1)
    with store.reader.snapshot() as snapshot:
        assert snapshot.waiting("shop") == 0
    assert store.unsent() == 1


def test_a_warehouse_that_goes_back_while_batches_are_kept_is_waited_for(
    store: shop.Shop, keeping: Origin, calendar: Calendar
) -> None:
    store.sell((1, 1.0, None))
    keeping.confirm("shop", HERE, 1)
    keeping.confirm("shop", THERE, 1)
    keeping.confirm("shop", THERE, 0)
    calendar.date += timedelta(hours=1)
    assert keeping.forget("shop") == 0
    assert store.unsent() == 1


def test_a_core_stands_still_at_its_limit_until_a_warehouse_confirms(tmp_path: Path) -> None:
    made = Trial(core_path(tmp_path), shop.flow, staged_mb_max=1)
    with (
        closing(made),
        closing(Origin(made.path, config.Core(), CrashPoints())) as origin,
    ):
        origin.feed("shop", [HERE])
        made.run(shop.orders, [(1, 1.0, "x" * 2**21)])
        with pytest.raises(StagedFull, match="has reached 2 MB"):
            made.run(shop.orders, [(2, 1.0, None)])
        assert made.batch(shop.flow) == 1
        origin.confirm("shop", HERE, 1)
        made.core.drain()
        assert made.batch(shop.flow) == 2
