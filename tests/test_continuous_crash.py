"""Continuous queries while the API is killed: webhooks hear of each result, calls are made once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alerting import FILE, Accounts, flow
from continuing import put
from receiving import receiver
from serving import KEY, Client
from shop import HERE
from waiting import until

from headrace.crash import Point
from headrace.local.home import MARKER
from migrations import layout, warehouse

TESTS = Path(__file__).parent
ALL = "SELECT name, cents FROM balances ORDER BY name"
PATIENCE_S = 60.0
BATCHES = 8
POINTS = [point for point in Point if point.value.startswith("api.")]


@pytest.fixture
def accounts(tmp_path: Path, warehouse_url: str) -> Iterator[Accounts]:
    with warehouse.connect(warehouse_url, application="test") as opened:
        layout.prepare(opened, HERE, flow)
    (tmp_path / MARKER).touch()
    made = Accounts(tmp_path)
    yield made
    made.close()


class Api:
    """`headrace api`, which may be told to end itself at a point."""

    def __init__(self, accounts: Accounts, url: str, crash_at: str = "") -> None:
        words = ["api", "--home", str(accounts.home), "--flow", str(FILE)]
        environment = {
            "HEADRACE_WAREHOUSE_URL": url,
            "HEADRACE_API_KEY": KEY,
            "HEADRACE_API_WEBHOOKS_PRIVATE": "true",
            "HEADRACE_TESTING_CRASH_AT": crash_at,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", *words],
            cwd=TESTS,
            env={**os.environ, **environment},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        listening = next(line for line in self.process.stderr if "listening on" in line)
        self.client = Client(int(listening.rsplit(":", 1)[1]))

    def end(self, signal_: int = signal.SIGKILL) -> int:
        self.process.send_signal(signal_)
        _, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


def register(accounts: Accounts, url: str, **to: Any) -> None:
    api = Api(accounts, url)
    assert put(api.client, "all", ALL, to=to).status == 201
    assert api.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.value)
def test_wherever_the_api_is_killed_the_webhook_hears_of_each_result_in_order(
    accounts: Accounts, warehouse_url: str, point: Point
) -> None:
    with receiver() as hook:
        register(accounts, warehouse_url, webhook=hook.url)
        for times in (1, 3):
            api = Api(accounts, warehouse_url, f"{point.value}:{times}")
            accounts.pay(*[("ann", "bob", 1)] * (BATCHES // 2))
            assert api.process.wait(PATIENCE_S) == -signal.SIGKILL
            api.end()
        api = Api(accounts, warehouse_url)
        last = f"all:{BATCHES + 1}"
        until(lambda: last in hook.keys, PATIENCE_S, lambda: str(hook.keys))
        api.end()
    once = list(dict.fromkeys(hook.keys))
    assert once == [f"all:{batch}" for batch in range(1, BATCHES + 2)]
    batches = [int(key.removeprefix("all:")) for key in hook.keys]
    assert batches == sorted(batches)
    assert len(hook.keys) - len(once) <= 2
    for key, document in hook.taken:
        batch = int(key.removeprefix("all:"))
        assert document["rows"] == [["ann", 101 - batch], ["bob", 99 + batch], ["cy", 100]]


@pytest.mark.parametrize("point", [*POINTS, Point.CORE_CALL_BEFORE, Point.CORE_CALL_AFTER])
def test_wherever_the_api_is_killed_the_call_of_each_row_is_made_once(
    accounts: Accounts, warehouse_url: str, point: Point
) -> None:
    sql = "SELECT name, cents FROM balances WHERE name <> 'cy' ORDER BY name"
    api = Api(accounts, warehouse_url)
    assert put(api.client, "all", sql, to={"call": "alerting/warn"}).status == 201
    assert api.end(signal.SIGTERM) == 0
    for times in (1, 2):
        api = Api(accounts, warehouse_url, f"{point.value}:{times}")
        accounts.pay(*[("ann", "bob", 1)] * 2)
        assert api.process.wait(PATIENCE_S) == -signal.SIGKILL
        api.end()
    api = Api(accounts, warehouse_url)
    until(lambda: len(accounts.warned()) >= 10, PATIENCE_S, lambda: str(accounts.warned()))
    until(
        lambda: api.client.send("GET", "/v1/continuous/all").document["delivery"] == "done",
        PATIENCE_S,
        lambda: "not brought",
    )
    api.end()
    assert accounts.warned() == [
        row for batch in range(5) for row in (("ann", 100 - batch), ("bob", 100 + batch))
    ]
