"""The core killed at every crash point, one time after the other: in the end it holds, byte
for byte, what it would hold without the kill.
"""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from crashing import AGAIN, FIRST, LAST

from etl_procs.core import core_path
from headrace.crash import Point

PROGRAM = Path(__file__).parent / "crashing.py"
POINTS = [point for point in Point if point.value.startswith("core.")]


def run(home: Path, *arguments: str) -> int:
    """Run the program; tell how often it was killed."""
    command = [sys.executable, str(PROGRAM), str(home), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout)


def dump(home: Path) -> list[str]:
    """Write everything down but who holds the core, and its random id."""
    with sqlite3.connect(core_path(home)) as connection:
        return [line for line in connection.iterdump() if '"headrace_core"' not in line]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    home = tmp_path_factory.mktemp("calm")
    assert run(home) == 0
    return dump(home)


def test_the_workload_leaves_something_of_everything(calm: list[str]) -> None:
    filled = {line.split('"')[1] for line in calm if line.startswith("INSERT INTO")}
    wanted = {"ledger", "positions", "staged", "dead_letters", "calls", "tables", "topics"}
    wanted |= {"published", "published_batches", "history"}
    assert {f"headrace_{name}" for name in wanted} <= filled
    assert {"sums", "recent", "by_key", "headrace_staged_recent"} <= filled
    assert "headrace_pending" not in filled
    assert sum(f"'fourth',{LAST}" in line for line in calm) == 1


STEPS = dict.fromkeys((Point.CORE_COMMIT_BEFORE, Point.CORE_COMMIT_AFTER), 4)
"""Which come so often that each so many-th kill says most of it; `make prove` does every one."""


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_time_changes_nothing_in_the_end(
    tmp_path: Path, calm: list[str], point: Point
) -> None:
    step = STEPS.get(point, 1)
    times = run(tmp_path, point.value, str(step))
    assert times >= 1, f"{point} is never reached: a crash there is not tested"
    killed = [home for home in tmp_path.iterdir() if dump(home) == calm]
    assert len(killed) == times + 1, f"at {point.value}: only {killed} are as calm"


def test_kill_after_kill_it_gets_through_one_commit_at_a_time(
    tmp_path: Path, calm: list[str]
) -> None:
    assert run(tmp_path, Point.CORE_COMMIT_AFTER.value, AGAIN) > LAST - FIRST
    assert dump(tmp_path) == calm
