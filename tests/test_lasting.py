"""A core that is read again and again over one connection."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from trial import nothing

from etl_procs import Dataflow, by_count, reader
from etl_procs.core import Core, core_path
from etl_procs.reader import Lasting, Snapshot
from headrace.clock import SystemClock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints
from headrace.errors import NotRunning


def opened(home: Path) -> Core:
    """Open a core, and make it where there is none."""
    flow = Dataflow("f")
    flow.procedure(takes=flow.stream("s", "n INTEGER", batches=by_count(1)))(nothing)
    core = Core(core_path(home), settings=Settings(), clock=SystemClock(), crash=CrashPoints())
    core.prepare([flow])
    return core


@pytest.fixture
def path(tmp_path: Path) -> Path:
    core_path(tmp_path).parent.mkdir()
    opened(tmp_path).close()
    return core_path(tmp_path)


@pytest.fixture
def lasting(path: Path) -> Iterator[Lasting]:
    with closing(Lasting(path)) as made:
        yield made


def core_id(core: Lasting) -> str:
    with core.snapshot() as snapshot:
        return str(snapshot.core_id)


def claimed(core: Lasting) -> str | None:
    with core.snapshot() as snapshot:
        return snapshot.topic("f", "s")


def test_each_snapshot_has_what_is_committed_by_then_over_one_connection(
    lasting: Lasting, path: Path
) -> None:
    assert claimed(lasting) is None
    with closing(opened(path.parent.parent)) as core:
        core.claim("f", "s", "id")
    with patch.object(sqlite3, "connect") as connect:
        assert claimed(lasting) == "id"
    connect.assert_not_called()


def test_what_was_not_read_to_its_end_does_not_keep_an_older_state_open(
    lasting: Lasting, path: Path
) -> None:
    with lasting.snapshot() as snapshot:
        half_read = snapshot.connection.execute("SELECT name FROM sqlite_master")
        assert half_read.fetchone()
    with closing(opened(path.parent.parent)) as core:
        core.claim("f", "s", "id")
    assert claimed(lasting) == "id"
    with pytest.raises(sqlite3.ProgrammingError):
        half_read.fetchone()


def test_between_two_snapshots_it_keeps_no_writer_from_emptying_its_log(
    lasting: Lasting, path: Path
) -> None:
    with closing(opened(path.parent.parent)) as core, closing(sqlite3.connect(path)) as other:
        core.claim("f", "s", "id")
        core_id(lasting)
        core.claim("f", "s", "id")
        is_busy, frames, _ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert (is_busy, frames) == (0, 0)


def test_an_engine_that_ends_leaves_nothing_in_the_log_beside_who_reads(
    lasting: Lasting, path: Path
) -> None:
    core_id(lasting)
    with closing(opened(path.parent.parent)) as core:
        core.claim("f", "s", "id")
        log = path.with_name(f"{path.name}-wal")
        assert log.stat().st_size
    assert not log.exists() or not log.stat().st_size
    assert claimed(lasting) == "id"


def test_a_core_in_the_place_of_another_is_opened_anew(lasting: Lasting, path: Path) -> None:
    before = core_id(lasting)
    for file in path.parent.iterdir():
        file.unlink()
    with pytest.raises(NotRunning, match="there is no core"):
        core_id(lasting)
    opened(path.parent.parent).close()
    assert core_id(lasting) != before


def test_a_copy_that_is_brought_back_with_its_log_is_read(lasting: Lasting, path: Path) -> None:
    with closing(opened(path.parent.parent)) as core:
        assert claimed(lasting) is None
        core.claim("f", "s", "id")
        kept = {file: file.read_bytes() for file in path.parent.glob("partition-0.db*")}
    for file, content in kept.items():
        file.unlink(missing_ok=True)
        file.write_bytes(content)
    assert claimed(lasting) == "id"


def test_a_core_that_takes_the_place_while_a_snapshot_begins_is_read_next(
    lasting: Lasting, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = core_id(lasting)
    other = tmp_path / "other"
    core_path(other).parent.mkdir(parents=True)
    opened(other).close()
    begun = reader._begun

    @contextmanager
    def replaced(at: Path, connection: sqlite3.Connection) -> Iterator[Snapshot]:
        with begun(at, connection) as snapshot:
            core_path(other).replace(path)
            yield snapshot

    with monkeypatch.context() as patched:
        patched.setattr(reader, "_begun", replaced)
        assert core_id(lasting) == before
    assert core_id(lasting) != before


def test_after_an_error_the_next_snapshot_is_another_ones(lasting: Lasting) -> None:
    with pytest.raises(ZeroDivisionError), lasting.snapshot():
        raise ZeroDivisionError
    assert core_id(lasting)
