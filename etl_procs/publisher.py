"""The publisher: what of a dataflow's streams is kept for readers outside, as any process says."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from etl_procs import published
from etl_procs.model import Stream
from etl_procs.reader import Reader
from etl_procs.store import Store, Write
from headrace.config import Core as Settings
from headrace.crash import CrashPoints


class Publisher:
    """Publishes streams on the cores of their partitions, one after the other: who was interrupted
    says it again.
    """

    def __init__(self, paths: Sequence[Path], settings: Settings, crash: CrashPoints) -> None:
        self._paths = paths
        # Nobody else remembers what was asked for.
        self._settings = replace(settings, durability="strong")
        self._crash = crash

    def publish(self, stream: Stream, partitions: int) -> None:
        """Keep a stream's batches from the next round of each partition on."""
        self._each(published.publish, stream, partitions)

    def unpublish(self, stream: Stream, partitions: int) -> None:
        """Keep them no more, and drop those that there are."""
        self._each(published.unpublish, stream, partitions)

    def _each(self, do: Callable[..., None], stream: Stream, partitions: int) -> None:
        for path in self._paths[:partitions]:
            Reader(path).check()
            with (
                closing(Store(path, self._settings, self._crash)) as store,
                store.commit(Write.PUBLISH) as connection,
            ):
                do(connection, stream.dataflow, stream.name)
