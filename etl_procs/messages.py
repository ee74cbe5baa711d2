"""Messages: what an engine and the workers of its partitions say to each other."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

from etl_procs.flow import Committed
from headrace.config import Config
from headrace.errors import HeadraceError


class Topic(NamedTuple):
    """The log of a border stream: its id, and its partitions."""

    id: str
    partitions: tuple[int, ...]
    begins: tuple[tuple[int, int], ...] = ()
    """Partitions and the first offset that each holds now."""


class Start(NamedTuple):
    """The first word to a worker: which partition it is, of what."""

    config: Config
    partition: int
    metrics: Path


class Agreed(NamedTuple):
    """All partitions are prepared: let it be so."""


class Open(NamedTuple):
    """Begin to run, with these topics; by dataflow and stream."""

    topics: Mapping[str, Mapping[str, Topic]]


class Take(NamedTuple):
    """Tuples of a border stream. On the way, what they are comes behind it: as it is, for pickling
    copies it twice.
    """

    dataflow: str
    stream: str
    through: Mapping[int, int]
    data: bytes = b""
    """As Arrow IPC."""


class Stop(NamedTuple):
    """End after the group at hand."""


class Prepared(NamedTuple):
    """The core can be taken over; what changes since it was last open."""

    changes: list[str]


class Opened(NamedTuple):
    """The next offsets that the ledger has; by dataflow and stream."""

    positions: Mapping[tuple[str, str], Mapping[int, int]]


class Room(NamedTuple):
    """There is room for more of a border stream."""

    dataflow: str
    stream: str


Said: TypeAlias = Prepared | Opened | Room | Committed | HeadraceError
"""What a worker says."""
