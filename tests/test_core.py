"""The core: what one batch commits, and what it must never do."""

import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from flows import arrived, dataflow, joined, undecoded

from etl_procs import Batch, Dataflow, Transaction
from etl_procs.core import Core, core_path
from etl_procs.errors import AccessDenied, CoreError, DefinitionChanged, ProcedureFailed, Superseded
from etl_procs.reader import Reader
from headrace.crash import CrashPoints
from headrace.errors import NotRunning

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class HeldClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        return NOON

    def monotonic(self) -> float:
        return 0.0


class Bench:
    """A core with one dataflow, whose procedure's body each test gives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.flow = dataflow()
        self.body: Callable[[Transaction, Batch], object] = keep
        self.cores: list[Core] = []

        @self.flow.procedure(
            takes=self.flow.streams["orders"],
            writes=[self.flow.tables["shop_kept"]],
            gives=[self.flow.outlets["sold"]],
        )
        def handle(tx: Transaction, batch: Batch) -> None:
            self.body(tx, batch)

        self.core = self.opened()

    def opened(self) -> Core:
        core = Core(self.path, clock=HeldClock(), crash=CrashPoints())
        core.prepare([self.flow])
        self.cores.append(core)
        return core

    def run(self, *rows: tuple[object, ...], first: int = 0, core: Core | None = None) -> object:
        tuples = arrived(self.flow.streams["orders"], rows, first=first)
        return (core or self.core).run(self.flow.procedures["handle"], tuples)

    def kept(self) -> list[tuple[object, ...]]:
        with sqlite3.connect(self.path) as connection:
            return connection.execute("SELECT * FROM shop_kept ORDER BY id").fetchall()

    def staged(self) -> list[tuple[int, list[dict[str, object]]]]:
        with Reader(self.path).snapshot() as snapshot:
            batches = snapshot.staged(self.flow.outlets["sold"], after=0, through=99)
            return [(staged.batch, staged.table.to_pylist()) for staged in batches]

    def dump(self) -> list[str]:
        with sqlite3.connect(self.path) as connection:
            return [line for line in connection.iterdump() if "headrace_core" not in line]


def keep(tx: Transaction, batch: Batch) -> None:
    for row in batch.rows():
        tx.execute("INSERT INTO shop_kept VALUES (:id, :item)", row)
    outlet = next(iter(tx._procedure.gives))
    tx.emit(outlet, batch.table)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(core_path(tmp_path))
    yield made
    for core in made.cores:
        core.close()


def test_a_batch_commits_all_of_its_effects(bench: Bench) -> None:
    bench.run((1, "a"), (2, None))
    assert bench.kept() == [(1, "a"), (2, None)]
    assert bench.staged() == [(1, [{"id": 1, "item": "a"}, {"id": 2, "item": None}])]
    assert bench.core.positions("shop", "shop.orders", "id") == {0: 2}
    with Reader(bench.path).snapshot() as snapshot:
        assert snapshot.batch("shop") == 1


def test_a_procedure_that_raises_leaves_nothing(bench: Bench) -> None:
    bench.run((1, "a"))
    before = bench.dump()

    def fail(tx: Transaction, batch: Batch) -> None:
        keep(tx, batch)
        tx.reject(next(batch.rows()), "no")
        raise RuntimeError("at the end")

    bench.body = fail
    with pytest.raises(ProcedureFailed, match=r"shop\.handle failed on batch 2: .*at the end"):
        bench.run((2, "b"), first=1)
    assert bench.dump() == before
    bench.body = keep
    bench.run((2, "b"), first=1)
    assert bench.kept() == [(1, "a"), (2, "b")]


def test_a_violated_constraint_leaves_nothing_and_names_the_line(bench: Bench) -> None:
    with pytest.raises(ProcedureFailed, match=r"UNIQUE constraint.*test_core\.py:\d+"):
        bench.run((1, "a"), (1, "again"))
    assert bench.kept() == []


def test_tuples_that_were_done_are_not_done_again(bench: Bench) -> None:
    bench.run((1, "a"), (2, "b"))
    assert bench.run((1, "a"), (2, "b")) is None
    bench.run((2, "b"), (3, "c"), first=1)
    assert bench.kept() == [(1, "a"), (2, "b"), (3, "c")]
    assert [batch for batch, _ in bench.staged()] == [1, 2]


def test_positions_are_kept_for_each_partition(bench: Bench) -> None:
    stream, procedure = bench.flow.streams["orders"], bench.flow.procedures["handle"]
    bench.core.run(procedure, arrived(stream, [(1, "a"), (2, "b")], partition=1, first=7))
    both = joined(
        arrived(stream, [(1, "a"), (2, "b"), (3, "c")], partition=1, first=7),
        arrived(stream, [(4, "d")], partition=0, first=0),
    )
    bench.core.run(procedure, both)
    assert bench.core.positions("shop", "shop.orders", "id") == {0: 1, 1: 10}
    assert bench.kept() == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


def test_a_batch_is_ordered_by_position_however_it_arrives(bench: Bench) -> None:
    seen: list[object] = []
    bench.body = lambda _tx, batch: seen.extend(row["id"] for row in batch.rows())
    stream, procedure = bench.flow.streams["orders"], bench.flow.procedures["handle"]
    bench.core.run(
        procedure,
        joined(
            arrived(stream, [(3, "c")], partition=1, first=0),
            arrived(stream, [(2, "b")], partition=0, first=5),
            arrived(stream, [(1, "a")], partition=0, first=4),
        ),
    )
    assert seen == [1, 2, 3]


def test_the_second_of_two_engines_changes_nothing_and_says_so(bench: Bench) -> None:
    other = bench.opened()
    bench.run((1, "a"))
    before = bench.dump()
    with pytest.raises(Superseded, match="another engine has committed batch 1"):
        bench.run((1, "a"), core=other)
    with pytest.raises(Superseded):
        bench.run((2, "b"), first=1, core=other)
    assert bench.dump() == before


def test_an_engine_goes_on_where_the_last_one_stopped(bench: Bench) -> None:
    bench.run((1, "a"))
    bench.core.close()
    bench.cores.clear()
    bench.core = bench.opened()
    bench.run((1, "a"), (2, "b"))
    assert bench.kept() == [(1, "a"), (2, "b")]
    assert [batch for batch, _ in bench.staged()] == [1, 2]


def test_undecoded_and_rejected_tuples_are_dead_letters_with_bytes_position_and_reason(
    bench: Bench,
) -> None:
    def choose(tx: Transaction, batch: Batch) -> None:
        for row in batch.rows():
            if row["item"] is None:
                tx.reject(row, "nothing ordered")

    bench.body = choose
    stream = bench.flow.streams["orders"]
    tuples = joined(
        arrived(stream, [(1, "a"), (2, None)]), undecoded(stream, b"\xff", "not UTF-8", offset=2)
    )
    bench.core.run(bench.flow.procedures["handle"], tuples)
    with Reader(bench.path).snapshot() as snapshot:
        letters = sorted(snapshot.dead_letters(), key=lambda letter: letter.offset)
        assert snapshot.dead_letter_reasons() == [
            ("shop", "not UTF-8", 1),
            ("shop", "nothing ordered", 1),
        ]
    assert [(x.offset, x.value, x.reason, x.batch, x.topic) for x in letters] == [
        (1, b"(2, None)", "nothing ordered", 1, "shop.orders"),
        (2, b"\xff", "not UTF-8", 1, "shop.orders"),
    ]
    assert letters[0].at == NOON.isoformat()


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM headrace_ledger", r"reads headrace_ledger.*\n.*reads=\[\.\.\., headrace"),
        ("SELECT count(*) FROM other_kept", "reads other_kept"),
        ("INSERT INTO other_kept VALUES (9, 'x')", r"inserts into other_kept.*\n.*writes=\["),
        ("UPDATE other_kept SET item = 'x'", "updates other_kept"),
        ("DELETE FROM other_kept", "deletes from other_kept"),
        ("DROP TABLE shop_kept", "deletes from sqlite_master|not a query or a change"),
        ("CREATE TABLE x (a)", "inserts into sqlite_master|not a query or a change"),
        ("PRAGMA user_version = 3", "not a query or a change"),
        ("ATTACH 'x' AS x", "not a query or a change"),
        ("COMMIT", "not a query or a change"),
        ("SAVEPOINT x", "not a query or a change"),
        ("INSERT INTO shop_kept SELECT batch, procedure FROM headrace_ledger", "reads headrace_l"),
    ],
)
def test_undeclared_access_is_refused_by_name(bench: Bench, sql: str, message: str) -> None:
    other = dataflow("other")

    @other.procedure(takes=other.streams["orders"])
    def idle(tx: Transaction, batch: Batch) -> None:
        pass

    bench.core.prepare([bench.flow, other])
    before = bench.dump()
    bench.body = lambda tx, _batch: tx.execute(sql)
    with pytest.raises(AccessDenied, match=message):
        bench.run((1, "a"))
    assert bench.dump() == before


def test_declared_access_is_allowed_through_ctes_and_subqueries(bench: Bench) -> None:
    results = []

    def read(tx: Transaction, batch: Batch) -> None:
        keep(tx, batch)
        results.append(
            tx.query(
                "WITH few AS (SELECT id FROM shop_kept), n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
                "FROM n WHERE i < 3) SELECT (SELECT count(*) FROM few) AS c, max(i) AS m FROM n"
            )
        )

    bench.body = read
    bench.run((1, "a"), (2, "b"))
    assert results == [[{"c": 2, "m": 3}]]


def test_a_reader_may_not_write_what_it_only_reads(tmp_path: Path) -> None:
    flow = dataflow()

    @flow.procedure(takes=flow.streams["orders"], reads=[flow.tables["shop_kept"]])
    def look(tx: Transaction, batch: Batch) -> None:
        tx.query("SELECT id FROM shop_kept")
        tx.execute("DELETE FROM shop_kept")

    core = Core(core_path(tmp_path), clock=HeldClock(), crash=CrashPoints())
    core.prepare([flow])
    with pytest.raises(AccessDenied, match="deletes from shop_kept"):
        core.run(flow.procedures["look"], arrived(flow.streams["orders"], [(1, "a")]))
    core.close()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1}, "it has id and not id, item"),
        ({"id": 1, "item": "a", "x": 1}, "it has id, item, x"),
        ({"id": None, "item": "a"}, "without id"),
        ({"id": "one", "item": "a"}, "does not fit"),
        ({"id": 2**63, "item": "a"}, "does not fit"),
        ({"id": 1, "item": "a\0b"}, "NUL"),
    ],
)
def test_a_row_that_does_not_fit_its_outlet_is_refused(
    bench: Bench, row: dict[str, object], message: str
) -> None:
    bench.body = lambda tx, _batch: tx.emit(bench.flow.outlets["sold"], [row])
    with pytest.raises(CoreError, match=message):
        bench.run((1, "a"))
    assert bench.staged() == []


def test_an_undeclared_outlet_is_refused(bench: Bench) -> None:
    stranger = bench.flow.outlet("stranger", "id INTEGER")
    bench.body = lambda tx, _batch: tx.emit(stranger, [{"id": 1}])
    with pytest.raises(CoreError, match=r"emits into stranger.*\n.*gives=\[\.\.\., stranger\]"):
        bench.run((1, "a"))


def test_a_bad_statement_is_quoted(bench: Bench) -> None:
    bench.body = lambda tx, _batch: tx.query("SELECT missing FROM shop_kept")
    with pytest.raises(CoreError, match=r"no such column: missing in: SELECT missing"):
        bench.run((1, "a"))


def test_a_changed_table_is_noticed(bench: Bench) -> None:
    changed = Dataflow("shop2")
    changed.table("shop_kept", "id INTEGER PRIMARY KEY, item TEXT, price REAL")
    with pytest.raises(DefinitionChanged, match="the core holds"):
        bench.core.prepare([changed])


def test_first_rows_are_there_once(tmp_path: Path) -> None:
    flow = Dataflow("first")
    flow.table("numbers", "n INTEGER PRIMARY KEY", rows=[(1,), (2,)])
    path = core_path(tmp_path)
    for _ in range(2):
        core = Core(path, clock=HeldClock(), crash=CrashPoints())
        core.prepare([flow])
        core.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT n FROM numbers").fetchall() == [(1,), (2,)]


def test_what_is_confirmed_is_forgotten_and_no_more(bench: Bench) -> None:
    bench.run((1, "a"))
    bench.run((2, "b"), first=1)
    bench.run((3, "c"), first=2)
    bench.core.forget("shop", through=2)
    assert [batch for batch, _ in bench.staged()] == [3]
    with Reader(bench.path).snapshot() as snapshot:
        assert snapshot.waiting("shop") == 1


def test_a_snapshot_stays_as_it_was_while_the_core_goes_on(bench: Bench) -> None:
    bench.run((1, "a"))
    with Reader(bench.path).snapshot() as snapshot:
        bench.run((2, "b"), first=1)
        bench.core.forget("shop", through=1)
        assert snapshot.batch("shop") == 1
        staged = snapshot.staged(bench.flow.outlets["sold"], after=0, through=9)
        assert [s.batch for s in staged] == [1]


def test_reading_where_there_is_no_core_says_so(tmp_path: Path) -> None:
    path = core_path(tmp_path)
    with pytest.raises(NotRunning, match="no core"), Reader(path).snapshot():
        pass
    path.parent.mkdir()
    sqlite3.connect(path).close()
    path.touch()
    with pytest.raises(NotRunning, match="no core"), Reader(path).snapshot():
        pass


def test_a_full_disk_is_said_and_nothing_is_half_written(bench: Bench) -> None:
    bench.run((1, "a"))
    before = bench.dump()
    (pages,) = bench.core._connection.execute("PRAGMA page_count").fetchone()
    bench.core._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(CoreError, match="disk that holds the core is full"):
        bench.run(*((n, "x" * 1000) for n in range(2, 100)), first=1)
    assert bench.dump() == before
    bench.core._connection.execute("PRAGMA max_page_count = 1000000")
    bench.run((2, "b"), first=1)
    assert bench.kept() == [(1, "a"), (2, "b")]
