"""TPC-DI's dataflow says what the oracle says, whatever the order in which its sources arrive."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import phased
import pytest
from loading import REFERS

from etl_procs import Trial
from tpcdi import oracle, schema
from tpcdi.dataflow.sources import SOURCES
from tpcdi.flow import flow
from tpcdi.oracle.comparison import differences

SCALE, SEED = 0.01, 7
SEEDS = (1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 13)))


@pytest.fixture(scope="module")
def folder(made: Callable[[float, int], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small directory, with a part of the clock."""
    path = shutil.copytree(made(SCALE, SEED), tmp_path_factory.mktemp("dataflow") / "files")
    phased.shorten_clock(path)
    return path


@pytest.fixture(scope="module")
def in_order(folder: Path) -> Iterator[Trial]:
    """A trial of all three phases, one source after the other."""
    with Trial(flow) as trial:
        phased.load(trial, folder)
        yield trial


@pytest.fixture(scope="module")
def exported(in_order: Trial) -> dict[str, bytes]:
    return phased.exported(in_order)


def test_every_table_has_the_rows_that_the_oracle_computes(folder: Path, in_order: Trial) -> None:
    with oracle.compute(folder) as computed:
        phased.fetch(in_order, computed, "warehouse")
        assert differences(computed, "warehouse") == []
    assert in_order.dead_letters() == []
    assert not [text for _, _, text, _ in phased.messages(in_order) if text == "Rows that wait"]


@pytest.mark.parametrize("seed", SEEDS)
def test_any_order_and_any_cut_lead_to_the_same_bytes(
    folder: Path, exported: dict[str, bytes], seed: int
) -> None:
    with Trial(flow) as trial:
        phased.load(trial, folder, seed=seed)
        found = phased.exported(trial)
    assert [table for table in schema.TABLES if found[table] != exported[table]] == []


def test_what_a_file_says_stays_in_its_order_for_its_stream_has_one_partition() -> None:
    streams = {stream for source in SOURCES for stream in (source.first, source.then) if stream}
    assert {stream.name for stream in streams if stream.wire.partitions != 1} == set()


def test_a_phase_that_is_announced_after_all_of_its_rows_leads_to_the_same_bytes(
    folder: Path, exported: dict[str, bytes]
) -> None:
    with Trial(flow) as trial:
        for batch in (1, 2, 3):
            feed = phased.Feed(folder, batch)
            trial.batch(**feed.rows)
            trial.batch(marks=feed.begins)
            for source in feed.complete():
                trial.batch(marks=[feed.mark(source)])
            trial.batch(marks=feed.ends)
        assert phased.exported(trial) == exported


def test_nothing_is_shown_before_the_days_that_it_refers_to(folder: Path) -> None:
    feed = phased.Feed(folder, 1)
    days = feed.rows.pop("dates")
    with Trial(flow) as trial:
        trial.batch(marks=feed.begins, **feed.rows)
        for source in feed.complete():
            if source != "Date":
                trial.batch(marks=[feed.mark(source)])
        assert [table for table in REFERS if trial.outlet(table)] == []
        trial.batch(dates=days)
        assert [table for table in REFERS if trial.outlet(table)] == []
        trial.batch(marks=[feed.mark("Date")])
        assert [table for table in REFERS if not trial.outlet(table)] == []


@pytest.mark.parametrize("last", ["FINWIRE", "Prospect"])
def test_a_source_that_is_complete_after_all_others_leads_to_the_same_bytes(
    folder: Path, exported: dict[str, bytes], last: str
) -> None:
    with Trial(flow) as trial:
        for batch in (1, 2, 3):
            feed = phased.Feed(folder, batch)
            sources = list(feed.complete())
            random.Random(batch).shuffle(sources)  # noqa: S311
            trial.batch(marks=feed.begins, **feed.rows)
            for source in (*(s for s in sources if s != last), last):
                trial.batch(marks=[feed.mark(source)])
            trial.batch(marks=feed.ends)
        assert phased.exported(trial) == exported
