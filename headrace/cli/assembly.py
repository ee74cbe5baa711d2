"""The engine: Spark's driver, its batchers, the partitions that they feed, the pusher."""

import logging
import shutil
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

import pyarrow as pa

from etl_procs.batch import Arrived
from etl_procs.core import core_path
from etl_procs.dataflow import Dataflow
from etl_procs.flow import Committed
from etl_procs.messages import Start, Topic
from etl_procs.model import Stream
from etl_procs.origin import Origin
from etl_procs.partitions import Partitions
from headrace.clock import Clock
from headrace.config import Config
from headrace.crash import CrashPoints
from headrace.local import jars
from headrace.local.home import Home
from ingest import session, topics
from ingest.batcher import Batcher
from migrations.push import Push
from migrations.pusher import Pusher

log = logging.getLogger(__name__)

# How long an ending engine waits for a push; a push that is cut off is undone, and done again.
PUSH_AT_HAND_S = 10.0
# How often the main thread looks for a signal that came just before a wait.
LOOK_EVERY_S = 1.0


class Engine:
    """One engine: a batcher for each border stream, the partitions that they feed, the pusher."""

    def __init__(self, config: Config, dataflows: dict[str, Dataflow], clock: Clock) -> None:
        self._config = config
        self._dataflows = dataflows
        self._clock = clock
        self._paths = [
            core_path(config.home, partition)
            for partition in range(max(flow.partitions for flow in dataflows.values()))
        ]
        home = Home(config.home)
        self._partitions = Partitions(
            [Start(config, number, home.metrics(number)) for number in range(len(self._paths))],
            on_commit=self._committed,
            on_failure=self.fail,
        )
        self._pusher: Pusher | None = None
        self._unsaid: dict[str, Committed] = {}
        self._unsaid_lock = threading.Lock()
        self._done = threading.Event()
        self._failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """End the engine with an error; the first one counts."""
        self._failure = self._failure or error
        self.stop()

    def stop(self) -> None:
        """End the engine; returns at once."""
        self._done.set()

    def run(self, when_ready: Callable[[], None]) -> None:
        """Run until stopped; raise what made it fail, if anything did."""
        with ExitStack() as closing:
            closing.callback(self._say_what_was_committed)
            closing.callback(self._partitions.stop)
            for change in self._partitions.start():
                log.warning("changed since the last start: %s", change)
            self._pusher = self._made_pusher(closing)
            self._pusher.prepare()
            scratch = self._config.home / "spark"
            shutil.rmtree(scratch, ignore_errors=True)  # checkpoints of engines that were killed
            scratch.mkdir(exist_ok=True)
            spark_jars = jars.spark_jars(self._config)
            spark = session.start(self._config.engine, jars=spark_jars, scratch=scratch)
            closing.callback(_stopped, "Spark", spark.stop)
            self._pusher.start()
            closing.callback(self._pusher.stop, PUSH_AT_HAND_S)
            topics_of = self._topics()
            positions = self._partitions.open(
                {
                    name: {s: _as_told(topic) for s, topic in of.items()}
                    for name, of in topics_of.items()
                }
            )
            for flow in self._dataflows.values():
                for stream in flow.borders:
                    batcher = Batcher(spark, stream, self._config)
                    closing.callback(_stopped, "the batcher", batcher.stop)
                    batcher.start(
                        topics_of[flow.name][stream.name],
                        positions[flow.name, stream.name],
                        partial(self._take, stream, flow.partitions),
                        scratch,
                    )
                    threading.Thread(
                        target=self._watch, args=[batcher], name="watch batcher", daemon=True
                    ).start()
            closing.callback(self._partitions.ask_to_stop)  # first: a batcher may wait for room
            when_ready()
            log.info("ready")
            while not self._done.wait(LOOK_EVERY_S):
                self._say_what_was_committed()
        if self._failure is not None:
            raise self._failure

    def _made_pusher(self, closing: ExitStack) -> Pusher:
        config, pushes = self._config, []
        crash = CrashPoints(config.testing.crash_at)
        for partition, path in enumerate(self._paths):
            origin = Origin(path, config.core, crash)
            closing.callback(origin.close)
            pushes.append(Push(partition, origin, crash, config.push.batches_max))
        return Pusher(
            pushes,
            list(self._dataflows.values()),
            url=config.warehouse.url,
            every_s=config.push.every_ms / 1000,
            clock=self._clock,
            on_failure=self.fail,
        )

    def _topics(self) -> dict[str, dict[str, topics.Topic]]:
        """Make sure of the topics of all border streams; by dataflow and stream."""
        return {
            name: {
                stream.name: topics.ensure(self._config.broker, stream) for stream in flow.borders
            }
            for name, flow in self._dataflows.items()
        }

    def _take(
        self, stream: Stream, partitions: int, tuples: pa.Table, through: Mapping[int, int]
    ) -> None:
        try:
            self._partitions.take(Arrived(stream, tuples, through), partitions)
        except Exception as error:  # noqa: BLE001 - Spark would only log it
            self._partitions.ask_to_stop()  # or they would take what comes after it
            self.fail(error)

    def _watch(self, batcher: Batcher) -> None:
        try:
            batcher.wait()
        except Exception as error:  # noqa: BLE001 - handed to the main thread
            self.fail(error)
        else:
            self.stop()

    def _committed(self, partition: int, committed: Committed) -> None:
        if self._pusher is not None:
            self._pusher.notify()
        place = self._dataflows[committed.dataflow].place(partition)
        with self._unsaid_lock:
            before = self._unsaid.get(place)
            self._unsaid[place] = before.with_next(committed) if before else committed

    def _say_what_was_committed(self) -> None:
        """Log it once in a while: there may be a hundred groups in a second."""
        with self._unsaid_lock:
            unsaid, self._unsaid = self._unsaid, {}
        for place, committed in unsaid.items():
            log.info(
                "%s committed batches %d to %d: %d tuples, %d dead letters, %d rows staged",
                place,
                committed.first,
                committed.through,
                committed.tuples,
                committed.dead_tuples,
                committed.staged,
            )


def _as_told(topic: topics.Topic) -> Topic:
    """Say of a topic what the core has to know."""
    begins = tuple((partition, held.start) for partition, held in topic.partitions.items())
    return Topic(topic.id, tuple(topic.partitions), begins)


def _stopped(what: str, stop: Callable[[], None]) -> None:
    """Stop a part; that it is broken already must not hide what made the engine end."""
    try:
        stop()
    except Exception as error:  # noqa: BLE001 - said, and the others are stopped
        log.warning("%s could not be stopped in order: %s", what, error)
