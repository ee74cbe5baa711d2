"""`headrace api` and `headrace query`, as processes, over a real core and a real PostgreSQL."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numbering
import pytest
import shop
import till
from api_process import ApiProcess
from serving import KEY, Client

from api import costs
from headrace.errors import Exit
from headrace.local.home import MARKER, Home
from migrations import warehouse

HERE = Path(__file__).parent  # the commands run here: the flow imports its neighbours
FLOW = ("--flow", str(HERE / "shop.py"))


def headrace(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", *arguments, "--home", str(home)],
        cwd=HERE,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@contextmanager
def api_process(home: Path, url: str, flow: Path = HERE / "shop.py") -> Iterator[int]:
    """Run `headrace api` on a data folder, and give its port."""
    started = ApiProcess(home, flow, url)
    try:
        yield started.client.port
        assert started.end(signal.SIGTERM) == Exit.OK
    finally:
        if started.process.poll() is None:
            started.end()


def test_the_commands_ask_and_answer(
    store: shop.Shop, connection: warehouse.Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.5, "a\tb\x1b[2J"), (20, None, None))
    with api_process(store.home, warehouse_url) as port:
        where = {"HEADRACE_API_KEY": KEY, "HEADRACE_API_PORT": str(port)}
        by_ship = ("query", "SELECT * FROM sales ORDER BY id", "--plan", "ship")
        table = headrace(*by_ship, home=store.home, **where)
        assert table.stdout.splitlines() == [
            "id  price  note",
            "--  -----  -----------",
            " 1    1.5  a\\tb\\x1b[2J",
            "20   NULL  NULL",
            "",
            "as of shop batch 1 (staged, by ship)",
        ]
        asked = ("query", "SELECT id FROM sales", "--freshness", "main", "--json")
        assert json.loads(headrace(*asked, home=store.home, **where).stdout) == {
            "columns": [{"name": "id", "type": "bigint"}],
            "rows": [],
            "as_of": {"shop": 0},
            "freshness": "main",
            "plan": "warehouse",
            "end": {"rows": 0},
        }
        for moment, told_of in (
            (("--max-lag", "0"), "as of shop batch 1 (staged,"),
            (("--max-lag", "1e9"), "as of shop batch 0 (main,"),
            (("--as-of", "shop=1"), "as of shop batch 1 (staged,"),
            (("--as-of", "shop=0"), "as of shop batch 0 (staged,"),
        ):
            answer = headrace("query", "SELECT 1 FROM sales", *moment, home=store.home, **where)
            assert told_of in answer.stdout
        told = headrace("query", "SELECT id FROM sales", "--explain", home=store.home, **where)
        assert ", because " in told.stdout.splitlines()[0]
        assert "\nsplit: " in told.stdout
        given = ("query", "SELECT $1 AS a, $2 AS b", "--value", "7", "--value", "x y", "--json")
        answer = json.loads(headrace(*given, home=store.home, **where).stdout)
        assert answer["rows"] == [[7, "x y"]]
        typed = "SELECT true AS sold, DATE '2026-05-06' AS day, 12.50::numeric(9, 2) AS price, 0.5"
        table = headrace("query", typed, home=store.home, **where)
        assert table.stdout.splitlines()[:3] == [
            "sold  day         price  ?column?",
            "----  ----------  -----  --------",
            "true  2026-05-06  12.50       0.5",
        ]
        refused = headrace("query", "DROP TABLE sales", home=store.home, **where)
        assert refused.returncode == Exit.REFUSED
        assert refused.stderr.startswith(
            "headrace: the statement is not a SELECT (line 1, column 1)\n"
        )
        stranger = where | {"HEADRACE_API_KEY": "wrong"}
        assert headrace("query", "SELECT 1", home=store.home, **stranger).returncode == Exit.REFUSED


def test_a_key_opens_the_running_api_as_soon_as_it_is_made_and_until_it_is_revoked(
    store: shop.Shop,
) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"
    with api_process(store.home, nowhere) as port:
        made = headrace("keys", "create", "ann", "--scope", "look", home=store.home)
        shown = made.stdout.strip()
        where = {"HEADRACE_API_KEY": shown, "HEADRACE_API_PORT": str(port)}
        client = Client(port)
        assert client.send("GET", "/v1/calls", key=f"Bearer {shown}").status == 200
        listed = headrace("migrate", "list", home=store.home, **where)
        assert (listed.returncode, listed.stderr) == (Exit.OK, "")
        refused = headrace("query", "SELECT 1", home=store.home, **where)
        assert refused.returncode == Exit.REFUSED
        assert "ann may not do this: its key lacks the scope query" in refused.stderr
        revoked = headrace("keys", "revoke", shown.split("_")[1], home=store.home)
        assert revoked.returncode == Exit.OK
        assert client.send("GET", "/v1/calls", key=f"Bearer {shown}").status == 401
        assert client.send("GET", "/v1/calls").status == 200


def test_what_calibrate_measures_is_what_the_api_weighs_plans_by(
    store: shop.Shop, connection: warehouse.Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.5, "a"))
    home = Home(store.home)
    (store.home / MARKER).touch()
    done = headrace("calibrate", home=store.home, HEADRACE_WAREHOUSE_URL=warehouse_url)
    assert done.returncode == Exit.OK, done.stderr
    *told, where = done.stdout.splitlines()
    measured = json.loads(home.rates.read_text())
    assert told == [f"{name}  {rate:.4f}" for name, rate in measured.items()]
    assert str(home.rates) in where
    assert costs.load(home.rates) == costs.Rates(**measured) != costs.Rates()
    home.rates.write_text(json.dumps(measured | {"island_ms": 1e6}))
    with api_process(store.home, warehouse_url) as port:
        asked = json.dumps({"sql": "SELECT count(*) FROM sales"})
        told = Client(port).send("POST", "/v1/query/explain", asked).document["candidates"]
    cost_ms = {one["plan"]: one["cost_ms"] for one in told}
    assert cost_ms["ship"] < 1e6 <= cost_ms["split"]


def test_calls_of_two_processes_and_an_engine_take_turns_on_one_core(tmp_path: Path) -> None:
    made = till.Till(tmp_path)
    made.settle([("tea", 250)], [])
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"
    try:
        with api_process(tmp_path, nowhere, till.FILE) as port:
            client = Client(port)
            flow = ("--flow", str(till.FILE))
            for round_ in range(3):
                reply = client.send("POST", "/v1/calls/till/put", '{"cents": 1}')
                assert (reply.status, reply.document["rows"][0]["cents"]) == (200, made.cents())
                words = ("call", "till.put", "cents=10", "--key", f"k{round_}", *flow)
                assert headrace(*words, home=tmp_path).returncode == Exit.OK
                made.settle([("bun", 100)], [])
            key = {"Idempotency_Key": "k0"}  # what the other process has done, this one knows
            again = client.send("POST", "/v1/calls/till/put", '{"cents": 10}', **key)
            assert again.document == {"rows": [{"cents": 261, "note": None}]}
            text = client.send("GET", "/metrics").body.decode()
            assert "headrace_core_up 0\n" in text
            assert 'headrace_core_last_batch{partition="0",dataflow="till"} 4\n' in text
        assert made.cents() == 250 + 3 * (1 + 10 + 100)
    finally:
        made.end_of_day()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (["shop"], "'shop' is not NAME=BATCH, such as shop=12"),
        (["shop=-1"], "'shop=-1' is not NAME=BATCH"),
        (["=1"], "'=1' is not NAME=BATCH"),
        (["shop=1", "shop=2"], "--as-of names two batches of one dataflow"),
    ],
)
def test_a_batch_that_a_query_is_to_be_as_of_has_a_name_and_a_number(
    tmp_path: Path, given: list[str], why: str
) -> None:
    words = [word for one in given for word in ("--as-of", one)]
    refused = headrace("query", "SELECT 1", *words, home=tmp_path)
    assert refused.returncode == Exit.CONFIG
    assert why in refused.stderr


def test_a_query_without_an_api_says_how_to_start_one(tmp_path: Path) -> None:
    unknown = headrace("query", "SELECT 1", home=tmp_path)
    assert unknown.returncode == Exit.NOT_RUNNING
    assert "Run `headrace up`" in unknown.stderr
    where = {"HEADRACE_API_KEY": KEY, "HEADRACE_API_PORT": "1"}
    away = headrace("query", "SELECT 1", home=tmp_path, **where)
    assert away.returncode == Exit.NOT_RUNNING
    assert re.search(r"the API at 127\.0\.0\.1:1 does not answer", away.stderr)


def test_the_api_does_not_start_without_warehouse_key_or_port(tmp_path: Path) -> None:
    url = {"HEADRACE_WAREHOUSE_URL": "postgresql://127.0.0.1:1/x"}
    assert "needs warehouse.url" in headrace("api", *FLOW, home=tmp_path).stderr
    no_key = headrace("api", *FLOW, home=tmp_path, **url)
    assert no_key.returncode == Exit.CONFIG
    assert "no key for the API" in no_key.stderr
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        settings = {**url, "HEADRACE_API_KEY": KEY, "HEADRACE_API_PORT": port}
        refused = headrace("api", *FLOW, home=tmp_path, **settings)
    assert refused.returncode == Exit.CONFIG
    assert f"cannot listen on 127.0.0.1:{port}" in refused.stderr
    assert (tmp_path / MARKER).is_file(), "or `headrace up` would refuse the folder"


def test_batches_are_written_as_lines_until_the_reader_has_enough(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(numbering.FILE), str(tmp_path)], cwd=HERE, check=True)
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"
    with api_process(tmp_path, nowhere, numbering.FILE) as port:
        where = {"HEADRACE_API_KEY": KEY, "HEADRACE_API_PORT": str(port)}
        flow = ("--flow", str(numbering.FILE))

        def subscribe(*words: str) -> subprocess.CompletedProcess[str]:
            return headrace("subscribe", *words, *flow, home=tmp_path, **where)

        for words, name in ((["doubled"], "doubled"), (["numbering.out", "--table"], "out")):
            done = subscribe(*words, "--after", "5", "--limit", "3")
            assert (done.returncode, done.stderr) == (Exit.OK, "")
            documents = [json.loads(line) for line in done.stdout.splitlines()]
            assert [(d["batch"], d["rows"]) for d in documents] == numbering.expected(name)[5:8]
        for words, said in (
            (["out"], "no stream is called out"),
            (["doubled", "--table"], "no table is called doubled"),
            (["out", "--table", "--publish"], "a table is not published"),
            (["source", "--after", "301"], "is at 300, and not yet at 301"),
        ):
            refused = subscribe(*words)
            assert refused.returncode == Exit.REFUSED
            assert said in refused.stderr
        reading, writing = os.pipe()
        os.close(reading)
        words = [sys.executable, "-m", "headrace.cli", "subscribe", "source", "--after", "0"]
        unheard = subprocess.run(
            [*words, "--home", str(tmp_path), *flow],
            cwd=HERE,
            env={**os.environ, **where},
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
        os.close(writing)
        assert (unheard.returncode, unheard.stderr) == (Exit.UNHEARD, b"")


def test_a_subscriber_publishes_and_says_where_to_go_on_when_the_api_has_gone(
    tmp_path: Path,
) -> None:
    made = till.Till(tmp_path)
    made.settle([("tea", 250)], [])
    nowhere = "postgresql://nobody@127.0.0.1:1/nothing"
    try:
        with api_process(tmp_path, nowhere, till.FILE) as port:
            words = ["subscribe", "sold", "--publish", "--home", str(tmp_path)]
            where = {"HEADRACE_API_KEY": KEY, "HEADRACE_API_PORT": str(port)}
            subscriber = subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", *words, "--flow", str(till.FILE)],
                cwd=HERE,
                env={**os.environ, **where},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert subscriber.stdout is not None
            assert subscriber.stderr is not None
            assert subscriber.stderr.readline() == "behind 1\n"
            made.settle([("bun", 100)], [])
            assert json.loads(subscriber.stdout.readline())["rows"] == [
                {"item": "bun", "cents": 100}
            ]
        rest, said = subscriber.communicate(timeout=60)
        assert (subscriber.returncode, rest) == (Exit.NOT_RUNNING, "")
        assert said.startswith("headrace: the API ends\n")
        assert "--after 2 goes on behind what has come" in said
    finally:
        made.end_of_day()
