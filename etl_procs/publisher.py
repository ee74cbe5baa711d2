"""The publisher: what of a dataflow's streams is kept for readers outside, as any process says."""

from collections.abc import Callable, Sequence
from pathlib import Path

from etl_procs import published, reader
from etl_procs.model import Stream
from etl_procs.store import Write
from headrace.config import Core as Settings
from headrace.crash import CrashPoints


class Publisher:
    """Publishes streams on the cores of their partitions, one after the other: who was interrupted
    says it again.
    """

    def __init__(self, paths: Sequence[Path], settings: Settings, crash: CrashPoints) -> None:
        self._paths = paths
        self._how = settings, crash, Write.PUBLISH

    def publish(self, stream: Stream, partitions: int) -> None:
        """Keep a stream's batches from the next round of each partition on."""
        self._each(published.publish, stream, partitions)

    def unpublish(self, stream: Stream, partitions: int) -> None:
        """Keep them no more, and drop those that there are."""
        self._each(published.unpublish, stream, partitions)

    def _each(self, do: Callable[..., None], stream: Stream, partitions: int) -> None:
        for path in self._paths[:partitions]:
            with reader.changing(path, *self._how) as connection:
                do(connection, stream.dataflow, stream.name)
