"""The engine: Spark's driver, its batchers, the partitions that they feed, the pusher."""

import logging
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial

import pyarrow as pa

from etl_procs.batch import Arrived
from etl_procs.core import core_path
from etl_procs.dataflow import Dataflow
from etl_procs.flow import Committed
from etl_procs.model import Stream
from etl_procs.origin import Origin
from etl_procs.partitions import Partitions, Start, Topic
from headrace.clock import Clock
from headrace.config import Config
from headrace.crash import CrashPoints
from headrace.errors import HeadraceError
from headrace.local import jars
from headrace.local.home import Home
from ingest import decode, session, topics
from ingest.batcher import Batcher
from ingest.crowd import Crowd
from migrations import asking
from migrations.errors import Twins
from migrations.merger import Merger
from migrations.push import Push
from migrations.pusher import Limits, Pusher
from migrations.pushing import Board
from migrations.warehouse import Warehouse, check_routes, warehouses

log = logging.getLogger(__name__)

# How long an ending engine waits for a push; a push that is cut off is undone, and done again.
PUSH_AT_HAND_S = 10.0
# And for what warms Spark, which must not be stopped amid it: it would be started again.
WARM_AT_HAND_S = 20.0
MB = 2**20
# How often the main thread looks for a signal that came just before a wait.
LOOK_EVERY_S = 1.0


class Engine:
    """One engine: a batcher for each border stream, the partitions that they feed, the pusher."""

    def __init__(self, config: Config, dataflows: dict[str, Dataflow], clock: Clock) -> None:
        self._config = config
        check_routes(config, dataflows.values())
        self._dataflows = dataflows
        self._clock = clock
        self._paths = [
            core_path(config.home, partition)
            for partition in range(max(flow.partitions for flow in dataflows.values()))
        ]
        home = Home(config.home)
        reached = asking.connects(config, dataflows.values())
        self._partitions = Partitions(
            [
                Start(config, number, home.metrics(number), reached)
                for number in range(len(self._paths))
            ],
            on_commit=self._committed,
            on_failure=self.fail,
        )
        self._pushers: list[Pusher] = []
        self._board = Board(home.pushers, os.getpid())
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
        with ExitStack() as ending:
            ending.callback(self._say_what_was_committed)
            ending.callback(self._partitions.stop)
            for change in self._partitions.start():
                log.warning("changed since the last start: %s", change)
            places = warehouses(self._config)
            mergers = [self._merger(place) for place in places if self._config.merge.every_s]
            self._feed(places)
            self._pushers = [self._pusher(place, places, ending) for place in places]
            self._prepare(places)
            self._tell_of_pushers()  # what a former one left, that had this pid, is gone
            scratch = self._config.home / "spark"
            shutil.rmtree(scratch, ignore_errors=True)  # checkpoints of engines that were killed
            scratch.mkdir(exist_ok=True)
            spark_jars = jars.spark_jars(self._config)
            spark = session.start(self._config.engine, jars=spark_jars, scratch=scratch)
            ending.callback(_stopped, "Spark", spark.stop)
            # While streams are opened: what comes first need not wait for it.
            warm = partial(decode.warm, spark)
            warming = threading.Thread(target=self._warm, args=[warm], name="warm", daemon=True)
            warming.start()
            ending.callback(warming.join, WARM_AT_HAND_S)
            parts: list[Pusher | Merger] = [*self._pushers, *mergers]
            for part in parts:
                part.start()
                ending.callback(part.stop, PUSH_AT_HAND_S)
            topics_of = self._topics()
            positions = self._partitions.open(
                {
                    name: {s: _as_told(topic) for s, topic in of.items()}
                    for name, of in topics_of.items()
                }
            )
            crowd = Crowd(lambda: spark.sparkContext.defaultParallelism, self._clock)
            for flow in self._dataflows.values():
                for stream in flow.borders:
                    batcher = Batcher(spark, stream, self._config, crowd, self._clock)
                    ending.callback(_stopped, "the batcher", batcher.stop)
                    batcher.start(
                        topics_of[flow.name][stream.name],
                        positions[flow.name, stream.name],
                        partial(self._take, stream, flow.partitions),
                        scratch,
                    )
                    threading.Thread(
                        target=self._watch, args=[batcher], name="watch batcher", daemon=True
                    ).start()
            ending.callback(self._partitions.ask_to_stop)  # first: a batcher may wait for room
            self._tell_of_pushers()
            when_ready()
            log.info("ready")
            while not self._done.wait(LOOK_EVERY_S):
                self._say_what_was_committed()
                self._tell_of_pushers()
        if self._failure is not None:
            raise self._failure

    def _feed(self, places: Sequence[Warehouse]) -> None:
        """Have the cores keep what they stage until each warehouse has it."""
        for partition in range(len(self._paths)):
            with closing(self._origin(partition)) as origin:
                for flow in self._dataflows.values():
                    if partition < flow.partitions:
                        fed = [place.name for place in places if place.outlets(flow)]
                        for gone in origin.feed(flow.name, fed):
                            log.warning(
                                "nothing of %s goes to the warehouse %s any more, and what it "
                                "lacks is not kept for it",
                                flow.place(partition),
                                gone,
                            )

    def _prepare(self, places: Sequence[Warehouse]) -> None:
        """Make the warehouses' tables. One that must be mended keeps no other from being fed."""
        for place, pusher in zip(places, self._pushers, strict=True):
            try:
                pusher.prepare()
            except HeadraceError as error:
                if len(places) == 1 or isinstance(error, Twins):
                    raise
                log.error("the warehouse %s: %s. %s", place.name, error.what, error.hint)

    def _origin(self, partition: int) -> Origin:
        crash = CrashPoints(self._config.testing.crash_at)
        return Origin(self._paths[partition], self._config.core, crash, self._clock)

    def _pusher(self, place: Warehouse, places: Sequence[Warehouse], ending: ExitStack) -> Pusher:
        config, pushes = self._config, []
        for partition in range(len(self._paths)):
            origin = self._origin(partition)
            ending.callback(origin.close)
            crash = CrashPoints(config.testing.crash_at)
            pushes.append(Push(partition, place, origin, crash, config.push.batches_max))
        return Pusher(
            place,
            pushes,
            list(self._dataflows.values()),
            limits=Limits(config.push.every_ms / 1000, config.push.rows, config.push.mb * MB),
            clock=self._clock,
            others=places,
        )

    def _merger(self, place: Warehouse) -> Merger:
        return Merger(
            place,
            list(self._dataflows.values()),
            every_s=self._config.merge.every_s,
            crash=CrashPoints(self._config.testing.crash_at),
        )

    def _tell_of_pushers(self) -> None:
        self._board.write({pusher.name: pusher.pushing for pusher in self._pushers})

    def _topics(self) -> dict[str, dict[str, topics.Topic]]:
        """Make sure of the topics of all border streams; by dataflow and stream."""
        streams = [stream for flow in self._dataflows.values() for stream in flow.borders]
        made: dict[str, dict[str, topics.Topic]] = {name: {} for name in self._dataflows}
        ensured = topics.ensure_all(self._config.broker, streams)
        for stream, topic in zip(streams, ensured, strict=True):
            made[stream.dataflow][stream.name] = topic
        return made

    def _take(
        self, stream: Stream, partitions: int, tuples: pa.Table, through: Mapping[int, int]
    ) -> None:
        try:
            self._partitions.take(Arrived(stream, tuples, through), partitions)
        except Exception as error:  # noqa: BLE001 - Spark would only log it
            self._partitions.ask_to_stop()  # or they would take what comes after it
            self.fail(error)

    def _warm(self, warm: Callable[[Stream], None]) -> None:
        streams = [stream for flow in self._dataflows.values() for stream in flow.borders]
        try:
            for stream in streams[:1]:
                warm(stream)
        except Exception as error:  # noqa: BLE001 - the batchers meet it too
            log.warning("Spark is not warm: %s", str(error).partition("\n")[0])

    def _watch(self, batcher: Batcher) -> None:
        try:
            batcher.wait()
        except Exception as error:  # noqa: BLE001 - handed to the main thread
            self.fail(error)
        else:
            self.stop()

    def _committed(self, partition: int, committed: Committed) -> None:
        for pusher in self._pushers:
            pusher.notify(committed.staged, committed.staged_bytes)
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
