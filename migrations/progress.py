"""The progress of a migration: at which stage it is, what it has moved, and whether to go on."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import psycopg

from migrations.errors import Cancelled


class Progress:
    """What one migration tells while it runs; it may be asked to stop from any thread.

    `rows` and `size` are of what has been committed. That may be more: where a connection was lost
    in a commit, or a process died after it, whoever goes on finds it done and moves nothing.
    """

    def __init__(
        self, tell: Callable[["Progress"], None] = lambda _: None, rows: int = 0, size: int = 0
    ) -> None:
        self.stage = ""
        self.rows, self.size = rows, size
        self._moved_rows = self._moved_size = 0
        self._tell = tell
        self._cancelled = threading.Event()
        self._interrupt: Callable[[], None] = lambda: None

    def at(self, stage: str) -> None:
        """Say which stage begins, unless it is not to begin any more."""
        if self._cancelled.is_set():
            raise Cancelled(f"cancelled before: {stage}", hint="Nothing of it is half-done.")
        self.stage = stage
        self._tell(self)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what a transaction has moved, after its commit: what is rolled back never was."""
        self._moved_rows = self._moved_size = 0
        yield
        self.rows += self._moved_rows
        self.size += self._moved_size
        with suppress(Cancelled):  # what is done is done; the next stage does not begin
            self._tell(self)

    def moved(self, rows: int, size: int) -> None:
        """Say what a stage of the transaction at hand has moved."""
        self._moved_rows += rows
        self._moved_size += size

    def cancel(self) -> None:
        """Have it stop: before the next stage, and amid a statement of the warehouse."""
        self._cancelled.set()
        with suppress(psycopg.Error):  # the server cannot be asked: then its statement fails too
            self._interrupt()

    def wait(self, seconds: float) -> None:
        """Let time pass, unless it is asked to stop."""
        self._cancelled.wait(seconds)

    def interrupted_by(self, interrupt: Callable[[], None]) -> None:
        """Say how the statement at hand is ended."""
        self._interrupt = interrupt

    @property
    def is_cancelled(self) -> bool:
        """Whether it was asked to stop."""
        return self._cancelled.is_set()
