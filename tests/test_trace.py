"""Tracing: from a row, wherever it is, back to its batch, its procedure and its places in Kafka."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import book
import pytest
import shop
from book import Book, Entry
from flows import NOON, HeldClock, arrived
from live import Board, Parts
from serving import KEY, Client, assert_problem
from shop import HERE, Shop
from test_api_commands import api_process, headrace

from api.catalogue import Catalogue
from api.errors import NoSuchRow, NotReady
from api.island import Setting
from api.past import ROWS_MAX, Asked, Finder
from api.trace import Tracer, tuple_out
from etl_procs import (
    Batch,
    Dataflow,
    Late,
    Transaction,
    by_count,
    by_interval,
    by_punctuation,
    graph,
    last_tuples,
)
from etl_procs.core import Core, core_path
from etl_procs.origin import Origin
from etl_procs.reader import Reader, cut
from etl_procs.routing import partition_of, routed
from headrace import config
from headrace.config import Broker
from headrace.crash import CrashPoints
from headrace.errors import NotRunning, Refused
from ingest.recall import Recalled
from migrations import layout
from migrations.errors import LedgerMismatch
from migrations.merge import Merging
from migrations.push import Push
from migrations.warehouse import DEFAULT, Connection, Warehouse

AT = NOON.isoformat()

Ask = Callable[..., dict[str, Any]]


def no_broker() -> Broker:
    raise NotRunning("no broker is known", hint="Start one.")


def tracing(url: str, *cores: Path, flow: Dataflow, more: tuple[Warehouse, ...] = ()) -> Ask:
    """Make what asks for rows of a dataflow."""
    places = (Warehouse(DEFAULT, url), *more)
    flows = {flow.name: flow}
    finder = Finder(Setting(places, cores, Catalogue.of(flows)), flows, 10_000)
    tracer = Tracer(finder, no_broker)

    def ask(
        table: str,
        *key: str,
        where: tuple[str, ...] = (),
        warehouse: str = "",
        tuples: bool = False,
    ) -> Any:
        dataflow, _, name = table.rpartition(".")
        asked = Asked(key=[*key], where=[*where], warehouse=warehouse, tuples=tuples)
        return tracer.trace(dataflow or "-", name, asked).model_dump(mode="json")

    return ask


@pytest.fixture
def ledger_book(connection: Connection, tmp_path: Path) -> Iterator[Book]:
    layout.prepare(connection, HERE, book.flow)
    made = Book(tmp_path / "book")
    yield made
    made.close()


@pytest.fixture
def ask(warehouse_url: str, ledger_book: Book) -> Ask:
    return tracing(warehouse_url, ledger_book.path, flow=book.flow)


@pytest.fixture
def ask_shop(connection: Connection, warehouse_url: str, store: Shop) -> Ask:
    return tracing(warehouse_url, store.path, flow=shop.flow)


def only(told: dict[str, Any]) -> dict[str, Any]:
    (row,) = told["rows"]
    assert isinstance(row, dict)
    return row


def entries_at(first: int, after: int) -> list[dict[str, Any]]:
    """Name places of plain records in partition 0; the punctuation behind them is among them."""
    place = {"stream": "entries", "topic": "book.entries", "partition": 0}
    begin = {"first_offset": first, "first_index": None}
    return [{**place, **begin, "next_offset": after, "next_index": 0}]


def test_a_row_is_told_as_it_goes_from_the_core_to_delta_and_main(
    ledger_book: Book, connection: Connection, ask: Ask
) -> None:
    ledger_book.commit([Entry("x", 1, 0.5)], [Entry("a", 1, 1.5, "n"), Entry("b", 1, 2.0)])
    staged = ask("book.balances", "a", "1")
    assert staged == {
        "table": "book.balances",
        "warehouse": "default",
        "procedures": ["keep"],
        "streams": ["entries"],
        "rows": [
            {
                "where": "staged",
                "operation": "upsert",
                "values": {"note": "n", "day": 1, "amount": 1.5, "account": "a"},
                "partition": 0,
                "batch": 2,
                "committed_at": AT,
                "arrived_by": None,
                "again": [],
                "places": entries_at(2, 5),
                "tuples": None,
                "lacking": "",
            }
        ],
        "more": False,
    }
    ledger_book.push(connection)
    ((moved_at,),) = connection.execute(
        "SELECT moved_at FROM headrace.ledger WHERE dataflow = 'book'"
    ).fetchall()
    in_delta = only(ask("balances", "a", "1"))
    assert in_delta.pop("arrived_by") == moved_at.isoformat()  # type: ignore[attr-defined]
    expected = only(staged) | {"where": "delta"}
    assert in_delta == {key: value for key, value in expected.items() if key != "arrived_by"}
    ledger_book.merge(connection)
    assert only(ask("balances", "a", "1")) == in_delta | {
        "where": "main",
        "arrived_by": moved_at.isoformat(),  # type: ignore[attr-defined]
    }


def test_the_latest_batch_of_a_row_is_told_wherever_it_is(
    ledger_book: Book, connection: Connection, ask: Ask
) -> None:
    seen = []
    for amount, step in [(1.0, ledger_book.merge), (2.0, None), (3.0, None)]:
        ledger_book.commit([Entry("a", 1, amount)])
        if amount < 3:
            ledger_book.push(connection)
        if step is not None:
            step(connection)
        row = only(ask("balances", "a", "1"))
        assert row["values"]["amount"] == amount
        seen.append((row["where"], row["batch"], row["places"]))
    assert seen == [
        ("main", 1, entries_at(0, 2)),
        ("delta", 2, entries_at(2, 4)),
        ("staged", 3, entries_at(4, 6)),
    ]
    ledger_book.push(connection)
    assert only(ask("balances", "a", "1"))["batch"] == 3  # of two in delta
    ledger_book.merge(connection)
    assert [only(ask("balances", "a", "1"))[key] for key in ("where", "batch")] == ["main", 3]


def test_a_deletion_is_told_until_it_is_merged(
    ledger_book: Book, connection: Connection, ask: Ask
) -> None:
    ledger_book.commit([Entry("a", 1, 1.0)])
    ledger_book.push(connection)
    ledger_book.merge(connection)
    ledger_book.commit([Entry("a", 1, 1.0, gone=True)])
    for where in ("staged", "delta"):
        row = only(ask("balances", "a", "1"))
        assert (row["where"], row["operation"], row["batch"]) == (where, "delete", 2)
        assert row["values"] == {"account": "a", "day": 1}
        ledger_book.push(connection)
    ledger_book.merge(connection)
    with pytest.raises(NoSuchRow, match=r"book\.balances has no such row") as caught:
        ask("balances", "a", "1")
    assert "deletion was merged" in caught.value.hint


@pytest.mark.parametrize(
    ("key", "where", "says"),
    [
        (("a",), (), r"the key \(account, day\), and a row is asked for by 1 values"),
        (("a", "1"), ("note=x",), "by 2 values and by a condition"),
        (("a", "one"), (), r"'one' is no INTEGER, and book\.balances\.day is one"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(
    ask: Ask, key: tuple[str, ...], where: tuple[str, ...], says: str
) -> None:
    with pytest.raises(Refused, match=says):
        ask("balances", *key, where=where)


@pytest.mark.parametrize(
    ("key", "where", "says"),
    [
        (("1",), (), r"shop\.sales has no key"),
        ((), (), r"shop\.sales has no key"),
        ((), ("id",), r"shop\.sales has no key"),
        ((), ("name=x",), r"shop\.sales has no column name"),
        ((), ("price=dear",), "'dear' is no REAL"),
    ],
)
def test_a_condition_that_does_not_fit_is_refused(
    ask_shop: Ask, key: tuple[str, ...], where: tuple[str, ...], says: str
) -> None:
    with pytest.raises(Refused, match=says):
        ask_shop("sales", *key, where=where)


def test_rows_without_a_key_are_told_the_newest_first(
    ask_shop: Ask, store: Shop, connection: Connection
) -> None:
    note = "it's; --"
    store.sell((1, 1.0, note), (2, 1.0, "other"))
    store.push(connection)
    store.merge(connection)
    store.sell((3, 1.0, note))
    store.push(connection)
    store.sell((4, 1.0, note), (5, 2.0, note))
    told = ask_shop("sales", where=("price=1.0", f"note={note}"))
    assert [(r["values"]["id"], r["where"], r["batch"], r["operation"]) for r in told["rows"]] == [
        (4, "staged", 3, "append"),
        (3, "delta", 2, "append"),
        (1, "main", 1, "append"),
    ]
    assert not told["more"]


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_no_more_rows_are_told_than_a_few(
    ask_shop: Ask, store: Shop, connection: Connection, moved: int
) -> None:
    store.sell(*((n, 1.0, None) for n in range(ROWS_MAX)))
    store.sell((ROWS_MAX, 1.0, None))
    for step in (store.push, store.merge)[:moved]:
        step(connection)
    told = ask_shop("sales", where=("price=1",))
    assert len(told["rows"]) == ROWS_MAX
    assert told["more"]
    assert told["rows"][0]["values"]["id"] == ROWS_MAX


def test_a_row_of_before_main_kept_batches_is_told_as_such(
    ledger_book: Book, connection: Connection, ask: Ask
) -> None:
    ledger_book.commit([Entry("a", 1, 1.0)])
    ledger_book.push(connection)
    ledger_book.merge(connection)
    connection.execute("ALTER TABLE book_main.balances DROP COLUMN _batch, DROP COLUMN _partition")
    with pytest.raises(NotReady, match="or an older layout of them"):
        ask("balances", "a", "1")
    layout.upgrade(connection, HERE, book.flow)
    row = only(ask("balances", "a", "1"))
    assert (row["where"], row["batch"], row["partition"]) == ("main", None, None)
    assert (row["committed_at"], row["places"]) == (None, None)


def test_a_warehouse_without_tables_is_not_ready_yet(
    ledger_book: Book, connection: Connection, second_url: str, ask: Ask
) -> None:
    ledger_book.commit([Entry("a", 1, 1.0)])
    with pytest.raises(NotReady, match="no tables of book yet"):
        tracing(second_url, ledger_book.path, flow=book.flow)("latest", "a")


def test_what_is_forgotten_is_told_as_such(ledger_book: Book, ask: Ask) -> None:
    ledger_book.commit([Entry("a", 1, 1.0)])
    ledger_book.core._store.connection.execute("UPDATE headrace_epochs SET recent = ''")
    row = only(ask("balances", "a", "1"))
    assert (row["batch"], row["committed_at"], row["places"]) == (1, None, None)


def test_tuples_that_no_broker_gives_are_told_to_be_lacking(
    ledger_book: Book, connection: Connection, ask: Ask
) -> None:
    ledger_book.core.claim("book", "entries", "topic")
    ledger_book.commit([Entry("a", 1, 1.0)])
    row = only(ask("balances", "a", "1", tuples=True))
    assert (row["tuples"], row["lacking"]) == ([], "no broker is known")
    assert row["places"] == entries_at(0, 2)


def test_a_row_may_be_in_one_warehouse_and_staged_for_another(
    ledger_book: Book, connection: Connection, warehouse_url: str, second_url: str
) -> None:
    second = Warehouse("second", second_url, ("book.latest",))
    with second.connect(application="test") as other:
        layout.prepare(other, second, book.flow)
    ledger_book.origin.feed("book", [DEFAULT, "second"])
    ledger_book.commit([Entry("a", 1, 1.0)])
    ledger_book.push(connection)
    ask = tracing(warehouse_url, ledger_book.path, flow=book.flow, more=(second,))
    assert [only(ask("latest", "a", warehouse=name))["where"] for name in (DEFAULT, "second")] == [
        "delta",
        "staged",
    ]
    with pytest.raises(Refused, match=r"book\.balances is not routed to the warehouse second"):
        ask("balances", "a", "1", warehouse="second")
    with pytest.raises(Refused, match="there is no warehouse 'third'"):
        ask("latest", "a", warehouse="third")


def test_a_row_that_another_core_brought_is_not_told_with_places_of_this_one(
    ledger_book: Book, connection: Connection, ask: Ask
) -> None:
    ledger_book.commit([Entry("a", 1, 1.0)])
    ledger_book.push(connection)
    connection.execute("UPDATE headrace.ledger SET core = gen_random_uuid() WHERE batch > 0")
    with pytest.raises(LedgerMismatch):
        ask("latest", "a")


def test_of_dead_letters_that_ran_again_the_batch_that_took_them_is_told(
    connection: Connection, warehouse_url: str, tmp_path: Path
) -> None:
    flow = Dataflow("plant")
    readings = flow.stream("readings", "id INTEGER NOT NULL", batches=by_punctuation())
    kept = flow.outlet("kept", "id INTEGER NOT NULL", key="id")

    @flow.procedure(takes=readings, gives=[kept])
    def keep(tx: Transaction, batch: Batch) -> None:
        if tx.batch < 3:
            raise ValueError("not yet")
        tx.emit(kept, batch.table)

    layout.prepare(connection, HERE, flow)
    made = shop.Warehoused(tmp_path / "plant", flow)
    made.run(readings, [(1,)], [(2,)])
    for _ in range(2):
        with made.changing() as letters:
            letters.replay([letter.id for letter in made.letters()])
        made.core.drain()
    row = only(tracing(warehouse_url, made.path, flow=flow)("kept", "2"))
    assert (row["batch"], row["again"]) == (4, [2])
    assert [place["first_offset"] for place in row["places"]] == [2]
    made.close()


def divided() -> Dataflow:
    flow = Dataflow("plant", partitions=2)
    readings = flow.stream(
        "readings", "room TEXT NOT NULL, heat REAL", batches=by_count(2, linger_s=1.0), key="room"
    )
    kept = flow.outlet("kept", "room TEXT NOT NULL, heat REAL", key="room")

    @flow.procedure(takes=readings, gives=[kept])
    def keep(tx: Transaction, batch: Batch) -> None:
        tx.emit(kept, batch.table)

    return flow


def test_each_row_is_traced_to_the_batch_of_its_own_partition(
    connection: Connection, warehouse_url: str, tmp_path: Path
) -> None:
    flow = divided()
    readings = flow.streams["readings"]
    rooms = {p: [r for r in "abcdefgh" if partition_of(r, 2) == p][:3] for p in (0, 1)}
    # Two of partition 0 in a row, then turn by turn.
    order = [*rooms[0][:2], rooms[1][0], rooms[0][2], *rooms[1][1:]]
    parts = routed(arrived(readings, [(room, 1.0) for room in order]), 2)
    layout.prepare(connection, HERE, flow)
    with ExitStack() as opened:
        paths = [core_path(tmp_path, partition) for partition in (0, 1)]
        for partition, path in enumerate(paths):
            clock = HeldClock()
            settings, crash = config.Core(), CrashPoints()
            core = Core(path, settings=settings, clock=clock, crash=crash, partition=partition)
            opened.enter_context(closing(core))
            core.prepare([flow])
            core.open("plant", {"readings": [0]})
            core.feed(parts[partition])
            clock.advance(5)
            core.drain()
            origin = opened.enter_context(closing(Origin(path, settings, crash)))
            origin.feed("plant", [HERE.name])
            Push(partition, HERE, origin, crash, 1_000).run(connection, flow)
        Merging(HERE, CrashPoints()).run(connection, flow)
        ask = tracing(warehouse_url, *paths, flow=flow)
        found = {}
        for room in order:
            row = only(ask("kept", room))
            (place,) = row["places"]
            found[room] = row["partition"], row["batch"], place["first_offset"]
        with cut([*map(Reader, paths)]) as cores:
            assert [core.batch("plant") for core in cores] == [2, 2]
    assert found == {
        rooms[0][0]: (0, 1, 0),
        rooms[0][1]: (0, 1, 0),
        rooms[0][2]: (0, 2, 3),
        rooms[1][0]: (1, 1, 2),
        rooms[1][1]: (1, 1, 2),
        rooms[1][2]: (1, 2, 5),
    }


def test_who_gives_to_a_table_and_from_which_streams_that_comes_is_seen_in_the_graph() -> None:
    flow = Dataflow("plant")
    late = flow.stream("late", "at INTEGER NOT NULL")
    heats = flow.stream("heats", "at INTEGER NOT NULL", batches=by_interval("at", 9, late=late))
    calls = flow.stream(
        "calls", "at INTEGER NOT NULL", batches=by_interval("at", 9, late=Late.DEAD)
    )
    hot = flow.stream("hot", "at INTEGER NOT NULL")
    recent = flow.window("recent", "at INTEGER NOT NULL", last_tuples(2))
    alarms, corrected = (flow.outlet(name, "at INTEGER NOT NULL") for name in ("alarms", "fixed"))
    untouched = flow.outlet("untouched", "at INTEGER NOT NULL")
    flow.procedure(takes=heats, gives=[hot, recent])(named("measure"))
    flow.trigger(on=recent, gives=[alarms])(named("alarm"))
    flow.procedure(takes=[hot, calls], gives=[alarms])(named("answer"))
    flow.procedure(takes=late, gives=[corrected])(named("correct"))

    def seen(outlet: Any) -> tuple[list[str], list[str]]:
        procedures = graph.writers(flow, outlet)
        streams = graph.upstream(flow, procedures)
        return [p.name for p in procedures], [stream.name for stream in streams]

    assert seen(alarms) == (["measure", "answer"], ["heats", "calls"])
    assert seen(corrected) == (["correct"], ["heats"])
    assert seen(untouched) == ([], [])


def named(name: str) -> Callable[..., None]:
    def body(*_: object) -> None: ...

    body.__name__ = name
    return body


def test_the_command_asks_the_api_and_lays_the_answer_out(
    store: Shop, connection: Connection, warehouse_url: str
) -> None:
    store.core.claim("shop", "orders", "topic")
    store.sell((1, -1.5, "a"), (2, None, None))
    store.push(connection)
    with api_process(store.home, warehouse_url) as port:
        where = {"HEADRACE_API_KEY": KEY, "HEADRACE_API_PORT": str(port)}
        asked = ("trace", "sales", "--where", "id=2")
        told = headrace(*asked, home=store.home, **where)
        assert told.returncode == 0, told.stderr
        assert [line.split(maxsplit=1) for line in told.stdout.splitlines()][:5] == [
            ["shop.sales", "id=2, price=NULL, note=NULL"],
            ["is", "in delta of the warehouse default"],
            ["operation", "append"],
            ["batch", "1 of partition 0"],
            ["committed", AT],
        ]
        assert told.stdout.splitlines()[-2:] == [
            "given by    procedure sell",
            "from Kafka  shop.orders[0]@0 to @2",
        ]
        as_json = headrace(*asked, "--json", home=store.home, **where)
        assert json.loads(as_json.stdout)["rows"][0]["batch"] == 1
        no_row = headrace("trace", "shop.sales", "--where", "id=3", home=store.home, **where)
        assert (no_row.returncode, "has no such row" in no_row.stderr) == (5, True)
        no_table = headrace("trace", "shop.", home=store.home, **where)
        assert (no_table.returncode, "is no table" in no_table.stderr) == (2, True)
        unknown = headrace("trace", "shop.none", "--where", "id=3", home=store.home, **where)
        assert (unknown.returncode, "there is no table shop.none" in unknown.stderr) == (5, True)
        reply = Client(port).send("GET", "/v1/tables/shop/none/trace?where=id=3")
        assert "shop.refunds, shop.sales" in assert_problem(reply, 404, "NoSuchTable")["hint"]
        no_broker = headrace(*asked, "--tuples", home=store.home, **where)
        assert "no broker is known" in no_broker.stdout


def test_what_was_produced_is_found_again_from_the_row_that_became_of_it(
    running: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = Board(running, tmp_path, "traced")
    monkeypatch.setenv("HEADRACE_BROKER_BOOTSTRAP", running.bootstrap)
    with board.engine() as engine:
        for phone, contestant in [("one", 1), ("two", 2), ("none", 9)]:
            board.vote([(phone, contestant)])
            board.until_consumed(engine)
    with api_process(board.home, running.warehouse_url, board.file) as port:
        where = {"HEADRACE_API_KEY": KEY, "HEADRACE_API_PORT": str(port)}
        asked = ("trace", "traced.votes", "--where", "phone=two", "--tuples")
        told = headrace(*asked, "--json", home=board.home, **where)
        row = only(json.loads(told.stdout))
        shown = headrace(*asked, home=board.home, **where)
    sent = json.dumps({"phone": "two", "contestant": 2})
    assert [(one["value"], one["reason"]) for one in row["tuples"]] == [(sent, None)]
    (place,), (found,) = row["places"], row["tuples"]
    assert (found["partition"], found["offset"]) == (place["partition"], place["first_offset"])
    assert place["next_offset"] == place["first_offset"] + 1
    at = f"[{place['partition']}]@{place['first_offset']}"
    assert shown.stdout.splitlines()[-3:] == [
        "given by      procedure count",
        f"from Kafka    traced.votes{at} to @{place['first_offset']}",
        f"tuple         votes{at} {sent}",
    ]


def test_bytes_that_are_no_text_are_told_in_base64() -> None:
    for value, text, coded in [(b"\xff", None, "/w=="), ("\u00e9".encode(), "\u00e9", None)]:
        told = tuple_out(Recalled("s", 0, 1, None, None, None, value, None))
        assert (told.value, told.value_base64) == (text, coded)
