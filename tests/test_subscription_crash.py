"""Subscribers, while core and API are killed: each batch is told once, whole and in order."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from api_process import ApiProcess
from numbering import FILE, LAST, expected
from subscribing import EVENTS, LINES, NO_WAREHOUSE, heard
from waiting import until

HERE = Path(__file__).parent
POINTS = ["core.commit.before:20", "core.commit.after:20", "core.publish.after:1"]
PATIENCE_S = 120


class Api:
    """`headrace api`, which may be killed; it is started again at another port."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.deaths = 0
        self.start()

    def start(self) -> None:
        self._process = ApiProcess(self.home, FILE, NO_WAREHOUSE)
        self.client = self._process.client

    def die(self) -> None:
        self._process.end()
        self.deaths += 1


class Subscriber(threading.Thread):
    """Reads what it can, and comes again with the position of the last batch that it has whole."""

    def __init__(self, api: Api, what: str, accept: str) -> None:
        super().__init__(daemon=True)
        self.api = api
        self.path = f"/v1/{what}/batches?after=0"
        self.accept = accept
        self.found: list[tuple[int, Any]] = []
        self.position = "0"
        self.connections = 0

    def run(self) -> None:
        while len(self.found) < LAST:
            with suppress(OSError, HTTPException):
                self._listen()

    def _listen(self) -> None:
        resumed = {"Last_Event_ID": self.position}
        with heard(self.api.client, self.path, self.accept, **resumed) as subscriber:
            if subscriber.status != 200:
                return  # the core is not there yet, or nothing is published
            self.connections += 1
            for document in self._documents(subscriber):
                self.position = document["position"]
                self.found.append((document["batch"], document["rows"]))
                if len(self.found) == LAST:
                    return

    def _documents(self, subscriber: Any) -> Iterator[Any]:
        if self.accept == EVENTS:
            for event in subscriber.events():
                yield json.loads(event["data"])
        while (line := subscriber.line()).endswith("\n"):
            if line != "\n":
                yield json.loads(line)


def has(subscriber: Subscriber, batches: int) -> bool:
    return len(subscriber.found) >= batches


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    made = Api(tmp_path)
    yield made
    made.die()


def test_whoever_is_killed_each_subscriber_has_each_batch_once_and_whole(
    tmp_path: Path, api: Api
) -> None:
    subscribers = {
        "source": Subscriber(api, "streams/numbering/source", EVENTS),
        "doubled": Subscriber(api, "streams/numbering/doubled", LINES),
        "out": Subscriber(api, "tables/numbering/out", EVENTS),
    }
    for subscriber in subscribers.values():
        subscriber.start()
    ends: list[int] = []
    while not ends or ends[-1] != 0:
        point, told = POINTS[len(ends) % len(POINTS)], len(subscribers["source"].found)
        command = [sys.executable, str(FILE), str(tmp_path), point]
        with subprocess.Popen(command, cwd=HERE, stderr=subprocess.PIPE, text=True) as core:
            if len(ends) % 3 != 2:  # that time, nothing is committed
                wanted = min(told + 5, LAST)
                until(partial(has, subscribers["source"], wanted), PATIENCE_S, lambda: "silence")
                api.die()
                api.start()
            _, said = core.communicate(timeout=PATIENCE_S)
        ends.append(core.returncode)
        assert core.returncode in (0, -signal.SIGKILL), said
    for subscriber in subscribers.values():
        subscriber.join(PATIENCE_S)
    assert {name: s.found for name, s in subscribers.items()} == {
        name: expected(name) for name in subscribers
    }
    assert ends.count(-signal.SIGKILL) >= 3
    assert api.deaths >= 2
    assert all(subscriber.connections > 1 for subscriber in subscribers.values())
