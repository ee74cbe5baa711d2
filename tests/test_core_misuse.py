"""The core against procedures and definitions that would break its promises, knowingly or not."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from trial import Trial, dump, named

from etl_procs import Batch, Dataflow, Row, Transaction, by_punctuation
from etl_procs.core import core_path
from etl_procs.errors import CoreError, DefinitionChanged, OutOfRoom
from etl_procs.rules import Value
from headrace.errors import DefinitionError

Body = Callable[[Transaction, Batch], None]


class Counter(Trial):
    """A dataflow that counts; its body is given, and its names and outlet can be changed."""

    def __init__(self, path: Path) -> None:
        self.body: Body = self.count
        self.flow = self.declared()
        self.ids = self.flow.streams["ids"]
        super().__init__(path, self.flow)

    def declared(
        self, *, name: str = "count", outlet: str = "seen", columns: str = "id INTEGER NOT NULL"
    ) -> Dataflow:
        flow = Dataflow("counter")
        ids = flow.stream("ids", "id INTEGER NOT NULL", batches=by_punctuation())
        totals = flow.table("totals", "id INTEGER PRIMARY KEY, n INTEGER", rows=[(0, 0)])
        self.seen = flow.outlet(outlet, columns)
        body = named(name, lambda tx, batch: self.body(tx, batch))
        flow.procedure(takes=ids, writes=[totals], gives=[self.seen])(body)
        return flow

    def count(self, tx: Transaction, batch: Batch) -> None:
        tx.execute("UPDATE totals SET n = n + 1")
        tx.emit(self.seen, batch.table)

    def of(self, body: Body, *ids: int) -> None:
        """Run a batch through a body."""
        self.body = body
        self.run(self.ids, [(n,) for n in ids or [1]])

    def totals(self) -> list[tuple[object, ...]]:
        return self.query("SELECT * FROM totals ORDER BY id")


@pytest.fixture
def counter(tmp_path: Path) -> Iterator[Counter]:
    made = Counter(core_path(tmp_path))
    yield made
    made.close()


def asking(sql: str, *parameters: Value) -> Body:
    def body(tx: Transaction, batch: Batch) -> None:
        tx.query(sql, parameters)

    return body


@pytest.mark.parametrize("caught", [sqlite3.Error, Exception])
def test_a_body_that_catches_a_full_disk_commits_nothing(
    counter: Counter, caught: type[Exception]
) -> None:
    def stubborn(tx: Transaction, batch: Batch) -> None:
        for row in batch.rows():
            try:
                tx.execute("INSERT INTO totals VALUES (:id, 1)", row)
            except caught as error:
                tx.reject(row, str(error))

    before = dump(counter.path)
    counter.disk_is_full()
    with pytest.raises(OutOfRoom):
        counter.of(stubborn, *range(1, 2_000))
    assert dump(counter.path) == before
    counter.disk_has_room()
    counter.core.drain()
    assert len(counter.totals()) == 2_000
    assert counter.letters() == []


def test_a_body_that_ends_the_transaction_by_sql_commits_nothing(counter: Counter) -> None:
    attempts = []

    def rolls_back(tx: Transaction, batch: Batch) -> None:
        attempts.append(tx.batch)
        tx.execute("UPDATE totals SET n = n + 1")
        with contextlib.suppress(sqlite3.Error):
            tx.execute("INSERT OR ROLLBACK INTO totals VALUES (0, 0)")
        with contextlib.suppress(sqlite3.Error):
            tx.execute("UPDATE totals SET n = n + 100")
        with contextlib.suppress(sqlite3.Error):
            tx.executemany("INSERT INTO totals VALUES (?, ?)", [(7, 7)])
        with contextlib.suppress(sqlite3.Error):
            tx.emit(counter.seen, batch.table)

    counter.of(rolls_back)
    assert attempts == [1, 1, 1]
    assert counter.totals() == [(0, 0)]
    assert counter.staged(counter.seen) == []
    assert "UNIQUE constraint failed" in counter.only_reason()
    assert counter.ledger() == {"count": 1}


def test_what_ends_a_transaction_takes_the_others_of_its_group_down_only_until_they_run_again(
    counter: Counter,
) -> None:
    def third_rolls_back(tx: Transaction, batch: Batch) -> None:
        counter.count(tx, batch)
        if batch.tuples == [(3,)]:
            tx.execute("INSERT OR ROLLBACK INTO totals VALUES (0, 0)")

    counter.body = third_rolls_back
    counter.run(counter.ids, *([(n,)] for n in range(1, 6)))
    assert counter.totals() == [(0, 4)]
    assert counter.staged(counter.seen) == [(1, 1), (2, 2), (4, 4), (5, 5)]
    (letter,) = counter.letters()
    assert (letter.batch, letter.attempts, letter.row_count) == (3, 3, 1)
    assert counter.core.metrics.rollbacks == 3


def test_the_rows_of_a_batch_may_be_looked_at_again(counter: Counter) -> None:
    found = []

    def twice(_tx: Transaction, batch: Batch) -> None:
        rows = batch.rows()
        found.extend([[row["id"] for row in rows], [row["id"] for row in rows]])

    counter.of(twice, 1, 2)
    assert found == [[1, 2], [1, 2]]


@pytest.mark.parametrize("use", ["query", "execute", "executemany", "emit", "reject"])
def test_a_transaction_that_is_kept_past_its_body_does_nothing_more(
    counter: Counter, use: str
) -> None:
    kept: list[Transaction] = []

    def keeps(tx: Transaction, batch: Batch) -> None:
        tx.query("SELECT n FROM totals")
        tx.execute("UPDATE totals SET n = n + 1")
        kept.append(tx)
        rows.extend(batch.rows())

    rows: list[Row] = []
    counter.of(keeps)
    (tx,), (row,) = kept, rows
    uses: dict[str, Callable[[], object]] = {
        "query": lambda: tx.query("SELECT n FROM totals"),
        "execute": lambda: tx.execute("UPDATE totals SET n = n + 1"),
        "executemany": lambda: tx.executemany("INSERT INTO totals VALUES (?, 1)", [(5,)]),
        "emit": lambda: tx.emit(counter.seen, [{"id": 5}]),
        "reject": lambda: tx.reject(row, "too late"),
    }
    with pytest.raises(CoreError, match=r"count.*is over"):
        uses[use]()
    assert counter.totals() == [(0, 1)]

    def uses_another(_tx: Transaction, _batch: Batch) -> None:
        uses[use]()

    counter.of(uses_another)
    assert "is over" in counter.only_reason()
    assert counter.totals() == [(0, 1)]


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        (
            "WITH RECURSIVE c(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM c WHERE i < 3) "
            "SELECT count(*) AS v FROM c",
            3,
        ),
        ("WITH c AS MATERIALIZED (SELECT id FROM totals) SELECT count(*) AS v FROM c", 1),
        ("SELECT sum(value) AS v FROM json_each('[1, 2]')", 3),
    ],
)
def test_what_a_statement_makes_for_itself_needs_no_declaration(
    counter: Counter, sql: str, value: int
) -> None:
    found: list[object] = []
    counter.of(lambda tx, _batch: found.extend(tx.query(sql)))
    assert counter.letters() == []
    assert found == [{"v": value}]


def test_a_deletion_that_cascades_is_access_to_the_other_table(tmp_path: Path) -> None:
    flow = Dataflow("cascade")
    ids = flow.stream("ids", "id INTEGER NOT NULL", batches=by_punctuation())
    totals = flow.table("totals", "id INTEGER PRIMARY KEY", rows=[(1,)])
    flow.table("parts", "total INTEGER REFERENCES totals ON DELETE CASCADE", rows=[(1,)])

    @flow.procedure(takes=ids, writes=[totals])
    def deletes(tx: Transaction, batch: Batch) -> None:
        tx.execute("DELETE FROM totals")

    trial = Trial(core_path(tmp_path), flow)
    trial.run(ids, [(1,)])
    (reason,) = trial.reasons()
    assert "parts, which it does not declare" in reason
    assert trial.query("SELECT * FROM parts") == [(1,)]
    trial.close()


def test_a_constraint_that_would_fail_only_at_the_commit_is_refused_where_it_is_declared() -> None:
    with pytest.raises(DefinitionError, match="DEFERRED"):
        Dataflow("f").table("t", "a INTEGER REFERENCES o DEFERRABLE INITIALLY DEFERRED")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outlet": "other"}, r"outlet counter\.seen, which is no longer defined"),
        ({"columns": "id TEXT NOT NULL"}, "now defined with other columns"),
        ({"columns": "id REAL NOT NULL"}, "now defined with other columns"),
        ({"columns": "id INTEGER"}, "now defined with other columns"),
        ({"columns": "id NUMERIC(9,0) NOT NULL"}, "now defined with other columns"),
    ],
)
def test_an_outlet_changes_only_when_nothing_waits_in_it(
    counter: Counter, change: dict[str, str], message: str
) -> None:
    counter.of(counter.count)
    changed = counter.declared(**change)
    with pytest.raises(DefinitionChanged, match=message):
        counter.core.prepare([changed])
    counter.forget(1)
    counter.core.prepare([changed])


def test_another_topic_under_the_same_name_is_refused(counter: Counter) -> None:
    counter.core.claim("counter", "ids", "first")
    with pytest.raises(CoreError, match="deleted and made again"):
        counter.core.claim("counter", "ids", "second")
    counter.core.claim("counter", "ids", "first")


def test_changed_rows_are_counted_for_every_kind_of_statement(counter: Counter) -> None:
    counts = []

    def counted(tx: Transaction, batch: Batch) -> None:
        counts.extend(
            [
                tx.execute("INSERT INTO totals VALUES (1, 0), (2, 0) RETURNING id"),
                tx.execute("WITH x(i) AS (VALUES (3), (4)) INSERT INTO totals SELECT i, 0 FROM x"),
                tx.execute("INSERT INTO totals VALUES (1, 0) ON CONFLICT DO NOTHING"),
                tx.execute("UPDATE totals SET n = 1 WHERE id > :least", {"least": 1}),
                tx.executemany("INSERT INTO totals VALUES (?, 0)", [(8,), (9,)]),
                tx.executemany("INSERT INTO totals VALUES (?, 0)", []),
            ]
        )

    counter.of(counted)
    assert counter.letters() == []
    assert counts == [2, 2, 0, 3, 2, 0]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT json_extract('no json', '$')", "malformed JSON"),
        ("SELECT abs(-9223372036854775808)", "integer overflow"),
        ("SELECT CAST(x'ff' AS TEXT)", "Could not decode to UTF-8"),
    ],
)
def test_an_error_of_the_procedures_own_sql_is_the_procedures(
    counter: Counter, sql: str, message: str
) -> None:
    counter.of(asking(sql))
    assert counter.only_reason().startswith("procedure counter.count failed on batch 1")
    assert message in counter.only_reason()


def test_two_columns_of_one_name_are_not_one(counter: Counter) -> None:
    counter.of(asking("SELECT 1 AS x, 2 AS x"))
    assert "two columns of one name: x, x" in counter.only_reason()


@pytest.mark.parametrize(
    "body",
    [
        asking("SELECT ?", float("nan")),
        lambda tx, _batch: tx.executemany("INSERT INTO totals VALUES (1, ?)", [(float("nan"),)]),
        lambda tx, _batch: tx.execute("UPDATE totals SET n = :n", {"n": float("nan")}),
    ],
)
def test_nan_is_not_stored_as_null(counter: Counter, body: Body) -> None:
    counter.of(body)
    assert "NaN is no value" in counter.only_reason()


@pytest.mark.parametrize("reason", [None, 5, ValueError("x"), "\ud800"])
def test_a_reason_is_a_text(counter: Counter, reason: object) -> None:
    counter.of(lambda tx, batch: tx.reject(batch.rows()[0], reason))  # type: ignore[arg-type]
    (letter,) = counter.letters()
    assert letter.is_batch


@pytest.mark.parametrize("row", [{"id": 1}, (1,), 0, None])
def test_only_a_row_of_the_batch_itself_can_be_rejected(counter: Counter, row: Any) -> None:
    counter.of(lambda tx, _batch: tx.reject(row, "no"))
    assert "which is no tuple of its batch. Give it one of batch.rows()" in counter.only_reason()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda tx, _: tx.emit("seen", [{"id": 1}]), "emits into 'seen', which is no stream"),
        (lambda tx, _: tx.delete("seen", [{"id": 1}]), "deletes from 'seen', which is no stream"),
        (lambda tx, seen: tx.delete(seen, [{"id": 1}]), "deletes from seen, which has no key"),
        (lambda tx, seen: tx.emit(seen, {"id": 1}), "'id' is no dict by column name. Its columns"),
    ],
)
def test_a_target_is_the_thing_itself_and_rows_are_several(
    counter: Counter, use: Callable[[Transaction, Any], None], message: str
) -> None:
    counter.of(lambda tx, _batch: use(tx, counter.seen))
    assert message in counter.only_reason()


@pytest.mark.parametrize("values", [["5"], [True], [5.5], [2**70]])
def test_an_arrow_table_is_not_converted_in_silence(counter: Counter, values: list[object]) -> None:
    try:
        table = pa.table({"id": values})
    except OverflowError:
        table = pa.table({"id": pa.array(values, pa.decimal128(38))})
    counter.of(lambda tx, _batch: tx.emit(counter.seen, table))
    assert "does not fit" in counter.only_reason()
    assert counter.staged(counter.seen) == []


def test_an_arrow_table_of_narrower_integers_fits(counter: Counter) -> None:
    table = pa.table({"id": pa.array([1, 2], pa.int16())})
    counter.of(lambda tx, _batch: tx.emit(counter.seen, table))
    assert counter.staged(counter.seen) == [(1, 1), (1, 2)]


def test_an_arrow_table_and_rows_are_emitted_in_the_order_of_the_body(counter: Counter) -> None:
    def both(tx: Transaction, batch: Batch) -> None:
        tx.emit(counter.seen, [{"id": 7}])
        tx.emit(counter.seen, batch.table)
        tx.emit(counter.seen, ({"id": n} for n in (9, 8)))
        tx.emit(counter.seen, [])

    counter.of(both, 1, 2)
    assert [n for _, n in counter.staged(counter.seen)] == [7, 1, 2, 9, 8]
