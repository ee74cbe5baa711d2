"""Batch rules through the whole core: the same log gives the same batches, whatever restarts."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from flows import offsets
from hypothesis import given, settings
from hypothesis import strategies as st
from trial import Trial

from etl_procs import (
    Batch,
    Dataflow,
    Missing,
    OnTimeout,
    Transaction,
    by_count,
    by_interval,
    by_punctuation,
)
from etl_procs.core import core_path
from etl_procs.rules import Rule

ROWS = "t INTEGER NOT NULL, n INTEGER NOT NULL"


class Seen(Trial):
    """A dataflow that writes down which tuples were together in a batch."""

    def __init__(self, path: Path, *rules: Rule, partitions: int = 1, **more: Any) -> None:
        flow = Dataflow("seen")
        streams = [flow.stream(f"s{n}", ROWS, batches=rule) for n, rule in enumerate(rules)]
        table = flow.table("batches", "batch INTEGER, stream TEXT, t INTEGER, n INTEGER")

        @flow.procedure(takes=streams, writes=[table])
        def see(tx: Transaction, *batches: Batch) -> None:
            for batch in batches:
                rows = [(tx.batch, batch.stream.name, *values) for values in batch.tuples]
                rows = rows or [(tx.batch, batch.stream.name, None, None)]
                tx.executemany("INSERT INTO batches VALUES (?, ?, ?, ?)", rows)

        self.streams = streams
        super().__init__(path, flow, durability="weak", **more)
        self.partitions = {s.topic: list(range(partitions)) for s in streams}
        self.reopen()

    def seen(self) -> list[list[Any]]:
        """By batch: the tuples' numbers; of several streams, one after the other."""
        rows = self.query("SELECT batch, n FROM batches ORDER BY batch, stream, rowid")
        last = max((batch for batch, _ in rows), default=0)
        return [
            [n for b, n in rows if b == batch and n is not None] for batch in range(1, last + 1)
        ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return core_path(tmp_path)


def test_an_interval_ends_when_every_partition_is_past_it(path: Path) -> None:
    trial = Seen(path, by_interval("t", 10), partitions=2)
    (s,) = trial.streams
    trial.feed(s, [(1, 1), (5, 2), (12, 3)])
    assert trial.core.drain() == []
    trial.feed(s, [(3, 4), (31, 5)], partition=1)
    trial.core.drain()
    assert trial.seen() == [[1, 2, 4]]
    trial.reopen()
    trial.feed(s, [(33, 6)])
    trial.core.drain()
    assert trial.seen() == [[1, 2, 4], [3]]
    assert offsets(trial.core.positions(s)) == {0: 3, 1: 1}
    trial.close()


def test_a_tuple_that_comes_late_after_a_restart_joins_a_later_interval(path: Path) -> None:
    trial = Seen(path, by_interval("t", 10))
    (s,) = trial.streams
    trial.feed(s, [(1, 1), (12, 2)])
    trial.core.drain()
    trial.reopen()
    trial.feed(s, [(3, 3), (21, 4)])
    trial.core.drain()
    assert trial.seen() == [[1], [2, 3]]
    trial.close()


def test_a_batch_that_nobody_has_tuples_for_is_a_batch_of_its_dataflow(path: Path) -> None:
    trial = Seen(path, by_punctuation(), by_punctuation())
    one, other = trial.streams
    trial.end(one)
    trial.end(one, [(0, 1)])
    trial.end(other, [(0, 2)])
    trial.end(other)
    trial.core.drain()
    assert trial.seen() == [[2], [1]]
    trial.end(one)
    trial.end(other)
    trial.core.drain()
    assert trial.seen() == [[2], [1], []]
    assert trial.batch(trial.flows[0]) == 3
    trial.close()


def test_a_count_that_lingers_is_closed_short_and_never_cut_again(path: Path) -> None:
    trial = Seen(path, by_count(3, linger_s=2.0))
    (s,) = trial.streams
    trial.feed(s, [(0, n) for n in range(1, 6)])
    trial.core.drain()
    assert trial.seen() == [[1, 2, 3]]
    assert trial.core.deadline() == 2.0
    trial.clock.advance(2.0)
    trial.core.drain()
    trial.reopen()
    trial.feed(s, [(0, n) for n in range(6, 9)])
    trial.core.drain()
    assert trial.seen() == [[1, 2, 3], [4, 5], [6, 7, 8]]
    assert trial.core.metrics.epochs == {}  # a number of batches is no watermark
    trial.close()


def test_a_punctuation_that_does_not_come_in_time_closes_the_batch_aloud(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial = Seen(path, by_punctuation(timeout_s=5.0, on_timeout=OnTimeout.CLOSE))
    (s,) = trial.streams
    trial.feed(s, [(0, 1)])
    trial.clock.advance(4.9)
    assert trial.core.drain() == []
    trial.clock.advance(0.1)
    trial.core.drain()
    assert "stream seen.s0: after 5 s, batch 1 is closed with what is there" in caplog.text
    trial.reopen()
    trial.feed(s, [(0, 2)])
    trial.mark(s, 1)  # of the batch that was closed: it ends nothing any more
    trial.core.drain()
    trial.feed(s, [(0, 3)])
    trial.mark(s, 2)
    trial.core.drain()
    assert trial.seen() == [[1], [2, 3]]
    trial.close()


def test_what_is_missing_may_be_filled_in_and_is_a_tuple_like_any_other(path: Path) -> None:
    def guess(missing: Missing) -> list[dict[str, Any]]:
        assert [row["n"] for row in missing.rows] == [1]
        return [{"t": 0, "n": 99}]

    trial = Seen(path, by_punctuation(timeout_s=5.0, on_timeout=guess))
    (s,) = trial.streams
    trial.feed(s, [(0, 1)])
    trial.clock.advance(5.0)
    trial.core.drain()
    assert trial.seen() == [[1, 99]]
    assert offsets(trial.core.positions(s)) == {0: 1}
    trial.reopen()
    assert trial.core.drain() == []
    trial.close()


log = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 40), st.booleans()), min_size=1, max_size=30
)
"""Records of two partitions: the partition, the event time, and whether a punctuation follows."""


@settings(max_examples=40, deadline=None)
@given(
    rule=st.sampled_from([by_interval("t", 7), by_punctuation()]),
    records=log,
    drains=st.lists(st.booleans(), min_size=30, max_size=30),
    reopens=st.sets(st.integers(0, 29), max_size=3),
    step=st.sampled_from([0.0, 1.0]),
)
def test_the_same_log_gives_the_same_batches_however_it_is_read(
    rule: Rule,
    records: list[tuple[int, int, bool]],
    drains: list[bool],
    reopens: set[int],
    step: float,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        disturbed = Seen(Path(folder) / "disturbed.db", rule, partitions=2)
        disturbed.clock.step = step
        (s,) = disturbed.streams
        marks = {0: 0, 1: 0}
        for number, (partition, time, ends) in enumerate(records):
            disturbed.feed(s, [(time, number)], partition=partition)
            if ends and rule == by_punctuation():
                marks[partition] += 1
                disturbed.mark(s, marks[partition], partition=partition)
            if drains[number]:
                disturbed.core.drain()
            if number in reopens:
                disturbed.reopen()
        disturbed.core.drain()
        calm = Seen(Path(folder) / "calm.db", rule, partitions=2)
        (same,) = calm.streams
        for part in disturbed.log:
            calm.give(type(part)(same, part.tuples))
        calm.core.drain()
        assert disturbed.seen() == calm.seen()
        assert disturbed.core.positions(s) == calm.core.positions(same)
        disturbed.close()
        calm.close()
