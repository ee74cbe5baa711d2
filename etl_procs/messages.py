"""Messages: what an engine and the workers of its partitions say to each other."""

import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from etl_procs.asking import Connects
from etl_procs.flow import Committed
from headrace import arrow
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
    warehouses: Connects | None = None
    """How those are reached in whose tables is looked up."""


class Agreed(NamedTuple):
    """All partitions are prepared: let it be so."""


class Open(NamedTuple):
    """Begin to run, with these topics; by dataflow and stream."""

    topics: Mapping[str, Mapping[str, Topic]]


class Take(NamedTuple):
    """Tuples of a border stream, which lie in memory that both processes map: through a socket,
    50 MB of them took half as long as to decode them.
    """

    dataflow: str
    stream: str
    through: Mapping[int, int]
    tuples: pa.Table


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


def say(connection: Connection, message: Any) -> None:
    """Send a message."""
    if not isinstance(message, Take):
        connection.send(message)
        return
    memory = arrow.to_memory(message.tuples)  # first: half a message would garble the next one
    try:
        connection.send(message._replace(tuples=None))
        send_handle(connection, memory, None)
    finally:
        os.close(memory)


def hear(connection: Connection) -> Any:
    """Receive a message."""
    said = connection.recv()
    if isinstance(said, Take):
        return said._replace(tuples=arrow.from_memory(recv_handle(connection)))
    return said
