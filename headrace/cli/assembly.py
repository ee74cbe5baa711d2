"""The engine: batcher, core and pusher in one process, wired here."""

import logging
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from etl_procs.batch import Arrived
from etl_procs.core import Core, core_path
from etl_procs.dataflow import Dataflow
from etl_procs.flow import Committed
from etl_procs.measured import Scribe
from etl_procs.model import Stream
from etl_procs.reader import Reader
from etl_procs.worker import Worker
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
# How often the main thread looks: for a signal that came just before a wait, and at the metrics.
LOOK_EVERY_S = 1.0


class Engine:
    """One engine: a batcher for each border stream, the core that they feed, and the pusher."""

    def __init__(self, config: Config, dataflows: dict[str, Dataflow], clock: Clock) -> None:
        crash = CrashPoints(config.testing.crash_at)
        path = core_path(config.home)
        self._config = config
        self._dataflows = dataflows
        self._core = Core(path, settings=config.core, clock=clock, crash=crash)
        self._worker = Worker(
            self._core,
            pending_max=config.core.pending_batches_max,
            clock=clock,
            on_commit=self._committed,
            on_failure=self.fail,
        )
        self._pusher = Pusher(
            Push(Reader(path), self._core.forget, crash, config.push.batches_max),
            list(dataflows.values()),
            url=config.warehouse.url,
            every_s=config.push.every_ms / 1000,
            clock=clock,
            on_failure=self.fail,
        )
        self._scribe = Scribe(Home(config.home).metrics, clock)
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
            closing.callback(self._core.close)
            closing.callback(self._say_what_was_committed)
            for change in self._core.prepare(self._dataflows.values()):
                log.warning("changed since the last start: %s", change)
            scratch = self._config.home / "spark"
            shutil.rmtree(scratch, ignore_errors=True)  # checkpoints of engines that were killed
            scratch.mkdir(exist_ok=True)
            spark_jars = jars.spark_jars(self._config)
            spark = session.start(self._config.engine, jars=spark_jars, scratch=scratch)
            closing.callback(_stopped, "Spark", spark.stop)
            self._pusher.start()
            closing.callback(self._pusher.stop, PUSH_AT_HAND_S)
            topics_of = {flow.name: self._open(flow) for flow in self._dataflows.values()}
            self._worker.start()
            closing.callback(self._worker.stop)
            for flow in self._dataflows.values():
                for stream in flow.borders:
                    batcher = Batcher(spark, stream, self._config)
                    closing.callback(_stopped, "the batcher", batcher.stop)
                    self._start(batcher, stream, topics_of[flow.name][stream.name], scratch)
            closing.callback(self._worker.ask_to_stop)  # first: a batcher may wait for room
            when_ready()
            log.info("ready")
            while not self._done.wait(LOOK_EVERY_S):
                self._say_what_was_committed()
                self._scribe.write(self._core.metrics, self._core.queues())
        if self._failure is not None:
            raise self._failure

    def _open(self, flow: Dataflow) -> dict[str, topics.Topic]:
        """Make sure of the topics of a dataflow, and open it in the core."""
        broker = self._config.broker
        found = {
            stream.name: topics.ensure(broker.bootstrap, stream.topic, broker.topic_partitions)
            for stream in flow.borders
        }
        for name, topic in found.items():
            self._core.claim(flow.name, name, topic.id)
        self._core.open(flow.name, {name: topic.partitions for name, topic in found.items()})
        return found

    def _start(self, batcher: Batcher, stream: Stream, topic: topics.Topic, scratch: Path) -> None:
        def take(tuples: pa.Table) -> None:
            try:
                self._worker.take(Arrived(stream, tuples))
            except Exception as error:  # noqa: BLE001 - Spark would only log it
                self.fail(error)

        def watch() -> None:
            try:
                batcher.wait()
            except Exception as error:  # noqa: BLE001 - handed to the main thread
                self.fail(error)
            else:
                self.stop()

        batcher.start(topic, self._core.positions(stream), take, scratch)
        threading.Thread(target=watch, name="watch batcher", daemon=True).start()

    def _committed(self, committed: Committed) -> None:
        self._pusher.notify()
        with self._unsaid_lock:
            before = self._unsaid.get(committed.dataflow)
            self._unsaid[committed.dataflow] = before.with_next(committed) if before else committed

    def _say_what_was_committed(self) -> None:
        """Log it once in a while: there may be a hundred groups in a second."""
        with self._unsaid_lock:
            unsaid, self._unsaid = self._unsaid, {}
        for committed in unsaid.values():
            log.info(
                "%s committed batches %d to %d: %d tuples, %d dead letters, %d rows staged",
                committed.dataflow,
                committed.first,
                committed.through,
                committed.tuples,
                committed.dead_tuples,
                committed.staged,
            )


def _stopped(what: str, stop: Callable[[], None]) -> None:
    """Stop a part; that it is broken already must not hide what made the engine end."""
    try:
        stop()
    except Exception as error:  # noqa: BLE001 - said, and the others are stopped
        log.warning("%s could not be stopped in order: %s", what, error)
