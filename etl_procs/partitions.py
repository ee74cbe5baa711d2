"""The partitions of the cores: a worker process for each, the way to them, and what is said on it.

Tuples go to the partition of their key. Whoever hands them in waits until every partition has room
for them: a slow one holds its stream back, and not its neighbours' streams.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from socket import socketpair
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from etl_procs.asking import Connects
from etl_procs.batch import Arrived
from etl_procs.flow import Committed
from etl_procs.routing import routed
from headrace import arrow
from headrace.config import Config
from headrace.errors import HeadraceError

LAST_WORDS_S = 10.0
"""How long the last words of workers that have ended are listened to, at most."""


class Topic(NamedTuple):
    """The log of a border stream: its id, and its partitions."""

    id: str
    partitions: tuple[int, ...]
    begins: tuple[tuple[int, int], ...] = ()
    """Partitions and the first offset that each holds now."""


class Start(NamedTuple):
    """The first word to a worker: which partition it is, of what."""

    config: Config
    partition: int
    metrics: Path
    warehouses: Connects | None = None
    """How those are reached in whose tables is looked up."""


class Agreed(NamedTuple):
    """All partitions are prepared: let it be so."""


class Open(NamedTuple):
    """Begin to run, with these topics; by dataflow and stream."""

    topics: Mapping[str, Mapping[str, Topic]]


class Take(NamedTuple):
    """Tuples of a border stream, which lie in memory that both processes map: through a socket,
    50 MB of them took half as long as to decode them.
    """

    dataflow: str
    stream: str
    through: Mapping[int, int]
    tuples: pa.Table


class Stop(NamedTuple):
    """End after the group at hand."""


class Prepared(NamedTuple):
    """The core can be taken over; what changes since it was last open."""

    changes: list[str]


class Opened(NamedTuple):
    """The next offsets that the ledger has; by dataflow and stream."""

    positions: Mapping[tuple[str, str], Mapping[int, int]]


class Room(NamedTuple):
    """There is room for more of a border stream."""

    dataflow: str
    stream: str


Said: TypeAlias = Prepared | Opened | Room | Committed | HeadraceError
"""What a worker says."""


def say(connection: Connection, message: Any) -> None:
    """Send a message."""
    if not isinstance(message, Take):
        connection.send(message)
        return
    memory = arrow.to_memory(message.tuples)  # first: half a message would garble the next one
    try:
        connection.send(message._replace(tuples=None))
        send_handle(connection, memory, None)
    finally:
        os.close(memory)


def hear(connection: Connection) -> Any:
    """Receive a message."""
    said = connection.recv()
    if isinstance(said, Take):
        return said._replace(tuples=arrow.from_memory(recv_handle(connection)))
    return said


class Partitions:
    """The workers of one engine, started and ended together."""

    def __init__(
        self,
        starts: Sequence[Start],
        *,
        on_commit: Callable[[int, Committed], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._starts = starts
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._processes: list[_Process] = []
        self._listeners: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._full: set[tuple[int, Room]] = set()
        """Where there is no room, or nothing was said of it since tuples went there."""

    def start(self) -> list[str]:
        """Start them; tell what has changed since their cores were last open.

        What one of them refuses changes nothing in any.
        """
        for start in self._starts:
            self._processes.append(_Process(start))
        changes = []
        for process in self._processes:
            prepared = process.hear(Prepared)
            changes += [process.of(change) for change in prepared.changes]
        for process in self._processes:
            process.say(Agreed())
        return changes

    def open(
        self, topics: Mapping[str, Mapping[str, Topic]]
    ) -> dict[tuple[str, str], dict[int, int]]:
        """Let them run; tell where reading begins, for dataflow and stream: at the offset that
        some partition has still to see, or, where one has seen nothing, at no offset.
        """
        opened = []
        for process in self._processes:
            process.say(Open(topics))
            opened.append(process.hear(Opened).positions)
        for process in self._processes:
            listener = threading.Thread(target=self._listen, args=[process], daemon=True)
            self._listeners.append(listener)
            listener.start()
        found = {}
        for of in opened[0]:
            found[of] = seen_by_all([positions[of] for positions in opened if of in positions])
        return found

    def take(self, arrived: Arrived, partitions: int) -> None:
        """Hand tuples in, once there is room after those that the stream had before: while these
        are taken in, the next are read.
        """
        parts = routed(arrived, partitions)
        room = Room(arrived.stream.dataflow, arrived.stream.name)
        with self._changed:
            waits = {(partition, room) for partition in range(len(parts))}
            self._changed.wait_for(lambda: self._stopping or not waits & self._full)
            if self._stopping:
                return  # Kafka has it, and the next start takes it
            self._full |= waits
        for process, part in zip(self._processes, parts, strict=False):
            process.say(Take(*room, part.through, part.tuples))

    def ask_to_stop(self) -> None:
        """Let those go on who wait for room; returns at once."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop all after the groups at hand."""
        self.ask_to_stop()
        for process in self._processes:
            process.ask_to_stop()
        for process in self._processes:
            process.wait()
        for listener in self._listeners:
            listener.join(LAST_WORDS_S)
        for process in self._processes:
            process.close()

    def _listen(self, process: "_Process") -> None:
        try:
            while (said := process.hear(Committed, Room)) is not None:
                if isinstance(said, Committed):
                    self._on_commit(process.partition, said)
                else:
                    with self._changed:
                        self._full.discard((process.partition, said))
                        self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 - handed to the main thread
            self._on_failure(error)
            self.ask_to_stop()


def seen_by_all(positions: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """Tell how far a topic was read by every partition of a dataflow, from how far by each."""
    lanes = set.intersection(*map(set, positions))
    return {lane: min(at[lane] for at in positions) for lane in sorted(lanes)}


class _Process:
    """One worker process, and the socket to it."""

    def __init__(self, start: Start) -> None:
        self.partition = start.partition
        ours, theirs = socketpair()
        with theirs:
            descriptor = theirs.fileno()
            command = [sys.executable, "-m", "etl_procs.worker", str(descriptor)]
            self._process = subprocess.Popen(
                command, pass_fds=[descriptor], stdin=subprocess.DEVNULL
            )
        self._connection = Connection(ours.detach())
        self._may_end = False
        self._saying = threading.Lock()
        self.say(start)

    def of(self, text: str) -> str:
        """Say of which partition something is; of the only one there may be, nothing."""
        return f"partition {self.partition}: {text}" if self.partition else text

    def say(self, message: Any) -> None:
        """Say something. If it is gone, that is heard by who listens to it."""
        with self._saying, suppress(BrokenPipeError, ConnectionResetError):
            say(self._connection, message)

    def hear(self, *kinds: type) -> Any:
        """Hear the next word; None at an end that was asked for. An error is raised."""
        try:
            said = self._connection.recv()
        except (EOFError, OSError) as error:
            code = self._process.wait()
            if code == 0 and self._may_end:
                return None
            raise HeadraceError(
                self.of(f"the core's process has ended by itself, with code {code}"),
                hint="Nothing is lost: the next start goes on where its ledger is. `headrace logs "
                "engine` may tell more.",
            ) from error
        if isinstance(said, BaseException):
            raise said
        assert isinstance(said, kinds), said
        return said

    def ask_to_stop(self) -> None:
        """Have it end after the group at hand."""
        self._may_end = True
        self.say(Stop())

    def wait(self) -> None:
        """Return when it has ended; what it said before is still to be heard."""
        self._process.wait()

    def close(self) -> None:
        """Close the socket."""
        self._connection.close()
