"""Published streams: what of their batches is kept, from when on, for how long, and what is not."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from doubling import N, Open
from trial import Trial, named, nothing

from etl_procs import Dataflow, by_interval, by_punctuation, staging
from etl_procs.publisher import Publisher
from headrace import config
from headrace.crash import CrashPoints
from headrace.errors import NotRunning

MB = 2**20


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Open]:
    made = Open(tmp_path / "core.db")
    yield made
    made.close()


def test_a_stream_is_kept_from_when_it_is_published_on(made: Open) -> None:
    made.take([1], [2])
    assert made.after(made.doubled) is None
    made.publish(made.doubled)
    assert made.after(made.doubled) == 2
    made.take([3, 4], [], [5])
    assert made.kept(made.doubled) == {3: [6, 8], 5: [10]}
    assert made.kept(made.source) == {}, "that one is not published"
    made.publish(made.doubled)
    assert made.after(made.doubled) == 2, "to say it again changes nothing"


def test_border_streams_are_kept_as_they_are_cut(made: Open) -> None:
    made.publish(made.source)
    made.take([1, 2], [3])
    made.reopen()
    made.take([4])
    assert made.kept(made.source) == {1: [1, 2], 2: [3], 3: [4]}
    assert made.kept(made.source, after=2) == {3: [4]}


def test_small_and_large_batches_of_a_group_are_kept_in_their_order(made: Open) -> None:
    made.publish(made.source)
    made.take([1], list(range(1_000)), [2], [3])
    assert made.kept(made.source) == {1: [1], 2: list(range(1_000)), 3: [2], 4: [3]}


def test_a_batch_that_is_given_up_is_an_empty_one(made: Open) -> None:
    for stream in (made.source, made.doubled):
        made.publish(stream)
    made.take([1], [-1], [2])
    assert made.kept(made.doubled) == {1: [2], 3: [4]}
    assert made.kept(made.source) == {1: [1], 2: [-1], 3: [2]}, "that was its batch"


def test_a_batch_that_runs_again_is_what_it_gives_then(made: Open) -> None:
    made.publish(made.doubled)
    made.take([1], [-1], [2])
    made.least = -1
    with made.changing() as letters:
        letters.replay([letter.id for letter in letters])
    made.core.drain()
    assert made.kept(made.doubled) == {1: [2], 3: [4], 4: [-2]}


def test_what_is_rolled_back_is_not_kept(made: Open) -> None:
    made.publish(made.doubled)
    made.take([1])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("etl_procs.ledger.move_positions", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            made.take([2])
    assert made.kept(made.doubled) == {1: [2]}
    made.core.drain()
    assert made.kept(made.doubled) == {1: [2], 2: [4]}


def test_a_stream_that_is_published_amid_a_round_is_kept_from_the_next_on(tmp_path: Path) -> None:
    made = Open(tmp_path / "core.db", group_batches_max=1)
    made.clock.step = 1.0  # a group ends after each unit
    made.end(made.source, [(1,)])
    made.core.commit_next()
    assert made.ledger() == {"double": 1, "tell": 0}
    for stream in (made.source, made.doubled):
        made.publish(stream)
    made.take([2])
    assert made.after(made.doubled) == made.after(made.source) == 1
    assert made.kept(made.doubled) == {2: [4]}
    assert made.kept(made.source) == {2: [2]}
    made.close()


def test_publishing_counts_rounds_that_only_wait_to_be_taken(made: Open) -> None:
    """Who was furthest may be gone; its round is open all the same."""
    made.take([1])
    with closing(sqlite3.connect(made.path)) as other:
        other.execute("INSERT INTO headrace_pending VALUES ('open', 'doubled', 2, x'00')")
        other.commit()
    made.publish(made.doubled)
    assert made.after(made.doubled) == 2


def test_what_comes_too_late_is_kept_in_the_stream_that_takes_it(tmp_path: Path) -> None:
    flow = Dataflow("timely")
    late = flow.stream("late", "at INTEGER NOT NULL")
    read = flow.stream("read", "at INTEGER NOT NULL", batches=by_interval("at", 10, late=late))
    flow.procedure(takes=[read, late])(named("take", nothing))
    trial = Trial(tmp_path / "core.db", flow)
    publisher = Publisher([trial.path], config.Core(), CrashPoints())
    for stream in (read, late):
        publisher.publish(stream, 1)
    trial.feed(read, [(1,), (12,), (5,), (25,), (31,)])
    trial.core.drain()
    with trial.reader.snapshot() as snapshot:
        kept = {
            stream.name: [
                list(row.values())
                for _, t in snapshot.kept(stream, after=0)
                for row in t.to_pylist()
            ]
            for stream in (read, late)
        }
    assert kept == {"read": [[1, 1], [2, 12], [3, 25]], "late": [[2, 5]]}
    trial.close()


def test_what_is_unpublished_is_gone_and_may_be_published_anew(made: Open) -> None:
    made.publish(made.doubled)
    made.publish(made.source)
    made.take([1])
    made.publisher.unpublish(made.doubled, 1)
    assert made.after(made.doubled) is None
    made.take([2])
    assert made.kept(made.doubled) == {}
    assert made.kept(made.source) == {1: [1], 2: [2]}
    made.publish(made.doubled)
    made.take([3])
    assert (made.after(made.doubled), made.kept(made.doubled)) == (2, {3: [6]})


def test_what_is_kept_is_bounded_and_the_oldest_of_all_goes_first(tmp_path: Path) -> None:
    made = Open(tmp_path / "core.db", published_mb_max=1, group_batches_max=1)
    made.publish(made.doubled)
    made.take([0])
    made.publish(made.source)
    for batch in range(2, 42):
        made.take([batch] * 4_000)
    for stream, factor in ((made.source, 1), (made.doubled, 2)):
        after = made.after(stream)
        assert after is not None
        assert 20 < after < 40
        assert made.kept(stream) == {b: [factor * b] * 4_000 for b in range(after + 1, 42)}
    ((size,),) = made.query("SELECT sum(length(data)) FROM headrace_published_batches")
    assert MB / 2 < size < MB * 1.2
    made.close()


def test_what_is_too_old_goes_and_what_is_left_is_complete(made: Open) -> None:
    made.publish(made.doubled)
    made.take([1], [2])
    made.clock.advance(86_000)
    made.take([3], [4])
    made.core.move_on()
    assert made.after(made.doubled) == 0, "none of it is old enough"
    made.clock.advance(500)
    made.core.move_on()
    assert (made.after(made.doubled), made.kept(made.doubled)) == (2, {3: [6], 4: [8]})
    made.reopen()
    made.clock.advance(86_400)
    made.core.move_on()
    assert (made.after(made.doubled), made.kept(made.doubled)) == (4, {})


def test_a_large_batch_lies_in_several_blobs(made: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 1_000)
    made.publish(made.source)
    made.take([1], list(range(1_000)), [2])
    assert made.kept(made.source) == {1: [1], 2: list(range(1_000)), 3: [2]}
    with made.reader.snapshot() as snapshot:
        sizes = [len(table) for _, table in snapshot.kept(made.source, after=0)]
    assert len(sizes) > 10
    assert max(sizes) < 100
    assert [n for _, n, _ in made.staged(made.out)] == [2, *range(0, 2_000, 2), 4]
    counts = made.query("SELECT row_count, first_batch, last_batch FROM headrace_staged")
    assert len(counts) > 10
    assert sum(count for count, _, _ in counts) == 1_002


def test_a_stream_that_is_no_more_declared_is_no_more_published(made: Open) -> None:
    made.publish(made.doubled)
    made.take([1])
    less = Dataflow("open")
    source = less.stream("source", N, batches=by_punctuation())
    less.outlet("out", "n INTEGER NOT NULL, text TEXT")
    less.procedure(takes=source)(named("double", lambda _tx, _batch: None))
    said = made.reopen(less)
    assert "stream open.doubled is gone, and nothing of it is published" in said
    assert made.query("SELECT * FROM headrace_published") == []
    assert made.query("SELECT * FROM headrace_published_batches") == []


def test_a_core_of_before_streams_were_published_is_brought_over(made: Open) -> None:
    made.take([1])
    made.close()
    with closing(sqlite3.connect(made.path)) as other:
        other.execute("ALTER TABLE headrace_core DROP COLUMN published")
        other.execute("DROP TABLE headrace_published")
        other.execute("DROP TABLE headrace_published_batches")
        other.commit()
    made.reopen()
    made.publish(made.doubled)
    made.take([2])
    assert made.kept(made.doubled) == {2: [4]}


def test_nothing_is_published_where_there_is_no_core(made: Open, tmp_path: Path) -> None:
    absent = tmp_path / "absent" / "core.db"
    with pytest.raises(NotRunning, match="there is no core"):
        Publisher([absent], config.Core(), CrashPoints()).publish(made.source, 1)
    assert not absent.parent.exists()
