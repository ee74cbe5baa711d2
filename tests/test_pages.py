"""Pages: joined they are one whole answer at one cut, for whoever asked, for a while."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import shop
from serving import KEY, Client, Reply, assert_problem, front, serving
from shop import island_over
from test_api_formats import EVERY_TYPE, MANY, WRITTEN
from waiting import until

from api.formats import Format
from api.grant import Scope
from api.guard import Entrance
from api.keyring import Keyring
from headrace import config
from headrace.clock import SystemClock
from migrations import warehouse


@pytest.fixture
def served(
    connection: warehouse.Connection, warehouse_url: str, store: shop.Shop, tmp_path: Path
) -> Callable[..., Any]:
    """Serve the shop's tables, with pages in a known folder."""

    @contextmanager
    def serve(**settings: Any) -> Iterator[Client]:
        limits = config.Api(query_workers=2, query_rows_max=1_000, **settings)
        island = island_over(warehouse_url, store.reader)
        keyring = Keyring(tmp_path / "keys.db", SystemClock())
        before = front(Entrance(KEY, keyring))
        with serving(island, limits=limits, before=before, pages=tmp_path / "pages") as client:
            yield client

    return serve


def asked(client: Client, key: str = KEY, **body: Any) -> Reply:
    return client.send("POST", "/v1/query", json.dumps(body), key=f"Bearer {key}")


def pages(client: Client, sql: str, rows: int, key: str = KEY, **body: Any) -> Iterator[Any]:
    """Read page after page."""
    reply = asked(client, key, sql=sql, page_rows=rows, **body)
    while True:
        assert reply.status == 200, reply.body
        yield reply.document
        cursor = reply.document["end"].get("next")
        if cursor is None:
            return
        reply = asked(client, key, cursor=cursor)


@pytest.mark.parametrize("rows", [1, 3, 7, 10, 11])
def test_pages_joined_are_the_whole_answer(served: Any, rows: int) -> None:
    sql = MANY.format(rows=10, breaks=0)
    with served() as client:
        whole = asked(client, sql=sql).document
        found = list(pages(client, sql, rows))
    assert [row for page in found for row in page["rows"]] == whole["rows"]
    assert [page["end"]["rows"] for page in found] == [len(page["rows"]) for page in found]
    assert {len(page["rows"]) for page in found[:-1]} <= {rows}
    assert {json.dumps([page["columns"], page["as_of"], page["plan"]]) for page in found} == {
        json.dumps([whole["columns"], whole["as_of"], whole["plan"]])
    }


def test_a_later_page_writes_every_type_as_the_first_does(served: Any) -> None:
    with served() as client:
        _, second = pages(client, f"{EVERY_TYPE} FROM (VALUES (1), (2)) AS two", 1)
        assert second["rows"] == [list(WRITTEN.values())]
        bare = list(pages(client, "SELECT FROM (VALUES (1), (2), (3)) AS three", 2))
    assert [page["rows"] for page in bare] == [[[], []], [[]]]


def test_pages_are_of_one_cut_whatever_is_pushed_merged_or_committed_since(
    served: Any, store: shop.Shop, connection: warehouse.Connection
) -> None:
    store.sell(*((n, 1.0, "first") for n in range(9)))
    with served() as client:
        one = pages(client, "SELECT id, note FROM sales ORDER BY id DESC", 2)
        found = [next(one)]
        for number, page in enumerate(one):
            found.append(page)
            store.sell((100 + number, 1.0, "later"))
            store.push(connection)
            store.merge(connection)
    rows = [row for page in found for row in page["rows"]]
    assert rows == [[n, "first"] for n in reversed(range(9))]
    assert all(page["as_of"] == {"shop": 1} for page in found)
    assert len(found) == 5


def test_a_page_can_be_asked_for_again_and_others_at_the_same_time(served: Any) -> None:
    sql = MANY.format(rows=40, breaks=0)
    with served() as client:
        end = asked(client, sql=sql, page_rows=10).document["end"]
        again = [asked(client, cursor=end["next"]).body for _ in range(3)]
        assert len(set(again)) == 1
        found: list[list[Any]] = [[], []]

        def read(number: int) -> None:
            for page in pages(client, sql.replace("SELECT n,", f"SELECT n * {number},"), 7):
                found[number] += [row[0] for row in page["rows"]]

        threads = [threading.Thread(target=read, args=[number]) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [[0] * 40, list(range(1, 41))]


def test_a_cursor_is_good_for_whoever_asked_alone(served: Any, tmp_path: Path) -> None:
    keyring = Keyring(tmp_path / "keys.db", SystemClock())
    _, ann = keyring.create("ann", frozenset({Scope.QUERY}))
    _, bob = keyring.create("bob", frozenset({Scope.QUERY}))
    with served() as client:
        end = asked(client, ann, sql=MANY.format(rows=9, breaks=0), page_rows=4).document["end"]
        for other in (bob, KEY):
            assert_problem(asked(client, other, cursor=end["next"]), 404, "QueryUnknown")
        assert asked(client, ann, cursor=end["next"]).status == 200
        beyond = end["next"].replace(".0", ".2")
        assert_problem(asked(client, ann, cursor=beyond), 404, "QueryUnknown")
        guessed = "A" * 32 + ".0"
        assert_problem(asked(client, ann, cursor=guessed), 410, "NoLonger")
        for bad in ("", "../../secrets/keys.db", end["next"] + "\n", "A" * 32 + ".-1"):
            assert_problem(asked(client, ann, cursor=bad), 422, "Invalid")


def test_pages_expire(served: Any, tmp_path: Path) -> None:
    with served(pages_keep_s=60) as client:
        end = asked(client, sql=MANY.format(rows=9, breaks=0), page_rows=4).document["end"]
        (file,) = (tmp_path / "pages").iterdir()
        before = file.stat().st_mtime - 61
        os.utime(file, (before, before))
        assert_problem(asked(client, cursor=end["next"]), 410, "NoLonger")
        assert not list((tmp_path / "pages").iterdir())


def test_pages_go_with_the_process_and_are_the_owners(served: Any, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    with served() as client:
        end = asked(client, sql=MANY.format(rows=9, breaks=0), page_rows=4).document["end"]
        assert list(folder.iterdir())
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()
    folder.mkdir()
    (folder / "left by one that was killed.arrow").touch()
    with served() as client:
        assert not list(folder.iterdir())
        assert_problem(asked(client, cursor=end["next"]), 410, "NoLonger")


def test_the_oldest_pages_give_way_and_an_answer_too_large_is_refused(
    served: Any, tmp_path: Path
) -> None:
    sql = MANY.format(rows=12_000, breaks=0)  # of about 0.4 MB
    with served(pages_mb_max=1) as client:
        first, second, third = (
            asked(client, sql=sql, page_rows=1_000).document["end"]["next"] for _ in range(3)
        )
        assert_problem(asked(client, cursor=first), 410, "NoLonger")
        assert asked(client, cursor=third).status == 200
        assert sum(file.stat().st_size for file in (tmp_path / "pages").iterdir()) <= 2**20
        large = asked(client, sql=MANY.format(rows=100_000, breaks=0), page_rows=1_000)
        assert "more than 1 MB" in assert_problem(large, 413, "TooLarge")["detail"]
        assert not list((tmp_path / "pages").glob("*.begun"))
        assert second != third


def test_what_cannot_be_in_pages_is_refused(served: Any) -> None:
    with served() as client:
        many = asked(client, sql="SELECT 1", page_rows=1_001)
        assert_problem(many, 400, "Refused")
        neither: list[dict[str, Any]] = [
            {"sql": "SELECT 1", "page_rows": 0},
            {"cursor": "x", "sql": "SELECT 1"},
            {},
        ]
        for body in neither:
            assert_problem(asked(client, **body), 422, "Invalid")
        one = json.dumps({"sql": "SELECT 1", "page_rows": 1})
        for format_ in (Format.LINES, Format.CSV, Format.ARROW):
            reply = client.send("POST", "/v1/query", one, Accept=format_.value)
            assert_problem(reply, 406, "NotAcceptable")
        late = asked(client, sql=MANY.format(rows=5_000, breaks=4_000), page_rows=10)
        assert "division by zero" in assert_problem(late, 400, "QueryRefused")["detail"]


def test_a_worker_that_is_killed_while_it_keeps_pages_leaves_none(
    served: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "pages"
    replies: list[Reply] = []
    with served() as client:
        sql = MANY.format(rows=50_000_000, breaks=0)
        thread = threading.Thread(
            target=lambda: replies.append(asked(client, sql=sql, page_rows=1_000))
        )
        thread.start()
        until(lambda: any(folder.glob("*.begun")), 30, lambda: "nothing is kept")
        for worker in active_children():
            worker.kill()
        thread.join()
        assert_problem(replies[0], 503, "WorkerEnded")
        until(lambda: not any(folder.iterdir()), 30, lambda: "what was begun is still there")
        assert asked(client, sql="SELECT 1").status == 200
