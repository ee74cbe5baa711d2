"""A Kafka broker for an experiment: the one that Headrace starts, on a port of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.part import LOOPBACK, running, settings
from headrace import config
from headrace.local import broker, jars, java, ports
from headrace.local.home import Home
from ingest import topics


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Run a broker with its log in `folder`, and give its address."""
    loaded = settings(folder / "broker")
    home = Home(loaded.home)
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
    with running(part, home):
        yield client.bootstrap
