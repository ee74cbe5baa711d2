"""Continuous queries: answered as of each batch, told in order, and never of another state."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import bank
import pytest
from alerting import IN_ALL, Accounts, flow, payments
from continuing import AT, SOON_S, continuing, put, result, told, wait_for
from serving import Client, assert_problem
from shop import HERE
from subscribing import EVENTS, heard
from waiting import until

from api import registered
from api.grant import Restriction, Scope
from api.keyring import Keyring
from etl_procs.core import Core, core_path
from etl_procs.publisher import Publisher
from etl_procs.watch import Watch
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints
from migrations import layout, warehouse

TOTAL = "SELECT sum(cents) AS total FROM balances"
MANY = "SELECT 1 AS n FROM balances, balances b, balances c, balances d, balances e, balances f, \
balances g"
ANN = "SELECT cents FROM balances WHERE name = 'ann'"
MORE = "SELECT name, cents, 1 AS more FROM balances"
OF_STREAM = "SELECT sum(cents) AS paid FROM alerting.payments"
OF_BOTH = """\
SELECT max(b.cents) AS cents, sum(p.cents) AS paid
FROM alerting.payments AS p JOIN balances AS b ON b.name = 'ann'"""


@pytest.fixture
def accounts(tmp_path: Path, warehouse_url: str) -> Iterator[Accounts]:
    with warehouse.connect(warehouse_url, application="test") as opened:
        layout.prepare(opened, HERE, flow)
    made = Accounts(tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(accounts: Accounts, warehouse_url: str) -> Iterator[Client]:
    with continuing(accounts.home, warehouse_url, [accounts.path], flow) as client:
        yield client


def follow(client: Client, name: str, batches: int, query: str = "") -> list[tuple[str, object]]:
    with heard(client, f"{AT}/{name}/results?limit={batches}{query}") as follower:
        assert follower.status == 200, follower.response.read()
        return [(one["position"], one["rows"]) for one in follower.documents()]


def test_a_query_has_a_result_at_once_and_one_for_each_batch(
    accounts: Accounts, client: Client
) -> None:
    made = put(client, "ann", ANN)
    assert (made.status, made.document["state"], made.document["as_of"]) == (
        201,
        "running",
        {"alerting": 1},
    )
    assert result(client, "ann") == {
        "name": "ann",
        "as_of": {"alerting": 1},
        "position": "1",
        "columns": [{"name": "cents", "type": "bigint"}],
        "rows": [[100]],
    }
    accounts.pay(("ann", "bob", 1), ("ann", "bob", 2), ("bob", "cy", 5), ("bob", "ann", 10))
    assert follow(client, "ann", 5, "&after=0") == [
        *(("1", [[100]]), ("2", [[99]]), ("3", [[97]])),
        *(("4", [[97]]), ("5", [[107]])),
    ]
    assert result(client, "ann")["rows"] == [[107]]
    assert follow(client, "ann", 1) == [("5", [[107]])]
    assert follow(client, "ann", 1, "&after=3") == [("4", [[97]])]


def test_of_a_query_that_counts_changes_results_that_say_the_same_are_none(
    accounts: Accounts, client: Client
) -> None:
    put(client, "ann", ANN, when="change")
    accounts.pay(("bob", "cy", 1), ("ann", "cy", 1), ("bob", "cy", 1), ("bob", "cy", 1))
    wait_for(client, "ann", reached={"alerting": 5}, as_of={"alerting": 3})
    accounts.pay(("ann", "cy", 1))
    assert follow(client, "ann", 3, "&after=0") == [
        *(("1", [[100]]), ("3", [[99]]), ("6", [[98]])),
    ]


def test_what_is_the_same_after_each_batch_is_so_in_each_result_while_all_moves(
    accounts: Accounts, client: Client, warehouse_url: str
) -> None:
    put(client, "total", TOTAL)
    found: list[tuple[str, object]] = []

    def listen() -> None:
        with heard(client, f"{AT}/total/results?after=0") as follower:
            for one in follower.documents():
                found.append((one["position"], one["rows"]))
                if one["position"] == "121":
                    return

    listener = threading.Thread(target=listen)
    listener.start()
    with warehouse.connect(warehouse_url, application="test") as connection:
        for number in range(40):
            accounts.pay(("ann", "bob", 1), ("bob", "cy", 2), ("cy", "ann", number))
            accounts.push(connection)
            if number % 3 == 0:
                accounts.merge(connection)
    listener.join(SOON_S)
    assert not listener.is_alive(), told(client, "total")
    positions = [int(position) for position, _ in found]
    assert positions == sorted(set(positions))
    assert {json.dumps(rows) for _, rows in found} == {json.dumps([[str(IN_ALL)]])}
    assert len(found) > 5


def test_of_two_partitions_a_result_has_the_batch_of_each(
    tmp_path: Path, warehouse_url: str
) -> None:
    with warehouse.connect(warehouse_url, application="test") as opened:
        layout.prepare(opened, HERE, bank.flow)
    cores, paths = [], [core_path(tmp_path, number) for number in range(bank.PARTITIONS)]
    for path in paths:
        core = Core(path, settings=config.Core(), clock=SystemClock(), crash=CrashPoints())
        core.prepare([bank.flow])
        core.open("bank", {"deposits": [0]})
        cores.append(core)
    names = [bank.names_of(number, 1)[0] for number in range(bank.PARTITIONS)]
    with continuing(tmp_path, warehouse_url, paths, bank.flow) as client:
        assert put(client, "sum", "SELECT sum(cents) AS n FROM statements").status == 201
        for number, after in ((0, "0,0"), (1, "1,0")):
            cores[number].feed(bank.arrived([(names[number], 5)] * 3))
            cores[number].drain()
            wanted = [1, number]
            ((position, rows),) = follow(client, "sum", 1, f"&after={after}")
            assert position == ",".join(map(str, wanted))
            assert rows == [[str(15 * (number + 1))]]
        assert result(client, "sum")["as_of"] == {"bank[0]": 1, "bank[1]": 1}
        refused = client.send("GET", f"{AT}/sum/results?after=1")
        assert_problem(refused, 422, "UnprocessableEntity")
    for core in cores:
        core.close()


@pytest.mark.parametrize(
    ("sql", "results"),
    [
        (OF_STREAM, [("2", [["1"]]), ("3", [["3"]]), ("4", [["6"]])]),
        (OF_BOTH, [("2", [[100, "1"]]), ("3", [[98, "3"]]), ("4", [[101, "6"]])]),
    ],
)
def test_a_published_stream_is_answered_of_alone_and_joined_with_a_table(
    accounts: Accounts, client: Client, sql: str, results: list[tuple[str, object]]
) -> None:
    assert_problem(put(client, "paid", sql), 409, "Unpublished")
    Publisher([accounts.path], config.Core(), CrashPoints()).publish(payments, 1)
    accounts.pay(("bob", "cy", 1))
    assert put(client, "paid", sql).status == 201
    accounts.pay(("ann", "bob", 2), ("cy", "ann", 3))
    assert follow(client, "paid", 3, "&after=1") == results


def test_after_a_restart_of_the_api_it_goes_on_where_it_was(
    accounts: Accounts, warehouse_url: str
) -> None:
    of = (accounts.home, warehouse_url, [accounts.path], flow)
    with continuing(*of) as client:
        put(client, "ann", ANN)
        accounts.pay(("ann", "bob", 1))
        wait_for(client, "ann", as_of={"alerting": 2})
    accounts.pay(("ann", "bob", 1), ("ann", "bob", 1))
    with continuing(*of) as client:
        assert follow(client, "ann", 4, "&after=0") == [
            *(("1", [[100]]), ("2", [[99]]), ("3", [[98]]), ("4", [[97]])),
        ]


def test_server_sent_events_carry_the_position_to_go_on_behind(
    accounts: Accounts, client: Client
) -> None:
    put(client, "ann", ANN)
    accounts.pay(("ann", "bob", 1), ("ann", "bob", 1))
    wait_for(client, "ann", as_of={"alerting": 3})
    with heard(client, f"{AT}/ann/results", EVENTS, Last_Event_ID="2") as follower:
        event = next(follower.events())
    assert event["id"] == "3"
    assert json.loads(event["data"])["rows"] == [[98]]


def test_the_same_again_is_the_same_and_another_one_needs_to_be_wanted(client: Client) -> None:
    assert put(client, "ann", ANN).status == 201
    assert put(client, "ann", ANN).status == 200
    assert_problem(put(client, "ann", TOTAL), 409, "ContinuousConflict")
    assert result(client, "ann")["rows"] == [[100]]
    assert put(client, "ann", TOTAL, "?replace=true").status == 201
    assert result(client, "ann")["rows"] == [[str(IN_ALL)]]
    listed = client.send("GET", AT).document["continuous"]
    assert [(one["name"], one["sql"]) for one in listed] == [("ann", TOTAL)]


def test_one_that_is_dropped_is_told_no_more(client: Client) -> None:
    put(client, "ann", ANN)
    with heard(client, f"{AT}/ann/results") as follower:
        documents = follower.documents()
        next(documents)
        assert client.send("DELETE", f"{AT}/ann").status == 200
        assert next(documents)["error"]["code"] == "ContinuousUnknown"
    for method, path in (("GET", ""), ("GET", "/result"), ("GET", "/results"), ("DELETE", "")):
        assert_problem(client.send(method, f"{AT}/ann{path}"), 404, "ContinuousUnknown")


def test_one_that_fails_says_so_goes_on_when_it_can_and_stops_no_other(
    accounts: Accounts, client: Client
) -> None:
    put(client, "odds", "SELECT 1000 / (cents - 90) AS odds FROM balances WHERE name = 'ann'")
    put(client, "ann", ANN)
    accounts.pay(("ann", "bob", 10))
    failing = wait_for(client, "odds", state="failing")
    assert "division by zero" in failing["error"]["detail"]
    assert failing["as_of"] == {"alerting": 1}
    wait_for(client, "ann", as_of={"alerting": 2}, state="running")
    accounts.pay(("ann", "bob", 10))
    assert wait_for(client, "odds", state="running")["error"] is None
    assert result(client, "odds")["rows"] == [[-100]]


def test_a_look_at_the_cores_that_fails_in_a_way_that_nobody_foresaw_is_not_the_last(
    accounts: Accounts, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, "ann", ANN)
    failed = threading.Event()

    def unforeseen(_self: Watch) -> bool:
        failed.set()
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(Watch, "look", unforeseen)
        accounts.pay(("ann", "bob", 10))
        assert failed.wait(SOON_S)
    wait_for(client, "ann", as_of={"alerting": 2}, state="running")


@pytest.mark.parametrize(
    ("sql", "more", "status", "code"),
    [
        ("SELECT nothing FROM balances", {}, 400, "QueryRefused"),
        ("SELECT 1 AS one", {}, 400, "QueryRefused"),
        ("DROP TABLE balances", {}, 400, "QueryRefused"),
        (ANN, {"on": "another"}, 400, "Refused"),
        (ANN, {"to": {"call": "alerting/nothing"}}, 400, "Refused"),
        (ANN, {"to": {"call": "alerting/warn"}}, 400, "Refused"),
        (MORE, {"to": {"call": "alerting/warn"}}, 400, "Refused"),
        (ANN, {"to": {}}, 422, "Invalid"),
        (ANN, {"when": "never"}, 422, "Invalid"),
        (MANY, {}, 413, "TooLarge"),
    ],
)
def test_what_cannot_be_answered_is_not_registered(
    client: Client, sql: str, more: dict[str, Any], status: int, code: str
) -> None:
    assert_problem(put(client, "one", sql, **more), status, code)
    assert client.send("GET", AT).document == {"continuous": []}


def test_so_many_may_be_registered_and_no_more(accounts: Accounts, warehouse_url: str) -> None:
    limits = config.Api(continuous_max=1)
    with continuing(accounts.home, warehouse_url, [accounts.path], flow, limits=limits) as client:
        put(client, "ann", ANN)
        assert_problem(put(client, "total", TOTAL), 503, "Busy")
        assert put(client, "ann", TOTAL, "?replace=true").status == 201
        client.send("DELETE", f"{AT}/ann")
        assert put(client, "total", TOTAL).status == 201


def test_results_are_kept_for_a_while_and_who_comes_too_late_is_told(
    accounts: Accounts, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered, "KEPT", 2)
    put(client, "ann", ANN)
    accounts.pay(*[("ann", "bob", 1)] * 4)
    wait_for(client, "ann", as_of={"alerting": 5})
    with heard(client, f"{AT}/ann/results?after=1") as follower:
        (only,) = follower.documents()
    assert (only["error"]["code"], only["error"]["oldest"]) == ("Forgotten", "3")
    assert [position for position, _ in follow(client, "ann", 2, "&after=3")] == ["4", "5"]
    ahead = client.send("GET", f"{AT}/ann/results?after=9")
    assert_problem(ahead, 409, "NotYet")


def test_when_the_key_of_its_registrant_is_over_it_stops_and_says_why(
    accounts: Accounts, client: Client
) -> None:
    with closing(Keyring(accounts.home / "keys.db", SystemClock())) as keyring:
        both = frozenset({Scope.QUERY, Scope.SUBSCRIBE})
        made, key = keyring.create("ann", both)
        assert put(client, "ann", ANN, key=key).status == 201
        assert put(client, "total", TOTAL).status == 201
        refused = put(client, "warn", ANN, key=key, to={"call": "alerting/warn"})
        assert_problem(refused, 403, "ScopeMissing")
        keyring.revoke(made.grant.id)
        accounts.pay(("ann", "bob", 1))
        wait_for(client, "total", as_of={"alerting": 2})
        stopped = told(client, "ann")
        assert (stopped["state"], stopped["error"]["code"]) == ("stopped", "KeyRevoked")
        assert stopped["as_of"] == {"alerting": 1}
        assert keyring.create("x", both, lasts=timedelta(days=1))


def test_who_follows_with_a_key_that_is_over_is_told_no_more(
    accounts: Accounts, client: Client
) -> None:
    put(client, "ann", ANN)
    with closing(Keyring(accounts.home / "keys.db", SystemClock())) as keyring:
        made, key = keyring.create("bob", frozenset({Scope.SUBSCRIBE}))
        with heard(client, f"{AT}/ann/results", key=key) as follower:
            documents = follower.documents()
            assert next(documents)["position"] == "1"
            keyring.revoke(made.grant.id)
            accounts.pay(("ann", "bob", 1))
            (last,) = documents
    assert last["error"]["code"] == "KeyRevoked"


def test_a_key_for_some_rows_sees_these_alone_and_no_other_keys_queries(
    accounts: Accounts, client: Client
) -> None:
    only = {"alerting.balances": Restriction(None, "\"name\" = 'bob'")}
    with closing(Keyring(accounts.home / "keys.db", SystemClock())) as keyring:
        scopes = frozenset({Scope.QUERY, Scope.SUBSCRIBE})
        _, key = keyring.create("bob", scopes, tables=only)
        _, other = keyring.create("eve", scopes)
    put(client, "total", TOTAL)
    assert put(client, "bobs", TOTAL, key=key).status == 201
    accounts.pay(("ann", "bob", 5))
    until(lambda: result(client, "bobs")["rows"] == [["105"]], SOON_S, lambda: "not seen")
    seen = client.send("GET", AT, key=f"Bearer {key}").document["continuous"]
    assert [one["name"] for one in seen] == ["bobs"]
    hidden = client.send("GET", f"{AT}/total/result", key=f"Bearer {key}")
    assert_problem(hidden, 404, "ContinuousUnknown")
    theirs = client.send("DELETE", f"{AT}/total", key=f"Bearer {other}")
    assert_problem(theirs, 403, "ScopeMissing")
