"""Our engine as an experiment drives it: a core on a disk, fed as the batcher feeds it."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from bench.bare import GROUP_BATCHES
from bench.harness import timed
from etl_procs import ledger
from etl_procs.batch import ARRIVAL, Arrived, place_of
from etl_procs.calls import Caller
from etl_procs.core import Core, core_path
from etl_procs.dataflow import Dataflow
from etl_procs.model import Stream
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints

ARRIVE_ROWS = 10_000
"""As many tuples as arrive at once."""

GROUP_MS = 1_000
"""Long enough that the number of batches alone ends a group, as it does with the peers."""

FILE = core_path(Path()).name
"""Of a first partition, as in a data folder."""


class Ours:
    """A core with one dataflow."""

    def __init__(
        self,
        folder: Path,
        flow: Dataflow,
        durability: str,
        group: int = GROUP_BATCHES,
        group_ms: int = GROUP_MS,
    ) -> None:
        self.flow = flow
        self.path = folder / FILE
        self._settings = config.Core(
            durability=durability, group_batches_max=group, group_ms_max=group_ms
        )
        self.core = Core(
            self.path, settings=self._settings, clock=SystemClock(), crash=CrashPoints()
        )
        self._callers = ExitStack()
        self.core.prepare([flow])
        self.core.open(flow.name, partitions={stream.name: [0] for stream in flow.borders})

    def feed(self, arrivals: Sequence[Arrived]) -> None:
        """Run all of it; when it returns it is committed."""
        for arrived in arrivals:
            self.core.feed(arrived)
            self.core.drain()

    def caller(self) -> Callable[[str, Mapping[str, Any]], list[dict[str, Any]]]:
        """Give what makes calls as a client does, each a transaction that has committed."""
        flows = {self.flow.name: self.flow}
        made = self._callers.enter_context(
            closing(Caller(self.path, flows, self._settings, CrashPoints()))
        )
        return partial(made.call, self.flow.name)

    def done(self) -> dict[str, int]:
        """Read the last batch of each procedure."""
        with closing(sqlite3.connect(self.path)) as connection:
            return ledger.done(connection, self.flow.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._callers.close()
        self.core.close()


def fed(
    folder: Path,
    flow: Dataflow,
    rows: Sequence[Sequence[Any]],
    check: Callable[[sqlite3.Connection], None],
    durability: str = "strong",
) -> float:
    """Feed a dataflow of one border stream; tell the seconds, once what came of it is checked."""
    (stream,) = flow.borders
    arrived = arrivals(stream, rows)
    with Ours(folder, flow, durability) as ours:
        with timed() as seconds:
            ours.feed(arrived)
        with closing(sqlite3.connect(ours.path)) as connection:
            check(connection)
    return seconds()


def arrivals(
    stream: Stream, rows: Sequence[Sequence[Any]], *, first_offset: int = 0
) -> list[Arrived]:
    """Make what the batcher would hand over: decoded tuples at consecutive offsets."""
    return list(_arrivals(stream, rows, first_offset))


def _arrivals(
    stream: Stream, rows: Sequence[Sequence[Any]], first_offset: int
) -> Iterator[Arrived]:
    schema = pa.schema([*ARRIVAL, *stream.columns.arrow])
    for start in range(0, len(rows), ARRIVE_ROWS):
        some = rows[start : start + ARRIVE_ROWS]
        offsets = range(first_offset + start, first_offset + start + len(some))
        places = [place_of(offset) for offset in offsets]
        nothing = [None] * len(some)
        columns = [
            [0] * len(some),
            places,
            [repr(row).encode() for row in some],
            nothing,
            nothing,
            nothing,
            nothing,
            *zip(*some, strict=True),
        ]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        yield Arrived(stream, pa.Table.from_arrays(arrays, schema=schema))
