"""Windows: what is in them and when it is seen, against a model that does it naively."""

import sqlite3
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trial import Trial, dump, named

from etl_procs import (
    Batch,
    Dataflow,
    Transaction,
    by_punctuation,
    last_batches,
    last_interval,
    last_tuples,
)
from etl_procs.core import core_path
from etl_procs.errors import CoreError
from etl_procs.rules import Extent, LastBatches, LastInterval, LastTuples
from headrace.errors import DefinitionError

COLUMNS = "t INTEGER NOT NULL, k TEXT NOT NULL, v INTEGER"
SEEN = "SELECT t, k, v FROM recent ORDER BY rowid"

Row = tuple[int, str, int | None]


class Model:
    """A window as one would explain it: lists, and nothing that is clever."""

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        self.staged: list[tuple[int, Row]] = []
        self.inside: list[tuple[int, Row]] = []
        self.boundary: int | None = None
        self.slides: list[list[Row]] = []

    @property
    def seen(self) -> list[Row]:
        return [row for _, row in self.inside]

    def put(self, batch: int, rows: list[Row]) -> None:
        if isinstance(self.extent, LastTuples):
            for row in rows:
                self.staged.append((batch, row))
                if len(self.staged) == self.extent.slide:
                    self._slide((self.inside + self.staged)[-self.extent.size :])
                    self.staged = []
        elif isinstance(self.extent, LastBatches):
            missed = (batch - 1) // self.extent.slide * self.extent.slide
            if any(b <= missed for b, _ in self.staged):  # the batch of that slide has died
                self._slide_at(missed, self.extent.size)
            self.staged += [(batch, row) for row in rows]
            if batch % self.extent.slide == 0:
                self._slide_at(batch, self.extent.size)
        else:
            self.staged += [(batch, row) for row in rows]
            self._go_on(self.extent)

    def _slide_at(self, batch: int, size: int) -> None:
        all_of = [(b, row) for b, row in self.inside + self.staged if b <= batch]
        self.staged = [(b, row) for b, row in self.staged if b > batch]
        self._slide([(b, row) for b, row in all_of if b > batch - size])

    def _go_on(self, extent: LastInterval) -> None:
        times = [row[0] for _, row in self.staged]
        if not times:
            return
        if self.boundary is None:
            self.boundary = min(times) // extent.slide * extent.slide
        newest = max(times) // extent.slide * extent.slide
        while self.boundary < newest:
            self.boundary += extent.slide
            entering = [(b, row) for b, row in self.staged if row[0] < self.boundary]
            self.staged = [(b, row) for b, row in self.staged if row[0] >= self.boundary]
            oldest = self.boundary - extent.size
            self.inside = [(b, row) for b, row in self.inside + entering if row[0] >= oldest]
            if entering or self.boundary == newest:
                self._slide(self.inside)

    def _slide(self, inside: list[tuple[int, Row]]) -> None:
        self.inside = inside
        self.slides.append(self.seen)

    def by_key(self) -> dict[str, tuple[int, int]]:
        counts = Counter(k for _, k, _ in self.seen)
        return {k: (n, sum(v or 0 for _, of, v in self.seen if of == k)) for k, n in counts.items()}

    def total(self) -> tuple[int, int]:
        return len(self.seen), sum(v or 0 for _, _, v in self.seen)


class Watched(Trial):
    """A dataflow that puts what it takes into a window with aggregates, and notes what it sees."""

    def __init__(self, path: Path, extent: Extent, *, watch_slides: bool, **more: Any) -> None:
        self.flow = Dataflow("watched")
        self.source = self.flow.stream("source", COLUMNS, batches=by_punctuation())
        self.recent = self.flow.window("recent", COLUMNS, extent)
        self.flow.aggregate("by_key", self.recent, by="k", n="count(*)", s="sum(v)")
        self.flow.aggregate("sums", self.recent, by=["k"], s="sum(v)")
        self.flow.aggregate("total", self.recent, n="count(*)", s="sum(v)")
        self.pieces = 1
        self.fail: set[int] = set()
        self.seen: dict[int, Any] = {}
        """By batch: the window and its aggregates, as the body saw them after its emit."""
        self.slides: dict[int, list[list[Row]]] = {}
        self.flow.procedure(takes=self.source, gives=[self.recent])(named("watch", self._watch))
        if watch_slides:
            self.flow.trigger(on=self.recent)(named("slid", self._slid))
        super().__init__(path, self.flow, attempts_max=1, durability="weak", **more)

    def _watch(self, tx: Transaction, batch: Batch) -> None:
        self.slides[batch.id] = []
        rows = [dict(row) for row in batch.rows()]
        size = -(-len(rows) // self.pieces) or 1
        for start in range(0, len(rows), size) or [0]:
            tx.emit(self.recent, rows[start : start + size])
        self.seen[batch.id] = (
            [tuple(row.values()) for row in tx.query(SEEN)],
            {row["k"]: (row["n"], row["s"]) for row in tx.query("SELECT k, n, s FROM by_key")},
            {row["k"]: row["s"] for row in tx.query("SELECT k, s FROM sums")},
            [tuple(row.values()) for row in tx.query("SELECT n, s FROM total")],
        )
        if batch.id in self.fail:
            tx.abort("on purpose")

    def _slid(self, tx: Transaction) -> None:
        self.slides[tx.batch].append([tuple(row.values()) for row in tx.query(SEEN)])


small = st.integers(1, 7)
extents = st.one_of(
    st.builds(lambda size, slide: last_tuples(size, slide=slide), small, small),
    st.builds(lambda size, slide: last_batches(size, slide=slide), small, st.integers(1, 4)),
    st.builds(
        lambda size, slide: last_interval("t", size, slide=slide),
        st.integers(1, 40),
        st.integers(1, 15),
    ),
)
rows_of_a_batch = st.lists(
    st.tuples(
        st.integers(-30, 60), st.sampled_from("ab"), st.one_of(st.none(), st.integers(-9, 9))
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(
    extent=extents,
    batches=st.lists(rows_of_a_batch, max_size=8),
    fail=st.sets(st.integers(1, 8), max_size=3),
    reopen=st.sets(st.integers(1, 8), max_size=2),
    watch_slides=st.booleans(),
    pieces=st.integers(1, 3),
    group=st.sampled_from([1, 3, 64]),
)
def test_a_window_and_its_aggregates_are_what_a_naive_one_holds(
    *,
    extent: Extent,
    batches: list[list[Row]],
    fail: set[int],
    reopen: set[int],
    watch_slides: bool,
    pieces: int,
    group: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        watched = Watched(
            Path(folder) / "core.db", extent, watch_slides=watch_slides, group_batches_max=group
        )
        watched.pieces = 1 if isinstance(extent, LastBatches) else pieces
        watched.fail = fail
        for number, rows in enumerate(batches, 1):
            watched.end(watched.source, rows)
            if number in reopen:
                watched.core.drain()
                watched.reopen()
        watched.core.drain()
        model = Model(extent)
        for number, rows in enumerate(batches, 1):
            if number in fail:
                continue
            model.slides.clear()
            size = -(-len(rows) // watched.pieces) or 1
            for start in range(0, len(rows), size) or [0]:
                model.put(number, rows[start : start + size])
            seen = watched.seen[number]
            assert seen[0] == model.seen
            assert seen[1] == model.by_key()
            assert seen[2] == {k: s for k, (_, s) in model.by_key().items()}
            assert seen[3] == [model.total()]
            if watch_slides:
                assert watched.slides[number] == model.slides
        assert watched.query(SEEN) == model.seen
        assert len(watched.letters()) == len(fail & set(range(1, len(batches) + 1)))
        watched.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return core_path(tmp_path)


def rows(*times: int) -> list[Row]:
    return [(t, "a", 1) for t in times]


def seen(watched: Watched) -> list[list[int]]:
    """By batch: the times in the window, as the body saw them."""
    return [[t for t, _, _ in watched.seen[batch][0]] for batch in sorted(watched.seen)]


@pytest.mark.parametrize(
    ("extent", "batches", "expected"),
    [
        (last_tuples(3), [[1, 2], [3], [4, 5]], [[1, 2], [1, 2, 3], [3, 4, 5]]),
        (last_tuples(3, slide=2), [[1], [2], [3], [4, 5]], [[], [1, 2], [1, 2], [2, 3, 4]]),
        (last_batches(2), [[1], [], [2, 3], []], [[1], [1], [2, 3], [2, 3]]),
        (last_batches(2, slide=2), [[1], [2], [3], [4]], [[], [1, 2], [1, 2], [3, 4]]),
        (
            last_interval("t", 10, slide=5),
            [[1, 4], [5], [9, 10], [16]],
            [[], [1, 4], [1, 4, 5, 9], [5, 9, 10]],
        ),
    ],
)
def test_staged_tuples_are_not_seen_before_the_slide(
    path: Path, extent: Extent, batches: list[list[int]], expected: list[list[int]]
) -> None:
    watched = Watched(path, extent, watch_slides=False)
    watched.run(watched.source, *(rows(*times) for times in batches))
    assert seen(watched) == expected
    watched.close()


def test_a_gap_of_a_year_in_event_time_is_one_slide(path: Path) -> None:
    watched = Watched(path, last_interval("t", 10, slide=1), watch_slides=True)
    watched.run(watched.source, rows(1), rows(10**15))
    assert watched.slides[2] == [rows(1), []]
    watched.close()


def test_a_late_tuple_enters_with_the_next_slide_unless_it_is_too_old_for_it(path: Path) -> None:
    watched = Watched(path, last_interval("t", 10, slide=5), watch_slides=False)
    watched.run(watched.source, rows(1, 12), rows(8, 3), rows(17))
    assert seen(watched)[1:] == [[1], [12, 8]]
    watched.close()


def test_a_window_comes_back_with_its_batch_when_that_is_rolled_back(path: Path) -> None:
    watched = Watched(path, last_interval("t", 4, slide=2), watch_slides=False)
    watched.run(watched.source, rows(1, 2, 3))
    before = {name: of for name, of in watched.state().items() if "recent" in name}
    windows = watched.query("SELECT * FROM headrace_windows")
    watched.fail = {2}
    watched.run(watched.source, rows(9, 10, 30))
    after = {name: of for name, of in watched.state().items() if "recent" in name}
    assert len(before) == 2
    assert after == before
    assert watched.query("SELECT * FROM headrace_windows") == windows == [("recent", 2)]
    watched.close()


def test_a_window_by_batches_is_given_a_batch_only_once(path: Path) -> None:
    watched = Watched(path, last_batches(3), watch_slides=False)
    watched.pieces = 2
    watched.run(watched.source, rows(1, 2))
    (letter,) = watched.letters()
    assert "window recent is by batches, and was given this one already" in letter.reason
    watched.close()


def test_a_window_is_changed_by_emit_alone_and_read_by_its_procedure_alone(path: Path) -> None:
    flow = Dataflow("f")
    source = flow.stream("source", "n INTEGER NOT NULL", batches=by_punctuation())
    window = flow.window("recent", "n INTEGER NOT NULL", last_tuples(3))
    flow.aggregate("total", window, n="count(*)")
    bodies = {
        "inserts": "INSERT INTO recent VALUES (1)",
        "deletes": "DELETE FROM total",
        "peeks": "SELECT * FROM headrace_staged_recent",
    }
    flow.procedure(takes=source, gives=[window])(
        named("owner", lambda tx, _batch: [tx.execute(sql) for sql in [bodies["inserts"]]])
    )
    for name, sql in {"reads": "SELECT n FROM recent", "counts": "SELECT n FROM total"}.items():
        flow.procedure(takes=source)(named(name, lambda tx, _batch, sql=sql: tx.query(sql)))
    trial = Trial(path, flow, attempts_max=1)
    trial.run(source, [(1,)])
    reasons = {letter.unit: letter.reason for letter in trial.letters()}
    assert "inserts into recent" in reasons["owner"]
    assert "tx.emit(recent, rows)" in reasons["owner"]
    assert "reads recent, which it does not declare" in reasons["reads"]
    assert "reads total, which it does not declare" in reasons["counts"]
    trial.close()


def test_a_window_keeps_what_it_holds_when_the_core_is_opened_anew(path: Path) -> None:
    watched = Watched(path, last_tuples(3, slide=2), watch_slides=False)
    watched.run(watched.source, rows(1, 2, 3))
    before = dump(path)
    watched.reopen()
    assert [line for line in dump(path) if "recent" in line] == [
        line for line in before if "recent" in line
    ]
    watched.run(watched.source, rows(4))
    assert seen(watched)[-1] == [2, 3, 4]
    watched.close()


def test_an_emit_that_fails_in_the_window_fails_the_batch_even_if_the_body_catches_it(
    path: Path,
) -> None:
    flow = Dataflow("f")
    source = flow.stream("source", "n INTEGER NOT NULL", batches=by_punctuation())
    window = flow.window("recent", "n INTEGER NOT NULL", last_tuples(3))
    flow.aggregate("total", window, s="sum(n)")
    attempts: list[int] = []

    @flow.procedure(takes=source, gives=[window])
    def stubborn(tx: Transaction, batch: Batch) -> None:
        attempts.append(batch.id)
        try:
            tx.emit(window, batch.table)
        except sqlite3.Error:
            tx.query("SELECT s FROM total")

    trial = Trial(path, flow, attempts_max=1)
    trial.run(source, [(1,)], [(2**63 - 1,), (2**63 - 1,)])
    assert attempts == [1, 2, 1], "the first again, without the second"
    assert trial.query("SELECT * FROM recent") == [(1,)]
    assert len(trial.letters()) == 1
    trial.close()


def test_a_row_that_does_not_fit_may_be_caught_since_nothing_of_it_is_there(path: Path) -> None:
    flow = Dataflow("f")
    source = flow.stream("source", "n INTEGER NOT NULL", batches=by_punctuation())
    window = flow.window("recent", "n INTEGER NOT NULL", last_tuples(3))

    @flow.procedure(takes=source, gives=[window])
    def careful(tx: Transaction, batch: Batch) -> None:
        with pytest.raises(CoreError, match="does not fit"):
            tx.emit(window, [{"n": 1}, {"n": "one"}])
        tx.emit(window, [{"n": 2}])

    trial = Trial(path, flow)
    trial.run(source, [(1,)])
    assert trial.query("SELECT * FROM recent") == [(2,)]
    trial.close()


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda f: f.window("w", "t REAL NOT NULL", last_interval("t", 5, slide=1)), "t is REAL"),
        (lambda f: f.window("w", "t INTEGER", last_interval("t", 5, slide=1)), "may be NULL"),
        (lambda f: f.window("w", "n INTEGER", last_interval("t", 5, slide=1)), "has no column t"),
        (lambda f: f.window("w", "n INTEGER", last_tuples(0)), "size is 0"),
        (lambda f: f.window("w", "n INTEGER", last_tuples(True)), "size is True"),
        (lambda f: f.window("w", "n INTEGER", last_batches(1, slide=-1)), "slide is -1"),
        (lambda f: f.window("w", "rowid INTEGER", last_tuples(1)), "rowid"),
        (lambda f: f.window("w", '"order" INTEGER', last_tuples(1)), "'order' is a word of SQL"),
        (lambda f: f.window("order", "n INTEGER", last_tuples(1)), "'order' is a word of SQL"),
        (lambda f: f.aggregate("a", f.window("w", "n REAL", last_tuples(1)), s="sum(n)"), "REAL"),
        (lambda f: f.aggregate("a", f.window("w", "n TEXT", last_tuples(1)), s="max(n)"), "kept"),
        (lambda f: f.aggregate("a", f.window("w", "n TEXT", last_tuples(1))), "has no values"),
        (
            lambda f: f.aggregate(
                "a", f.window("w", "n TEXT", last_tuples(1)), by="n", c="count(*)"
            ),
            "n may be NULL",
        ),
    ],
)
def test_a_window_that_could_not_be_kept_is_refused(declare: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        declare(Dataflow("f"))
