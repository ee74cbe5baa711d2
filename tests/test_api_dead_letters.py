"""Dead letters over REST: listed page by page, shown, run again and dropped, each once."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import till
import trial
from serving import Client, Reply, assert_problem, no_engine, serving
from shop import island_over
from till import Till

from api import dead_letters as of_letters
from api.resources import Resources
from etl_procs.core import Core, core_path
from etl_procs.reader import Reader
from headrace.cli import main
from headrace.errors import Exit

NO_WAREHOUSE = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Till]:
    """A till with a batch of two streams given up, two tuples rejected, and one garbled."""
    made = Till(tmp_path)
    made.jam(True)
    made.settle([("jam", 300), ("bun", 100)], [("tea", 250)])
    made.jam(False)
    made.clock.advance(3600)
    made.settle([("pen", None), ("ink", None)], [])
    made.garble(till.returned, b"\xff\x00", "not UTF-8")
    made.settle([], [])
    yield made
    made.end_of_day()


def over(*paths: Path) -> AbstractContextManager[Client]:
    resources = Resources({"till": till.flow}, (), paths, no_engine)
    return serving(island_over(NO_WAREHOUSE, Reader(paths[0])), resources=resources)


@pytest.fixture
def client(made: Till) -> Iterator[Client]:
    with over(made.path) as client:
        yield client


def listed(client: Client, **asked: object) -> list[dict[str, Any]]:
    """List them all, page by page."""
    found: list[dict[str, Any]] = []
    pages = 0
    while True:
        reply = client.send("GET", f"/v1/dead-letters?{urlencode(asked)}")
        assert reply.status == 200, reply.body
        found += reply.document["dead_letters"]
        pages += 1
        if reply.document["next"] is None:
            return found
        asked["cursor"] = reply.document["next"]
        assert pages < 10


def ids(client: Client, **asked: object) -> list[int]:
    return [letter["id"] for letter in listed(client, **asked)]


def change(client: Client, what: str, *numbers: object, **more: object) -> Reply:
    return client.send("POST", f"/v1/dead-letters/{what}", json.dumps({"ids": [*numbers], **more}))


def test_letters_of_each_kind_are_listed_with_reason_place_and_bytes(client: Client) -> None:
    batch, other, pen, ink, garbled = listed(client)
    assert [one["kind"] for one in (batch, other, pen, ink, garbled)] == [
        "failed",
        "failed",
        "rejected",
        "rejected",
        "undecoded",
    ]
    assert (batch["stream"], batch["row_count"], batch["rows"]) == ("sold", 2, [])
    assert (other["stream"], other["unit"], other["attempts"]) == ("returned", "settle", 3)
    assert (pen["reason"], pen["fields"], pen["value"]) == (
        "no price",
        ["pen", None],
        "('pen', None)",
    )
    assert (garbled["topic"], garbled["value_base64"]) == ("till.returned", "/wA=")


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ({}, [1, 2, 3, 4, 5]),
        ({"dataflow": "till"}, [1, 2, 3, 4, 5]),
        ({"dataflow": "shop"}, []),
        ({"stream": "returned"}, [2, 5]),
        ({"procedure": "settle"}, [1, 2, 3, 4]),
        ({"procedure": "sett"}, []),
        ({"kind": "failed"}, [1, 2]),
        ({"kind": "rejected"}, [3, 4]),
        ({"kind": "undecoded"}, [5]),
        ({"reason": "no price"}, [3, 4]),
        ({"kind": "rejected", "stream": "returned"}, []),
    ],
)
def test_a_filter_leaves_out_what_is_not_meant(
    client: Client, asked: dict[str, object], wanted: list[int]
) -> None:
    assert ids(client, **asked) == wanted
    assert ids(client, **asked, limit=1) == wanted


def test_letters_since_a_moment_are_those_set_aside_then_or_later(
    client: Client, made: Till
) -> None:
    now = made.clock.now()
    assert ids(client, since=now.isoformat()) == [3, 4, 5]
    assert ids(client, since=(now + timedelta(microseconds=1)).isoformat()) == []
    assert ids(client, since=(now - timedelta(hours=1)).isoformat()) == [1, 2, 3, 4, 5]
    for never in ("2026-01-01T12:00:00", "0001-01-01T00:00:00%2B12:00", "soon"):
        reply = client.send("GET", f"/v1/dead-letters?since={never}")
        assert_problem(reply, 422, "Invalid")


def test_a_page_goes_on_where_the_one_before_ended_whatever_is_gone(client: Client) -> None:
    first = client.send("GET", "/v1/dead-letters?limit=2").document
    assert [one["id"] for one in first["dead_letters"]] == [1, 2]
    assert change(client, "drop", 2, 3).status == 200
    second = client.send("GET", f"/v1/dead-letters?limit=2&cursor={first['next']}").document
    assert ([one["id"] for one in second["dead_letters"]], second["next"]) == ([4, 5], None)


def test_letters_of_several_partitions_are_one_list_and_each_is_changed_where_it_is(
    made: Till, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "Core", partial(Core, partition=1))
    other = trial.Trial(core_path(tmp_path, 1), till.flow)
    for item in ("cup", "mug"):
        other.end(till.sold, [(item, None)])
        other.run(till.returned, [])
    first = 10**9 + 1
    with over(made.path, other.path) as client:
        assert ids(client, limit=2) == [1, 2, 3, 4, 5, first, first + 1]
        assert ids(client, limit=5, reason="no price") == [3, 4, first, first + 1]
        assert_problem(change(client, "drop", 1, first + 2), 404, "NoSuchLetter")
        assert change(client, "drop", 1, first).document == {"dropped": [1, first]}
        assert change(client, "replay", 3, first + 1).status == 200
        assert ids(client) == [2, 3, 4, 5, first + 1]
    assert [letter.replay for letter in other.letters()] == [1]
    other.close()


def test_a_page_ends_where_it_has_grown_large(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_letters, "PAGE_BYTES", 1)
    assert len(client.send("GET", "/v1/dead-letters").document["dead_letters"]) == 1
    assert ids(client) == [1, 2, 3, 4, 5]


def test_a_cursor_of_another_list_is_refused(client: Client) -> None:
    cursor = client.send("GET", "/v1/dead-letters?limit=1").document["next"]
    for asked in (
        f"limit=1&reason=no&cursor={cursor}",
        "cursor=x",
        "cursor=w7%3D%3D",
        "cursor=%C3%A9",
    ):
        reply = client.send("GET", f"/v1/dead-letters?{asked}")
        assert_problem(reply, 400, "CursorRefused")
    assert_problem(client.send("GET", "/v1/dead-letters?resaon=x"), 422, "Invalid")


def test_one_is_shown_as_the_command_shows_it(
    client: Client, made: Till, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in (1, 3, 5):
        assert main(["dead-letters", "show", "--json", str(number), "--home", str(made.home)]) == 0
        said = json.loads(capsys.readouterr().out)
        told = client.send("GET", f"/v1/dead-letters/{number}").document
        together = told.pop("together")
        assert together == ([1, 2] if number == 1 else [number])
        assert said == {name: value for name, value in told.items() if name != "kind"}
    assert len(client.send("GET", "/v1/dead-letters/1?rows=1").document["rows"]) == 1
    assert_problem(client.send("GET", "/v1/dead-letters/99"), 404, "NoSuchLetter")
    assert_problem(client.send("GET", "/v1/dead-letters/one"), 422, "Invalid")


def test_reasons_are_counted(client: Client) -> None:
    counted = client.send("GET", "/v1/dead-letters/reasons").document
    told = [(one["letters"], one["tuples"], one["replays"]) for one in counted["reasons"]]
    assert (told, counted["more"]) == ([(2, 3, 0), (2, 2, 0), (1, 1, 0)], 0)
    some = client.send("GET", "/v1/dead-letters/reasons?limit=1&dataflow=till").document
    assert (some["reasons"], some["more"]) == (counted["reasons"][:1], 2)
    none = client.send("GET", "/v1/dead-letters/reasons?reason=nothing").document
    assert none == {"reasons": [], "more": 0}


def test_a_replay_takes_along_what_was_given_up_together_and_repeated_does_nothing_more(
    client: Client, made: Till
) -> None:
    for _ in range(2):
        assert change(client, "replay", 2).document == {"replayed": [1, 2]}
    assert [letter["replay"] for letter in listed(client)] == [True, True, False, False, False]
    batch = made.batch(till.flow)
    made.core.drain()
    assert (made.cents(), made.batch(till.flow)) == (150, batch + 1)
    assert_problem(change(client, "replay", 2), 404, "NoSuchLetter")
    assert change(client, "replay", 2, where_possible=True).document == {"replayed": []}
    made.core.drain()
    assert (made.cents(), made.batch(till.flow)) == (150, batch + 1)


def test_what_fails_again_is_a_letter_that_the_same_request_does_not_mean(
    client: Client, made: Till
) -> None:
    assert change(client, "replay", 3).status == 200
    made.core.drain()
    assert ids(client, kind="rejected") == [4, 6]
    assert_problem(change(client, "replay", 3), 404, "NoSuchLetter")
    assert not any(letter["replay"] for letter in listed(client))


def test_what_cannot_run_again_is_refused_and_nothing_else_is_asked_for(client: Client) -> None:
    refused = assert_problem(change(client, "replay", 3, 5), 409, "NotReplayable")
    assert "Produce it again as it should be" in refused["hint"]
    assert_problem(change(client, "replay", 3, 99), 404, "NoSuchLetter")
    assert not any(letter["replay"] for letter in listed(client))
    assert change(client, "replay", 3, 5, 99, where_possible=True).document == {"replayed": [3]}


def test_a_drop_takes_all_that_it_names_or_nothing_and_repeated_nothing_more(
    client: Client, made: Till
) -> None:
    assert_problem(change(client, "drop", 1, 99), 404, "NoSuchLetter")
    assert len(made.letters()) == 5
    assert change(client, "drop", 1, 1, 3).document == {"dropped": [1, 3]}
    assert_problem(change(client, "drop", 1, 3), 404, "NoSuchLetter")
    assert change(client, "drop", 1, 4, where_possible=True).document == {"dropped": [4]}
    assert ids(client) == [2, 5]


@pytest.mark.parametrize(
    "body", ["{}", '{"ids": []}', '{"ids": [true]}', '{"ids": [-1]}', '{"ids": [1], "all": true}']
)
def test_a_change_that_names_no_letters_is_refused(client: Client, body: str) -> None:
    for what in ("drop", "replay"):
        assert_problem(client.send("POST", f"/v1/dead-letters/{what}", body), 422, "Invalid")
    assert len(listed(client)) == 5


def test_without_a_core_it_is_told_as_503(tmp_path: Path) -> None:
    with over(tmp_path / "none.db") as client:
        for path in ("", "/reasons", "/1"):
            assert_problem(client.send("GET", f"/v1/dead-letters{path}"), 503, "NotRunning")
        assert_problem(change(client, "drop", 1), 503, "NotRunning")
    assert main(["dead-letters", "list", "--home", str(tmp_path)]) == Exit.NOT_RUNNING
