"""How far each part is behind, measured at the source of each truth: the log and the ledgers."""

import time
from collections.abc import Callable
from typing import TypeVar

from etl_procs import loader
from etl_procs.batch import offset_of
from etl_procs.core import core_path, core_paths
from etl_procs.dataflow import Dataflow
from etl_procs.model import Stream
from etl_procs.partitions import seen_by_all
from etl_procs.reader import Reader, Snapshot
from etl_procs.rules import ByInterval
from headrace.config import Broker, Config
from headrace.errors import HeadraceError, NotRunning
from ingest import topics
from migrations.places import Places
from migrations.warehouse import warehouses

# Without any progress for so long, the engine is taken to be away: starting takes it 10 s or so.
STUCK_S = 60.0
POLL_S = 0.1
"""How long what is waited for is not looked at, at most."""
LOOK_S = 1.0
"""Without any progress for so long, what is left is looked at."""

T = TypeVar("T")


def tuples(config: Config, broker: Broker) -> int | None:
    """Count the records in Kafka that a core has still to take; None where that cannot be known."""

    def waiting(flow: Dataflow) -> int:
        return sum(
            held.stop - done.get(partition, held.start)
            for stream in flow.borders
            for done in [_positions(config, flow, stream)]
            for partition, held in topics.held(broker, stream.topic).items()
        )

    return _counted(config, waiting)


def rows(config: Config) -> int | None:
    """Count the rows that the cores have staged and the warehouse not confirmed."""
    return _counted(
        config, lambda flow: sum(_of_each(config, flow, lambda core: core.waiting(flow.name)))
    )


def until_taken(config: Config, flow: Dataflow, stream: Stream, broker: Broker) -> None:
    """Return when the core has taken all that is in a stream's topic now.

    A record that says only what time has come stays before the core's position until an interval
    that is not over ends: there is nothing in it to take.
    """
    partitions = topics.held(broker, stream.topic)
    before, deadline, look = None, 0.0, 0.0
    began = time.monotonic()
    while True:
        done = _positions(config, flow, stream)
        left = {p: range(done.get(p, held.start), held.stop) for p, held in partitions.items()}
        if not any(left.values()):
            return
        now = time.monotonic()
        if done != before:
            before, deadline, look = done, now + STUCK_S, now + LOOK_S
        if now > look:
            is_there = all(some.start >= partitions[p].start for p, some in left.items())
            is_timed = isinstance(stream.batches, ByInterval)
            if is_timed and is_there and topics.tells_time(broker, stream.topic, left):
                return
            look = now + LOOK_S
        if now > deadline:
            raise NotRunning(
                f"the core has taken nothing more of {stream.topic} for {STUCK_S:.0f} s",
                hint="The tuples are safe in the topic. Is the engine up? `headrace status` tells. "
                "Is their batch not ended? --finished ends it, if nothing more comes for now.",
            )
        _pause(began)


def until_arrived(config: Config, flow: Dataflow) -> None:
    """Return when each warehouse of a dataflow has what the cores have committed by now."""
    places = Places(warehouses(config), {flow.name: flow}, core_paths(config.home))
    wanted: dict[str, int] = {}
    before, deadline = None, 0.0
    began = time.monotonic()
    while True:
        found = places.look()
        standings = [(place, s) for place in found for s in place.dataflows]
        for _, standing in standings:
            wanted.setdefault(standing.name, standing.committed or 0)
        left = [place for place, s in standings if (s.arrived or 0) < wanted[s.name]]
        if not left:
            return
        now = time.monotonic()
        if standings != before:
            before, deadline = standings, now + STUCK_S
        if now > deadline:
            raise NotRunning(
                f"nothing has come to the warehouse {left[0].name} for {STUCK_S:.0f} s: "
                f"{left[0].state}",
                hint="The rows are safe in the core. `headrace warehouse status` tells more.",
            )
        _pause(began)


def _pause(began: float) -> None:
    """Wait a fifth of what was waited already: a load waits often, for some tenths of a second, and
    one that is long must not look all the time.
    """
    time.sleep(min(POLL_S, (time.monotonic() - began) / 5))


def _counted(config: Config, waiting: Callable[[Dataflow], int]) -> int | None:
    try:
        return sum(map(waiting, loader.load(config.flows).values()))
    except HeadraceError:
        return None  # the states of the parts tell why


def _positions(config: Config, flow: Dataflow, stream: Stream) -> dict[int, int]:
    places = _of_each(config, flow, lambda core: core.positions(flow.name, stream.name))
    return {partition: offset_of(place) for partition, place in seen_by_all(places).items()}


def _of_each(config: Config, flow: Dataflow, ask: Callable[[Snapshot], T]) -> list[T]:
    """Ask the core of each partition of a dataflow."""
    found = []
    for partition in range(flow.partitions):
        with Reader(core_path(config.home, partition)).snapshot() as core:
            found.append(ask(core))
    return found
