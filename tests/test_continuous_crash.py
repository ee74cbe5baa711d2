"""Continuous queries while the API is killed: webhooks hear of each result, calls are made once."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from alerting import FILE, Accounts, flow
from api_process import ApiProcess
from continuing import put
from receiving import receiver
from shop import HERE
from waiting import until

from headrace.crash import Point
from migrations import layout, warehouse

ALL = "SELECT name, cents FROM balances ORDER BY name"
PATIENCE_S = 60.0
BATCHES = 4
POINTS = [point for point in Point if point.value.startswith("api.")]


@pytest.fixture
def accounts(tmp_path: Path, warehouse_url: str) -> Iterator[Accounts]:
    with warehouse.connect(warehouse_url, application="test") as opened:
        layout.prepare(opened, HERE, flow)
    made = Accounts(tmp_path)
    yield made
    made.close()


def api_of(accounts: Accounts, url: str, crash_at: str = "") -> ApiProcess:
    more = {"HEADRACE_API_WEBHOOKS_PRIVATE": "true", "HEADRACE_TESTING_CRASH_AT": crash_at}
    return ApiProcess(accounts.home, FILE, url, **more)


def dies(accounts: Accounts, url: str, crash_at: str, batches: int) -> None:
    """Have the API be killed at a point, for the so many-th time that it comes there."""
    api = api_of(accounts, url, crash_at)
    accounts.pay(*[("ann", "bob", 1)] * batches)
    assert api.process.wait(PATIENCE_S) == -signal.SIGKILL
    api.end()


def register(accounts: Accounts, url: str, **to: Any) -> None:
    api = api_of(accounts, url)
    assert put(api.client, "all", ALL, to=to).status == 201
    assert api.end(signal.SIGTERM) == 0


@pytest.mark.parametrize("times", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_wherever_the_api_is_killed_the_webhook_hears_of_each_result_in_order(
    accounts: Accounts, warehouse_url: str, times: int
) -> None:
    batches = BATCHES * len(POINTS)
    with receiver() as hook:
        register(accounts, warehouse_url, webhook=hook.url)
        for point in POINTS:
            dies(accounts, warehouse_url, f"{point.value}:{times}", BATCHES)
        api = api_of(accounts, warehouse_url)
        last = f"all:{batches + 1}"
        until(lambda: last in hook.keys, PATIENCE_S, lambda: str(hook.keys))
        api.end()
    once = list(dict.fromkeys(hook.keys))
    assert once == [f"all:{batch}" for batch in range(1, batches + 2)]
    numbers = [int(key.removeprefix("all:")) for key in hook.keys]
    assert numbers == sorted(numbers)
    assert len(hook.keys) - len(once) <= len(POINTS)
    for key, document in hook.taken:
        batch = int(key.removeprefix("all:"))
        assert document["rows"] == [["ann", 101 - batch], ["bob", 99 + batch], ["cy", 100]]


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_wherever_the_api_is_killed_the_call_of_each_row_is_made_once(
    accounts: Accounts, warehouse_url: str, times: int
) -> None:
    points = [*POINTS, Point.CORE_CALL_BEFORE, Point.CORE_CALL_AFTER]
    batches = 2 * len(points) + 1
    sql = "SELECT name, cents FROM balances WHERE name <> 'cy' ORDER BY name"
    api = api_of(accounts, warehouse_url)
    assert put(api.client, "all", sql, to={"call": "alerting/warn"}).status == 201
    assert api.end(signal.SIGTERM) == 0
    for point in points:
        dies(accounts, warehouse_url, f"{point.value}:{times}", 2)
    api = api_of(accounts, warehouse_url)
    until(lambda: len(accounts.warned()) >= 2 * batches, PATIENCE_S, lambda: str(accounts.warned()))
    until(
        lambda: api.client.send("GET", "/v1/continuous/all").document["delivery"] == "done",
        PATIENCE_S,
        lambda: "not brought",
    )
    api.end()
    assert accounts.warned() == [
        row for batch in range(batches) for row in (("ann", 100 - batch), ("bob", 100 + batch))
    ]
