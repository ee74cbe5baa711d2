"""Runs: consecutive tuples of a source, numbered, in portions that make one frame each."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace.errors import HeadraceError
from ingest.records import FRAME_BYTES, FRAME_TUPLES, OVERSIZE_BYTES_KEPT, TUPLE_BYTES_MAX

NONE_OVERSIZE: Mapping[int, int] = MappingProxyType({})


class Run(NamedTuple):
    """Consecutive tuples of a source."""

    first: int
    """The number in the source of the first of them."""
    raws: list[bytes]
    """Each a tuple's bytes; an empty one is no tuple, only its number."""
    end: int
    """The offset in the (decompressed) source after them, where reading goes on."""
    oversize: Mapping[int, int] = NONE_OVERSIZE
    """Index -> size of each tuple above TUPLE_BYTES_MAX, of which only the beginning is there."""

    @property
    def next(self) -> int:
        """The number of what comes after them."""
        return self.first + len(self.raws)


class Bookmark(NamedTuple):
    """Where reading goes on: at the tuple of a number, and at an offset in the source."""

    number: int = 1
    offset: int = 0
    behind: str = ""
    """Digest of the last bytes before the offset, by which a followed file is known again."""


START = Bookmark()


class Beginning(NamedTuple):
    """What a file was called when it was sent first, and its size then: it may have grown since."""

    name: str
    size: int


class Found(NamedTuple):
    """One tuple: its bytes, or the first of them; its size; the offset after it."""

    raw: bytes
    size: int
    end: int


def portioned(first: int, tuples: Iterable[Found], tuples_max: int = FRAME_TUPLES) -> Iterator[Run]:
    """Make runs of tuples, each of about the bytes of a frame; of those before an error, too."""
    raws: list[bytes] = []
    oversize: dict[int, int] = {}
    size = end = 0
    failure: HeadraceError | None = None
    try:
        for found in tuples:
            if found.size > TUPLE_BYTES_MAX:
                oversize[len(raws)] = found.size
            raws.append(found.raw)
            size += len(found.raw)
            end = found.end
            if size >= FRAME_BYTES or len(raws) >= tuples_max:
                yield Run(first, raws, end, oversize)
                first += len(raws)
                raws, oversize, size = [], {}, 0
    except HeadraceError as error:
        failure = error
    if raws:
        yield Run(first, raws, end, oversize)
    if failure:
        raise failure


def kept(raw: bytes) -> bytes:
    """Give a tuple's bytes, or the first of them if it has too many."""
    return raw if len(raw) <= TUPLE_BYTES_MAX else raw[:OVERSIZE_BYTES_KEPT]


class Scanner(ABC):
    """Finds the tuples in the bytes of a source, however these are cut into blocks."""

    def __init__(self, at: Bookmark = START, tuples_max: int = FRAME_TUPLES) -> None:
        self.number = at.number
        """The number of the tuple that comes next."""
        self.offset = at.offset
        """The offset in the source after the last tuple that was given."""
        self._tuples_max = tuples_max

    @abstractmethod
    def feed(self, block: bytes) -> Iterator[Run]:
        """Give what is complete with the next bytes of the source."""

    @abstractmethod
    def finish(self) -> Iterator[Run]:
        """Give what is left at the end of the source."""

    def _given(self, found: Iterable[Found]) -> Iterator[Run]:
        for run in portioned(self.number, found, self._tuples_max):
            self.number, self.offset = run.next, run.end
            yield run
