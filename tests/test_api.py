"""The REST API: what it answers, to whom, and how it says no. Real HTTP, a real PostgreSQL."""

import itertools
import json
import math
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from multiprocessing import active_children
from pathlib import Path

import anyio
import pytest
import shop
from serving import KEY, Client, Reply, assert_problem, front, serving
from shop import island_over
from waiting import until

from api import workers
from api.catalogue import Catalogue
from api.cut import Freshness, Moment
from api.errors import TooSlow
from api.formats import Format
from api.grant import Scope
from api.guard import BODY_BYTES_MAX, Entrance
from api.island import Asked, Island, Setting
from api.keyring import Keyring
from api.messages import Ask
from api.queries import Queries
from api.values import to_json
from api.workers import Workers
from etl_procs import Dataflow
from etl_procs.reader import Reader
from headrace import config
from headrace.cli.api import listen
from headrace.clock import SystemClock
from migrations import layout, warehouse

SALES = '{"sql": "SELECT id, price, note FROM sales ORDER BY id"}'


@pytest.fixture
def client(
    connection: warehouse.Connection, warehouse_url: str, store: shop.Shop
) -> Iterator[Client]:
    with serving(island_over(warehouse_url, store.reader)) as made:
        yield made


def test_a_query_is_answered_at_each_freshness(
    client: Client, store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell((1, 1.5, "a"))
    store.push(connection)
    store.sell((2**63 - 1, math.inf, None))
    asked = json.dumps({**json.loads(SALES), "plan": "ship"})
    assert client.send("POST", "/v1/query", asked).document == {
        "columns": [
            {"name": "id", "type": "bigint"},
            {"name": "price", "type": "double precision"},
            {"name": "note", "type": "text"},
        ],
        "rows": [[1, 1.5, "a"], [2**63 - 1, "Infinity", None]],
        "as_of": {"shop": 2},
        "freshness": "staged",
        "plan": "ship",
        "end": {"rows": 2},
    }
    delta = client.ask("SELECT sum(id), avg(price) FROM sales", "delta").document
    assert delta["rows"] == [["1", 1.5]]
    assert [column["type"] for column in delta["columns"]] == ["numeric", "double precision"]
    assert (delta["as_of"], delta["freshness"]) == ({"shop": 1}, "delta")


@pytest.mark.parametrize(("max_lag_s", "freshness"), [(0, "staged"), (1e9, "main")])
def test_an_answer_lags_no_more_than_it_may(
    client: Client, store: shop.Shop, max_lag_s: float, freshness: str
) -> None:
    store.sell((1, 1.5, "a"))
    asked = json.dumps({**json.loads(SALES), "max_lag_s": max_lag_s})
    for path in ("/v1/query", "/v1/query/explain"):
        answer = client.send("POST", path, asked)
        assert (answer.status, answer.document["freshness"]) == (200, freshness)


def test_values_travel_without_loss() -> None:
    assert to_json(2**63 - 1) == 2**63 - 1
    assert to_json(Decimal("0.10")) == "0.10"
    assert to_json(Decimal("-1E-10")) == "-0.0000000001"
    assert to_json(Decimal("NaN")) == "NaN"
    assert to_json(math.inf) == "Infinity"
    assert to_json(-math.inf) == "-Infinity"
    assert to_json(True) is True
    assert to_json(b"\x00\xff") == "\\x00ff"
    assert to_json([1, [math.nan, None]]) == [1, ["NaN", None]]
    assert to_json(date(2026, 5, 6)) == "2026-05-06"
    assert to_json(datetime(2026, 5, 6, 7, 8, 9, 10, UTC)) == "2026-05-06T07:08:09.000010+00:00"


def test_types_beyond_the_tables_own_are_told_and_written(client: Client) -> None:
    answer = client.ask(
        "SELECT DATE '2026-05-06', 1.50::numeric(10, 2), true, ARRAY[1, NULL], "
        "INTERVAL '1 day', TIMESTAMP '2026-05-06 07:08:09', 'x', NULL"
    ).document
    assert answer["rows"] == [
        [
            "2026-05-06",
            "1.50",
            True,
            [1, None],
            "1 day",
            "2026-05-06T07:08:09",
            "x",
            None,
        ]
    ]
    assert [column["type"] for column in answer["columns"]] == [
        "date",
        "numeric",
        "boolean",
        "integer[]",
        "interval",
        "timestamp without time zone",
        "text",
        "text",
    ]


def test_nothing_but_health_is_open_without_the_key(client: Client) -> None:
    paths = ["/v1/query", "/v1/calls", "/metrics", "/openapi.json", "/nothing", "/livez/"]
    keys = [None, "", "Bearer", "Bearer ", "Bearer no", KEY, f"Basic {KEY}", f"Bearer {KEY}x"]
    for path, key in itertools.product(paths, keys):
        reply = client.send("POST", path, SALES, key=key)
        shown = key in ("Bearer no", f"Bearer {KEY}x")
        assert_problem(reply, 401, "KeyUnknown" if shown else "Unauthorized")
        told = 'Bearer error="invalid_token", error_description="the key that the request shows is '
        wanted = told + 'not known here"' if shown else "Bearer"
        assert reply.headers["www-authenticate"] == wanted


def test_every_error_is_a_problem_document(client: Client) -> None:
    nothing = assert_problem(client.send("GET", "/nothing"), 404, "NotFound")
    assert nothing["detail"] == "Not Found: GET /nothing"
    assert "/openapi.json" in nothing["hint"]
    wrong_method = client.send("GET", "/v1/query")
    assert_problem(wrong_method, 405, "MethodNotAllowed")
    assert wrong_method.headers["allow"] == "POST"
    two_moments = '{"sql": "SELECT 1", "freshness": "main", "max_lag_s": 5}'
    for body in ("{", "", "[]", "{}", '{"sql": 1}', '{"sql": "SELECT 1", "freshness": "new"}'):
        assert_problem(client.send("POST", "/v1/query", body), 422, "Invalid")
    torn = assert_problem(client.send("POST", "/v1/query", '{"sql": "SELECT'), 422, "Invalid")
    assert "Unterminated string" in torn["detail"]
    both = assert_problem(client.send("POST", "/v1/query", two_moments), 422, "Invalid")
    assert both["detail"] == "body: give one of freshness, max_lag_s"
    unknown = client.send("POST", "/v1/query", '{"sql": "SELECT 1", "fresh": 1}')
    assert assert_problem(unknown, 422, "Invalid")["errors"][0]["at"] == "body/fresh"
    assert client.send("POST", "/v1/query", b"\xff").status in (400, 422)


def test_a_body_that_is_not_said_to_be_json_is_told_which_header_to_send(client: Client) -> None:
    for type_ in (None, "application/x-www-form-urlencoded"):
        reply = client.send("POST", "/v1/query", SALES, type_=type_)
        told = assert_problem(reply, 422, "Invalid")
        assert "send the header 'Content-Type: application/json'" in told["detail"]
    for type_ in ("application/json; charset=utf-8", "Application/JSON"):
        assert client.send("POST", "/v1/query", SALES, type_=type_).status == 200
    body = client.send("POST", "/v1/query", "{}", type_="Application/JSON")
    assert "header" not in assert_problem(body, 422, "Invalid")["detail"]


def test_a_body_that_cannot_be_read_is_told_why(client: Client) -> None:
    for body, why in ((b"\xff{}", "UnicodeDecodeError"), (b"[" * 100_000, "RecursionError")):
        told = assert_problem(client.send("POST", "/v1/query", body), 422, "Invalid")
        assert told["detail"].startswith(f"the body cannot be read as JSON: {why}: ")
        assert told["errors"][0]["at"] == "body"


def test_a_refused_query_tells_what_where_and_what_next(client: Client) -> None:
    refused = assert_problem(client.ask("SELECT 1,\n pg_sleep(9)"), 400, "QueryRefused")
    assert refused["detail"] == "the function pg_sleep is not allowed here (line 2, column 2)"
    assert (refused["line"], refused["column"]) == (2, 2)
    assert refused["hint"]
    for sql in ("", "SELECT 1; SELECT 2", "SELECT 'a", "\0", "SELECT 1/0", "SELECT '\ud800'"):
        assert_problem(client.ask(sql), 400, "QueryRefused")


def test_a_body_beyond_the_limit_is_not_read(client: Client) -> None:
    announced = client.send("POST", "/v1/query", b" " * (BODY_BYTES_MAX + 1))
    assert_problem(announced, 413, "RequestEntityTooLarge")
    # None of it comes: whoever waits for it would not answer.
    promised = client.send("POST", "/v1/query", b"", Content_Length=str(10**12))
    assert_problem(promised, 413, "RequestEntityTooLarge")
    chunks = (b" " * 65_536 for _ in range(BODY_BYTES_MAX // 65_536 + 1))
    assert_problem(client.send("POST", "/v1/query", chunks), 413, "RequestEntityTooLarge")


def test_limits_of_a_query_are_problems(
    connection: warehouse.Connection, warehouse_url: str, store: shop.Shop
) -> None:
    store.sell((1, 1.0, None), (2, 1.0, None))
    limits = config.Api(query_rows_max=1)
    with serving(island_over(warehouse_url, store.reader), limits=limits) as client:
        too_many = assert_problem(client.ask("SELECT * FROM sales"), 413, "TooLarge")
        assert "api.query_rows_max" in too_many["hint"]


def test_health_tells_what_is_missing_and_needs_no_key(client: Client) -> None:
    assert client.send("GET", "/livez", key=None).document == {"live": True}
    ready = client.send("GET", "/readyz", key=None)
    assert ready.status == 200
    assert ready.document == {"ready": True, "core": "ok", "warehouses": {"default": "ok"}}


def test_it_is_ready_without_tables_where_no_dataflow_has_an_outlet(
    postgres_url: str, store: shop.Shop
) -> None:
    here = warehouse.Warehouse("default", postgres_url)
    catalogue = Catalogue.of({"till": Dataflow("till")})
    setting = Setting((here,), (store.reader.path,), catalogue)
    with serving(Island(setting)) as client:
        assert client.send("GET", "/readyz", key=None).status == 200
        for freshness in Freshness:
            asked = f'{{"sql": "SELECT 1 AS one", "freshness": "{freshness.value}"}}'
            assert client.send("POST", "/v1/query", asked).document["rows"] == [[1]]


def test_a_warehouse_that_is_away_is_told_as_503(store: shop.Shop) -> None:
    island = island_over("postgresql://someone:hidden@127.0.0.1:1/postgres", store.reader)
    with serving(island) as client:
        reply = client.ask("SELECT 1")
        assert_problem(reply, 503, "Away")
        assert reply.headers["retry-after"] == "1"
        assert client.send("GET", "/livez", key=None).status == 200
        ready = client.send("GET", "/readyz", key=None)
        assert ready.status == 503
        assert ready.document["ready"] is False
        assert ready.document["core"] == "ok"
        assert ready.document["warehouses"] == {"default": "does not answer"}
        assert b"hidden" not in reply.body + ready.body


def test_it_is_not_ready_without_a_core_or_tables(warehouse_url: str, tmp_path: Path) -> None:
    with serving(island_over(warehouse_url, Reader(tmp_path / "none.db"))) as client:
        ready = client.send("GET", "/readyz", key=None)
        assert ready.status == 503
        assert ready.document["core"] == "is not there yet"
        assert ready.document["warehouses"] == {"default": "its tables are not there yet"}


def test_of_each_warehouse_it_is_told_whether_it_is_ready(
    connection: warehouse.Connection, warehouse_url: str, second_url: str, store: shop.Shop
) -> None:
    setting = island_over(warehouse_url, store.reader).setting
    (first,) = setting.warehouses
    second = warehouse.Warehouse("second", second_url)
    third = warehouse.Warehouse("third", "postgresql://someone:hidden@127.0.0.1:1/postgres")
    with serving(Island(replace(setting, warehouses=(first, second, third)))) as client:
        ready = client.send("GET", "/readyz", key=None)
        assert (ready.status, ready.headers["retry-after"]) == (503, "1")
        said = {
            "default": "ok",
            "second": "its tables are not there yet",
            "third": "does not answer",
        }
        assert ready.document == {"ready": False, "core": "ok", "warehouses": said}
    with warehouse.connect(second_url, application="test") as opened:
        layout.prepare(opened, second, shop.flow)
    with serving(Island(replace(setting, warehouses=(first, second)))) as client:
        assert client.send("GET", "/readyz", key=None).document["ready"] is True


def test_whoever_probes_while_a_warehouse_is_away_keeps_only_other_probes_waiting(
    store: shop.Shop,
) -> None:
    with ExitStack() as closing, socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://someone@127.0.0.1:{silent.getsockname()[1]}/postgres"
        client = closing.enter_context(serving(island_over(url, store.reader)))
        probes = []
        for _ in range(60):  # the pool of threads that others share has 40
            probe = closing.enter_context(socket.create_connection(("127.0.0.1", client.port)))
            probe.sendall(b"GET /readyz HTTP/1.1\r\nHost: here\r\n\r\n")
            probes.append(probe)
        with silent.accept()[0]:
            assert client.send("GET", "/metrics").status == 200
            answered, _, _ = select.select(probes, [], [], 0)
            assert answered == []


@pytest.mark.parametrize(
    "url", ["mysql://someone:s3cret@h/d", "postgresql://someone:s3cret%zz@h/d"]
)
def test_a_bad_url_shows_its_password_nowhere(
    store: shop.Shop, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(island_over(url, store.reader)) as client:
        ready = client.send("GET", "/readyz", key=None)
        assert ready.document["warehouses"] == {"default": "refuses"}
        reply = client.ask("SELECT 1")
        assert_problem(reply, 500, "ConfigError")
    assert "warehouse.url is not" in caplog.text
    assert "s3cret" not in (reply.body + ready.body).decode() + caplog.text


def test_a_bug_is_a_problem_that_shows_no_insides(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("insides")

    monkeypatch.setattr(Queries, "cancel", broken)
    reply = client.send("DELETE", "/v1/queries/7")
    assert_problem(reply, 500, "Bug")
    assert b"insides" not in reply.body


ENDLESS = "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n FROM t) SELECT count(*) FROM t"


def test_queries_beyond_the_limit_are_told_to_come_back_and_a_query_can_be_ended(
    warehouse_url: str, store: shop.Shop, connection: warehouse.Connection
) -> None:
    replies: dict[str, Reply] = {}
    limits = config.Api(query_workers=1, queries_waiting_max=1)
    with serving(island_over(warehouse_url, store.reader), limits=limits) as client:

        def ask(id: str) -> None:
            asked = json.dumps({"sql": ENDLESS, "id": id, "freshness": "main"})
            replies[id] = client.send("POST", "/v1/query", asked)

        threads = [threading.Thread(target=ask, args=[f"q{n}"]) for n in range(4)]
        for thread in threads:
            thread.start()
        until(lambda: len(replies) == 2, 20, lambda: str(replies))
        for reply in replies.values():
            assert_problem(reply, 503, "Busy")
        others = {f"q{n}" for n in range(4)} - set(replies)
        while others - set(replies):
            for id in others - set(replies):
                client.send("DELETE", f"/v1/queries/{id}")
        for thread in threads:
            thread.join()
        for id in others:
            assert_problem(replies[id], 409, "QueryCancelled")
        assert_problem(client.send("DELETE", "/v1/queries/q0"), 404, "QueryUnknown")
        assert client.ask("SELECT 1").status == 200


def test_a_query_that_waits_for_its_turn_can_be_ended_and_its_id_is_taken(
    warehouse_url: str, store: shop.Shop, connection: warehouse.Connection
) -> None:
    replies: dict[str, Reply] = {}
    limits = config.Api(query_workers=1)
    with serving(island_over(warehouse_url, store.reader), limits=limits) as client:

        def ask(id: str) -> None:
            asked = json.dumps({"sql": ENDLESS, "id": id, "freshness": "main"})
            replies[id] = client.send("POST", "/v1/query", asked)

        threads = {id: threading.Thread(target=ask, args=[id]) for id in ("first", "second")}
        threads["first"].start()
        until(lambda: "WITH RECURSIVE" in running(connection), 20, lambda: running(connection))
        threads["second"].start()
        end = "/v1/queries/second"
        until(lambda: client.send("DELETE", end).status == 202, 20, lambda: "not there")
        threads["second"].join()
        assert_problem(replies["second"], 409, "QueryCancelled")
        assert "first" not in replies
        assert client.send("DELETE", "/v1/queries/first").status == 202
        threads["first"].join()


def test_who_ends_a_query_that_is_over_ends_no_other(
    warehouse_url: str, store: shop.Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "CANCEL_S", 0.1)

    async def asked() -> None:
        setting = island_over(warehouse_url, store.reader).setting
        made = Workers(setting, size=1, waiting_max=0, memory_mb_max=2_000)
        async with made.turn() as worker:
            await worker.ask(Ask("first", Asked("SELECT 1"), Format.LINES, 0))
            while isinstance(await worker.hear(), bytes):
                pass
            worker.cancel("first")
        async with made.turn() as worker:
            endless = Asked(ENDLESS, moment=Moment(Freshness.MAIN), timeout_ms=500)
            with pytest.raises(TooSlow):
                await worker.ask(Ask("second", endless, Format.LINES, 0))
        made.close()

    anyio.run(asked)


def test_a_query_of_which_the_worker_is_deaf_is_ended_and_another_worker_answers_the_next(
    warehouse_url: str,
    store: shop.Shop,
    connection: warehouse.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "CANCEL_S", 0.1)
    limits = config.Api(query_workers=1, query_timeout_ms=20_000)
    replies: list[Reply] = []
    with serving(island_over(warehouse_url, store.reader), limits=limits) as client:

        def ask() -> None:
            asked = json.dumps({"sql": ENDLESS, "id": "deaf", "freshness": "main"})
            replies.append(client.send("POST", "/v1/query", asked))

        assert client.ask("SELECT 1").status == 200  # there is a worker
        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: "WITH RECURSIVE" in running(connection), 60, lambda: running(connection))
        (deaf,) = active_children()
        assert deaf.pid is not None
        os.kill(deaf.pid, signal.SIGSTOP)
        assert client.send("DELETE", "/v1/queries/deaf").status == 202
        thread.join()
        assert_problem(replies[0], 409, "QueryCancelled")  # and not that it took too long
        assert not deaf.is_alive()
        assert client.ask("SELECT 1").status == 200
        assert deaf not in active_children()


def test_nobody_can_end_the_query_of_another(
    warehouse_url: str, store: shop.Shop, connection: warehouse.Connection, tmp_path: Path
) -> None:
    keyring = Keyring(tmp_path / "keys.db", SystemClock())
    ann, bob = (f"Bearer {keyring.create(n, frozenset({Scope.QUERY}))[1]}" for n in ("ann", "bob"))
    before = front(Entrance(KEY, keyring))
    replies: list[Reply] = []
    with serving(island_over(warehouse_url, store.reader), before=before) as client:

        def ask() -> None:
            asked = json.dumps({"sql": ENDLESS, "id": "mine", "freshness": "main"})
            replies.append(client.send("POST", "/v1/query", asked, key=ann))

        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: "WITH RECURSIVE" in running(connection), 20, lambda: running(connection))
        for key in (bob, f"Bearer {KEY}"):
            refused = client.send("DELETE", "/v1/queries/mine", key=key)
            assert_problem(refused, 404, "QueryUnknown")
        asked = json.dumps({"sql": "SELECT 1 AS one", "id": "mine", "freshness": "main"})
        assert client.send("POST", "/v1/query", asked, key=bob).status == 200
        assert client.send("POST", "/v1/query", asked, key=ann).status == 409
        assert not replies
        assert client.send("DELETE", "/v1/queries/mine", key=ann).status == 202
        thread.join()
    assert_problem(replies[0], 409, "QueryCancelled")


def running(connection: warehouse.Connection) -> str:
    """Tell what others have the database do."""
    asked = "SELECT query FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid()"
    found = "\n".join(str(row[0]) for row in connection.execute(asked))
    connection.rollback()
    return found


def test_the_openapi_document_describes_the_query(client: Client) -> None:
    document = client.send("GET", "/openapi.json").document
    operation = document["paths"]["/v1/query"]["post"]
    assert operation["security"]
    assert {"200", "400", "401", "503"} <= operation["responses"].keys()


def test_an_answer_does_not_wait_for_its_head_to_be_confirmed() -> None:
    loaded = config.load({"api.host": "127.0.0.1", "api.port": "0"}, environment={}).config
    with listen(loaded) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
