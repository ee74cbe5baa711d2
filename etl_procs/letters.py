"""Letters: wishes about dead letters, from any process, beside an engine or without one.

Each wish is one short transaction. To run a letter again is only asked for here: the engine finds
the wish in its table and does it, in the transaction that runs the letter.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from etl_procs import dead_letters
from etl_procs.reader import Reader
from etl_procs.store import Store, Write, make_durable
from headrace.config import Core as Settings
from headrace.crash import CrashPoints
from headrace.errors import Refused


class Letters:
    """The dead letters of one core, to run again or to drop. Used by one thread."""

    def __init__(self, path: Path, settings: Settings, crash: CrashPoints) -> None:
        with Reader(path).snapshot():
            pass  # or it says that an engine has to make the core first
        self._store = Store(path, settings, crash)

    def replay(self, numbers: Iterable[int]) -> list[int]:
        """Ask for letters to be run again: for all of them, or, if one cannot be, for none.

        Gives those that were asked for: with a batch go those that its unit gave up with it.
        """
        asked: set[int] = set()
        with self._commit() as connection:
            for number in numbers:
                if number not in asked:
                    asked.update(dead_letters.ask_for_replay(connection, number))
        return sorted(asked)

    def replay_what_can(self, numbers: Iterable[int]) -> list[int]:
        """Ask for those of the letters to be run again that can be; gives them."""
        asked: set[int] = set()
        with self._commit() as connection:
            for number in numbers:
                if number not in asked:
                    with suppress(Refused):
                        asked.update(dead_letters.ask_for_replay(connection, number))
        return sorted(asked)

    def drop(self, numbers: Iterable[int]) -> None:
        """Delete letters for good: all of them, or, if one is not there, none."""
        with self._commit() as connection:
            for number in dict.fromkeys(numbers):
                dead_letters.drop(connection, number)

    def drop_what_is_left(self, numbers: Iterable[int]) -> int:
        """Delete those of the letters for good that are still there; gives how many."""
        dropped = 0
        with self._commit() as connection:
            for number in numbers:
                with suppress(Refused):
                    dead_letters.drop(connection, number)
                    dropped += 1
        return dropped

    @contextmanager
    def _commit(self) -> Iterator[sqlite3.Connection]:
        with self._store.commit(Write.LETTERS) as connection:
            yield connection
        make_durable(self._store.path)  # whatever the durability: nobody else remembers a wish

    def close(self) -> None:
        """Close the core's file."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()
