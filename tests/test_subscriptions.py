"""Subscriptions over HTTP: each batch is told once and whole, in order, wherever one goes on."""

import errno
import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import date, timedelta
from decimal import Decimal
from http.client import IncompleteRead
from math import inf
from pathlib import Path

import pytest
import shop
from bank import flow as bank
from bank import names_of
from doubling import N, Open
from flows import HeldClock
from serving import KEY, Client, assert_problem, front
from subscribing import EVENTS, LINES, heard, subscribable, told
from trial import Trial, named, pass_on
from waiting import until

from api import events, subscriptions
from api.grant import Scope
from api.guard import Entrance
from api.keyring import Keyring
from etl_procs import Batch, Dataflow, Transaction, by_punctuation, staging, watch
from etl_procs import trial as deposited
from etl_procs.watch import Watch
from migrations import warehouse

DOUBLED = "/v1/streams/open/doubled"
BATCHES = f"{DOUBLED}/batches"
SOON_S = 20


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Open]:
    made = Open(tmp_path / "core" / "partition-0.db")
    yield made
    made.close()


@pytest.fixture
def client(made: Open) -> Iterator[Client]:
    with subscribable([made.path], *made.flows) as client:
        yield client


def batch(number: int, *numbers: int) -> dict[str, object]:
    rows = [{"n": n, "text": "x"} for n in numbers]
    return {"batch": number, "partition": 0, "position": str(number), "rows": rows}


def test_batches_are_told_as_they_are_committed(made: Open, client: Client) -> None:
    made.publish(made.doubled)
    made.take([1])
    with heard(client, BATCHES) as subscriber:
        assert (subscriber.status, subscriber.type) == (200, LINES)
        documents = subscriber.documents()
        assert next(documents) == {"position": "1"}
        made.take([2, 3])
        assert next(documents) == batch(2, 4, 6)
        made.take([], [4])
        assert [next(documents), next(documents)] == [batch(3), batch(4, 8)]


def test_they_are_told_from_a_position_on_and_as_many_as_are_asked_for(
    made: Open, client: Client
) -> None:
    made.publish(made.doubled)
    made.take([1], [], [3], [-1], [5])
    every = [batch(1, 2), batch(2), batch(3, 6), batch(4), batch(5, 10)]
    for after in range(5):
        assert told(client, f"{BATCHES}?after={after}&limit={5 - after}") == every[after:]
    assert told(client, f"{BATCHES}?after=1&limit=2") == every[1:3]


def test_server_sent_events_carry_the_position_to_go_on_behind(made: Open, client: Client) -> None:
    made.publish(made.doubled)
    made.take([1], [2], [3])
    with heard(client, f"{BATCHES}?limit=1", EVENTS) as subscriber:
        assert subscriber.type.startswith(EVENTS)
        told_first = next(subscriber.events())
        assert told_first == {"event": "position", "id": "3", "data": '{"position":"3"}'}
    with heard(client, f"{BATCHES}?after=0", EVENTS, Last_Event_ID="1") as subscriber:
        event = next(subscriber.events())
        assert event.keys() == {"id", "data"}
        assert (event["id"], json.loads(event["data"])) == ("2", batch(2, 4))


def test_wherever_a_connection_ends_the_next_goes_on(made: Open, client: Client) -> None:
    made.publish(made.doubled)
    done = threading.Event()

    def commit() -> None:
        for number in range(1, 61):
            made.take([number] * (number % 4))
        done.set()

    thread = threading.Thread(target=commit)
    thread.start()
    found: list[object] = []
    last, length = "0", 0
    while len(found) < 60:
        length = length % 7 + 1
        with heard(client, f"{BATCHES}?after=0", EVENTS, Last_Event_ID=last) as subscriber:
            for event, _ in zip(subscriber.events(), range(length), strict=False):
                found.append(json.loads(event["data"]))
                last = event["id"]
                if len(found) == 60:
                    break
    thread.join()
    assert done.is_set()
    assert found == [batch(n, *([2 * n] * (n % 4))) for n in range(1, 61)]


def test_a_large_batch_is_one_event_that_is_written_in_pieces(
    made: Open, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 4_000)
    monkeypatch.setattr(events, "PIECE_CHARACTERS", 3_000)
    monkeypatch.setattr(events, "ROWS_AT_ONCE", 17)
    turns = counted_turns(monkeypatch)
    numbers = list(range(5_000))
    made.publish(made.doubled)
    made.take([1], numbers, [2], [3])
    every = [batch(1, 2), batch(2, *(2 * n for n in numbers)), batch(3, 4), batch(4, 6)]
    assert told(client, f"{BATCHES}?after=0&limit=4") == every
    assert len(turns) > 20
    assert max(turns) < 5_000
    assert told(client, f"{BATCHES}?after=0&limit=2") == every[:2]
    assert told(client, f"{BATCHES}?after=1&limit=2") == every[1:3]


def counted_turns(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the length of what each turn has written."""
    turns: list[int] = []
    turn = events.Subscription.turn

    def noted(self: events.Subscription, last: list[int]) -> bytes:
        written = turn(self, last)
        turns.append(len(written))
        return written

    monkeypatch.setattr(events.Subscription, "turn", noted)
    return turns


def test_many_empty_batches_are_told_in_pieces_too(
    made: Open, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "PIECE_CHARACTERS", 300)
    turns = counted_turns(monkeypatch)
    made.publish(made.doubled)
    made.take(*[[]] * 50, [1], *[[]] * 50)
    every = [batch(n, *([2] if n == 51 else [])) for n in range(1, 102)]
    assert told(client, f"{BATCHES}?after=0&limit=101") == every
    assert len(turns) > 10
    assert max(turns) < 400


def test_a_reader_that_does_not_read_is_not_read_for(
    made: Open, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 60 MB, a client has taken nothing, and the API holds what the sockets take and a piece."""
    turns = counted_turns(monkeypatch)
    made.text = "x" * 10_000
    made.publish(made.doubled)
    made.take(*([1] * 150 for _ in range(40)))
    path = f"{BATCHES}?after=0"
    with heard(client, path) as slow:
        until(lambda: bool(turns), SOON_S, lambda: "the slow one never had its turn")
        quick = told(client, f"{path}&limit=40")
        assert [len(document["rows"]) for document in quick] == [150] * 40
        of_quick = sum(len(json.dumps(d, separators=(",", ":"))) + 1 for d in quick)
        ahead = sum(turns) - of_quick
        assert 0 < ahead < 20 * 2**20
        batches = slow.batches()
        assert all(next(batches) == batch for batch in quick)


def test_heartbeats_are_told_while_nothing_comes(
    made: Open, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "HEARTBEAT_S", 0.05)
    made.publish(made.doubled)
    for accept, beat in ((LINES, "\n"), (EVENTS, ":\n")):
        with heard(client, f"{BATCHES}?after=0", accept) as subscriber:
            assert [subscriber.line(), subscriber.line()] == (
                [beat, beat] if accept == LINES else [beat, "\n"]
            )


def test_what_is_not_published_is_refused_with_the_way_to_do_it(made: Open, client: Client) -> None:
    told_ = assert_problem(client.send("GET", BATCHES), 409, "Unpublished")
    assert "PUT /v1/streams/open/doubled/published" in told_["hint"]
    assert client.send("GET", f"{DOUBLED}/published").document == no_more()
    made.take([1])
    for _ in range(2):
        reply = client.send("PUT", f"{DOUBLED}/published")
        assert (reply.status, reply.document) == (200, {"published": True, "oldest": "1"})
    assert client.send("GET", f"{DOUBLED}/published").document == reply.document
    made.take([2])
    assert told(client, f"{BATCHES}?after=1&limit=1") == [batch(2, 4)]
    assert client.send("DELETE", f"{DOUBLED}/published").document == no_more()
    assert_problem(client.send("GET", f"{BATCHES}?after=1"), 409, "Unpublished")


def no_more() -> dict[str, object]:
    return {"published": False, "oldest": None}


def test_what_is_unpublished_meanwhile_ends_its_subscriptions_with_an_error(
    made: Open, client: Client
) -> None:
    made.publish(made.doubled)
    for accept in (LINES, EVENTS):
        client.send("PUT", f"{DOUBLED}/published")
        with heard(client, BATCHES, accept) as subscriber:
            assert "position" in subscriber.line()
            client.send("DELETE", f"{DOUBLED}/published")
            made.take([1])
            if accept == LINES:
                (last,) = list(subscriber.documents())
                error = last["error"]
            else:
                *_, event = list(subscriber.events())
                assert event.pop("event") == "error"
                error = json.loads(event["data"])
            assert (error["status"], error["code"]) == (409, "Unpublished")


def test_a_reader_that_comes_too_late_is_told_the_oldest_position(
    made: Open, client: Client
) -> None:
    made.publish(made.doubled)
    made.take([1], [2])
    made.clock.advance(100_000)
    made.take([3])
    made.core.move_on()
    late = assert_problem(client.send("GET", f"{BATCHES}?after=1"), 410, "Forgotten")
    assert late["oldest"] == "2"
    assert "?after=2" in late["hint"]
    assert told(client, f"{BATCHES}?after=2&limit=1") == [batch(3, 6)]


def test_a_reader_whose_batch_is_forgotten_amid_it_never_sees_it_end(
    made: Open, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(events, "PIECE_CHARACTERS", 1_000)
    turn = events.Subscription.turn

    def forgetting(self: events.Subscription, last: list[int]) -> bytes:
        if self.is_amid:
            made.clock.advance(100_000)
            made.core.move_on()
        return turn(self, last)

    monkeypatch.setattr(events.Subscription, "turn", forgetting)
    made.publish(made.doubled)
    made.take(list(range(10_000)))
    for accept in (LINES, EVENTS):
        made.publisher.unpublish(made.doubled, 1)
        made.publish(made.doubled)
        made.take([1], list(range(10_000)))
        with made.reader.snapshot() as snapshot:
            after = snapshot.kept_after(made.doubled)
        with heard(client, f"{BATCHES}?after={after}", accept) as subscriber:
            with pytest.raises(IncompleteRead) as cut:
                subscriber.response.read()
            assert b"error" not in cut.value.partial
        assert_problem(client.send("GET", f"{BATCHES}?after={after}"), 410, "Forgotten")


@pytest.mark.parametrize(
    ("path", "accept", "status", "code"),
    [
        ("/v1/streams/open/absent/batches", LINES, 404, "NotFound"),
        ("/v1/streams/absent/doubled/batches", LINES, 404, "NotFound"),
        ("/v1/tables/open/doubled/batches", LINES, 404, "NotFound"),
        ("/v1/tables/absent/out/batches", LINES, 404, "NotFound"),
        (f"{BATCHES}?after=x", LINES, 422, "UnprocessableEntity"),
        (f"{BATCHES}?after=-1", LINES, 422, "UnprocessableEntity"),
        (f"{BATCHES}?after=", LINES, 422, "UnprocessableEntity"),
        (f"{BATCHES}?after=1,2", LINES, 422, "UnprocessableEntity"),
        (f"{BATCHES}?limit=0", LINES, 422, "Invalid"),
        (f"{BATCHES}?since=1", LINES, 422, "Invalid"),
        (BATCHES, "text/html", 406, "NotAcceptable"),
        (f"{BATCHES}?after=2", LINES, 409, "NotYet"),
    ],
)
def test_every_refusal_is_a_problem(
    made: Open, client: Client, path: str, accept: str, status: int, code: str
) -> None:
    made.publish(made.doubled)
    made.take([1])
    assert_problem(client.send("GET", path, Accept=accept), status, code)
    assert client.send("GET", path, key=None).status == 401


def test_whatever_else_is_acceptable_is_json_lines(made: Open, client: Client) -> None:
    made.publish(made.doubled)
    made.take([1])
    for accept in ("*/*", "text/html, */*;q=0.8", f"{LINES}, {EVENTS}"):
        with heard(client, f"{BATCHES}?after=0&limit=1", accept) as subscriber:
            assert subscriber.type == LINES


def test_no_more_subscribe_than_may(
    made: Open, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "SUBSCRIBERS_MAX", 2)
    made.publish(made.doubled)
    with heard(client, BATCHES) as first, heard(client, BATCHES) as second:
        assert (first.status, second.status) == (200, 200)
        assert_problem(client.send("GET", BATCHES), 503, "Busy")
    path = f"{BATCHES}?after=0&limit=1"
    made.take([1])
    until(lambda: client.send("GET", path).status == 200, SOON_S, lambda: "no room again")


def test_a_core_that_is_not_there_yet_is_not_running(made: Open, tmp_path: Path) -> None:
    with subscribable([tmp_path / "absent.db"], *made.flows) as client:
        for method, path in (("GET", BATCHES), ("PUT", f"{DOUBLED}/published")):
            reply = client.send(method, path)
            assert_problem(reply, 503, "NotRunning")
            assert reply.headers["retry-after"] == "1"


def test_nothing_is_told_before_the_disk_has_it(
    made: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.take([1])
    watching = Watch([made.path])
    durable: list[int] = []

    def noted(path: Path) -> None:
        assert watching.batches("open", 1) == [len(durable)], "told before"
        durable.append(made.batch(made.flows[0]))

    monkeypatch.setattr(watch, "make_durable", noted)
    for number in (1, 2, 3):
        assert watching.look()
        assert watching.batches("open", 1) == [number]
        assert not watching.look(), "nothing has been committed since"
        made.take([number])
    assert durable == [1, 2, 3]


def test_that_the_disk_cannot_have_it_is_told_and_who_comes_again_goes_on(
    made: Open, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_path: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    made.publish(made.doubled)
    made.take([1])
    with heard(client, f"{BATCHES}?after=0") as subscriber:
        documents = subscriber.documents()
        assert next(documents) == batch(1, 2)
        with monkeypatch.context() as broken:
            broken.setattr("etl_procs.store.os.fsync", failing)
            made.take([2])
            (last,) = documents
        assert last["error"]["code"] == "OutOfRoom"
        assert "Input/output error" in last["error"]["detail"]
    assert told(client, f"{BATCHES}?after=1&limit=1") == [batch(2, 4)]


def test_what_nobody_foresaw_ends_subscriptions_with_an_error_too(
    made: Open, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.publish(made.doubled)
    with heard(client, BATCHES) as subscriber:
        documents = subscriber.documents()
        assert next(documents) == {"position": "0"}
        monkeypatch.setattr(Watch, "look", lambda _self: 1 / 0)
        (last,) = documents
        assert "ZeroDivisionError" in last["error"]["detail"]


@pytest.mark.parametrize(("ends", "code"), [("revoked", "KeyRevoked"), ("expires", "KeyExpired")])
def test_when_its_key_is_over_nothing_more_is_told(
    made: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str, code: str
) -> None:
    monkeypatch.setattr(subscriptions, "HEARTBEAT_S", 60 if ends == "revoked" else 0.1)
    made.publish(made.doubled)
    clock = HeldClock()
    with closing(Keyring(tmp_path / "keys.db", clock)) as keyring:
        scopes = frozenset({Scope.SUBSCRIBE})
        key, shown = keyring.create("ann", scopes, lasts=timedelta(seconds=10))
        before = front(Entrance(KEY, keyring))
        with (
            subscribable([made.path], *made.flows, before=before) as client,
            heard(client, BATCHES, key=shown) as subscriber,
        ):
            documents = subscriber.documents()
            assert next(documents) == {"position": "0"}
            made.take([1])
            assert next(documents) == batch(1, 2)
            if ends == "revoked":
                keyring.revoke(key.grant.id)
                made.take([2])
            else:
                clock.advance(10)
            (last,) = documents
    assert last["error"]["code"] == code


SINCE = date(2026, 5, 6)


class Kept(Trial):
    """Prices by name, that come and go; and a list of all of them."""

    def __init__(self, path: Path) -> None:
        flow = Dataflow("kept")
        self.source = flow.stream(
            "source", "name TEXT NOT NULL, cents INTEGER", batches=by_punctuation()
        )
        columns = "name TEXT NOT NULL, price NUMERIC(9, 2), since DATE"
        prices, every = flow.outlet("prices", columns, key="name"), flow.outlet("every", columns)

        @flow.procedure(takes=self.source, gives=[prices, every])
        def tell(tx: Transaction, batch: Batch) -> None:
            for row in batch.rows():
                name, cents = row["name"], row["cents"]
                if cents is None:
                    tx.delete(prices, [{"name": name}])
                else:
                    price = {"name": name, "price": Decimal(cents) / 100, "since": SINCE}
                    tx.emit(prices, [price])
                    tx.emit(every, [price])

        super().__init__(path, flow)


def test_of_tables_it_tells_what_is_staged_and_what_is_deleted(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "core" / "partition-0.db")
    with subscribable([kept.path], *kept.flows) as client:
        kept.run(kept.source, [("tea", 250), ("bun", 10)], [], [("tea", None)])
        path = "/v1/tables/kept/prices/batches"
        since = {"since": "2026-05-06"}
        assert [d["rows"] for d in told(client, f"{path}?after=0&limit=3")] == [
            [
                {"_deleted": False, "name": "tea", "price": "2.50", **since},
                {"_deleted": False, "name": "bun", "price": "0.10", **since},
            ],
            [],
            [{"_deleted": True, "name": "tea"}],
        ]
        every = "/v1/tables/kept/every/batches"
        (first,) = told(client, f"{every}?after=0&limit=1")
        assert first["rows"][1] == {"name": "bun", "price": "0.10", **since}
        os.utime(kept.path.with_suffix(".followed"), (0, 0))  # nobody follows it any more
        kept.forget(2)
        late = assert_problem(client.send("GET", f"{path}?after=1"), 410, "Forgotten")
        assert late["oldest"] == "2"
        assert "core.keep_s" in late["hint"]
        assert [d["batch"] for d in told(client, f"{path}?after=2&limit=1")] == [3]
    kept.close()


def test_who_follows_a_table_is_not_too_late_for_a_push(
    connection: warehouse.Connection,
    store: shop.Shop,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscriptions, "FOLLOW_EVERY_S", 0.0)
    path, word = "/v1/tables/shop/sales/batches", store.path.with_suffix(".followed")
    with subscribable([store.path], shop.flow) as client:
        store.sell((1, 1.0, "a"))
        store.push(connection)
        assert store.unsent() == 0
        assert_problem(client.send("GET", f"{path}?after=0"), 410, "Forgotten")
        with heard(client, path) as subscriber:
            os.utime(word, (0, 0))
            until(lambda: word.stat().st_mtime > 0, SOON_S, lambda: "nobody says that it follows")
            for number in (2, 3):
                store.sell((number, 1.0, "a"))
                store.push(connection)
            found = [next(subscriber.batches())["batch"] for _ in range(2)]
        assert (found, store.unsent()) == ([2, 3], 2)
        assert [of["batch"] for of in told(client, f"{path}?after=1&limit=2")] == [2, 3]
        monkeypatch.setattr(subscriptions, "FOLLOW_EVERY_S", inf)
    os.utime(word, (0, 0))
    store.sell((4, 1.0, "a"))
    store.push(connection)
    assert store.unsent() == 0


def test_who_cannot_say_that_a_table_is_followed_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_core: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(subscriptions, "follow", full)
    kept = Kept(tmp_path / "core" / "partition-0.db")
    with closing(kept), subscribable([kept.path], *kept.flows) as client:
        refused = assert_problem(
            client.send("GET", "/v1/tables/kept/prices/batches"), 503, "NotRunning"
        )
    assert "No space left" in refused["detail"]


class Halves(Trial):
    """Two procedures that give to one table, one after the other."""

    def __init__(self, path: Path) -> None:
        flow = Dataflow("halves")
        self.source = flow.stream("source", N, batches=by_punctuation())
        inner, self.both = flow.stream("inner", N), flow.outlet("both", N)
        flow.procedure(takes=self.source, gives=[inner, self.both])(
            named("first", pass_on(inner, self.both))
        )
        flow.procedure(takes=inner, gives=[self.both])(named("second", pass_on(self.both)))
        super().__init__(path, flow, group_batches_max=2)


def test_a_batch_is_told_when_all_of_its_dataflow_has_done_it(tmp_path: Path) -> None:
    halves = Halves(tmp_path / "core" / "partition-0.db")
    path = "/v1/tables/halves/both/batches"
    with subscribable([halves.path], *halves.flows) as client:
        halves.run(halves.source, [(1,)])
        halves.clock.step = 1.0  # groups end amid a round
        halves.end(halves.source, [(2,)])
        halves.end(halves.source, [(3,)])
        halves.core.commit_next()
        assert halves.ledger() == {"first": 2, "second": 1}
        assert halves.staged(halves.both)[-1] == (2, 2), "a half of it is there"
        with heard(client, f"{path}?after=0") as subscriber:
            batches = subscriber.batches()
            assert next(batches)["rows"] == [{"n": 1}] * 2
            watched = told(client, f"{path}?after=0&limit=1")
            assert [document["batch"] for document in watched] == [1]
            halves.core.drain()
            assert [next(batches)["rows"] for _ in range(2)] == [[{"n": 2}] * 2, [{"n": 3}] * 2]
    halves.close()


def test_each_partition_has_batches_of_its_own_and_a_position_all_of_them() -> None:
    accounts = [name for pair in zip(*map(names_of, (0, 1), (3, 3)), strict=True) for name in pair]
    path = "/v1/streams/bank/deposits"
    with deposited.Trial(bank) as trial, subscribable(trial._paths, bank) as client:
        trial.batch(deposits=[{"account": accounts[0], "cents": 1}])
        assert client.send("PUT", f"{path}/published").document["oldest"] == "1,1"
        for cents, account in enumerate(accounts, 2):
            trial.batch(deposits=[{"account": account, "cents": cents}])
        every = told(client, f"{path}/batches?after=1,1&limit=12")
        for partition in (0, 1):
            mine = [d for d in every if d["partition"] == partition]
            assert [d["batch"] for d in mine] == [2, 3, 4, 5, 6, 7]
            rows = [row for d in mine for row in d["rows"]]
            assert [row["account"] for row in rows] == accounts[partition::2]
        for number, document in enumerate(every[:-1], 1):
            after = document["position"]
            rest = told(client, f"{path}/batches?after={after}&limit={12 - number}")
            for partition in (0, 1):
                assert [(d["batch"], d["rows"]) for d in rest if d["partition"] == partition] == [
                    (d["batch"], d["rows"]) for d in every[number:] if d["partition"] == partition
                ]
        with heard(client, f"{path}/batches") as subscriber:
            assert next(subscriber.documents()) == {"position": "7,7"}
        ahead = assert_problem(client.send("GET", f"{path}/batches?after=7,8"), 409, "NotYet")
        assert "is at 7,7, and not yet at 7,8" in ahead["detail"]
        assert_problem(client.send("GET", f"{path}/batches?after=7"), 422, "UnprocessableEntity")


def test_the_openapi_document_describes_subscriptions(client: Client) -> None:
    paths = client.send("GET", "/openapi.json").document["paths"]
    for what in ("streams/{dataflow}/{stream}", "tables/{dataflow}/{table}"):
        operation = paths[f"/v1/{what}/batches"]["get"]
        assert operation["security"]
        wanted = {"200", "401", "404", "406", "409", "410", "422", "503"}
        assert wanted <= operation["responses"].keys()
        assert {LINES, EVENTS} <= operation["responses"]["200"]["content"].keys()
        names = {parameter["name"] for parameter in operation["parameters"]}
        assert {"after", "limit", "last-event-id"} <= names
    assert paths["/v1/streams/{dataflow}/{stream}/published"].keys() == {"get", "put", "delete"}
