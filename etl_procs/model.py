"""The model: streams, tables, windows, outlets, and the routines between them, as values.

Users make them through `Dataflow`, which checks them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

from etl_procs.columns import Columns
from etl_procs.rules import Extent, Rule, Value
from etl_procs.wire import Wire

Body = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Named:
    """What has a name within a dataflow."""

    dataflow: str
    name: str

    @property
    def full_name(self) -> str:
        """Its name, after that of its dataflow."""
        return f"{self.dataflow}.{self.name}"


@dataclass(frozen=True, slots=True)
class Stream(_Named):
    """An ordered, append-only sequence of tuples.

    A border stream comes from outside, through Kafka, and is cut into batches by a rule. An
    interior stream is given by a procedure, batch by batch, and has no rule.
    """

    columns: Columns
    batches: Rule | None = None
    key: str = ""
    """The column by which a border stream's tuples are divided among the partitions."""
    order: str = ""
    """The column by which the tuples of one batch are ordered; otherwise, as they came."""
    wire: Wire = field(default_factory=Wire, hash=False)

    @property
    def topic(self) -> str:
        """The Kafka topic whose records are a border stream's tuples."""
        return self.full_name


@dataclass(frozen=True, slots=True)
class Table:
    """Shared, mutable state in the core, and the rows it is made with."""

    name: str
    columns: Columns
    rows: tuple[tuple[Value, ...], ...] = ()
    parks: bool = False
    """Whether its rows wait for something: they are counted, so that nobody forgets them."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """A table, or a view, of a warehouse, which others write."""

    name: str
    """As SCHEMA.TABLE."""
    columns: Columns
    warehouse: str
    version: str = ""
    """A column that grows with each change, in the order of commits, where no row is deleted, nor
    has another key or moment: so what has changed is found."""


@dataclass(frozen=True, slots=True)
class Window(_Named):
    """The recent part of what one procedure puts into it; nobody else sees it."""

    columns: Columns
    extent: Extent


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Counts and sums over a window, by key, kept as its tuples come and go."""

    name: str
    window: Window
    by: tuple[str, ...]
    values: tuple[tuple[str, str], ...]
    """(name, the column that is summed); an empty column: tuples are counted."""


@dataclass(frozen=True, slots=True)
class Outlet(_Named):
    """Rows on their way to a warehouse table, batch by batch.

    Without a key they are appended there. With one, a row replaces the one of the same key.
    """

    columns: Columns
    key: tuple[str, ...] = ()
    indexes: tuple[tuple[str, ...], ...] = ()
    """The columns of the indexes that the warehouse's table has beside its key."""


@dataclass(frozen=True, slots=True)
class Kept(Outlet):
    """A published stream as a table of its kept batches, which no warehouse ever has."""


class Strategy(Enum):
    """Where a lookup finds its answers."""

    OWNED = "owned"
    """In a table of the core, and an index over it: always what SQL would say there."""
    WAREHOUSE = "warehouse"
    """In the warehouse, which is asked for the keys of each batch."""
    REPLICA = "replica"
    """In a copy of the warehouse's table, which is never older than was said."""
    AUTO = "auto"
    """Owned, if the table is the core's; otherwise asked or copied, whichever costs less."""


@dataclass(frozen=True, slots=True)
class Lookup(_Named):
    """Rows of a table by their key, or by their key as of a moment: the version that was in force.

    What it answers from is kept sorted in memory, and is as true as its strategy says.
    """

    table: Table | Foreign
    key: tuple[str, ...]
    at: str
    """The column from whose value on a version is in force; empty: a key has one row."""
    gives: tuple[str, ...]
    or_earliest: bool = False
    """Whether the earliest version answers for a moment that lies before it."""
    strategy: Strategy = Strategy.AUTO
    max_age_s: float = 0.0
    """How old a copy may be that answers."""


Given = Stream | Window | Outlet
"""What a routine may emit into."""


@dataclass(frozen=True, slots=True)
class Procedure(_Named):
    """User code that runs as one transaction on one atomic batch."""

    body: Body
    takes: tuple[Stream, ...]
    reads: tuple[Table, ...]
    writes: tuple[Table, ...]
    gives: tuple[Given, ...]
    looks: tuple[Lookup, ...] = ()
    was: str = ""
    """The name that it had before, whose place in the ledger it takes."""


@dataclass(frozen=True, slots=True)
class Trigger(_Named):
    """User code that runs inside a transaction: when a stream is given tuples, a window slides."""

    body: Body
    on: Stream | Window
    reads: tuple[Table, ...]
    writes: tuple[Table, ...]
    gives: tuple[Given, ...]
    looks: tuple[Lookup, ...] = ()


@dataclass(frozen=True, slots=True)
class Call(_Named):
    """User code that a client runs as a transaction, with arguments and a result."""

    body: Body
    arguments: Columns
    returns: Columns
    reads: tuple[Table, ...]
    writes: tuple[Table, ...]
    looks: tuple[Lookup, ...] = ()
    key: str = ""
    """The argument that says on which partition it runs."""
    gives: ClassVar[tuple[Given, ...]] = ()
    """Nothing: its rows go to the client."""


Routine = Procedure | Trigger | Call


@dataclass(frozen=True, slots=True)
class Step:
    """A migration of a table's rows that a user wrote: from the columns that it had."""

    table: Table
    was: Columns
    body: Body
