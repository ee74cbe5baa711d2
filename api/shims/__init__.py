"""Shims: what the island asks of an engine that holds tables, the same of each kind."""

from collections.abc import Generator, Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from api.answer import Column
from api.catalogue import Flow, Shown
from api.costs import Estimate
from api.cut import Part, Seen
from api.few import Few
from etl_procs.model import Outlet


class Shim(Protocol):
    """A session with an engine that gives rows. It is asked by one query at a time."""

    name: str
    dialect: str
    """The SQL that it speaks, by sqlglot's name."""

    @property
    def orders_text(self) -> bool:
        """Whether it orders text by its bytes."""
        ...

    def limit(self, timeout_ms: int) -> None:
        """Have what takes longer end with an error, from now on."""
        ...

    def snapshot(self, flows: Sequence[Flow]) -> Seen:
        """Begin to see one state, and tell what has arrived in it."""
        ...

    def there(self, shown: Shown, part: Part) -> str:
        """Write what selects the rows that it has of a table at a cut."""
        ...

    def estimate(self, query: str) -> Estimate:
        """Tell what the engine expects of a query."""
        ...

    def rows(self, query: str, columns: Sequence[Column]) -> Generator[pa.RecordBatch]:
        """Ask a query, and give its rows as they come."""
        ...

    def end(self) -> None:
        """Forget the state that was seen, and what was shipped."""
        ...

    def cancel(self) -> None:
        """Have what runs end soon. Another thread may ask for it."""
        ...

    def close(self) -> None:
        """End the session."""
        ...


class Whole(Shim, Protocol):
    """One that answers whatever may be asked, also over rows that are shipped to it."""

    def prepare(self, outlets: Sequence[Outlet], lent: Sequence[Outlet] = ()) -> None:
        """Get ready to be sent rows of these tables, and to be lent others: before a snapshot,
        which only reads.
        """
        ...

    def ship(self, outlet: Outlet, rows: Few | Iterable[pa.Table]) -> None:
        """Send rows of a table, or their keys alone; they are there until the snapshot ends."""
        ...

    def lend(self, outlet: Outlet, rows: Iterable[pa.RecordBatch]) -> None:
        """Send what another engine has of a table; it is there until the snapshot ends."""
        ...

    def lent(self, outlet: Outlet, part: Part) -> Part:
        """Tell where the rows of a table are that is lent."""
        ...

    def there_unless(self, shown: Shown, part: Part) -> str:
        """Write what selects what it has of a table, but for the keys that were shipped."""
        ...

    def whole(self, shown: Shown, part: Part) -> str:
        """Write what selects what it has of a table, and what was shipped."""
        ...

    def columns(self, query: str) -> tuple[Column, ...]:
        """Tell the columns of what a query gives, without asking it."""
        ...
