"""Asking: what the core needs of the warehouses in which it looks up.

Who wires the core says how they are reached; here is only what they are asked.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, TypeAlias

from etl_procs.model import Foreign, Lookup

Row: TypeAlias = tuple[Any, ...]


class Warehouses(Protocol):
    """Connections to warehouses, for one thread. What is asked is answered from the state that is
    committed there at that moment; if it is not answered, Unanswered is raised.
    """

    def ask(self, lookup: Lookup, asked: Sequence[Row]) -> Sequence[Row]:
        """Give what is in force for each (key ..., moment) of which there is something: its number
        among those asked, from 1 on, and the columns that are given.
        """

    def count(self, foreign: Foreign) -> int:
        """Tell how many rows a table has, about."""

    def version(self, foreign: Foreign) -> str:
        """Tell the greatest version; empty if there is none."""

    def read(self, lookup: Lookup, after: str = "") -> Generator[Sequence[Row], None, None]:
        """Read the rows, a piece at a time: the key, the moment, what is given. With a version, all
        rows of those keys that have one after it.
        """

    def close(self) -> None:
        """Close the connections."""


Connects: TypeAlias = Callable[[], Warehouses]
"""Makes them, in the process that asks."""
