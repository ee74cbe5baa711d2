"""The increments have as many rows as the real generator's: at scale 3 its own, else in proportion.

Some are counted out: customers, accounts, new trades, quotes, prospects. Others follow from what
was placed before, and differ from day to day.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from tpcdi_files import Directory

from tpcdi.generate import State, directory, generate, increment

SCALES = (1, 3)
BATCHES = (2, 3)

COUNTED = {
    "Account.txt": 30,
    "Customer.txt": 15,
    "DailyMarket.txt": 1_788,
    "Prospect.csv": 14_982,
    "new trades": 214,
}
"""At scale 3, in each of the two increments."""
FOLLOWING = {
    "Trade.txt": 558,
    "CashTransaction.txt": 194,
    "HoldingHistory.txt": 213,
    "WatchHistory.txt": 2_098,
    "trades": 352,
}
"""At scale 3, the mean of both; trades that something is said of were counted in the first."""
PROSPECTS = {"new": 18, "gone": 18, "changed": 24}
ROWS = 19_878
"""At scale 3, the mean of both."""

MORE_DAYS = 8
"""What differs from day to day evens out over them."""


@pytest.fixture(scope="module", params=SCALES)
def files(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, Directory]]:
    """A scale, and its files for as long as they are looked at: 100 MB and 275 MB."""
    path = tmp_path_factory.mktemp("increments") / "files"
    generate(path, request.param, 5)
    yield request.param, Directory(path)
    shutil.rmtree(path)


def filed(files: Directory, batch: int) -> Counter[str]:
    """Count the rows of an increment's files."""
    here = files.path / f"Batch{batch}"
    names = {path.name for path in here.iterdir() if not path.name.endswith("_audit.csv")}
    found = Counter({name: len(files.rows(batch, name)) for name in names - {"BatchDate.txt"}})
    trades = files.rows(batch, "Trade.txt")
    found["new trades"] = sum(row[0] == "I" for row in trades)
    found["trades"] = len({row[2] for row in trades})
    return found


def gone_on(path: Path) -> Iterator[Counter[str]]:
    """Count the rows of the days after the files."""
    state = State.load(path / directory.STATE)
    for _ in range(MORE_DAYS):
        made = increment(state).tables
        ids = made["Trade.txt"]["T_ID"].to_pylist()
        yield Counter(
            {name: table.num_rows for name, table in made.items()} | {"trades": len(set(ids))}
        )


@pytest.mark.parametrize("batch", BATCHES)
def test_what_is_counted_out_is_what_the_real_generator_counts(
    files: tuple[int, Directory], batch: int
) -> None:
    scale, there = files
    found = filed(there, batch)
    assert {name: found[name] for name in COUNTED} == {
        name: round(rows * scale / 3) for name, rows in COUNTED.items()
    }


def test_as_many_prospects_are_new_gone_and_changed(files: tuple[int, Directory]) -> None:
    scale, there = files
    seen = [{row[0]: row for row in there.rows(batch, "Prospect.csv")} for batch in (1, *BATCHES)]
    for before, now in pairwise(seen):
        both = before.keys() & now.keys()
        found = {
            "new": len(now.keys() - before.keys()),
            "gone": len(before.keys() - now.keys()),
            "changed": sum(now[agency] != before[agency] for agency in both),
        }
        assert found == {name: rows * scale / 3 for name, rows in PROSPECTS.items()}


def test_what_follows_from_days_before_is_in_proportion(files: tuple[int, Directory]) -> None:
    scale, there = files
    days = [*(filed(there, batch) for batch in BATCHES), *gone_on(there.path)]
    for name, rows in FOLLOWING.items():
        found, wanted = sum(day[name] for day in days) / len(days), rows * scale / 3
        assert abs(found - wanted) < 0.08 * wanted, (name, found, wanted)


@pytest.mark.parametrize("batch", BATCHES)
def test_an_increment_has_the_files_and_all_in_all_the_rows_of_the_real_one(
    files: tuple[int, Directory], batch: int
) -> None:
    scale, there = files
    found = filed(there, batch)
    del found["trades"], found["new trades"]
    assert found.keys() == {name for name in (*COUNTED, *FOLLOWING) if "." in name}
    wanted = ROWS * scale / 3
    assert abs(found.total() - wanted) < 0.01 * wanted
