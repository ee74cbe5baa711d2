"""The worker: the process that runs one partition's core, whenever there is something to run.

    python -m etl_procs.worker DESCRIPTOR

The engine starts it, talks to it over a socket, and ends with it. It takes tuples in at any time
and says when it has room for more. Once it runs, what may pass by itself - a full disk, a lock,
full dead letters - is waited for, visibly; anything else is told, and ends it. When the engine is
gone, so is the worker, at once: what it was about to commit is in Kafka still.
"""

import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from queue import Empty, SimpleQueue
from typing import Any

from etl_procs import loader
from etl_procs.batch import Arrived
from etl_procs.core import Core, core_path
from etl_procs.dataflow import Dataflow
from etl_procs.errors import Passing
from etl_procs.measured import Scribe
from etl_procs.model import Stream
from etl_procs.partitions import Open, Opened, Prepared, Room, Said, Start, Stop, Take, Topic, hear
from headrace import telemetry
from headrace.clock import Clock, SystemClock
from headrace.crash import CrashPoints
from headrace.errors import Exit, HeadraceError

log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
"""How soon a dead letter that is to run again is seen in a quiet core, and how often positions are
moved on past what is others'.
"""
BACKOFF_S_MIN, BACKOFF_S_MAX = 0.1, 10.0
GARBAGE_AT = 100_000
"""Of so many new objects Python looks for circles: of 700 at a time, rows by the thousand cost a
core 7 % of its time.
"""


class Worker:
    """Runs one core in the calling thread, and hears what is said to it in between."""

    def __init__(
        self,
        core: Core,
        dataflows: Mapping[str, Dataflow],
        *,
        clock: Clock,
        inbox: "SimpleQueue[Any]",
        say: Callable[[Said], None],
    ) -> None:
        self._core = core
        self._dataflows = dataflows
        self._clock = clock
        self._inbox = inbox
        self._say = say
        self._stopping = False
        self._moves_on_at = 0.0
        self._owed: list[Stream] = []
        """The streams whose tuples were taken in, and nothing was said of room."""

    def run(self) -> None:
        """Run until it is told to stop; raise what does not pass by itself."""
        backoff_s = BACKOFF_S_MIN
        while not self._stopping:
            try:
                committed = self._core.commit_next()
                if self._clock.monotonic() >= self._moves_on_at:
                    self._core.move_on()
                    self._moves_on_at = self._clock.monotonic() + LOOK_EVERY_S
            except Passing as error:
                log.warning("trying again in %.1f s: %s", backoff_s, error)
                self._hear(backoff_s)
                backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)
                continue
            backoff_s = BACKOFF_S_MIN
            if committed is not None:
                self._say(committed)
            self._offer_room()
            self._hear(self._patience_s() if committed is None else 0.0)

    def _patience_s(self) -> float:
        """Tell how long nothing is to be done, unless something comes."""
        deadline = self._core.deadline()
        if deadline is None:
            return LOOK_EVERY_S
        return min(LOOK_EVERY_S, max(deadline - self._clock.monotonic(), 0.0))

    def _hear(self, timeout_s: float) -> None:
        """Do what is said, and what has been said meanwhile; wait for the first so long."""
        try:
            said = self._inbox.get(timeout=timeout_s) if timeout_s else self._inbox.get_nowait()
            while True:
                self._do(said)
                said = self._inbox.get_nowait()
        except Empty:
            return

    def _do(self, said: Take | Open | Stop) -> None:
        match said:
            case Take(dataflow, name, through, tuples):
                stream = self._dataflows[dataflow].streams[name]
                self._core.feed(Arrived(stream, tuples, through))
                self._owed.append(stream)
            case Open(topics):
                self._say(Opened(self._opened(topics)))
            case Stop():
                self._stopping = True

    def _opened(
        self, topics: Mapping[str, Mapping[str, Topic]]
    ) -> dict[tuple[str, str], dict[int, int]]:
        positions = {}
        for name, flow in self._dataflows.items():
            for stream in flow.borders:
                topic = topics[name][stream.name]
                self._core.claim(name, stream.name, topic.id, dict(topic.begins))
                positions[name, stream.name] = self._core.positions(stream)
            self._core.open(name, {s: topic.partitions for s, topic in topics[name].items()})
        return positions

    def _offer_room(self) -> None:
        owed, self._owed = self._owed, []
        for stream in owed:
            if self._core.has_room(stream):
                self._say(Room(stream.dataflow, stream.name))
            else:
                self._owed.append(stream)


def main(descriptor: int) -> None:
    """Run one partition, as the process at the other end of a socket says."""
    connection = Connection(descriptor)
    start: Start = connection.recv()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the engine is told to end, too, and says Stop
    telemetry.start_logging(f"engine.{start.partition}")
    gc.set_threshold(GARBAGE_AT)
    try:
        _run(connection, start)
    except HeadraceError as error:
        connection.send(error)
    except Exception as error:
        log.exception("partition %d ends", start.partition)
        connection.send(error)


class _NotAgreed(Exception):
    """Another partition refuses what this one was prepared for."""


def _run(connection: Connection, start: Start) -> None:
    config, clock = start.config, SystemClock()
    inbox: SimpleQueue[Any] = SimpleQueue()
    _beside("hear", lambda: _hear(connection, inbox))  # first: an engine may go at any time
    flows = {
        name: flow
        for name, flow in loader.load(config.flows).items()
        if flow.partitions > start.partition
    }
    core = Core(
        core_path(config.home, start.partition),
        settings=config.core,
        clock=clock,
        crash=CrashPoints(config.testing.crash_at),
        partition=start.partition,
        warehouses=start.warehouses,
    )

    def agreed(said: list[str]) -> None:
        connection.send(Prepared(said))
        if isinstance(inbox.get(), Stop):
            raise _NotAgreed

    with closing(core), suppress(_NotAgreed):
        core.prepare(flows.values(), agreed)
        scribe = Scribe(start.metrics, clock, os.getppid())
        _beside("measure", lambda: _measure(core, scribe))
        Worker(
            core,
            flows,
            clock=clock,
            inbox=inbox,
            say=connection.send,
        ).run()


def _beside(name: str, run: Callable[[], None]) -> None:
    threading.Thread(target=run, name=name, daemon=True).start()


def _hear(connection: Connection, inbox: "SimpleQueue[Any]") -> None:
    """Hand on what is said. The engine closes the socket when this process has ended: if it is
    closed before, the engine is gone, and a body that never returns must not keep the core. Nor
    must a worker that cannot hear, as when memory ends: the engine would wait for it for ever.
    """
    try:
        while True:
            inbox.put(hear(connection))
    except BaseException as error:
        if not isinstance(error, EOFError | ConnectionResetError):
            log.critical("what the engine says cannot be heard", exc_info=error)
    finally:
        os._exit(Exit.FAILED)


def _measure(core: Core, scribe: Scribe) -> None:
    """Write the figures, once a second."""
    while True:
        core.count_parked()
        scribe.write(core.metrics, core.queues())
        time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    main(int(sys.argv[1]))
