"""Outlets with a key: the last operation of each counts, in the warehouse and in every answer."""

import itertools
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import book
import psycopg
import pytest
from book import Book, Entry
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from meanwhile import repeating
from shop import HERE, Answering, ask, island_over

from api.cut import Freshness
from etl_procs.dataflow import Dataflow
from headrace.crash import Point
from migrations import layout, warehouse
from migrations.errors import Drift
from migrations.warehouse import Connection

PUSH_ONCE = Path(__file__).parent / "push_once.py"
MAIN, DELTA, STAGED = Freshness


@pytest.fixture
def ledger_book(connection: Connection, tmp_path: Path) -> Iterator[Book]:
    """A book, next to a warehouse that is prepared for it."""
    layout.prepare(connection, HERE, book.flow)
    made = Book(tmp_path / "book")
    yield made
    made.close()


@pytest.fixture
def island(warehouse_url: str, ledger_book: Book) -> Answering:
    return island_over(warehouse_url, ledger_book.reader, book.flow)


def check(island: Answering, made: Book) -> None:
    """Hold every answer against the batch that it is as of."""
    for freshness in Freshness:
        answer = island.query(book.CONTENTS, freshness)
        assert book.in_order(answer.rows) == book.contents(made.batches[: answer.as_of["book"]])
    assert answer.as_of["book"] == len(made.batches)


def test_of_the_operations_of_a_key_the_last_counts(
    ledger_book: Book, connection: Connection, island: Answering
) -> None:
    ledger_book.commit([Entry("a", 1, 1.0, "x"), Entry("b", 1, 2.0)], [Entry("a", 1, 3.0)])
    check(island, ledger_book)
    assert ledger_book.push(connection).rows == 12
    ledger_book.commit([Entry("b", 1, 0.0, gone=True)], [Entry("b", 1, 4.0), Entry("b", 1, 5.0)])
    check(island, ledger_book)
    ledger_book.push(connection)
    ledger_book.check_main(connection)
    assert connection.execute("SELECT amount FROM book.balances ORDER BY 1").fetchall() == [
        (3.0,),
        (5.0,),
    ]


def test_a_batch_may_upsert_and_delete_the_same_key_in_any_order(
    ledger_book: Book, connection: Connection, island: Answering
) -> None:
    there, gone = Entry("a", 1, 1.0, "x"), Entry("a", 1, 1.0, gone=True)
    for batch in ([there, gone], [gone, there], [there, gone, there, gone], [gone, gone, there]):
        ledger_book.commit(batch)
        check(island, ledger_book)
        ledger_book.push(connection)
        ledger_book.check_main(connection)


def test_an_upsert_replaces_the_whole_row_nulls_included(
    ledger_book: Book, connection: Connection, island: Answering
) -> None:
    query = "SELECT note, amount FROM book.balances"
    ledger_book.commit([Entry("a", 1, 1.0, "x")])
    ledger_book.push(connection)
    ledger_book.commit([Entry("a", 1, 2.0, None)])
    assert ask(island, query, DELTA) == [("x", 1.0)]
    assert ask(island, query, STAGED) == [(None, 2.0)]
    ledger_book.merge(connection)
    ledger_book.push(connection)
    assert ask(island, query, MAIN) == [("x", 1.0)]
    assert ask(island, query, DELTA) == ask(island, query, STAGED) == [(None, 2.0)]
    ledger_book.merge(connection)
    assert ask(island, query, MAIN) == [(None, 2.0)]


def test_main_has_of_each_row_the_batch_that_brought_it_last(
    ledger_book: Book, connection: Connection
) -> None:
    of_main = "SELECT account, day, _batch, _partition FROM book_main.balances ORDER BY 1, 2"
    ledger_book.commit([Entry("a", 1, 1.0), Entry("b", 1, 2.0)], [Entry("a", 1, 3.0)])
    ledger_book.push(connection)
    ledger_book.merge(connection)
    assert connection.execute(of_main).fetchall() == [("a", 1, 2, 0), ("b", 1, 1, 0)]
    ledger_book.commit([Entry("b", 1, 2.0)], [Entry("a", 1, 3.0, gone=True)])
    ledger_book.push(connection)
    ledger_book.merge(connection)
    assert connection.execute(of_main).fetchall() == [("b", 1, 3, 0)]
    arrived = "SELECT account, _batch, _partition FROM book_main.history ORDER BY _batch, account"
    assert connection.execute(arrived).fetchall() == [
        ("a", 1, 0),
        ("b", 1, 0),
        ("a", 2, 0),
        ("b", 3, 0),
        ("a", 4, 0),
    ]


def test_what_is_deleted_and_was_never_there_does_no_harm(
    ledger_book: Book, connection: Connection, island: Answering
) -> None:
    ledger_book.commit([Entry("nobody", 1, 1.0, gone=True)])
    check(island, ledger_book)
    assert ledger_book.push(connection).rows == 4
    ledger_book.check_main(connection)


def test_keys_are_the_same_when_postgresql_says_so(
    ledger_book: Book, connection: Connection, island: Answering
) -> None:
    texts = ["", "a", "A", "a ", "e\u0301", "\u00e9", "'\"\\\t%s", "\U0001f30a", "x" * 2_000]
    ledger_book.commit(
        [Entry(text, -(2**63), number + 0.5, text) for number, text in enumerate(texts)],
        [Entry("a", 2**63 - 1, 0.0), Entry("a", 2**63 - 1, -0.0)],
    )
    check(island, ledger_book)
    ledger_book.push(connection)
    ledger_book.check_main(connection)
    assert connection.execute("SELECT count(*) FROM book.amounts").fetchall() == [(len(texts) + 1,)]


def test_a_row_that_is_replaced_keeps_what_refers_to_it(
    ledger_book: Book, connection: Connection
) -> None:
    ledger_book.commit([Entry("a", 1, 1.0)])
    ledger_book.push(connection)
    ledger_book.merge(connection)
    connection.execute("CREATE TABLE friends (account text REFERENCES book_main.latest)")
    connection.execute("INSERT INTO friends VALUES ('a')")
    ledger_book.commit([Entry("a", 2, 2.0)])
    ledger_book.push(connection)
    ledger_book.merge(connection)
    ledger_book.check_main(connection)


def test_staged_operations_take_part_in_a_whole_query(
    ledger_book: Book, connection: Connection, island: Answering
) -> None:
    ledger_book.commit([Entry(name, 1, 1.0, name) for name in "abcd"])
    ledger_book.push(connection)
    ledger_book.commit([Entry("a", 1, 5.0), Entry("b", 1, 1.0, gone=True), Entry("e", 1, 7.0)])
    joined = (
        "WITH staged AS (SELECT account FROM latest) "
        "SELECT main.account, amount FROM balances AS main JOIN staged USING (account) "
        "WHERE (SELECT count(*) FROM balances AS b WHERE b.amount <= main.amount) > 2 ORDER BY 1"
    )
    assert ask(island, joined) == [("a", 5.0), ("e", 7.0)]


@pytest.mark.parametrize("point", [p for p in Point if p.value.startswith("push.")])
def test_a_push_killed_at_any_point_is_completed_by_the_next(
    ledger_book: Book, connection: Connection, warehouse_url: str, island: Answering, point: Point
) -> None:
    ledger_book.commit([Entry("a", 1, 1.0), Entry("b", 1, 2.0)])
    ledger_book.push(connection)
    ledger_book.commit([Entry("a", 1, 1.0, gone=True)], [Entry("b", 1, 3.0), Entry("c", 1, 4.0)])
    command = [sys.executable, str(PUSH_ONCE), "book"]
    command += [str(ledger_book.home), warehouse_url, point.value]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    ledger_book.check_main(connection)
    check(island, ledger_book)
    ledger_book.commit([Entry("a", 1, 5.0), Entry("c", 1, 4.0, gone=True)])
    ledger_book.push(connection)
    ledger_book.check_main(connection)
    with ledger_book.reader.snapshot() as snapshot:
        assert snapshot.waiting("book") == 0


def test_while_pushes_and_merges_go_on_each_key_is_seen_once_at_one_batch(
    ledger_book: Book, connection: Connection, island: Answering
) -> None:
    """Accounts pay each other, and are closed: their sum is 0 at every cut, and one is a clock."""
    rng, some = random.Random(7), itertools.cycle([1, 4, 2, 3, 1])  # noqa: S311 - no secret
    has: dict[str, int] = {}
    accounts_at = [0]

    def pay() -> Sequence[Entry]:
        payer, payee = rng.sample("abcdef", 2)
        closing = rng.random() < 0.3
        amount = has.get(payer, 0) if closing else rng.randrange(100)
        has[payer] = has.get(payer, 0) - amount
        has[payee] = has.get(payee, 0) + amount
        if closing:
            del has[payer]
        accounts_at.append(len(has))
        return [
            Entry(payer, 0, float(has.get(payer, 0)), gone=closing),
            Entry(payee, 0, float(has[payee])),
            Entry("clock", 0, float(len(accounts_at) - 1)),
        ]

    def pay_and_push() -> None:
        for _ in range(next(some)):
            ledger_book.commit(*[pay() for _ in range(next(some))])
        ledger_book.push(connection, batches_max=next(some))
        if next(some) > 2:
            ledger_book.merge(connection)

    last = dict.fromkeys(Freshness, 0)
    with repeating(pay_and_push):
        for turn in range(200):
            freshness = (MAIN, DELTA, STAGED)[turn % 3]
            answer = island.query(
                "SELECT count(*), count(DISTINCT account), "
                "coalesce(sum(amount) FILTER (WHERE account <> 'clock'), 0), "
                "coalesce(max(amount) FILTER (WHERE account = 'clock'), 0) FROM balances",
                freshness,
            )
            batch = answer.as_of["book"]
            rows = accounts_at[batch] + (batch > 0)
            assert answer.rows == ((rows, rows, 0.0, batch),)
            assert batch >= last[freshness]
            last[freshness] = batch
    assert last[STAGED] > 20
    assert last[MAIN] > 0


an_entry = st.builds(
    Entry,
    st.sampled_from(["", "a", "b", "\u00e9"]),
    st.integers(0, 1),
    st.sampled_from([0.0, -0.0, 1.5, 1e300]),
    st.none() | st.sampled_from(["x", "\\N"]),
    st.booleans(),
)
a_batch = st.lists(an_entry, max_size=5)
a_step = st.lists(a_batch, min_size=1, max_size=4) | st.integers(0, 3)
"""Batches that are committed together, or a push of so many; of none: a merge."""


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(a_step, min_size=1, max_size=8))
def test_any_operations_in_any_batches_pushes_and_merges_give_what_a_dictionary_holds(
    warehouse_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    steps: Sequence[Sequence[Sequence[Entry]] | int],
) -> None:
    made = Book(tmp_path_factory.mktemp("core"))
    island = island_over(warehouse_url, made.reader, book.flow)
    with warehouse.connect(warehouse_url, application="test") as connection:
        connection.execute("DROP SCHEMA IF EXISTS book, book_main, book_delta, headrace CASCADE")
        layout.prepare(connection, HERE, book.flow)
        for step in steps:
            if step == 0:
                made.merge(connection)
                made.check_main(connection)
            elif isinstance(step, int):
                made.push(connection, batches_max=step)
                made.check_main(connection)
            else:
                made.commit(*step)
            check(island, made)
    made.close()


# The table's key


def _keyed(key: Sequence[str] = ("a", "b")) -> Dataflow:
    flow = Dataflow("keyed")
    flow.outlet("things", "b TEXT NOT NULL, a INTEGER NOT NULL, c REAL", key=key)
    return flow


def test_a_key_is_the_tables_primary_key_in_whatever_order(connection: Connection) -> None:
    layout.prepare(connection, HERE, _keyed(["b", "a"]))
    layout.prepare(connection, HERE, _keyed(["a", "b"]))
    connection.execute("INSERT INTO keyed_main.things VALUES ('x', 1, 1), ('x', 2, 1), ('y', 1, 1)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        connection.execute("INSERT INTO keyed_main.things VALUES ('x', 1, 2)")


@pytest.mark.parametrize(
    ("there", "key", "described"),
    [
        ("", ["a"], ("PRIMARY KEY (a)", "no PRIMARY KEY")),
        ("PRIMARY KEY (a, b)", ["a"], ("PRIMARY KEY (a)", "PRIMARY KEY (a, b)")),
        ("PRIMARY KEY (a, b)", [], ("no PRIMARY KEY", "PRIMARY KEY (a, b)")),
        ("PRIMARY KEY (a) DEFERRABLE", ["a"], ("PRIMARY KEY (a)", "PRIMARY KEY (a) DEFERRABLE")),
        ("UNIQUE (a)", ["a"], ("PRIMARY KEY (a)", "no PRIMARY KEY")),
    ],
)
def test_a_table_without_the_key_or_with_another_is_refused(
    connection: Connection, there: str, key: Sequence[str], described: tuple[str, str]
) -> None:
    connection.execute("CREATE SCHEMA keyed_main")
    connection.execute(
        "CREATE TABLE keyed_main.things (b text NOT NULL, a bigint NOT NULL, c double precision, "
        "_batch bigint, _partition integer)"
    )
    if there:
        connection.execute(f"ALTER TABLE keyed_main.things ADD {there}".encode())
    with pytest.raises(Drift) as caught:
        layout.prepare(connection, HERE, _keyed(key))
    assert caught.value.what.endswith(
        f": keyed_main.things is defined with {described[0]} and is there with {described[1]}"
    )
