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

import shop
import till
from serving import KEY, Client

from headrace.errors import Exit
from headrace.local.home import MARKER
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
    (home / MARKER).touch()
    started = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "api", "--home", str(home), "--flow", str(flow)],
        cwd=HERE,
        env={**os.environ, "HEADRACE_WAREHOUSE_URL": url, "HEADRACE_API_KEY": KEY},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stderr is not None
        listening = next(line for line in started.stderr if "listening on" in line)
        port = int(listening.rsplit(":", 1)[1])
        yield port
        started.send_signal(signal.SIGTERM)
        assert started.wait(20) == Exit.OK
    finally:
        if started.poll() is None:
            started.kill()
        started.wait()


def test_the_commands_ask_and_answer(
    store: shop.Shop, connection: warehouse.Connection, warehouse_url: str
) -> None:
    store.sell((1, 1.5, "a\tb\x1b[2J"), (20, None, None))
    with api_process(store.home, warehouse_url) as port:
        where = {"HEADRACE_API_KEY": KEY, "HEADRACE_API_PORT": str(port)}
        table = headrace("query", "SELECT * FROM sales ORDER BY id", home=store.home, **where)
        assert table.stdout.splitlines() == [
            "id  price  note",
            "--  -----  -----------",
            " 1    1.5  a\\tb\\x1b[2J",
            "20   NULL  NULL",
            "",
            "as of shop batch 1 (staged)",
        ]
        asked = ("query", "SELECT id FROM sales", "--freshness", "main", "--json")
        assert json.loads(headrace(*asked, home=store.home, **where).stdout) == {
            "columns": [{"name": "id", "type": "bigint"}],
            "rows": [],
            "as_of": {"shop": 0},
            "freshness": "main",
        }
        typed = "SELECT true AS sold, DATE '2026-05-06' AS day, 12.50::numeric(9, 2) AS price, 0.5"
        table = headrace("query", typed, home=store.home, **where)
        assert table.stdout.splitlines()[:3] == [
            "sold  day         price  ?column?",
            "----  ----------  -----  --------",
            "true  2026-05-06  12.50       0.5",
        ]
        refused = headrace("query", "DROP TABLE sales", home=store.home, **where)
        assert refused.returncode == Exit.REFUSED
        assert refused.stderr.startswith("headrace: the statement is not a SELECT\n")
        stranger = where | {"HEADRACE_API_KEY": "wrong"}
        assert headrace("query", "SELECT 1", home=store.home, **stranger).returncode == Exit.REFUSED


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
