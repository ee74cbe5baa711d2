"""Pushing in a thread, as the engine does to each warehouse."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from etl_procs.dataflow import Dataflow
from headrace.clock import SystemClock
from migrations.push import Push
from migrations.pusher import Limits, Pusher
from migrations.warehouse import Warehouse


@contextmanager
def pushing(
    flow: Dataflow,
    push: Push,
    place: Warehouse,
    others: Sequence[Warehouse] = (),
) -> Iterator[Pusher]:
    """Push a dataflow to a place until the block ends. The others may have what it lacks."""
    pusher = Pusher(
        place,
        [push],
        [flow],
        limits=Limits(0.001, rows=10**6, size=10**9),
        clock=SystemClock(),
        others=others,
    )
    pusher.start()
    try:
        yield pusher
    finally:
        assert pusher.stop(60)
