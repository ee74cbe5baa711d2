"""What every request passes: limits, its id, its line in the log, and errors told as problems."""

import logging
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flows import HeldClock
from serving import KEY, Client, assert_problem, front, serving
from shop import flow, island_over
from waiting import until

from api import limits
from api.errors import TooManyRequests
from api.front import front as configured
from api.grant import Grant, Scope
from api.guard import HEADERS_BYTES_MAX, HEADERS_BYTES_READ, Entrance
from api.island import Island
from api.keyring import Keyring
from api.limits import Limits
from api.streams import Streams
from etl_procs.calls import Callers, Result
from etl_procs.reader import Reader
from headrace import config, telemetry
from headrace.clock import SystemClock
from ingest.posting import Posting

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"
CALL = "/v1/calls/shop/any"
IDS = re.compile(r"[0-9a-f]{16}")
ANN, BOB = (Grant(name, name, frozenset({Scope.LOOK})) for name in ("ann", "bob"))


@pytest.fixture
def island(tmp_path: Path) -> Island:
    return island_over(NOWHERE, Reader(tmp_path / "core" / "partition-0.db"))


@pytest.fixture
def keyring(tmp_path: Path) -> Iterator[Keyring]:
    made = Keyring(tmp_path / "keys.db", SystemClock())
    yield made
    made.close()


@pytest.fixture
def client(island: Island) -> Iterator[Client]:
    with serving(island) as made:
        yield made


# How often


def taken(at: Limits, grant: Grant, times: int) -> int:
    """Ask so often, and tell how often it was let in."""
    count = 0
    for _ in range(times):
        try:
            with at.enter(grant):
                count += 1
        except TooManyRequests:
            pass
    return count


def test_a_caller_may_ask_as_often_as_its_rate_and_no_other_pays_for_it() -> None:
    clock = HeldClock()
    at = Limits(rate_per_s=10, at_once_max=100, clock=clock)
    assert taken(at, ANN, 15) == 10
    assert taken(at, BOB, 5) == 5
    clock.advance(0.25)
    assert taken(at, ANN, 15) == 2
    clock.advance(0.25)  # with the half that was left
    assert taken(at, ANN, 15) == 3
    clock.advance(1000)
    assert taken(at, ANN, 15) == 10


def test_who_asks_too_often_is_told_when_to_come_back() -> None:
    clock = HeldClock()
    at = Limits(rate_per_s=1, at_once_max=100, clock=clock)
    assert taken(at, ANN, 1) == 1
    with pytest.raises(TooManyRequests, match="ann has made the 1 requests") as told:
        at.enter(ANN)
    clock.advance(told.value.after_s)
    assert taken(at, ANN, 1) == 1


def test_a_key_can_have_a_rate_of_its_own_and_none_is_any() -> None:
    at = Limits(rate_per_s=10, at_once_max=100, clock=HeldClock())
    slow = Grant("slow", "slow", frozenset(), rate_per_s=2)
    quick = Grant("quick", "quick", frozenset(), rate_per_s=20)
    assert (taken(at, slow, 30), taken(at, quick, 30)) == (2, 20)
    assert taken(Limits(0, 100, HeldClock()), ANN, 10_000) == 10_000


def test_so_many_at_once_and_no_more() -> None:
    at = Limits(rate_per_s=0, at_once_max=2, clock=HeldClock())
    with at.enter(ANN):
        with at.enter(ANN), pytest.raises(TooManyRequests, match="2 requests of ann are being"):
            at.enter(ANN)
        with at.enter(ANN), at.enter(BOB):
            pass
    assert taken(at, ANN, 3) == 3


def test_what_is_remembered_of_callers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BUCKETS_MAX", 3)
    at = Limits(rate_per_s=1, at_once_max=100, clock=HeldClock())
    callers = [Grant(f"{n}", f"{n}", frozenset()) for n in range(4)]
    for caller in callers:
        assert taken(at, caller, 2) == 1
    assert len(at._buckets) == 3
    assert not at._inside
    assert [taken(at, caller, 1) for caller in reversed(callers)] == [0, 0, 0, 1]


def test_a_rate_is_told_as_429_before_anything_is_done(island: Island, keyring: Keyring) -> None:
    _, slow = keyring.create("slow", frozenset({Scope.LOOK}), rate_per_s=1)
    with serving(island, before=front(Entrance(KEY, keyring), HeldClock())) as client:
        assert client.send("GET", "/v1/calls", key=f"Bearer {slow}").status == 200
        refused = client.send("GET", "/v1/calls", key=f"Bearer {slow}")
        assert_problem(refused, 429, "TooManyRequests")
        assert refused.headers["retry-after"] == "1"
        assert client.send("GET", "/v1/calls").status == 200
        assert client.send("GET", "/livez", key=None).status == 200


def test_too_many_at_once_are_told_as_429(island: Island, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, inside = threading.Event(), threading.Semaphore(0)

    def slow(*_: object, **__: object) -> Result:
        inside.release()
        go_on.wait(20)
        return []

    monkeypatch.setattr(Callers, "call", slow)
    with serving(island, before=front(at_once_max=1)) as client:
        first = threading.Thread(target=client.send, args=("POST", CALL))
        first.start()
        assert inside.acquire(timeout=10)
        refused = client.send("POST", CALL)
        assert_problem(refused, 429, "TooManyRequests")
        assert refused.headers["retry-after"] == "1"
        go_on.set()
        first.join()
        until(lambda: client.send("POST", CALL).status == 200, 10, lambda: "")


def test_headers_beyond_the_limit_are_told_as_431(client: Client) -> None:
    assert client.send("GET", "/v1/calls", X_Long="x" * (HEADERS_BYTES_MAX - 400)).status == 200
    for size in (HEADERS_BYTES_MAX, HEADERS_BYTES_READ - 1000):
        refused = client.send("GET", "/v1/calls", X_Long="x" * size)
        assert_problem(refused, 431, "HeadersTooLarge")


def test_what_the_configuration_says_is_in_force(tmp_path: Path) -> None:
    api = config.Api(rate_per_s=1, at_once_max=1)
    made = configured(api, KEY, tmp_path / "keys.db", SystemClock())
    assert taken(made.limits, ANN, 2) == 1
    with made.limits.enter(BOB), pytest.raises(TooManyRequests):
        made.limits.enter(Grant("bob", "bob", frozenset(), rate_per_s=100))
    assert made.spans is None


# Ids and lines


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == "api.access"]


def test_every_answer_has_an_id_and_a_problem_tells_it(client: Client) -> None:
    made = client.send("GET", "/v1/calls").headers["x-request-id"]
    assert IDS.fullmatch(made)
    assert client.send("GET", "/v1/calls").headers["x-request-id"] != made
    given = client.send("GET", "/v1/calls", X_Request_Id="order:4711.a-b_c")
    assert given.headers["x-request-id"] == "order:4711.a-b_c"
    for bad in ("", "a b", "a" * 65, "a;b", "é", '"'):
        assert IDS.fullmatch(client.send("GET", "/livez", X_Request_Id=bad).headers["x-request-id"])


@pytest.mark.parametrize(
    ("method", "path", "body", "more", "status", "code"),
    [
        ("GET", "/nothing", None, {}, 404, "NotFound"),
        ("GET", "/v1/query", None, {}, 405, "MethodNotAllowed"),
        ("POST", "/v1/query", "{", {}, 422, "Invalid"),
        ("POST", "/v1/query", '{"sql": "SELEC"}', {}, 400, "QueryRefused"),
        ("POST", "/v1/query", '{"sql": "SELECT 1"}', {}, 503, "Away"),
        ("POST", "/v1/query", b" " * 300_000, {}, 413, "RequestEntityTooLarge"),
        ("POST", "/v1/query", None, {"key": None}, 401, "Unauthorized"),
        ("GET", "/v1/calls", None, {"X_Long": "x" * HEADERS_BYTES_MAX}, 431, "HeadersTooLarge"),
    ],
)
def test_every_error_is_a_problem_that_tells_the_requests_id(
    client: Client, method: str, path: str, body: Any, more: dict[str, Any], status: int, code: str
) -> None:
    reply = client.send(method, path, body, X_Request_Id="mine", **more)
    assert assert_problem(reply, status, code)["request_id"] == "mine"
    assert reply.headers["x-request-id"] == "mine"


def test_a_bug_is_told_by_its_id_and_logged_with_its_traceback(
    island: Island, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def broken(*_: object, **__: object) -> Result:
        raise ZeroDivisionError("insides")

    monkeypatch.setattr(Callers, "call", broken)
    with serving(island) as client:
        reply = client.send("POST", CALL, X_Request_Id="mine")
    assert assert_problem(reply, 500, "Bug")["request_id"] == "mine"
    assert b"insides" not in reply.body
    (logged,) = [one for one in caplog.records if one.exc_info]
    assert "ZeroDivisionError: insides" in caplog.text
    assert logged.name == "api.access"
    assert "route=/v1/calls/{dataflow}/{name} status=500" in lines(caplog)[-1]


def test_each_request_has_a_line_with_what_became_of_it_and_never_a_key(
    island: Island, keyring: Keyring, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    _, key = keyring.create("ann", frozenset({Scope.LOOK}))
    shown = f"Bearer {key}"
    with serving(island, before=front(Entrance(KEY, keyring))) as client:
        client.send("GET", "/v1/calls", key=shown)
        client.send("GET", "/v1/migrations/x?secret=1", key=shown)
        client.send("POST", "/v1/calls/till/put", "{}", key=shown)
        client.send("PATCH", "/v1/calls/till/put", key=shown)
        client.send("GET", "/v1/calls", key=f"{shown}x")
        client.send("GET", "/metrics")
        client.send("GET", "/livez", key=None)
        client.send("GET", "/readyz", key=None)
    told = [re.sub(r"ms=\d+\.\d", "ms=N", line) for line in lines(caplog)]
    assert told == [
        "method=GET route=/v1/calls status=200 ms=N key=ann",
        "method=GET route=- status=404 ms=N key=ann",
        "method=POST route=/v1/calls/{dataflow}/{name} status=403 ms=N key=ann",
        "method=PATCH route=/v1/calls/{dataflow}/{name} status=405 ms=N key=ann",
        "method=GET route=- status=401 ms=N key=-",
        "method=GET route=/metrics status=200 ms=N key=owner",
        "method=GET route=/readyz status=503 ms=N key=-",
    ]
    assert key not in caplog.text
    assert KEY not in caplog.text


def test_every_line_of_a_request_tells_its_id_in_whichever_thread(
    island: Island, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def telling(*_: object, **__: object) -> Result:
        logging.getLogger("calls").info("asked\nagain")
        return []

    monkeypatch.setattr(Callers, "call", telling)
    telemetry.start_logging("api")
    logging.getLogger("other").info("before")
    with serving(island) as client:
        client.send("POST", CALL, X_Request_Id="mine")
    logging.getLogger("other").info("after")
    said = capsys.readouterr().err
    assert re.search(r"Z INFO api calls request=mine: asked$", said, re.MULTILINE)
    assert re.search(r"Z INFO api api.access request=mine: method=POST route=/v1/calls/", said)
    assert re.search(r"Z INFO api other: before$", said, re.MULTILINE)
    assert re.search(r"Z INFO api other: after$", said, re.MULTILINE)


def test_whoever_goes_before_the_request_is_read_is_no_bug(
    island: Island, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    posting = Posting(lambda: config.Broker(bootstrap="127.0.0.1:1"))
    with serving(island, streams=Streams({flow.name: flow}, posting)) as client:
        with socket.create_connection(("127.0.0.1", client.port)) as connection:
            head = (
                f"POST /v1/streams/shop/orders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}"
            )
            more = "Content-Type: application/json\r\nContent-Length: 100"
            connection.sendall(f"{head}\r\n{more}\r\n\r\n{{".encode())
        until(lambda: len(lines(caplog)) == 2, 10, lambda: caplog.text)
    assert "has gone before the request was read" in lines(caplog)[0]
    assert "status=- " in lines(caplog)[1]
    assert not [one for one in caplog.records if one.levelno > logging.INFO]
