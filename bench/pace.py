"""When how many rows were done, and so how long as many take."""

import threading
from time import perf_counter

PATIENCE_S = 300.0
WARM_SHARE = 0.2


class Pace:
    """Notes how many rows were done when, and tells the time of a row after the first ones."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._done = 0
        self.marks = [(0, perf_counter())]
        """How many rows were done at which moment."""
        self._read = 0
        self._start: int | None = None
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def read(self, rows: int) -> None:
        """Say that a micro-batch has so many rows."""
        with self._changed:
            self._read += rows
            if self._start is None and self._read >= WARM_SHARE * self._count:
                self._start = self._read

    def add(self, rows: int) -> None:
        """Say that so many more are done."""
        with self._changed:
            self._done += rows
            self.marks.append((self._done, perf_counter()))
            self._changed.notify()

    def fail(self, error: BaseException) -> None:
        """Say that nothing more is done."""
        with self._changed:
            self._failure = error
            self._changed.notify()

    def wait(self) -> None:
        """Wait until all are done."""
        with self._changed:
            ended = self._changed.wait_for(
                lambda: self._done >= self._count or self._failure is not None, PATIENCE_S
            )
            if self._failure is not None:
                raise self._failure
            assert ended, f"{self._done} of {self._count} rows after {PATIENCE_S:g} s"
            assert self._done == self._count, f"{self._done} rows of {self._count}"

    def seconds(self) -> float:
        """Wait until all are done; tell how long that many take."""
        self.wait()
        # If one micro-batch has the rest, all of it counts.
        start_at = self._start if self._start and self._start < self._count else 0
        rows, start = next(mark for mark in self.marks if mark[0] >= start_at)
        return (self.marks[-1][1] - start) / (self._done - rows) * self._count
