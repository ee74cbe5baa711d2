"""The core: what one batch commits, and what it must never do."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flows import NOON, arrived, dataflow, joined, offsets, punctuation, undecoded
from trial import Trial, dump, nothing

from etl_procs import Batch, Dataflow, Transaction
from etl_procs.access import Access, Parameters, Rights
from etl_procs.core import core_path
from etl_procs.errors import DefinitionChanged, OutOfRoom
from etl_procs.reader import Reader
from headrace.errors import NotRunning


class Shop(Trial):
    """A core with one dataflow, whose procedure's body each test gives."""

    def __init__(self, path: Path) -> None:
        self.flow = dataflow()
        self.orders = self.flow.streams["orders"]
        self.sold = self.flow.outlets["sold"]
        self.body: Callable[[Transaction, Batch], object] = self.keep

        @self.flow.procedure(
            takes=self.orders, writes=[self.flow.tables["shop_kept"]], gives=[self.sold]
        )
        def handle(tx: Transaction, batch: Batch) -> None:
            self.body(tx, batch)

        super().__init__(path, self.flow)

    def keep(self, tx: Transaction, batch: Batch) -> None:
        for row in batch.rows():
            tx.execute("INSERT INTO shop_kept VALUES (:id, :item)", row)
        tx.emit(self.sold, batch.table)

    def sell(self, *rows: tuple[object, ...]) -> None:
        self.run(self.orders, rows)

    def kept(self) -> list[tuple[object, ...]]:
        return self.query("SELECT * FROM shop_kept ORDER BY id")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(core_path(tmp_path))
    yield made
    made.close()


def test_a_batch_commits_all_of_its_effects(shop: Shop) -> None:
    (committed,) = shop.run(shop.orders, [(1, "a"), (2, None)])
    assert shop.kept() == [(1, "a"), (2, None)]
    assert shop.staged(shop.sold) == [(1, 1, "a"), (1, 2, None)]
    assert offsets(shop.core.positions(shop.orders)) == {0: 3}
    assert shop.ledger() == {"handle": 1}
    assert shop.batch(shop.flow) == 1
    assert (committed.first, committed.through) == (1, 1)
    assert (committed.tuples, committed.staged, committed.dead_tuples) == (2, 2, 0)


def test_a_procedure_that_raises_leaves_only_its_dead_letter(shop: Shop) -> None:
    shop.sell((1, "a"))

    def fail(tx: Transaction, batch: Batch) -> None:
        shop.keep(tx, batch)
        tx.reject(batch.rows()[0], "no")
        raise RuntimeError("at the end")

    shop.body = fail
    shop.sell((2, "b"), (3, "c"))
    assert shop.kept() == [(1, "a")]
    assert shop.staged(shop.sold) == [(1, 1, "a")]
    (letter,) = shop.letters()
    assert letter.is_batch
    assert (letter.unit, letter.stream, letter.batch, letter.attempts) == ("handle", "orders", 2, 3)
    assert letter.reason.startswith("procedure shop.handle failed on batch 2: RuntimeError: at the")
    assert [(row["id"], row["item"]) for row in letter.rows()] == [(2, "b"), (3, "c")]
    assert [(row["_offset"], row["_value"]) for row in letter.rows()] == [
        (2, b"(2, 'b')"),
        (3, b"(3, 'c')"),
    ]
    shop.body = shop.keep
    shop.sell((2, "b"))
    assert shop.kept() == [(1, "a"), (2, "b")]
    assert shop.ledger() == {"handle": 3}


def test_a_violated_constraint_leaves_nothing_and_names_the_line(shop: Shop) -> None:
    shop.sell((1, "a"), (1, "again"))
    assert "UNIQUE constraint failed: shop_kept.id" in shop.only_reason()
    assert "test_core.py:" in shop.only_reason()
    assert shop.kept() == []
    assert shop.staged(shop.sold) == []


def test_tuples_that_were_done_are_not_done_again(shop: Shop) -> None:
    shop.sell((1, "a"), (2, "b"))
    before = dump(shop.path)
    for part in shop.log:
        shop.core.feed(part)
    assert shop.core.drain() == []
    shop.reopen()
    assert shop.core.drain() == []
    assert dump(shop.path) == before
    shop.sell((3, "c"))
    assert shop.kept() == [(1, "a"), (2, "b"), (3, "c")]
    assert [row[0] for row in shop.staged(shop.sold)] == [1, 1, 2]


def test_positions_are_kept_for_each_partition(shop: Shop) -> None:
    shop.partitions = {"shop.orders": [0, 1]}
    shop.reopen()
    shop.feed(shop.orders, [(1, "a")])
    shop.feed(shop.orders, [(2, "b"), (3, "c")], partition=1)
    shop.mark(shop.orders, 1)
    assert shop.core.drain() == []
    shop.mark(shop.orders, 1, partition=1)
    shop.core.drain()
    assert offsets(shop.core.positions(shop.orders)) == {0: 2, 1: 3}
    assert shop.kept() == [(1, "a"), (2, "b"), (3, "c")]


def test_a_batch_is_ordered_by_position_however_it_arrives(shop: Shop) -> None:
    seen: list[object] = []
    shop.body = lambda _tx, batch: seen.extend(row["id"] for row in batch.rows())
    shop.partitions = {"shop.orders": [0, 1]}
    shop.reopen()
    shop.give(
        joined(
            punctuation(shop.orders, 1, offset=1, partition=1),
            arrived(shop.orders, [(3, "c")], partition=1, first=0),
            punctuation(shop.orders, 1, offset=6),
            arrived(shop.orders, [(2, "b")], first=5),
            arrived(shop.orders, [(1, "a")], first=4),
        )
    )
    shop.core.drain()
    assert seen == [1, 2, 3]


def test_an_engine_goes_on_where_the_last_one_stopped(shop: Shop) -> None:
    shop.sell((1, "a"))
    shop.reopen()
    shop.sell((2, "b"))
    assert shop.kept() == [(1, "a"), (2, "b")]
    assert [row[0] for row in shop.staged(shop.sold)] == [1, 2]


def test_an_empty_batch_is_a_batch(shop: Shop) -> None:
    sizes: list[int] = []
    shop.body = lambda _tx, batch: sizes.append(len(batch))
    shop.run(shop.orders, [], [(1, "a")], [])
    assert sizes == [0, 1, 0]
    assert shop.ledger() == {"handle": 3}


def test_undecoded_and_rejected_tuples_are_dead_letters_with_bytes_position_and_reason(
    shop: Shop,
) -> None:
    def choose(tx: Transaction, batch: Batch) -> None:
        for row in batch.rows():
            if row["item"] is None:
                tx.reject(row, "nothing ordered")

    shop.body = choose
    shop.give(
        joined(
            undecoded(shop.orders, b"\xff", "not UTF-8", offset=0),
            arrived(shop.orders, [(1, "a"), (2, None)], first=1),
            punctuation(shop.orders, 1, offset=3),
        )
    )
    shop.core.drain()
    letters = sorted(shop.letters(), key=lambda letter: letter.offset or 0)
    with shop.reader.snapshot() as snapshot:
        assert snapshot.dead_letters.tallies() == [
            ("shop", "not UTF-8", 1, 1, 0),
            ("shop", "nothing ordered", 1, 1, 0),
        ]
    assert [(x.offset, x.value, x.reason, x.batch, x.topic, x.unit) for x in letters] == [
        (0, b"\xff", "not UTF-8", 1, "shop.orders", ""),
        (2, b"(2, None)", "nothing ordered", 1, "shop.orders", "handle"),
    ]
    assert letters[1].fields == "[2, null]"
    assert letters[0].at == NOON.isoformat()


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT * FROM headrace_ledger",
            r"reads headrace_ledger.*reads=\[\.\.\., headrace_ledger\]",
        ),
        ("SELECT count(*) FROM other_kept", "reads other_kept"),
        ("INSERT INTO other_kept VALUES (9, 'x')", r"inserts into other_kept.*writes=\["),
        ("UPDATE other_kept SET item = 'x'", "updates other_kept"),
        ("DELETE FROM other_kept", "deletes from other_kept"),
        ("DROP TABLE shop_kept", "not a query or a change"),
        ("CREATE TABLE x (a)", "not a query or a change"),
        ("PRAGMA user_version = 3", "not a query or a change"),
        ("ATTACH 'x' AS x", "not a query or a change"),
        ("COMMIT", "not a query or a change"),
        ("SAVEPOINT x", "not a query or a change"),
        ("RELEASE te", "not a query or a change"),
        ("INSERT INTO shop_kept SELECT batch, procedure FROM headrace_ledger", "reads headrace_l"),
        ("SELECT 1; DELETE FROM shop_kept", "one statement"),
    ],
)
def test_undeclared_access_is_refused_by_name(shop: Shop, sql: str, message: str) -> None:
    other = dataflow("other")
    other.procedure(takes=other.streams["orders"])(nothing)
    shop.reopen(shop.flow, other)

    def curious(tx: Transaction, batch: Batch) -> None:
        shop.keep(tx, batch)
        tx.execute(sql)

    shop.body = curious
    shop.sell((1, "a"))
    assert shop.kept() == []
    assert shop.only_reason().startswith("procedure shop.handle")
    assert re.search(message, shop.only_reason())


def test_declared_access_is_allowed_through_ctes_and_subqueries(shop: Shop) -> None:
    results = []

    def read(tx: Transaction, batch: Batch) -> None:
        shop.keep(tx, batch)
        results.append(
            tx.query(
                "WITH few AS (SELECT id FROM shop_kept), n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
                "FROM n WHERE i < 3) SELECT (SELECT count(*) FROM few) AS c, max(i) AS m FROM n"
            )
        )

    shop.body = read
    shop.sell((1, "a"), (2, "b"))
    assert results == [[{"c": 2, "m": 3}]]


def test_a_statement_is_looked_at_once_however_it_is_run(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = []
    compile_ = Access.compile

    def noting(self: Access, rights: Rights, sql: str, parameters: Parameters) -> None:
        looked_at.append(sql)
        compile_(self, rights, sql, parameters)

    monkeypatch.setattr(Access, "compile", noting)
    returning = "INSERT INTO shop_kept VALUES (?, ?) RETURNING id"
    given = []

    def body(tx: Transaction, batch: Batch) -> None:
        rows = [(row["id"], row["item"]) for row in batch.rows()]
        tx.executemany(returning, rows[:1])
        given.append(tx.query(returning, rows[1]))

    shop.body = body
    shop.sell((1, "a"), (2, "b"))
    shop.sell((3, "c"), (4, "d"))
    assert looked_at == [returning]
    assert given == [[{"id": 2}], [{"id": 4}]], "of which query it is known what it gives"


def test_a_query_is_rows_or_an_arrow_table(shop: Shop) -> None:
    seen: list[object] = []

    def read(tx: Transaction, batch: Batch) -> None:
        shop.keep(tx, batch)
        few = tx.table("SELECT id, item FROM shop_kept WHERE id < ? ORDER BY id", [2])
        none = tx.table("SELECT id FROM shop_kept WHERE id > :most", {"most": 9})
        seen.extend([few.to_pylist(), none.num_rows, none.column_names])

    shop.body = read
    shop.sell((1, "a"), (2, "b"))
    assert seen == [[{"id": 1, "item": "a"}], 0, ["id"]]


def test_a_reader_may_not_write_what_it_only_reads(tmp_path: Path) -> None:
    flow = dataflow()

    @flow.procedure(takes=flow.streams["orders"], reads=[flow.tables["shop_kept"]])
    def look(tx: Transaction, batch: Batch) -> None:
        tx.query("SELECT id FROM shop_kept")
        tx.execute("DELETE FROM shop_kept")

    trial = Trial(core_path(tmp_path), flow)
    trial.run(flow.streams["orders"], [(1, "a")])
    (reason,) = trial.reasons()
    assert "procedure shop.look deletes from shop_kept, which it does not declare" in reason
    assert "writes=[..., shop_kept]" in reason
    trial.close()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"item": "a"}, "without id"),
        ({"id": 1, "item": "a", "x": 1}, "there is no column x"),
        ({"id": None, "item": "a"}, "without id"),
        ({"id": "one", "item": "a"}, "does not fit"),
        ({"id": 2**63, "item": "a"}, "does not fit"),
        ({"id": 1, "item": "a\0b"}, "NUL"),
    ],
)
def test_a_row_that_does_not_fit_its_outlet_is_refused(
    shop: Shop, row: dict[str, int | str | None], message: str
) -> None:
    shop.body = lambda tx, _batch: tx.emit(shop.sold, [row])
    shop.sell((1, "a"))
    assert message in shop.only_reason()
    assert shop.staged(shop.sold) == []


def test_an_undeclared_outlet_is_refused(shop: Shop) -> None:
    stranger = shop.flow.outlet("stranger", "id INTEGER")
    shop.body = lambda tx, _batch: tx.emit(stranger, [{"id": 1}])
    shop.sell((1, "a"))
    assert "emits into stranger, which it does not declare" in shop.only_reason()


def test_a_bad_statement_is_quoted(shop: Shop) -> None:
    shop.body = lambda tx, _batch: tx.query("SELECT missing FROM shop_kept")
    shop.sell((1, "a"))
    assert "no such column: missing in: SELECT missing" in shop.only_reason()


def test_a_changed_table_is_noticed(shop: Shop) -> None:
    changed = Dataflow("shop2")
    changed.table("shop_kept", "id TEXT PRIMARY KEY, item TEXT")
    with pytest.raises(DefinitionChanged, match="the core holds"):
        shop.core.prepare([changed])


def test_first_rows_are_there_once(tmp_path: Path) -> None:
    flow = Dataflow("first")
    numbers = flow.table("numbers", "n INTEGER PRIMARY KEY", rows=[(1,), (2,)])
    trial = Trial(core_path(tmp_path), flow)
    trial.reopen()
    assert trial.query(f"SELECT n FROM {numbers.name}") == [(1,), (2,)]
    trial.close()


def test_what_is_confirmed_is_forgotten_and_no_more(shop: Shop) -> None:
    for n in (1, 2, 3):
        shop.sell((n, None))
    shop.forget(2)
    assert [row[0] for row in shop.staged(shop.sold)] == [3]
    with shop.reader.snapshot() as snapshot:
        assert snapshot.waiting("shop") == 1


def test_a_snapshot_stays_as_it_was_while_the_core_goes_on(shop: Shop) -> None:
    shop.sell((1, "a"))
    with shop.reader.snapshot() as snapshot:
        shop.sell((2, "b"))
        shop.forget(1)
        assert snapshot.batch("shop") == 1
        (staged,) = snapshot.staged(shop.sold, after=0, through=9)
        assert staged["_batch"].to_pylist() == [1]
        assert list(snapshot.query("SELECT id FROM shop_kept")[1]) == [(1,)]


def test_a_range_of_staged_batches_is_cut_out_of_what_a_group_has_staged(shop: Shop) -> None:
    shop.run(shop.orders, *([(n, None)] for n in range(1, 6)))
    with shop.reader.snapshot() as snapshot:
        tables = list(snapshot.staged(shop.sold, after=1, through=4))
    assert [n for table in tables for n in table["_batch"].to_pylist()] == [2, 3, 4]
    assert [n for table in tables for n in table["id"].to_pylist()] == [2, 3, 4]


def test_reading_where_there_is_no_core_says_so(tmp_path: Path) -> None:
    path = core_path(tmp_path)
    with pytest.raises(NotRunning, match="no core"), Reader(path).snapshot():
        pass
    path.parent.mkdir()
    sqlite3.connect(path).close()
    path.touch()
    with pytest.raises(NotRunning, match="no core"), Reader(path).snapshot():
        pass


def test_a_full_disk_is_said_and_nothing_is_half_written(shop: Shop) -> None:
    shop.sell((1, "a"))
    before = dump(shop.path)
    shop.disk_is_full()
    shop.end(shop.orders, [(n, "x" * 1000) for n in range(2, 100)])
    for _ in range(2):
        with pytest.raises(OutOfRoom, match="disk that holds the core is full"):
            shop.core.drain()
        assert dump(shop.path) == before
    shop.disk_has_room()
    shop.core.drain()
    assert [n for n, _ in shop.kept()] == list(range(1, 100))
    assert shop.letters() == []


def test_a_tuple_may_be_rejected_by_its_place(shop: Shop) -> None:
    def picky(tx: Transaction, batch: Batch) -> None:
        for index, (id_, _) in enumerate(batch.tuples):
            if id_ == 2:
                tx.reject(batch.row(index), "two is too many")

    shop.body = picky
    shop.sell((1, "a"), (2, "b"))
    (letter,) = shop.letters()
    assert (letter.reason, letter.fields) == ("two is too many", '[2, "b"]')
