"""A Kafka broker for an experiment: the one that Headrace starts, on a port of its own."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from headrace import config
from headrace.errors import HeadraceError, NotRunning
from headrace.local import broker, child, jars, java, ports
from headrace.local.home import Home
from ingest import topics

LOOPBACK = "127.0.0.1"
READY_TIMEOUT_S = 60.0
PROBE_EVERY_S = 0.1


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Run a broker with its log in `folder`, and give its address."""
    loaded = config.load({"home": str(folder / "broker")}, environment={}).config
    home = Home(loaded.home)
    home.create()
    wanted = [ports.Wanted(name, LOOPBACK) for name in ("broker", "controller")]
    at = ports.choose(wanted, home.ports)
    client = config.Broker(bootstrap=f"{LOOPBACK}:{at['broker']}")
    part = broker.part(
        loaded,
        port=at["broker"],
        controller_port=at["controller"],
        java=java.find(config.child_environment({})).program,
        classpath=jars.broker_classpath(loaded),
        probe=partial(topics.probe, client),
    )
    running = child.spawn(part, home, lambda _child: None)
    assert running is not None, "the folder is new"
    try:
        _wait_until_ready(client, running)
        yield client.bootstrap
    finally:
        running.stop()
        if not running.dead.wait(part.stop_timeout_s):
            running.kill()
            running.dead.wait()


def _wait_until_ready(client: config.Broker, running: child.Child) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            topics.probe(client)
        except NotRunning as error:
            if time.monotonic() > deadline or running.dead.wait(PROBE_EVERY_S):
                raise HeadraceError(
                    f"the broker of the experiment did not become ready: {error}",
                    hint="Look whether another one runs in the folder .bench.",
                ) from error
        else:
            return
