"""The Python client: exact values, whole answers or none, and errors that say what to do."""

import json
import pickle
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
import shop
from serving import KEY, Client, serving
from shop import island_over
from test_api_formats import EVERY_TYPE, MANY

from headrace import client as module
from headrace import config, replies
from headrace.client import (
    BadRequest,
    BrokenOff,
    ClientError,
    Conflict,
    Denied,
    Problem,
    Unavailable,
    Unreachable,
    connect,
)
from headrace.errors import ConfigError, HeadraceError, Missing
from headrace.local.home import Home
from migrations import warehouse


@pytest.fixture
def served(
    connection: warehouse.Connection, warehouse_url: str, store: shop.Shop
) -> Iterator[Client]:
    limits = config.Api(query_workers=1)
    with serving(island_over(warehouse_url, store.reader), limits=limits) as made:
        yield made


@pytest.fixture
def client(served: Client) -> Iterator[module.Client]:
    with connect(f"http://127.0.0.1:{served.port}", KEY, timeout_s=30) as made:
        yield made


def test_rows_are_exact_values_of_python(client: module.Client) -> None:
    answer = client.query(EVERY_TYPE)
    ((*found,),) = answer.rows()
    named = dict(zip(answer.schema.names, found, strict=True))
    assert named["big"] == 2**63 - 1
    assert (named["exact"], named["free"]) == (Decimal("0.10"), Decimal("0.0000000001"))
    assert named["wide"] != named["wide"]
    assert named["nothing"] is None
    assert named["day"] == date(2026, 5, 6)
    assert named["moment"] == datetime(2026, 5, 6, 5, 8, 9, tzinfo=UTC)
    assert named["list"] == [Decimal("1.50"), None]


def test_an_answer_says_what_it_is_as_of(client: module.Client, store: shop.Shop) -> None:
    store.sell((1, 1.0, "a"), (2, None, "b"))
    answer = client.query("SELECT id FROM sales WHERE note = ANY($1)", ["a", "c"], plan="ship")
    assert (answer.as_of, answer.freshness, answer.plan) == ({"shop": 1}, "staged", "ship")
    assert answer.rows() == [(1,)] == answer.rows()
    assert client.query("SELECT count(*) FROM sales", freshness="main").rows() == [(0,)]
    assert client.query("SELECT count(*) FROM sales", as_of={"shop": 1}).rows() == [(2,)]
    assert client.explain("SELECT id FROM sales", plan="split")["plan"] == "split"


def test_an_answer_lags_no_more_than_it_may(client: module.Client, store: shop.Shop) -> None:
    store.sell((1, 1.0, "a"))
    for max_lag_s, freshness in ((0, "staged"), (1e9, "main")):
        assert client.query("SELECT id FROM sales", max_lag_s=max_lag_s).freshness == freshness
        told = client.explain("SELECT id FROM sales", max_lag_s=max_lag_s)
        assert told["freshness"] == freshness
    with pytest.raises(BadRequest, match="give one of as_of, max_lag_s"):
        client.query("SELECT id FROM sales", as_of={"shop": 1}, max_lag_s=0)


def test_parameters_are_exact_and_of_the_type_that_their_place_wants(
    client: module.Client,
) -> None:
    sql = "SELECT $1::numeric, $2::date, $3::bigint, $4 = 'NaN'::float8, $5::text, $6 + 0.5"
    given = (Decimal("0.10"), date(2026, 5, 6), 2**63 - 1, float("nan"), "it's", 1)
    assert client.query(sql, *given).rows() == [(*given[:3], True, "it's", Decimal("1.5"))]


def test_pandas_has_exact_integers_decimals_and_tells_null_from_nan(
    client: module.Client,
) -> None:
    frame = client.query(
        "SELECT * FROM (VALUES (9007199254740993, 'NaN'::float8, 1.50::numeric(6, 2), "
        "1e-10::numeric, 'NaN'::numeric), (NULL, NULL, NULL, 12.5, 1)) "
        "AS t (big, wide, exact, free, odd)"
    ).pandas()
    assert frame["big"].sum() == 2**53 + 1
    assert frame["big"].isna().tolist() == [False, True]
    assert frame["wide"].isna().tolist() == [False, True]
    assert frame["wide"][0] != frame["wide"][0]
    assert frame["exact"][0] == Decimal("1.50")
    assert frame["free"].tolist() == [Decimal("0.0000000001"), Decimal("12.5000000000")]
    assert [Decimal(text).is_nan() for text in frame["odd"]] == [True, False]


def test_polars_has_them_too(client: module.Client) -> None:
    frame = client.query("SELECT 1.5::numeric(6, 2) AS a, 2.25 AS b, NULL::bigint AS c").polars()
    assert frame.rows() == [(Decimal("1.50"), Decimal("2.25"), None)]
    assert str(frame.schema["c"]) == "Int64"


def test_a_package_that_is_not_there_is_named(
    client: module.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(Missing, match="pandas is not installed"):
        client.query("SELECT 1").pandas()


def test_a_large_answer_comes_batch_by_batch_and_once(client: module.Client) -> None:
    before = pa.total_allocated_bytes()
    with client.query(MANY.format(rows=300_000, breaks=0)) as answer:
        rows = most = 0
        for batch in answer:
            rows += batch.num_rows
            most = max(most, pa.total_allocated_bytes() - before)
    assert rows == 300_000
    assert most < 8_000_000  # all rows take 12 MB
    with pytest.raises(ClientError, match="have been read already"):
        answer.arrow()


def test_an_answer_that_fails_amid_its_rows_raises_what_went_wrong(
    client: module.Client,
) -> None:
    answer = client.query(MANY.format(rows=200_000, breaks=150_000))
    with pytest.raises(BadRequest, match="division by zero") as caught:
        answer.arrow()
    assert caught.value.code == "QueryRefused"
    assert client.query("SELECT 1").rows() == [(1,)]


@contextmanager
def saying(texts: Sequence[bytes]) -> Iterator[str]:
    """Answer one request after another by these bytes, and hang up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def say() -> None:
            for text in texts:
                taken, _ = listener.accept()
                with taken:
                    taken.recv(65_536)
                    taken.sendall(text)

        thread = threading.Thread(target=say)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_an_answer_that_is_cut_off_anywhere_is_none(served: Client) -> None:
    sql = "SELECT 1 AS n UNION ALL SELECT 2"
    raw = _raw(served.port, sql)
    last = raw.rindex(b'{"end":')
    with saying([raw[:length] for length in range(0, len(raw), 7)]) as url:
        for length in range(0, len(raw), 7):
            with connect(url, KEY) as client:
                try:
                    found = client.query(sql).arrow().num_rows
                except (BrokenOff, Unreachable):
                    continue
                assert (found, length > last) == (2, True), "a short answer"
    with saying([raw]) as url, connect(url, KEY) as client:
        assert client.query(sql).arrow().num_rows == 2


def _raw(port: int, sql: str) -> bytes:
    """Ask as the client does; give all bytes of the answer."""
    body = json.dumps({"sql": sql, "parameters": []})
    head = {
        "Host": "x",
        "Connection": "close",
        "Authorization": f"Bearer {KEY}",
        "Accept": module.ARROW,
        "Content-Type": module.JSON,
        "Content-Length": len(body),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"POST /v1/query HTTP/1.1\r\n{lines}\r\n{body}".encode())
        return b"".join(iter(lambda: connection.recv(65_536), b""))


def test_errors_say_what_the_problem_documents_say(client: module.Client) -> None:
    with pytest.raises(BadRequest) as caught:
        client.query("SELECT 1,\n  pg_sleep(1)")
    error = caught.value
    assert (error.code, error.status, error.line, error.column) == ("QueryRefused", 400, 2, 3)
    assert "pg_sleep" in error.detail
    assert "docs/querying.md" in error.hint
    assert error.request_id
    assert pickle.loads(pickle.dumps(error)).document == error.document  # noqa: S301 - ours
    with pytest.raises(Conflict) as late:
        client.query("SELECT count(*) FROM sales", as_of={"shop": 9})
    assert late.value.code == "NotYet"
    with pytest.raises(BadRequest, match="the query reads shop"):
        client.query("SELECT count(*) FROM sales", as_of={"ship": 1})
    with pytest.raises(BadRequest, match="no call"):
        client.call("shop.nothing")
    with pytest.raises(ClientError, match=r"not DATAFLOW\.NAME"):
        client.call("nothing")


def test_a_wrong_key_an_absent_api_and_another_server_are_told_apart(served: Client) -> None:
    with pytest.raises(Denied):
        connect(f"http://127.0.0.1:{served.port}", "guessed").query("SELECT 1")
    with pytest.raises(Unreachable, match="does not answer"):
        connect("http://127.0.0.1:1", KEY).query("SELECT 1")
    with pytest.raises(Unreachable, match="no address"):
        connect("127.0.0.1:8080", KEY)


def test_a_connection_is_used_again_and_one_that_was_closed_made_anew(
    client: module.Client,
) -> None:
    for _ in range(3):
        assert client.query("SELECT 1").rows() == [(1,)]
        (kept,) = client._idle
    kept.sock.shutdown(socket.SHUT_RDWR)  # as a server does that has waited long enough
    assert client.query("SELECT 2").rows() == [(2,)]
    assert client._idle != [kept]
    client.query("SELECT 3").close()
    assert not client._idle


def test_threads_share_a_client(client: module.Client) -> None:
    found: list[int] = []

    def ask(number: int) -> None:
        found.extend(client.query("SELECT $1::int", number).rows()[0])

    threads = [threading.Thread(target=ask, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(8))


def test_it_finds_the_stack_of_the_data_folder_as_the_command_line_does(
    served: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / ".headrace")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unreachable, match="no stack runs"):
        connect()
    home.state.parent.mkdir(parents=True)
    parts = {"api": {"address": f"127.0.0.1:{served.port}"}}
    home.state.write_text(json.dumps({"parts": parts}))
    with pytest.raises(ConfigError, match="no key"):
        connect()
    home.api_key.parent.mkdir()
    home.api_key.write_text(f"{KEY}\n")
    with connect() as found:
        assert found.query("SELECT 1").rows() == [(1,)]


def test_the_tree_of_errors_has_every_kind_and_the_module_tells_its_names() -> None:
    assert sorted(module.__all__) == module.__all__
    kinds = [kind for kind in vars(replies).values() if isinstance(kind, type)]
    errors = {kind for kind in kinds if issubclass(kind, ClientError)}
    assert {kind.__name__ for kind in errors} <= set(module.__all__)
    assert all(issubclass(kind, HeadraceError) for kind in errors)
    told = replies.__doc__ or ""
    assert all(kind.__name__ in told for kind in errors)
    assert issubclass(Unavailable, Problem)


def test_only_a_504_of_ours_says_that_nothing_was_done() -> None:
    ours = {"status": 504, "code": "TooSlow", "detail": "the query took longer than 300 ms"}
    assert isinstance(replies.problem_of(ours), replies.BadRequest)
    assert isinstance(replies.problem_of({"status": 504, "detail": "late"}), replies.ServerFailed)
