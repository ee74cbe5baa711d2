"""How far each part is behind, measured at the source of each truth: the log and the ledgers."""

import time
from collections.abc import Callable

from etl_procs import loader
from etl_procs.core import core_path
from etl_procs.dataflow import Dataflow
from etl_procs.model import Stream
from etl_procs.reader import Reader, Snapshot
from headrace.config import Config
from headrace.errors import HeadraceError, NotRunning
from ingest import topics

# Without any progress for so long, the engine is taken to be away: starting takes it 10 s or so.
STUCK_S = 60.0
POLL_S = 0.1


def tuples(config: Config, bootstrap: str) -> int | None:
    """Count the tuples in Kafka that the core has not taken; None where that cannot be known."""

    def waiting(snapshot: Snapshot, flow: Dataflow) -> int:
        return sum(
            held.stop - done.get(partition, held.start)
            for stream in flow.borders
            for done in [snapshot.positions(flow.name, stream.name)]
            for partition, held in topics.held(bootstrap, stream.topic).items()
        )

    return _counted(config, waiting)


def rows(config: Config) -> int | None:
    """Count the rows that the core has staged and the warehouse not confirmed."""
    return _counted(config, lambda snapshot, flow: snapshot.waiting(flow.name))


def until_taken(config: Config, stream: Stream, bootstrap: str) -> None:
    """Return when the core has taken all that is in a stream's topic now."""
    partitions = topics.held(bootstrap, stream.topic)
    reader = Reader(core_path(config.home))
    before, deadline = None, 0.0
    while True:
        with reader.snapshot() as snapshot:
            done = snapshot.positions(stream.dataflow, stream.name)
        if all(done.get(p, held.start) >= held.stop for p, held in partitions.items()):
            return
        if done != before:
            before, deadline = done, time.monotonic() + STUCK_S
        if time.monotonic() > deadline:
            raise NotRunning(
                f"the core has taken nothing more of {stream.topic} for {STUCK_S:.0f} s",
                hint="The tuples are safe in the topic. Is the engine up? `headrace status` tells.",
            )
        time.sleep(POLL_S)


def _counted(config: Config, waiting: Callable[[Snapshot, Dataflow], int]) -> int | None:
    try:
        flows = loader.load(config.flows).values()
        with Reader(core_path(config.home)).snapshot() as snapshot:
            return sum(waiting(snapshot, flow) for flow in flows)
    except HeadraceError:
        return None  # the states of the parts tell why
