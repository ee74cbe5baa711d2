"""Freshness: how long it takes from when a fact is sent until it can be read in the warehouse.

Measured of every fact, from just before it is given to Kafka's client to when it is seen that the
warehouse's ledger has the batch of the core that took it; the ledger moves in the transaction that
makes that batch's rows readable in the `live` views. Which batch took a fact, the core's positions
tell: where it is in its topic, and how far a batch has read that.

* What is polled is seen late: by POLL_S and the time that a look takes. It is never seen early.
* A fact that waits in the core for another one counts when it was taken. In a stream in order these
  are few: a holding that overtakes its trade, by a tick.
* Waiting for the tick in which it is sent is no part of it; whether the sender keeps up, the rate
  tells.
"""

import threading
from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from headrace.clock import Clock

POLL_S = 0.01


class Passage(Protocol):
    """Where it is seen how far facts are on their way."""

    def committed(self) -> tuple[int, Mapping[str, int]]:
        """Tell a batch of the core, and before which record of each stream's topic it ended."""

    def readable(self) -> int:
        """Tell through which batch the warehouse has what the core gave."""


class Sent(NamedTuple):
    """Facts of a stream that were sent at once: the last record that they are in, and when."""

    offset: int
    at: float
    rows: int


class Figures(NamedTuple):
    """How fresh so many rows were, in ms: half of them this or better, 99 % of them, the worst."""

    rows: int
    p50: int | None
    p99: int | None
    worst: int | None

    @classmethod
    def of(cls, rows_by_ms: Mapping[int, int]) -> "Figures":
        """Tell them of how many rows took so long."""
        rows = sum(rows_by_ms.values())

        def share(part: float) -> int | None:
            passed = 0
            for ms in sorted(rows_by_ms):
                passed += rows_by_ms[ms]
                if passed >= part * rows:
                    return ms
            return None

        return cls(rows, share(0.5), share(0.99), share(1))

    def __str__(self) -> str:
        if not self.rows:
            return "freshness was not measured yet"
        return (
            f"readable after {self.p50:,} ms (p50), {self.p99:,} ms (p99), {self.worst:,} ms at "
            "worst"
        )


class Freshness:
    """Measures, in a thread of its own, while it is open; at the end once more."""

    def __init__(self, passage: Passage, clock: Clock) -> None:
        self._passage = passage
        self._clock = clock
        self._lock = threading.Lock()
        self._sent: dict[str, deque[Sent]] = {}
        self._batches: deque[tuple[int, Mapping[str, int]]] = deque()
        self._all: Counter[int] = Counter()
        self._recent: Counter[int] = Counter()
        self._failure: Exception | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="freshness", daemon=True)

    def __enter__(self) -> "Freshness":
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._over.set()
        self._thread.join()
        if error is None:
            self._raise()
            self.look()

    def sent(self, stream: str, facts: Sent) -> None:
        """Take note of what was sent."""
        self._raise()
        with self._lock:
            self._sent.setdefault(stream, deque()).append(facts)

    def look(self) -> None:
        """See what can be read now."""
        with self._lock:
            if not any(self._sent.values()):
                return
        batch, positions = self._passage.committed()
        if self._batches and self._batches[-1][0] == batch:
            self._batches.pop()
        self._batches.append((batch, positions))
        readable, reached = self._passage.readable(), None
        now = self._clock.monotonic()
        while self._batches and self._batches[0][0] <= readable:
            _, reached = self._batches.popleft()
        if reached is not None:
            self._arrived(reached, now)

    def figures(self) -> Figures:
        """Tell of all that was measured."""
        with self._lock:
            return Figures.of(self._all)

    def recent(self) -> Figures:
        """Tell of what was measured since this was asked last."""
        with self._lock:
            recent, self._recent = self._recent, Counter()
        return Figures.of(recent)

    def _arrived(self, reached: Mapping[str, int], now: float) -> None:
        with self._lock:
            for stream, waiting in self._sent.items():
                while waiting and waiting[0].offset < reached.get(stream, 0):
                    facts = waiting.popleft()
                    ms = round((now - facts.at) * 1_000)
                    self._all[ms] += facts.rows
                    self._recent[ms] += facts.rows

    def _run(self) -> None:
        try:
            while not self._over.wait(POLL_S):
                self.look()
        except Exception as error:  # noqa: BLE001 - raised to who sends
            self._failure = error

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure
