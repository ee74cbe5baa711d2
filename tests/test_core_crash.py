"""The core killed around its commit: in the end it holds what it would hold without the kill."""

import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from etl_procs.core import core_path
from etl_procs.reader import Reader
from headrace.crash import Point

CRASHING = textwrap.dedent("""
    import sys
    from pathlib import Path
    from flows import EXAMPLE, arrived
    from etl_procs import loader
    from etl_procs.core import Core, core_path
    from headrace.clock import SystemClock
    from headrace.crash import CrashPoints

    home, crash_at = sys.argv[1:]
    flow = loader.load([EXAMPLE])["leaderboard"]
    core = Core(core_path(Path(home)), clock=SystemClock(), crash=CrashPoints(crash_at))
    core.prepare([flow])
    votes = [(f"{n % 70:03}", n % 8) for n in range(100)]
    for first in range(0, 100, 10):
        tuples = arrived(flow.streams["votes"], votes[first:first + 10], first=first)
        core.run(flow.procedures["count"], tuples)
""")


@pytest.mark.parametrize("point", [Point.CORE_COMMIT_BEFORE, Point.CORE_COMMIT_AFTER])
def test_a_kill_around_the_commit_changes_nothing_in_the_end(tmp_path: Path, point: Point) -> None:
    def run(home: Path, crash_at: str) -> int:
        command = [sys.executable, "-c", CRASHING, str(home), crash_at]
        return subprocess.run(command, cwd=Path(__file__).parent, check=False).returncode

    assert run(tmp_path / "calm", "") == 0
    assert run(tmp_path / "killed", f"{point.value}:4") == -9
    with Reader(core_path(tmp_path / "killed")).snapshot() as snapshot:
        assert snapshot.batch("leaderboard") == (3 if point is Point.CORE_COMMIT_BEFORE else 4)
    assert run(tmp_path / "killed", "") == 0
    assert _contents(tmp_path / "killed") == _contents(tmp_path / "calm")


def _contents(home: Path) -> list[list[tuple[object, ...]]]:
    queries = [
        "SELECT * FROM ballots ORDER BY phone",
        "SELECT * FROM headrace_positions",
        "SELECT * FROM headrace_ledger",
        'SELECT "offset", reason, value, batch FROM headrace_dead_letters ORDER BY "offset"',
        "SELECT batch, data FROM headrace_staged ORDER BY batch",
    ]
    with sqlite3.connect(core_path(home)) as connection:
        return [connection.execute(query).fetchall() for query in queries]
