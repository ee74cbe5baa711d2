"""The formats of an answer, and how each tells that it is whole, or what went wrong."""

import csv
import io
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date
from decimal import Decimal
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from multiprocessing import active_children

import pyarrow as pa
import pytest
import shop
from serving import KEY, Client, Reply, assert_problem, serving
from shop import island_over
from test_api import ENDLESS, running
from waiting import until

from api.formats import END, Format
from headrace import config
from migrations import warehouse

EVERY_TYPE = """\
SELECT 1::smallint AS small, 2 AS whole, 9223372036854775807 AS big, 0.5::real AS narrow,
       'NaN'::double precision AS wide, 0.10::numeric(6, 2) AS exact, 1e-10::numeric AS free,
       true AS yes, 'a "b", c' AS quoted, ''::text AS empty, NULL::text AS nothing,
       DATE '2026-05-06' AS day, TIMESTAMP '2026-05-06 07:08:09.5' AS at,
       TIMESTAMPTZ '2026-05-06 07:08:09+02' AS moment, INTERVAL '1 day 2 hours' AS long,
       ARRAY[1.50, NULL] AS list, TIME '07:08' AS clock"""
WRITTEN = {
    "small": 1,
    "whole": 2,
    "big": 2**63 - 1,
    "narrow": 0.5,
    "wide": "NaN",
    "exact": "0.10",
    "free": "0.0000000001",
    "yes": True,
    "quoted": 'a "b", c',
    "empty": "",
    "nothing": None,
    "day": "2026-05-06",
    "at": "2026-05-06T07:08:09.500000",
    "moment": "2026-05-06T05:08:09+00:00",
    "long": "1 day 02:00:00",
    "list": ["1.50", None],
    "clock": "07:08:00",
}
MANY = """\
WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < {rows})
SELECT n, 'a note of some length' AS note, 1 / ({breaks} - n) AS ratio FROM t"""

END_IDLE = """\
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE state = 'idle in transaction' AND application_name = 'headrace api'"""

ROWS_WITHOUT_END = """\
WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n FROM t)
SELECT n, 'a note of some length' AS note FROM t"""


@pytest.fixture
def client(
    connection: warehouse.Connection, warehouse_url: str, store: shop.Shop
) -> Iterator[Client]:
    limits = config.Api(query_workers=1, stream_timeout_ms=20_000)
    with serving(island_over(warehouse_url, store.reader), limits=limits) as made:
        yield made


def asked(client: Client, sql: str, accept: str, **more: object) -> tuple[bytes, dict[str, str]]:
    body = json.dumps({"sql": sql, "freshness": "main", **more})
    reply = client.send("POST", "/v1/query", body, Accept=accept)
    assert reply.status == 200, reply.body
    return reply.body, reply.headers


def test_json_writes_every_type(client: Client) -> None:
    body, _ = asked(client, EVERY_TYPE, "application/json")
    document = json.loads(body)
    names = [column["name"] for column in document["columns"]]
    assert dict(zip(names, document["rows"][0], strict=True)) == WRITTEN
    assert document["end"] == {"rows": 1}


def test_lines_have_a_head_a_row_each_and_an_end(client: Client) -> None:
    body, headers = asked(client, EVERY_TYPE, Format.LINES.value)
    head, row, end = map(json.loads, body.splitlines())
    assert [column["name"] for column in head["columns"]] == list(WRITTEN)
    assert row == list(WRITTEN.values())
    assert end == {"end": {"rows": 1}}
    assert headers["headrace-freshness"] == head["freshness"] == "main"
    assert json.loads(headers["headrace-as-of"]) == head["as_of"] == {}
    assert headers["headrace-query-id"]


def test_csv_tells_null_from_empty_and_quotes(client: Client) -> None:
    body, _ = asked(client, EVERY_TYPE, Format.CSV.value)
    assert b',"",,' in body
    names, row = csv.reader(io.StringIO(body.decode()))
    found = dict(zip(names, row, strict=True))
    assert found["quoted"] == 'a "b", c'
    assert (found["exact"], found["big"], found["at"]) == (
        *("0.10", str(2**63 - 1), "2026-05-06T07:08:09.500000"),
    )
    assert json.loads(found["list"]) == ["1.50", None]


def test_arrow_has_types_and_says_that_it_is_whole(client: Client) -> None:
    body, _ = asked(client, EVERY_TYPE, Format.ARROW.value)
    with pa.ipc.open_stream(body) as reader:
        assert json.loads(reader.schema.metadata[END])["freshness"] == "main"
        first, _ = reader.read_next_batch_with_custom_metadata()
        last, told = reader.read_next_batch_with_custom_metadata()
    (row,) = first.to_pylist()
    assert (row["exact"], row["free"]) == (Decimal("0.10"), "0.0000000001")
    assert (row["day"], str(row["at"])) == (date(2026, 5, 6), "2026-05-06 07:08:09.500000")
    assert reader.schema.field("small").type == pa.int16()
    assert reader.schema.field("free").metadata == {b"headrace.type": b"numeric"}
    assert last.num_rows == 0
    assert json.loads(told[END]) == {"end": {"rows": 1}}


@pytest.mark.parametrize("format_", Format)
def test_an_answer_without_rows_or_columns_is_one(client: Client, format_: Format) -> None:
    nothing, _ = asked(client, "SELECT id, note FROM sales", format_.value)
    assert nothing
    bare, _ = asked(client, "SELECT FROM (VALUES (1), (2)) AS two", format_.value)
    assert format_ is not Format.LINES or bare.splitlines()[1:3] == [b"[]", b"[]"]


def test_more_rows_than_json_may_have_come_as_lines(client: Client) -> None:
    sql = MANY.format(rows=200_000, breaks=0)
    assert_problem(client.ask(sql, "main"), 413, "TooLarge")
    body, _ = asked(client, sql, Format.LINES.value)
    assert json.loads(body.splitlines()[-1]) == {"end": {"rows": 200_000}}


def test_what_fails_before_the_first_byte_is_a_problem(client: Client) -> None:
    for format_ in Format:
        body = json.dumps({"sql": "SELECT 1 / 0"})
        reply = client.send("POST", "/v1/query", body, Accept=format_.value)
        told = assert_problem(reply, 400, "QueryRefused")["detail"]
        assert told == "PostgreSQL refuses the query: division by zero"


def test_what_fails_later_is_told_in_the_last_line(client: Client) -> None:
    body, _ = asked(client, MANY.format(rows=200_000, breaks=150_000), Format.LINES.value)
    *_, last = map(json.loads, body.splitlines())
    assert last["error"]["code"] == "QueryRefused"
    assert "division by zero" in last["error"]["detail"]


@pytest.mark.parametrize("format_", [Format.CSV, Format.ARROW])
def test_where_a_reader_might_not_look_the_transfer_is_broken_off(
    client: Client, format_: Format
) -> None:
    with pytest.raises(IncompleteRead) as caught:
        asked(client, MANY.format(rows=200_000, breaks=150_000), format_.value)
    assert b"division by zero" in caught.value.partial


@contextmanager
def coming(client: Client, sql: str, format_: Format) -> Iterator[HTTPResponse]:
    """Ask, and leave what is answered to be read."""
    body = json.dumps({"sql": sql, "freshness": "main"})
    connection = HTTPConnection("127.0.0.1", client.port, timeout=30)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    connection.request("POST", "/v1/query", body, headers | {"Accept": format_.value})
    with closing(connection), connection.getresponse() as response:
        yield response


def test_what_fails_after_the_last_row_is_told_in_the_last_line(
    client: Client, connection: warehouse.Connection
) -> None:
    def ends() -> bool:
        """End the transaction, when all rows are on their way to us."""
        return bool(connection.execute(END_IDLE).fetchall())

    with coming(client, MANY.format(rows=100_000, breaks=0), Format.LINES) as response:
        read = response.read(1_000)
        until(ends, 30.0, lambda: "PostgreSQL has not given all rows, or the worker has ended")
        read += response.read()
    *_, row, last = map(json.loads, read.splitlines())
    assert (row[0], last["error"]["code"]) == (100_000, "Away")


@pytest.mark.parametrize("format_", [Format.LINES, Format.CSV, Format.ARROW])
def test_a_worker_that_is_killed_amid_rows_never_leaves_what_looks_whole(
    client: Client, format_: Format
) -> None:
    with coming(client, ROWS_WITHOUT_END, format_) as response:
        read = response.read(1_000)
        kill_workers()
        if format_ is Format.LINES:
            read += response.read()
            last = json.loads(read.splitlines()[-1])
            assert last["error"]["code"] == "WorkerEnded"
        else:
            with pytest.raises(IncompleteRead):
                response.read()


def test_a_worker_that_is_killed_before_json_is_whole_is_a_problem(
    client: Client, connection: warehouse.Connection
) -> None:
    replies: list[Reply] = []
    thread = threading.Thread(target=lambda: replies.append(client.ask(ENDLESS, "main")))
    thread.start()
    until(lambda: "WITH RECURSIVE" in running(connection), 20, lambda: running(connection))
    kill_workers()
    thread.join()
    assert_problem(replies[0], 503, "WorkerEnded")
    assert replies[0].headers["retry-after"] == "1"


def test_a_client_that_goes_away_ends_its_query(
    client: Client, connection: warehouse.Connection
) -> None:
    asking = HTTPConnection("127.0.0.1", client.port)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    asking.request("POST", "/v1/query", json.dumps({"sql": ENDLESS}), headers)
    until(lambda: "WITH RECURSIVE" in running(connection), 20, lambda: running(connection))
    asking.close()
    until(lambda: "WITH RECURSIVE" not in running(connection), 20, lambda: running(connection))


def test_an_answer_that_is_refused_amid_its_rows_is_not_read_to_its_end(client: Client) -> None:
    refused = assert_problem(client.ask(ROWS_WITHOUT_END, "main"), 413, "TooLarge")
    assert "more than 100000 rows" in refused["detail"]
    assert client.ask("SELECT 1 AS one", "main").document["rows"] == [[1]]


def test_what_is_no_number_is_written_in_postgresqls_words(client: Client) -> None:
    names = ["NaN", "Infinity", "-Infinity"]
    reals = "SELECT x, x::double precision AS y, ARRAY[x] AS z FROM (VALUES "
    sql = reals + ", ".join(f"('{name}'::numeric)" for name in [*names, "0.5"]) + ") AS v (x)"
    written = [[name, name, [name]] for name in names] + [["0.5", 0.5, ["0.5"]]]
    assert json.loads(asked(client, sql, Format.JSON.value)[0])["rows"] == written
    lines = asked(client, sql, Format.LINES.value)[0].splitlines()
    assert list(map(json.loads, lines[1:-1])) == written
    _, *rows = csv.reader(io.StringIO(asked(client, sql, Format.CSV.value)[0].decode()))
    assert rows == [[str(x), str(y), json.dumps(z)] for x, y, z in written]
    table = pa.ipc.open_stream(asked(client, sql, Format.ARROW.value)[0]).read_all()
    assert table["x"].to_pylist() == [*names, "0.5"]
    assert table["z"].to_pylist() == [[name] for name in [*names, "0.5"]]
    digits = json.dumps({"sql": "SELECT 'NaN'::numeric(6, 2) AS x", "freshness": "main"})
    refused = client.send("POST", "/v1/query", digits, Accept=Format.ARROW.value)
    assert "has NaN" in assert_problem(refused, 400, "QueryRefused")["detail"]


@pytest.mark.parametrize(
    "moment",
    [
        "DATE 'infinity'",
        "DATE '0044-03-15 BC'",
        "DATE '5874897-12-31'",
        "ARRAY[DATE '10000-01-01']",
        "TIMESTAMP '-infinity'",
        "TIMESTAMP '294276-12-31 23:59:59'",
        "TIMESTAMPTZ 'infinity'",
    ],
)
def test_moments_that_are_not_of_the_years_1_to_9999_are_refused_and_never_wrong(
    client: Client, moment: str
) -> None:
    for format_ in Format:
        body = json.dumps({"sql": f"SELECT {moment} AS at", "freshness": "main"})
        refused = client.send("POST", "/v1/query", body, Accept=format_.value)
        told = assert_problem(refused, 400, "QueryRefused")
        assert "the column at has a " in told["detail"]
        assert "::text" in told["hint"]


def test_the_first_and_the_last_moments_are_told(client: Client) -> None:
    sql = "SELECT DATE '0001-01-01' AS a, TIMESTAMP '9999-12-31 23:59:59.999999' AS b"
    rows = json.loads(asked(client, sql, Format.JSON.value)[0])["rows"]
    assert rows == [["0001-01-01", "9999-12-31T23:59:59.999999"]]


def kill_workers() -> None:
    for worker in active_children():
        worker.kill()


def test_a_format_that_is_not_there_is_refused(client: Client) -> None:
    reply = client.send("POST", "/v1/query", '{"sql": "SELECT 1"}', Accept="text/html")
    assert_problem(reply, 406, "NotAcceptable")
    for accept, type_ in [
        ("text/csv;q=0.5, application/json;q=0.9", "application/json"),
        ("text/html, */*;q=0.1", "application/json"),
        ("application/json;q=0, text/csv", "text/csv; charset=utf-8"),
    ]:
        assert asked(client, "SELECT 1", accept)[1]["content-type"] == type_


def test_parameters_are_values_and_never_text(client: Client) -> None:
    sql = "SELECT $1 AS a, $2 + 1 AS b, $3 AS c, $4::date AS d, $5 AS e, 2 = ANY($6) AS f, $7 AS g"
    values = ["x'; DROP TABLE sales --", -5, None, "2026-05-06", True, [1, 2], 1.5]
    body, _ = asked(client, sql, "application/json", parameters=values)
    assert json.loads(body)["rows"] == [[values[0], -4, None, "2026-05-06", True, True, 1.5]]
    for sql, wrong, what in [
        ("SELECT $2", [1], "there is no value for $2 (line 1, column"),
        ("SELECT 1", [1], "does not use $1"),
        ("SELECT $1", ["\0"], "is not one that PostgreSQL has"),
    ]:
        reply = client.send("POST", "/v1/query", json.dumps({"sql": sql, "parameters": wrong}))
        assert what in assert_problem(reply, 400, "QueryRefused")["detail"]


def test_a_query_that_takes_too_much_memory_or_time_ends_and_the_next_is_answered(
    connection: warehouse.Connection, warehouse_url: str, store: shop.Shop
) -> None:
    limits = config.Api(query_workers=1, query_memory_mb_max=300, query_rows_max=10**9)
    with serving(island_over(warehouse_url, store.reader), limits=limits) as client:
        large = client.ask(MANY.format(rows=5_000_000, breaks=0), "main")
        assert "memory" in assert_problem(large, 413, "TooMuchMemory")["detail"]
        assert client.ask("SELECT 1").status == 200
    limits = config.Api(query_workers=1, query_timeout_ms=300)
    with serving(island_over(warehouse_url, store.reader), limits=limits) as client:
        slow = client.ask(ENDLESS, "main")
        assert "longer than 300 ms" in assert_problem(slow, 504, "TooSlow")["detail"]
        assert client.ask("SELECT 1").status == 200
