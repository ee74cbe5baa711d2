"""A cluster of two brokers: the first decides for both, the second may die."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from alone import Alone, a_broker, data_folder
from kafka.admin import NewTopic

from headrace.config import Broker
from headrace.errors import NotRunning
from headrace.local.home import Home
from ingest import topics

# What stands later in the file wins over what the broker's own settings say.
SETTINGS = """
process.roles=broker
node.id=2
controller.quorum.voters=1@{controller}
listeners=CLIENTS://{clients}
"""


@contextmanager
def two_brokers(folder: Path) -> Iterator[tuple[Broker, Alone]]:
    """Start both; give the way in by either, and the second."""
    first_home, second_home = (data_folder(folder / name) for name in ("first", "second"))
    first, second = a_broker(first_home), a_broker(second_home)
    own = second.part

    def prepare() -> None:
        own.prepare()
        said = _read(Home(first_home.home).broker / "server.properties")
        voters = said["controller.quorum.voters"].partition("@")[2]
        with (Home(second_home.home).broker / "server.properties").open("a") as file:
            file.write(SETTINGS.format(controller=voters, clients=own.address))
        first_meta, meta = (
            Home(of.home).broker / "log" / "meta.properties" for of in (first_home, second_home)
        )
        joined = _read(meta) | {"node.id": "2", "cluster.id": _read(first_meta)["cluster.id"]}
        meta.write_text("".join(f"{name}={value}\n" for name, value in joined.items()))

    second.part = replace(own, prepare=prepare)
    with first, second:
        yield Broker(bootstrap=f"{first.address},{second.address}"), second


def make(broker: Broker, topic: str) -> None:
    """Make a topic of one partition, which both brokers have, and the second leads."""
    with topics.admin(broker) as client:
        client.create_topics([NewTopic(topic, replica_assignments={0: [2, 1]})])
        client.wait_for_topics([topic])


def leads(broker: Broker, topic: str, node: int) -> bool:
    """Tell whether this broker leads the topic's partition; not so while the one asked is away."""
    try:
        with topics.admin(broker) as client:
            (described,) = client.describe_topics([topic])
    except NotRunning:
        return False
    (partition,) = described["partitions"]
    return bool(partition["leader_id"] == node)


def elect(broker: Broker, topic: str) -> None:
    """Ask for the broker that is named first to lead again."""
    with topics.admin(broker) as client:
        client.elect_leaders(0, {topic: [0]}, raise_errors=False)


def _read(file: Path) -> dict[str, str]:
    lines = (line for line in file.read_text().splitlines() if line and line[0] != "#")
    return {name: value for name, _, value in (line.partition("=") for line in lines)}
