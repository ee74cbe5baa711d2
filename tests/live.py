"""Engines that a test may kill, over a real broker and a real PostgreSQL."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from flows import EXAMPLE
from kafka import KafkaProducer
from waiting import until

from etl_procs import Dataflow, letters, loader
from etl_procs.batch import place_of
from etl_procs.core import core_path
from etl_procs.letter import DeadLetter
from etl_procs.reader import Reader
from headrace import config
from headrace.cli.engine import ready_pid
from headrace.config import Broker
from headrace.errors import NotRunning
from headrace.local.home import Home
from ingest import topics

START_S = 300
"""How long an engine may take on a busy machine."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Where the broker and PostgreSQL of this test run are."""

    bootstrap: str
    warehouse_url: str

    @property
    def broker(self) -> Broker:
        return Broker(bootstrap=self.bootstrap)


def leaderboard(name: str, partitions: int = 1) -> str:
    """Write the example under another name."""
    text = EXAMPLE.read_text().replace('"leaderboard"', f'"{name}", partitions={partitions}')
    return text.replace("linger_s=0.1),", 'linger_s=0.1), key="phone",')


class Board:
    """A dataflow under a name of its own, so that tests do not meet; one data folder."""

    def __init__(
        self,
        parts: Parts,
        folder: Path,
        name: str,
        partitions: int = 1,
        *,
        text: str = "",
        stream: str = "votes",
    ) -> None:
        self.parts = parts
        self.folder = folder
        self.name = name
        self.file = folder / f"{name}.py"
        self.file.write_text(text or leaderboard(name, partitions))
        self.flow: Dataflow = loader.load([self.file])[name]
        self.stream = self.flow.streams[stream]
        self.topic = self.stream.topic
        self.home = folder / "home"
        self.reader = Reader(core_path(self.home))
        self.cores = [Reader(core_path(self.home, number)) for number in range(partitions)]

    def vote(self, votes: Iterable[tuple[str, int]]) -> None:
        self.send(json.dumps({"phone": p, "contestant": c}).encode() for p, c in votes)

    def send(self, values: Iterable[bytes]) -> None:
        topics.ensure(self.parts.broker, self.stream)
        producer = KafkaProducer(bootstrap_servers=self.parts.bootstrap, max_request_size=2**24)
        for value in values:
            producer.send(self.topic, value)
        producer.flush()
        producer.close()

    @contextmanager
    def engine(self, **settings: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Run an engine as a process of its own; keys as in testing__crash_at."""
        flags = {
            "home": str(self.home),
            "flows": str(self.file),
            "broker.bootstrap": self.parts.bootstrap,
            "warehouse.url": self.parts.warehouse_url,
            "push.every_ms": "50",
            **{key.replace("__", "."): value for key, value in settings.items()},
        }
        with (self.folder / "engine.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", "engine"],
                env=config.child_environment(flags),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(START_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise

    def log(self) -> str:
        return (self.folder / "engine.log").read_text(errors="replace")

    def until_consumed(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait until the core has all of the topic and the warehouse all of the core."""
        ends = self.ends()

        def consumed() -> bool:
            assert process.poll() is None, self.log()
            return self.is_consumed(ends)

        until(consumed, START_S, self.log)

    def ends(self) -> dict[int, int]:
        """Tell the place behind the last tuple of each partition of the topic that has any."""
        held = topics.held(self.parts.broker, self.topic)
        return {p: place_of(offsets.stop, 0) for p, offsets in held.items() if offsets.stop}

    def is_consumed(self, ends: Mapping[int, int]) -> bool:
        """Whether the core has the topic up to there, and the warehouse all of the core."""
        try:
            for core in self.cores:
                with core.snapshot() as snapshot:
                    if snapshot.positions(self.name, self.stream.name) != ends:
                        return False
                    if snapshot.waiting(self.name):
                        return False
        except NotRunning:  # the engine has not made its core yet
            return False
        return True

    def until_ready(self, process: "subprocess.Popen[bytes]") -> None:
        def ready() -> bool:
            assert process.poll() is None, self.log()
            return ready_pid(Home(self.home)) == process.pid

        until(ready, START_S, self.log)

    def send_and_abort(self, value: bytes) -> None:
        """Send a value in a transaction, and abort that."""
        self._in_transaction(value, KafkaProducer.abort_transaction)

    def send_and_commit(self, value: bytes) -> None:
        """Send a value in a transaction."""
        self._in_transaction(value, KafkaProducer.commit_transaction)

    def _in_transaction(self, value: bytes, end: Callable[[KafkaProducer], None]) -> None:
        topics.ensure(self.parts.broker, self.stream)
        producer = KafkaProducer(
            bootstrap_servers=self.parts.bootstrap, transactional_id=self.topic
        )
        producer.init_transactions()
        producer.begin_transaction()
        sent = producer.send(self.topic, value).get(START_S)
        end(producer)
        producer.close()

        def is_marked() -> bool:  # the broker answers before its mark is in the partition
            return sent.offset + 1 in topics.held(self.parts.broker, self.topic)[sent.partition]

        until(is_marked, START_S, lambda: f"no mark behind {sent}")

    def kill_jvm(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill the JVM that an engine has started."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (jvm,) = [pid for pid in children if "java" in Path(f"/proc/{pid}/cmdline").read_text()]
        os.kill(int(jvm), signal.SIGKILL)

    def has_tables(self) -> bool:
        """Whether the engine has got so far as to make its tables in the warehouse."""
        with psycopg.connect(self.parts.warehouse_url) as connection:
            found = connection.execute("SELECT to_regclass(%s)", [f"{self.name}.votes"]).fetchone()
        return found is not None and found[0] is not None

    def topic_is_lost(self) -> None:
        """Delete the topic, as a broker that lost its disk would."""
        with topics.admin(self.parts.broker) as client:
            client.delete_topics([self.topic])

    def until_dead(self, process: "subprocess.Popen[bytes]") -> int:
        return process.wait(START_S)

    def arrived(self) -> list[tuple[object, ...]]:
        with psycopg.connect(self.parts.warehouse_url) as connection:
            return connection.execute(
                f'SELECT phone, contestant, name FROM "{self.name}".votes ORDER BY phone'
            ).fetchall()

    def dead_letters(self) -> list[DeadLetter]:
        with letters.reading([core.path for core in self.cores]) as found:
            return list(found)
