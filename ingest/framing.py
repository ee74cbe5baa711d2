"""Framing: the tuples of a run as Kafka records, each for its partition.

Which partition a tuple goes to depends on nothing but its source, its number, its key and the
number of partitions that is declared, so that what is sent again goes where it went.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple
from zlib import crc32

from etl_procs.model import Stream
from etl_procs.wire import Avro, Route, Wire
from ingest.decoding.decoder import Decoder
from ingest.records import FRAME, FRAME_BYTES, FRAME_TUPLES, OVERSIZE, SEPARATOR, SEQ, SOURCE
from ingest.runs import Run

HOLES_MAX = 100
"""So many empty entries cost about what the headers of a second record do."""

Keys = Callable[[list[bytes]], list[str | None]]
"""Gives the texts of tuples' keys; None where one has none that can be read."""


class Record(NamedTuple):
    """A Kafka record to be sent."""

    partition: int
    value: bytes
    headers: list[tuple[str, bytes]]
    tuples: int


class Framing:
    """Makes the records of a stream."""

    def __init__(
        self,
        wire: Wire,
        partitions: int,
        keys: Keys | None = None,
        *,
        partition: int | None = None,
    ) -> None:
        self._between = b"" if isinstance(wire.format, Avro) else SEPARATOR
        self._partitions = partitions
        self._keys = keys
        self._route = wire.route if partition is None else partition

    @classmethod
    def of(cls, stream: Stream, partitions: int, partition: int | None = None) -> "Framing":
        """Make the one of a stream's declaration; or to one partition, whatever that says."""
        route = stream.wire.route
        keys = partial(Decoder(stream).keys, route) if isinstance(route, str) else None
        return cls(stream.wire, partitions, keys, partition=partition)

    @property
    def lane(self) -> str:
        """Say where the tuples of a source go."""
        if isinstance(self._route, int):
            return f"to partition {self._route}"
        by = self._route.value if isinstance(self._route, Route) else f"column {self._route}"
        return f"by {by} to {self._partitions} partitions"

    def records(self, source: str, run: Run) -> Iterator[Record]:
        """Give the records of a run; without a source, its tuples have no number."""
        route = self._route
        if isinstance(route, int):
            yield from self._lane(route, source, run)
        elif isinstance(route, str):
            yield from self._by_key(source, run)
        elif not source:
            # Any partition will do; this one spreads them, and needs no memory.
            yield from self._lane(self._of(b"".join(run.raws[:1])), source, run)
        elif route is Route.SPREAD:
            for part in _in_blocks(run):
                block = (part.first - 1) // FRAME_TUPLES
                yield from self._lane(block % self._partitions, source, part)
        else:
            yield from self._lane(self._of(source.encode()), source, run)

    def _of(self, text: bytes) -> int:
        return crc32(text) % self._partitions

    def _lane(self, partition: int, source: str, run: Run) -> Iterator[Record]:
        """Make the records of a run that goes to one partition: one, if it can be."""
        raws = run.raws
        if len(raws) > 1 and b"" not in raws and not run.oversize:
            value = self._between.join(raws)
            if not self._between or value.count(SEPARATOR) == len(raws) - 1:
                yield self._record(partition, source, run.first, value, len(raws), len(raws))
                return
        yield from self._framed(partition, source, run, [n for n, raw in enumerate(raws) if raw])

    def _by_key(self, source: str, run: Run) -> Iterator[Record]:
        assert self._keys is not None, "a stream that is routed by a column"
        whole = [n for n, raw in enumerate(run.raws) if raw and n not in run.oversize]
        keys = dict(zip(whole, self._keys([run.raws[n] for n in whole]), strict=True))
        lanes: dict[int, list[int]] = {}
        for n, raw in enumerate(run.raws):
            if raw:
                # One whose key cannot be read becomes a dead letter, and goes where its like do.
                lanes.setdefault(self._of((keys.get(n) or "").encode()), []).append(n)
        for partition, places in lanes.items():
            yield from self._framed(partition, source, run, places)

    def _framed(
        self, partition: int, source: str, run: Run, places: Sequence[int]
    ) -> Iterator[Record]:
        """Make the records of those tuples of a run that stand at some places in it."""
        for group in self._grouped(run, places, is_numbered=bool(source)):
            first, there = group[0], set(group)
            numbered = range(first, group[-1] + 1) if source else group
            entries = [run.raws[n] if n in there else b"" for n in numbered]
            value, oversize = self._between.join(entries), run.oversize.get(first)
            number = run.first + first
            yield self._record(partition, source, number, value, len(entries), len(group), oversize)

    def _grouped(
        self, run: Run, places: Sequence[int], *, is_numbered: bool
    ) -> Iterator[list[int]]:
        """Divide tuples into frames. Without numbers, holes between them count for nothing."""
        holes_max = (HOLES_MAX if self._between else 0) if is_numbered else FRAME_TUPLES
        group: list[int] = []
        size, is_alone = 0, False
        for n in places:
            raw = run.raws[n]
            must_be_alone = n in run.oversize or (bool(self._between) and SEPARATOR in raw)
            if group and (
                is_alone
                or must_be_alone
                or n - group[-1] > holes_max + 1
                or size + len(raw) > FRAME_BYTES
            ):
                yield group
                group, size = [], 0
            group.append(n)
            size += len(raw)
            is_alone = must_be_alone
        if group:
            yield group

    @staticmethod
    def _record(
        partition: int,
        source: str,
        seq: int,
        value: bytes,
        entries: int,
        tuples: int,
        oversize: int | None = None,
    ) -> Record:
        headers: list[tuple[str, bytes]] = []
        if source:
            headers += [(SOURCE, source.encode()), (SEQ, b"%d" % seq)]
        if entries > 1:
            headers.append((FRAME, b"%d" % entries))
        if oversize is not None:
            headers.append((OVERSIZE, b"%d" % oversize))
        return Record(partition, value, headers, tuples)


def _in_blocks(run: Run) -> Iterator[Run]:
    """Cut a run where the next one's turn begins, wherever the run itself begins."""
    at = 0
    while at < len(run.raws):
        first = run.first + at
        size = FRAME_TUPLES - (first - 1) % FRAME_TUPLES
        oversize = {n - at: total for n, total in run.oversize.items() if at <= n < at + size}
        yield Run(first, run.raws[at : at + size], run.end, oversize)
        at += size
