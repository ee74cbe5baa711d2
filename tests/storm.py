"""All that carries tuples is killed while they come, and started again: each arrives once.

Collectors read whole files and files that grow, in pairs on the same ones; a plain producer sends
again what was not acknowledged. Collectors, broker, JVM, a partition's worker and the engine get
SIGKILL in turn, by a seed. The dataflow has no key: what comes twice would be seen twice.
"""

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from typing import Any
from zlib import crc32

import psycopg
from alone import Alone
from collecting import Place, landed
from kafka import KafkaProducer
from kafka.errors import KafkaError
from live import Board, Parts
from waiting import until

from headrace.errors import Exit, NotRunning
from ingest import topics

FLOW = """\
from etl_procs import Batch, Dataflow, Transaction, Wire, by_count

flow = Dataflow("{name}")
lines = flow.stream(
    "lines",
    "source TEXT NOT NULL, n INTEGER NOT NULL, filling TEXT",
    batches=by_count(500, linger_s=0.1),
    wire=Wire(partitions=3),
)
seen = flow.table("seen", "place INTEGER PRIMARY KEY, source TEXT NOT NULL, n INTEGER NOT NULL")
arrived = flow.outlet("arrived", "source TEXT NOT NULL, n INTEGER NOT NULL")


@flow.procedure(takes=lines, writes=seen, gives=arrived)
def keep(tx: Transaction, batch: Batch) -> None:
    rows = [(source, n) for source, n, _ in batch.tuples]
    tx.executemany("INSERT INTO seen (source, n) VALUES (?, ?)", rows)
    tx.emit(arrived, batch.table.select(["source", "n"]))
"""
PARTITIONS = 3
FILLING = "x" * 60
WHOLE = 10_000
"""Tuples of a file that is sent whole: about 1 MB, so that a kill may come amid it."""
GROWTH = 20
"""Tuples that a growing file gets at once, at most."""
GROUP, PAUSE_S = 50, 0.2
"""What the plain producer sends before it waits, and how often."""
BACKLOG = 4 * WHOLE
"""So far ahead of the core, no file is begun or grows: the end would be waited for too long."""
LIMIT_S = 300
"""How long any step may take on a busy machine."""


def text(source: str, n: int) -> str:
    return json.dumps({"source": source, "n": n, "filling": FILLING})


class Collecting:
    """A collector with a data folder of its own, started again after a kill."""

    def __init__(self, place: Place, *arguments: object) -> None:
        self._place = place
        self._arguments = arguments
        self.process = self._spawned()

    def _spawned(self) -> "subprocess.Popen[bytes]":
        return self._place.spawn(*self._arguments)

    def is_done(self) -> bool:
        """Tell whether it has ended by itself; start it again if it was killed."""
        code = self.process.poll()
        if code is None:
            return False
        _, error = self.process.communicate()
        assert code in (Exit.OK, Exit.INTERRUPTED, -signal.SIGKILL), error.decode()
        if code == -signal.SIGKILL:
            self.process = self._spawned()
        return code != -signal.SIGKILL

    def is_connected(self) -> bool:
        """Whether it has come to the broker."""
        try:
            opened = [os.readlink(fd) for fd in Path(f"/proc/{self.process.pid}/fd").iterdir()]
        except OSError:  # it is gone
            return False
        return any(path.startswith("socket:") for path in opened)

    def interrupt(self) -> None:
        """Have it end, and return when it has."""
        self.process.send_signal(signal.SIGINT)
        _, error = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == Exit.INTERRUPTED, error.decode()


class Files:
    """Whole files, one after the other, each sent by one collector or by two."""

    def __init__(self, name: str, places: list[Place]) -> None:
        self._name = name
        self._places = places
        self.sent: dict[str, int] = {}
        self.collectors: list[Collecting] = []

    def begin(self) -> None:
        """Write the next file, and have it sent."""
        source = f"{self._name}-{len(self.sent) + 1}"
        path = self._places[0].folder / f"{source}.jsonl"
        path.write_text("".join(f"{text(source, n)}\n" for n in range(1, WHOLE + 1)))
        self.sent[source] = WHOLE
        self.collectors = [Collecting(place, path) for place in self._places]

    def are_sent(self) -> bool:
        """Tell whether all that was begun is sent; start again who was killed."""
        self.collectors = [each for each in self.collectors if not each.is_done()]
        return not self.collectors


class Growing:
    """Files in a directory that grow: one collector follows the directory, one a file of it."""

    def __init__(self, folder: Path, places: list[Place], choose: random.Random) -> None:
        self._folder = folder
        self._choose = choose
        self.written = {"grows-1": 0, "grows-2": 0}
        folder.mkdir()
        self.grow()
        sources = [folder, folder / "grows-1"]
        self.collectors = [
            Collecting(place, source, "--follow")
            for place, source in zip(places, sources, strict=True)
        ]

    def grow(self) -> None:
        """Write some more to each, in two pieces that need not end where a line does."""
        for source, before in self.written.items():
            after = self.written[source] = before + self._choose.randint(1, GROWTH)
            lines = "".join(f"{text(source, n)}\n" for n in range(before + 1, after + 1))
            cut = self._choose.randrange(len(lines))
            for piece in (lines[:cut], lines[cut:]):
                with (self._folder / source).open("a") as file:
                    file.write(piece)


class Plain:
    """A producer as anybody writes it: it sends again, by a new client, what has no answer."""

    SOURCE = "plain"

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._choose = random.Random(seed)  # noqa: S311 - of a test
        self._producer: KafkaProducer | None = None
        self.given_up = Event()
        self.acknowledged = 0

    def run(self, ending: Event) -> None:
        """Send groups of tuples, each until all of it is acknowledged."""
        while not ending.wait(PAUSE_S):
            first = self.acknowledged + 1
            numbers = range(first, first + self._choose.randint(1, GROUP))
            left = set(numbers)
            while left and not self.given_up.is_set():
                left -= self._sent(sorted(left))
            self.acknowledged = numbers[-1]
        self._let_go()

    def _sent(self, numbers: list[int]) -> set[int]:
        """Send tuples, and tell which were acknowledged."""
        acknowledged = set()
        try:
            self._producer = self._producer or self._connected()
            sent = {n: self._producer.send(self._topic, **self._record(n)) for n in numbers}
            for n, future in sent.items():
                future.get(LIMIT_S)
                acknowledged.add(n)
        except KafkaError:
            self._let_go()
        return acknowledged

    def _connected(self) -> KafkaProducer:
        short = {"request_timeout_ms": 1_000, "bootstrap_timeout_ms": 1_000, "max_block_ms": 1_000}
        return KafkaProducer(
            bootstrap_servers=self._bootstrap, acks="all", delivery_timeout_ms=1_500, **short
        )

    def _record(self, n: int) -> dict[str, object]:
        return {
            "value": text(self.SOURCE, n).encode(),
            "partition": crc32(self.SOURCE.encode()) % PARTITIONS,
            "headers": [("source", self.SOURCE.encode()), ("seq", b"%d" % n)],
        }

    def _let_go(self) -> None:
        if self._producer is not None:
            self._producer.close(timeout=0)
        self._producer = None


class Storm:
    """Keeps everything running, and kills some of it."""

    def __init__(
        self, folder: Path, broker: Alone, warehouse_url: str, kills: Mapping[str, int], seed: int
    ) -> None:
        self._choose = random.Random(seed)  # noqa: S311 - of a test
        self._broker = broker
        self.kills = Counter(kills)
        self.board = Board(
            Parts(broker.address, warehouse_url),
            folder,
            f"storm_{seed}",
            text=FLOW.format(name=f"storm_{seed}"),
            stream="lines",
        )
        topics.ensure(self.board.parts.broker, self.board.stream)
        places = [self._place(f"collector-{number}") for number in range(5)]
        self._whole = [Files("twice", places[:2]), Files("once", places[2:3])]
        # Not the killer's choices: how often it grows depends on the machine.
        self._growing = Growing(folder / "growing", places[3:], random.Random(seed))  # noqa: S311
        self._plain = Plain(broker.address, self.board.topic, seed)
        self._ending = Event()
        self._engine_runs = ExitStack()
        self._engine: subprocess.Popen[bytes] | None = None
        self.endings = Counter[int]()
        """With which codes engines ended."""

    def _place(self, name: str) -> Place:
        folder = self.board.folder / name
        folder.mkdir()
        return Place(
            folder, self.board.name, self.board.parts.bootstrap, PARTITIONS, self.board.file
        )

    def run(self) -> None:
        """Kill by the schedule; then have everything sent and taken, and check it."""
        schedule = list(self.kills.elements())
        self._choose.shuffle(schedule)
        with ThreadPoolExecutor(1) as pool:
            plain = pool.submit(self._plain.run, self._ending)
            try:
                for victim in schedule:
                    self._await_progress()
                    self._kill(victim)
                self._await_progress()
                self._end(plain)
            finally:
                self._ending.set()
                self._plain.given_up.set()
                for each in self._collectors():
                    each.process.kill()
                    each.process.communicate()
                self._engine_runs.close()

    def _end(self, plain: "Future[None]") -> None:
        self._ending.set()
        self._until(lambda: all(files.are_sent() for files in self._whole) and plain.done())
        plain.result()
        self._until(lambda: self._taken() >= sum(self.expected().values()))
        following = self._growing.collectors
        # One that has just been started again would die of the signal.
        self._until(lambda: all(each.is_connected() for each in following))
        while following:
            following.pop().interrupt()
        ends = self.board.ends()
        self._until(lambda: self.board.is_consumed(ends))

    def _tend(self) -> None:
        """Start again who was killed, and go on with the files."""
        if self._engine is None or self._engine.poll() is not None:
            if self._engine is not None:
                self.endings[self._engine.returncode] += 1
                assert self._engine.returncode not in (Exit.BUG, Exit.CONFIG), self.board.log()
            self._engine_runs.close()
            self._engine = self._engine_runs.enter_context(self.board.engine())
        for collector in self._growing.collectors:
            assert not collector.is_done(), "who follows has no end"
        are_sent = [files.are_sent() for files in self._whole]
        if self._ending.is_set() or sum(self.expected().values()) - self._taken() > BACKLOG:
            return
        self._growing.grow()
        for files, is_sent in zip(self._whole, are_sent, strict=True):
            if is_sent:
                files.begin()

    def _until(self, condition: Callable[[], object]) -> None:
        def holds() -> bool:
            self._tend()
            return bool(condition())

        until(holds, LIMIT_S, lambda: f"{self._taken()} taken\n{self.board.log()[-4_000:]}")

    def _await_progress(self) -> None:
        """At most times, wait until the core has got further; otherwise the next kill is soon."""
        before = self._taken()
        if self._choose.random() < 0.7:
            self._until(lambda: self._taken() > before)

    def _taken(self) -> int:
        """Tell how many tuples the core has seen, in whatever way."""
        try:
            with self.board.reader.snapshot() as snapshot:
                _, rows = snapshot.query("SELECT coalesce(max(place), 0) FROM seen")
                ((taken,),) = rows
        except NotRunning:  # the engine has not made its core yet
            return 0
        assert isinstance(taken, int)
        return taken

    def _collectors(self) -> list[Collecting]:
        whole = [each for files in self._whole for each in files.collectors]
        return [*whole, *self._growing.collectors]

    def _kill(self, victim: str) -> None:
        if victim == "broker":
            self._broker.kill()
            self._tend()
            self._broker.start()
        elif victim == "collector":
            self._kill_collector()
        else:
            word = {"engine": "", "jvm": "java", "worker": "etl_procs.worker"}[victim]
            self._until(lambda: self._pid(word))
            os.kill(self._pid(word), signal.SIGKILL)
            engine = self._engine
            self._until(lambda: self._engine is not engine)

    def _kill_collector(self) -> None:
        """Kill one that sends, some moments later."""
        sending: list[Collecting] = []

        def is_one() -> bool:
            sending[:] = [each for each in self._collectors() if each.is_connected()]
            return bool(sending)

        self._until(is_one)
        chosen = self._choose.choice(sending)
        Event().wait(self._choose.random() * 0.3)  # the moment of the kill is the case
        chosen.process.kill()

    def _pid(self, word: str) -> int:
        """Find a process of the engine's by a word of its command line; 0 if there is none yet."""
        assert self._engine is not None, "it was tended"
        at = self._engine.pid
        if not word:
            return at
        try:
            children = Path(f"/proc/{at}/task/{at}/children").read_text().split()
            named = [c for c in children if word in Path(f"/proc/{c}/cmdline").read_text()]
        except OSError:  # one of them is gone
            return 0
        return int(named[0]) if named else 0

    def expected(self) -> dict[str, int]:
        """Tell how many tuples each source has given so far."""
        whole = [files.sent for files in self._whole]
        plain = {Plain.SOURCE: self._plain.acknowledged}
        return {**whole[0], **whole[1], **self._growing.written, **plain}

    def check(self) -> None:
        """Find each tuple once in the core, in the order of its source, and in the warehouse."""
        expected = {source: list(range(1, last + 1)) for source, last in self.expected().items()}
        with self.board.reader.snapshot() as snapshot:
            seen = by_source(snapshot.query("SELECT source, n FROM seen ORDER BY place")[1])
        # What it sends again lands behind what was acknowledged: an order that is its own.
        seen[Plain.SOURCE].sort()
        assert seen.keys() == expected.keys()
        for source, numbers in seen.items():
            assert numbers == expected[source], (
                f"{source}: {differences(numbers, expected[source])}"
            )
        with psycopg.connect(self.board.parts.warehouse_url) as connection:
            arrived = by_source(
                connection.execute(f'SELECT source, n FROM "{self.board.name}".arrived ORDER BY n')
            )
        assert arrived == expected
        assert self.board.dead_letters() == []

    def repeats(self) -> int:
        """Count what the topic has more than once."""
        found = landed(self.board.parts.bootstrap, self.board.topic)
        return sum(len(record.tuples) for record in found) - sum(self.expected().values())


def by_source(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for source, n in rows:
        found.setdefault(source, []).append(n)
    return found


def differences(found: list[int], expected: list[int]) -> str:
    """Say in a line how two differ."""
    times = Counter(found)
    lost = [n for n in expected if n not in times]
    doubled = [n for n in times if times[n] > 1]
    return f"lost {lost[:9]} of {len(lost)}, doubled {doubled[:9]} of {len(doubled)}"


def stormed(
    folder: Path, broker: Alone, warehouse_url: str, *, kills: Mapping[str, int], seed: int
) -> str:
    """Run it all, check what is there at the end, and tell about it."""
    storm = Storm(folder, broker, warehouse_url, kills, seed)
    storm.run()
    storm.check()
    told = ", ".join(f"{victim} {times}" for victim, times in kills.items())
    expected = storm.expected()
    return (
        f"{sum(expected.values())} tuples of {len(expected)} sources, each once, and "
        f"{storm.repeats()} more in the topic, after {sum(kills.values())} kills ({told}); "
        f"engines ended with {dict(storm.endings)}"
    )
