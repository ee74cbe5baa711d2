"""A broker to collect into: a stream of one's own, the command as a process, and what landed."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kafka import KafkaConsumer, TopicPartition

from etl_procs import Stream, loader
from headrace import config
from headrace.config import Broker, Config
from ingest import topics

FLOW = """\
from etl_procs import Dataflow, by_count, by_interval, by_punctuation
from etl_procs.wire import *
flow = Dataflow("{name}")
lines = flow.stream(
    "lines", "n INTEGER NOT NULL, k TEXT", batches={batches}, wire=Wire({wire})
)
@flow.procedure(takes=[lines])
def take(tx, lines): ...
"""


class Landed(NamedTuple):
    """A record as it is in the topic."""

    partition: int
    offset: int
    value: bytes
    headers: dict[str, str]

    @property
    def tuples(self) -> list[tuple[int | None, bytes]]:
        """Number (if it has one) and bytes of each tuple."""
        entries = self.value.split(b"\x1e") if "frame" in self.headers else [self.value]
        assert len(entries) == int(self.headers.get("frame", 1))
        seq = self.headers.get("seq")
        return [
            (None if seq is None else int(seq) + n, entry)
            for n, entry in enumerate(entries)
            if entry
        ]


@dataclass(frozen=True, slots=True)
class Place:
    """A stream of a test's own, on the broker that all share, and a data folder."""

    folder: Path
    name: str
    bootstrap: str
    partitions: int
    file: Path

    @property
    def config(self) -> Config:
        return config.load(self.settings(), environment={}).config

    @property
    def broker(self) -> Broker:
        return self.config.broker

    @property
    def stream(self) -> Stream:
        return loader.stream_named(loader.load([self.file]), "lines")

    def settings(self, **more: str) -> dict[str, str]:
        return {
            "home": str(self.folder / "home"),
            "flows": str(self.file),
            "broker.bootstrap": self.bootstrap,
            "broker.topic_partitions": str(self.partitions),
            **{key.replace("__", "."): value for key, value in more.items()},
        }

    def flags(self, **more: str) -> list[str]:
        return [f"--set={key}={value}" for key, value in self.settings(**more).items()]

    def spawn(self, *arguments: object, **more: str) -> "subprocess.Popen[bytes]":
        """Start the command as a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", "produce", "lines", *map(str, arguments)],
            env=config.child_environment(self.settings(**more)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def landed(self) -> list[Landed]:
        """Give all that is in the topic, partition by partition."""
        return list(landed(self.bootstrap, self.stream.topic))

    def count(self) -> int:
        """Count the records in the topic."""
        return sum(held.stop for held in topics.held(self.broker, self.stream.topic).values())

    def lines(self, count: int, name: str = "lines.jsonl", first: int = 1) -> Path:
        """Write a file of numbered tuples."""
        path = self.folder / name
        with path.open("w") as file:
            file.writelines(f"{line(n)}\n" for n in range(first, first + count))
        return path


def line(n: int) -> str:
    return json.dumps({"n": n, "k": f"key {n % 7}"})


def place(folder: Path, name: str, bootstrap: str, **flow: str) -> Place:
    """Declare a stream; `wire` and `batches` are code."""
    given: Mapping[str, str] = {"wire": "", "batches": "by_count(10)", **flow}
    file = folder / "flow.py"
    partitions = int(given.get("partitions", "2"))
    file.write_text(FLOW.format(name=name, wire=given["wire"], batches=given["batches"]))
    return Place(folder, name, bootstrap, partitions, file)


def landed(bootstrap: str, topic: str) -> Iterator[Landed]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, max_partition_fetch_bytes=32 * 2**20)
    try:
        held = topics.held(Broker(bootstrap=bootstrap), topic)
        at = [TopicPartition(topic, partition) for partition in sorted(held)]
        consumer.assign(at)
        ends = consumer.end_offsets(at)
        for one in at:
            consumer.seek_to_beginning(one)
        left = {one for one in at if ends[one]}
        while left:
            for one, records in consumer.poll(1_000).items():
                for r in records:
                    headers = {key: value.decode() for key, value in r.headers}
                    yield Landed(r.partition, r.offset, r.value, headers)
                if consumer.position(one) >= ends[one]:
                    left.discard(one)
    finally:
        consumer.close()
