"""Subscribers: clients that read what the API tells of batches, event by event."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

from serving import KEY, Client, serving
from shop import island_over

from api.front import Front
from api.subscriptions import Subscriptions
from etl_procs.dataflow import Dataflow
from etl_procs.publisher import Publisher
from etl_procs.reader import Reader
from headrace import config
from headrace.crash import CrashPoints

NO_WAREHOUSE = "postgresql://nobody@127.0.0.1:1/nothing"
LINES, EVENTS = "application/x-ndjson", "text/event-stream"

Event = dict[str, Any]


@contextmanager
def subscribable(
    cores: Sequence[Path], *flows: Dataflow, before: Front | None = None
) -> Iterator[Client]:
    """Serve the streams and tables of dataflows."""
    publisher = Publisher(cores, config.Core(), CrashPoints())
    known = {flow.name: flow for flow in flows}
    island = island_over(NO_WAREHOUSE, Reader(cores[0]))
    subscribed = Subscriptions(known, cores, publisher)
    with serving(island, subscribed=subscribed, before=before) as client:
        yield client


class Heard:
    """An answer that does not end by itself."""

    def __init__(self, response: HTTPResponse) -> None:
        self.response = response
        self.status = response.status
        self.type = response.headers["content-type"]

    def line(self) -> str:
        """Give the next line; empty at the end, and at a heartbeat only its end."""
        return self.response.readline().decode()

    def documents(self) -> Iterator[Any]:
        """Read JSON lines, without heartbeats."""
        while line := self.line():
            assert line.endswith("\n"), "a line that is not whole"
            if line != "\n":
                yield json.loads(line)

    def batches(self) -> Iterator[Event]:
        """Read the batches of JSON lines."""
        return (document for document in self.documents() if "batch" in document)

    def events(self) -> Iterator[dict[str, str]]:
        """Read server-sent events as a browser does: one counts when it has ended."""
        event: dict[str, str] = {}
        while line := self.line():
            name, _, value = line.removesuffix("\n").partition(":")
            if line == "\n":
                if event:
                    yield event
                event = {}
            elif name:
                event[name] = value.removeprefix(" ")


@contextmanager
def heard(
    client: Client, path: str, accept: str = LINES, key: str = KEY, **more: str
) -> Iterator[Heard]:
    """Subscribe; leave when the block ends."""
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    headers |= {"Authorization": f"Bearer {key}", "Accept": accept}
    connection = HTTPConnection("127.0.0.1", client.port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        yield Heard(response)
        response.close()
    finally:
        connection.close()


def told(client: Client, path: str, accept: str = LINES) -> list[Any]:
    """Give all that a subscription with an end tells."""
    with heard(client, path, accept) as subscriber:
        assert subscriber.status == 200, subscriber.response.read()
        return list(subscriber.documents())
