"""The core against procedures and definitions that would break its promises, knowingly or not."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from flows import arrived

from etl_procs import Batch, Dataflow, Transaction
from etl_procs.core import Core, core_path
from etl_procs.errors import AccessDenied, CoreError, DefinitionChanged, ProcedureFailed
from etl_procs.model import Value
from headrace.clock import SystemClock
from headrace.crash import CrashPoints

Body = Callable[[Transaction, Batch], None]


class Counter:
    """A dataflow that counts; its body is given, and its names and outlet can be changed."""

    def __init__(
        self,
        body: Body,
        *,
        name: str = "count",
        outlet: str = "seen",
        columns: str = "id INTEGER NOT NULL",
    ) -> None:
        self.flow = Dataflow("counter")
        self.stream = self.flow.stream("ids", "id INTEGER NOT NULL")
        totals = self.flow.table("totals", "id INTEGER PRIMARY KEY, n INTEGER", rows=[(0, 0)])
        self.outlet = self.flow.outlet(outlet, columns)
        body.__name__ = name
        self.flow.procedure(takes=self.stream, writes=[totals], gives=[self.outlet])(body)

    def run(self, core: Core, *ids: int, first: int = 0) -> object:
        tuples = arrived(self.stream, [(n,) for n in ids], first=first)
        return core.run(next(iter(self.flow.procedures.values())), tuples)


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    made = Core(core_path(tmp_path), clock=SystemClock(), crash=CrashPoints())
    yield made
    made.close()


def prepared(core: Core, body: Body) -> Counter:
    counter = Counter(body)
    core.prepare([counter.flow])
    return counter


def state(core: Core) -> list[str]:
    return [line for line in core._connection.iterdump() if "headrace_core" not in line]


def asking(sql: str, *parameters: Value) -> Body:
    def body(tx: Transaction, batch: Batch) -> None:
        tx.query(sql, parameters)

    return body


def emit_all(tx: Transaction, batch: Batch) -> None:
    tx.execute("UPDATE totals SET n = n + 1")
    tx.emit(tx._procedure.gives[0], batch.table)


@pytest.mark.parametrize("caught", [sqlite3.Error, Exception])
def test_a_body_that_catches_a_full_disk_commits_nothing(
    core: Core, caught: type[Exception]
) -> None:
    def stubborn(tx: Transaction, batch: Batch) -> None:
        for row in batch.rows():
            try:
                tx.execute("INSERT INTO totals VALUES (:id, 1)", row)

            except caught as error:
                tx.reject(row, str(error))

    counter = prepared(core, stubborn)
    before = state(core)
    (pages,) = core._connection.execute("PRAGMA page_count").fetchone()
    core._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(CoreError):
        counter.run(core, *range(1, 2_000))
    assert state(core) == before


def test_a_body_that_ends_the_transaction_by_sql_commits_nothing(core: Core) -> None:
    def rolls_back(tx: Transaction, batch: Batch) -> None:
        tx.execute("UPDATE totals SET n = n + 1")
        with contextlib.suppress(sqlite3.Error):
            tx.execute("INSERT OR ROLLBACK INTO totals VALUES (0, 0)")
        with contextlib.suppress(sqlite3.Error):
            tx.execute("UPDATE totals SET n = n + 100")

    counter = prepared(core, rolls_back)
    before = state(core)
    with pytest.raises(ProcedureFailed, match="UNIQUE constraint failed"):
        counter.run(core, 1)
    assert state(core) == before


def test_a_deletion_that_cascades_is_access_to_the_other_table(core: Core) -> None:
    def deletes(tx: Transaction, batch: Batch) -> None:
        tx.execute("DELETE FROM totals")

    counter = Counter(deletes)
    counter.flow.table("parts", "total INTEGER REFERENCES totals ON DELETE CASCADE")
    core.prepare([counter.flow])
    with pytest.raises(AccessDenied, match="parts, which it does not declare"):
        counter.run(core, 1)


def test_a_renamed_procedure_does_not_begin_again_at_batch_one(core: Core) -> None:
    prepared(core, emit_all).run(core, 1)
    with pytest.raises(DefinitionChanged, match="no longer defines count, a procedure"):
        core.prepare([Counter(emit_all, name="renamed").flow])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outlet": "other"}, r"outlet counter\.seen, which is no longer defined"),
        ({"columns": "id TEXT NOT NULL"}, "now defined with other columns"),
        ({"columns": "id REAL NOT NULL"}, "now defined with other columns"),
        ({"columns": "id INTEGER"}, "now defined with other columns"),
    ],
)
def test_an_outlet_changes_only_when_nothing_waits_in_it(
    core: Core, change: dict[str, str], message: str
) -> None:
    prepared(core, emit_all).run(core, 1)
    changed = Counter(emit_all, **change)
    with pytest.raises(DefinitionChanged, match=message):
        core.prepare([changed.flow])
    core.forget("counter", through=1)
    core.prepare([changed.flow])


def test_another_topic_under_the_same_name_is_refused(core: Core) -> None:
    prepared(core, emit_all)
    assert core.positions("counter", "counter.ids", "first") == {}
    with pytest.raises(CoreError, match="deleted and made again"):
        core.positions("counter", "counter.ids", "second")
    assert core.positions("counter", "counter.ids", "first") == {}


def test_changed_rows_are_counted_for_every_kind_of_statement(core: Core) -> None:
    counts = []

    def counted(tx: Transaction, batch: Batch) -> None:
        counts.extend(
            [
                tx.execute("INSERT INTO totals VALUES (1, 0), (2, 0) RETURNING id"),
                tx.execute("WITH x(i) AS (VALUES (3), (4)) INSERT INTO totals SELECT i, 0 FROM x"),
                tx.execute("INSERT INTO totals VALUES (1, 0) ON CONFLICT DO NOTHING"),
                tx.execute("UPDATE totals SET n = 1 WHERE id > :least", {"least": 1}),
            ]
        )

    prepared(core, counted).run(core, 1)
    assert counts == [2, 2, 0, 3]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT json_extract('no json', '$')", r"malformed JSON.*test_core_misuse\.py:\d+"),
        ("SELECT abs(-9223372036854775808)", "integer overflow"),
        ("SELECT CAST(x'ff' AS TEXT)", "Could not decode to UTF-8"),
    ],
)
def test_an_error_of_the_procedures_own_sql_is_the_procedures(
    core: Core, sql: str, message: str
) -> None:
    with pytest.raises(ProcedureFailed, match=message):
        prepared(core, asking(sql)).run(core, 1)


def test_two_columns_of_one_name_are_not_one(core: Core) -> None:
    with pytest.raises(CoreError, match="two columns of one name: x, x"):
        prepared(core, asking("SELECT 1 AS x, 2 AS x")).run(core, 1)


def test_nan_is_not_stored_as_null(core: Core) -> None:
    with pytest.raises(ProcedureFailed, match="NaN is no value"):
        prepared(core, asking("SELECT ?", float("nan"))).run(core, 1)


@pytest.mark.parametrize("reason", [None, 5, ValueError("x"), "\ud800"])
def test_a_reason_is_a_text(core: Core, reason: object) -> None:
    with pytest.raises(ProcedureFailed):
        prepared(
            core,
            lambda tx, batch: tx.reject(next(batch.rows()), reason),  # type: ignore[arg-type]
        ).run(core, 1)


@pytest.mark.parametrize("values", [["5"], [True], [5.5], [2**70]])
def test_an_arrow_table_is_not_converted_in_silence(core: Core, values: list[object]) -> None:
    try:
        table = pa.table({"id": values})
    except OverflowError:
        table = pa.table({"id": pa.array(values, pa.decimal128(38))})
    with pytest.raises(CoreError, match="does not fit"):
        prepared(core, lambda tx, _batch: tx.emit(tx._procedure.gives[0], table)).run(core, 1)


def test_an_arrow_table_of_narrower_integers_fits(core: Core) -> None:
    table = pa.table({"id": pa.array([1, 2], pa.int16())})
    result = prepared(core, lambda tx, _b: tx.emit(tx._procedure.gives[0], table)).run(core, 1)
    assert getattr(result, "staged") == 2  # noqa: B009
