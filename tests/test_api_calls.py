"""Calls over the REST API: what is done once, what is refused, and who waits for whom."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import till
from serving import Client, Reply, assert_problem, calls_on, serving
from shop import island_over
from till import Till
from waiting import until

from etl_procs.reader import Reader

NO_WAREHOUSE = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Till]:
    made = Till(tmp_path)
    made.settle([("tea", 250)], [])
    yield made
    made.end_of_day()


@pytest.fixture
def client(made: Till) -> Iterator[Client]:
    with serving(island_over(NO_WAREHOUSE, made.reader), calls_on(made.path, till.flow)) as client:
        yield client


def call(client: Client, name: str, arguments: object = None, **more: str) -> Reply:
    body = None if arguments is None else json.dumps(arguments)
    return client.send("POST", f"/v1/calls/till/{name}", body, **more)


def test_a_call_is_made_and_gives_its_rows(client: Client, made: Till) -> None:
    reply = call(client, "put", {"cents": 50, "share": 0.5, "note": "é\n"})
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert reply.document == {"rows": [{"cents": 275, "note": "é\n"}]}
    assert call(client, "put", {"cents": 2**62}).document["rows"] == [
        {"cents": 2**62 + 275, "note": None}
    ]
    assert call(client, "jam", {"jammed": 1}).document == {"rows": []}
    assert made.cents() == 2**62 + 275


def test_a_call_without_arguments_needs_no_body(client: Client) -> None:
    for body in (None, "{}", "null"):
        reply = client.send("POST", "/v1/calls/till/count", body)
        assert reply.document == {"rows": [{"cents": 250}]}
    assert client.send("POST", "/v1/calls/till/count", type_=None).status == 200


def test_the_calls_are_listed_with_their_types(client: Client) -> None:
    listed = {one["name"]: one for one in client.send("GET", "/v1/calls").document["calls"]}
    assert listed.keys() == {"jam", "put", "count", "drop"}
    assert listed["put"] == {
        "dataflow": "till",
        "name": "put",
        "description": "Put money into the till, or a share of it, and tell what is in there.",
        "arguments": [
            {"name": "cents", "type": "INTEGER", "required": True},
            {"name": "share", "type": "REAL", "required": False},
            {"name": "note", "type": "TEXT", "required": False},
        ],
        "returns": [
            {"name": "cents", "type": "INTEGER", "required": True},
            {"name": "note", "type": "TEXT", "required": False},
        ],
    }


def test_a_key_makes_a_repeated_call_one_call(client: Client, made: Till) -> None:
    first = call(client, "put", {"cents": 50}, Idempotency_Key="order 1")
    again = call(client, "put", {"cents": 50, "note": None}, Idempotency_Key="order 1")
    assert first.document == again.document == {"rows": [{"cents": 300, "note": None}]}
    assert made.cents() == 300
    other = call(client, "put", {"cents": 51}, Idempotency_Key="order 1")
    told = assert_problem(other, 409, "KeyReused")
    assert "give this one another key" in told["hint"]
    assert call(client, "put", {"cents": 51}, Idempotency_Key="order 2").status == 200
    for key in ("", "k" * 201):
        assert_problem(call(client, "put", {"cents": 1}, Idempotency_Key=key), 422, "Invalid")
    assert made.cents() == 351


@pytest.mark.parametrize(
    ("name", "arguments", "status", "code", "detail"),
    [
        ("sing", {}, 404, "NoSuchCall", "there is no call till.sing"),
        ("put", {}, 400, "BadCall", "without cents"),
        ("put", {"cents": "5"}, 400, "BadCall", "cents is '5', no INTEGER"),
        ("put", {"cents": 2**63}, 400, "BadCall", "beyond 64 bits"),
        ("put", {"cents": 1, "tip": 2}, 400, "BadCall", "has no argument tip"),
        ("put", {"cents": 1, "note": "a\0"}, 400, "BadCall", "NUL"),
        ("put", {"cents": True}, 422, "Invalid", "body/cents"),
        ("put", {"cents": [1]}, 422, "Invalid", "body/cents"),
        ("put", {"arguments": {"cents": 1}}, 422, "Invalid", "body itself is the arguments"),
        ("put", [1], 422, "Invalid", "body"),
        ("put", {"cents": -251}, 409, "Aborted", "there is not enough in the till"),
        ("drop", {}, 500, "ProcedureFailed", "the till fell down"),
    ],
)
def test_every_refusal_is_a_problem_and_keeps_nothing(
    client: Client, made: Till, name: str, arguments: object, status: int, code: str, detail: str
) -> None:
    told = assert_problem(call(client, name, arguments), status, code)
    assert detail in told["detail"]
    assert made.cents() == 250


def test_a_dataflow_that_is_not_there_has_no_calls(client: Client) -> None:
    assert_problem(client.send("POST", "/v1/calls/shop/put", "{}"), 404, "NoSuchCall")
    assert_problem(client.send("POST", "/v1/calls/till", "{}"), 404, "NotFound")
    assert_problem(client.send("GET", "/v1/calls/till/put"), 405, "MethodNotAllowed")


def test_calls_are_answered_as_soon_as_the_engine_has_made_the_core(tmp_path: Path) -> None:
    path = tmp_path / "core" / "partition-0.db"
    calls = calls_on(path, till.flow)
    island = island_over(NO_WAREHOUSE, Reader(path))
    with serving(island, calls) as client:
        early = call(client, "count")
        assert_problem(early, 503, "NotRunning")
        assert early.headers["retry-after"] == "1"
        assert not path.exists()
        assert len(client.send("GET", "/v1/calls").document["calls"]) == 4
        made = Till(tmp_path)
        try:
            assert call(client, "count").document == {"rows": [{"cents": 0}]}
        finally:
            made.end_of_day()


def test_a_full_disk_is_told_as_503(client: Client, made: Till, tmp_path: Path) -> None:
    assert call(client, "count").status == 200
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("etl_procs.calls.Callers.call", full)
        assert_problem(call(client, "count"), 503, "OutOfRoom")


def full(*_: object, **__: object) -> None:
    from etl_procs.errors import OutOfRoom

    raise OutOfRoom("the disk is full", hint="Free some room.")


def test_requests_and_the_engine_take_turns_and_nothing_is_lost(client: Client, made: Till) -> None:
    def ask() -> None:
        for _ in range(20):
            assert call(client, "put", {"cents": 1}).status == 200

    def run() -> None:
        for _ in range(20):
            made.settle([("tea", 100)], [])

    threads = [threading.Thread(target=work) for work in (ask, ask, run)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made.cents() == 250 + 2 * 20 + 20 * 100


def test_a_call_that_waits_keeps_nobody_else_from_an_answer(
    made: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.calls.WAITING_MAX", 1)
    replies: list[int] = []
    with serving(island_over(NO_WAREHOUSE, made.reader), calls_on(made.path, till.flow)) as client:
        made.core._store.connection.execute("BEGIN IMMEDIATE")  # the engine is in a long group
        threads = [
            threading.Thread(target=lambda: replies.append(call(client, "count").status))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        try:
            until(lambda: len(replies) == 2, 5, lambda: str(replies))
            assert client.send("GET", "/livez", key=None).status == 200
        finally:
            made.core._store.connection.execute("ROLLBACK")
        for thread in threads:
            thread.join()
    assert sorted(replies) == [200, 200, 503, 503]


def test_the_openapi_document_describes_the_calls(client: Client) -> None:
    document = client.send("GET", "/openapi.json").document
    operation = document["paths"]["/v1/calls/{dataflow}/{name}"]["post"]
    assert operation["security"]
    wanted = {"200", "400", "401", "404", "409", "413", "422", "500", "503"}
    assert wanted <= operation["responses"].keys()
    assert {"dataflow", "name", "idempotency-key"} == {
        parameter["name"] for parameter in operation["parameters"]
    }
    assert "ResultOut" in json.dumps(operation["responses"]["200"])
    assert "CallsOut" in json.dumps(document["paths"]["/v1/calls"]["get"]["responses"]["200"])
    assert {"200", "401"} <= document["paths"]["/metrics"]["get"]["responses"].keys()
