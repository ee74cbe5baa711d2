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
from etl_procs.model import Procedure
from etl_procs.reader import Reader
from headrace.clock import Clock
from headrace.config import Config
from headrace.crash import CrashPoints
from headrace.local import jars
from ingest import session, topics
from ingest.batcher import Batcher
from migrations.push import Push
from migrations.pusher import Pusher

log = logging.getLogger(__name__)

# How long an ending engine waits for a push; a push that is cut off is undone, and done again.
PUSH_AT_HAND_S = 10.0
# A signal that comes just before a wait without end begins would be seen only after it.
SIGNAL_SEEN_S = 1.0


class Engine:
    """One engine: a batcher for each stream, the core that they feed, and the pusher."""

    def __init__(self, config: Config, dataflows: dict[str, Dataflow], clock: Clock) -> None:
        crash = CrashPoints(config.testing.crash_at)
        path = core_path(config.home)
        self._config = config
        self._dataflows = dataflows
        self._core = Core(path, clock=clock, crash=crash)
        self._pusher = Pusher(
            Push(Reader(path), self._core.forget, crash, config.push.batches_max),
            list(dataflows.values()),
            url=config.warehouse.url,
            every_s=config.push.every_ms / 1000,
            clock=clock,
            on_failure=self.fail,
        )
        self._done = threading.Event()
        self._failure: Exception | None = None

    def fail(self, error: Exception) -> None:
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
            self._core.prepare(self._dataflows.values())
            scratch = self._config.home / "spark"
            shutil.rmtree(scratch, ignore_errors=True)  # checkpoints of engines that were killed
            scratch.mkdir(exist_ok=True)
            spark_jars = jars.spark_jars(self._config)
            spark = session.start(self._config.engine, jars=spark_jars, scratch=scratch)
            closing.callback(_stopped, "Spark", spark.stop)
            self._pusher.start()
            closing.callback(self._pusher.stop, PUSH_AT_HAND_S)
            for dataflow in self._dataflows.values():
                for procedure in dataflow.procedures.values():
                    batcher = Batcher(spark, procedure.takes, self._config)
                    closing.callback(_stopped, "the batcher", batcher.stop)
                    self._start(procedure, batcher, scratch)
            when_ready()
            log.info("ready")
            while not self._done.wait(SIGNAL_SEEN_S):
                pass
        if self._failure is not None:
            raise self._failure

    def _start(self, procedure: Procedure, batcher: Batcher, scratch: Path) -> None:
        broker = self._config.broker
        topic = topics.ensure(broker.bootstrap, procedure.takes.topic, broker.topic_partitions)
        positions = self._core.positions(procedure.dataflow, topic.name, topic.id)
        batcher.start(topic, positions, self._taking(procedure), scratch)

        def watch() -> None:
            try:
                batcher.wait()
            except Exception as error:  # noqa: BLE001 - handed to the main thread
                self.fail(error)
            else:
                self.stop()

        threading.Thread(target=watch, name="watch batcher", daemon=True).start()

    def _taking(self, procedure: Procedure) -> Callable[[pa.Table], None]:
        def take(tuples: pa.Table) -> None:
            if self._done.is_set():
                return  # Spark hands it over again at the next start
            try:
                committed = self._core.run(procedure, Arrived(procedure.takes, tuples))
            except Exception as error:  # noqa: BLE001 - handed to the main thread
                self.fail(error)
                return
            if committed is None:
                return
            log.info(
                "%s.%s committed batch %d: %d tuples, %d dead letters, %d rows staged",
                procedure.dataflow,
                procedure.name,
                committed.batch,
                committed.tuples,
                committed.dead_letters,
                committed.staged,
            )
            self._pusher.notify()

        return take


def _stopped(what: str, stop: Callable[[], None]) -> None:
    """Stop a part; that it is broken already must not hide what made the engine end."""
    try:
        stop()
    except Exception as error:  # noqa: BLE001 - said, and the others are stopped
        log.warning("%s could not be stopped in order: %s", what, error)
