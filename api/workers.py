"""The workers: processes that answer queries, each in its turn.

They are forked off one process that has imported what they need: by themselves they would take two
seconds to begin, and the first query with them.
"""

import logging
from asyncio import TimerHandle, get_running_loop
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from api import fork, worker
from api.errors import CANCELLED, SLOW, Busy, QueryCancelled, TooMuchMemory, TooSlow, WorkerEnded
from api.island import Setting
from api.messages import TOO_LARGE, Ask, Begun, Cancel, Done, Explain, Explained, Start
from headrace import telemetry
from headrace.clock import SystemClock

CANCEL_S = 2.0
"""How long a worker that is told to end a query may take before it is killed."""

CLOCK = SystemClock()

log = logging.getLogger(__name__)


class Workers:
    """So many queries are answered at once, so many wait, and who comes then may come again."""

    def __init__(
        self, setting: Setting, *, size: int, waiting_max: int, memory_mb_max: int
    ) -> None:
        self._start = Start(setting, memory_mb_max)
        self._size = size
        self._waiting_max = waiting_max
        self._turns = anyio.Semaphore(size)
        self._inside = 0
        self._idle: deque[Worker] = deque()
        self._threads = anyio.CapacityLimiter(size)
        fork.begin()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator["Worker"]:
        """Have a worker for one query. One that is left in the middle of it is killed."""
        if self._inside >= self._size + self._waiting_max:
            raise Busy(
                f"as many queries run ({self._size}) and wait ({self._waiting_max}) as may",
                hint="Ask again in a moment.",
            )
        self._inside += 1
        try:
            async with self._turns:
                # The one that was idle for the shortest time knows the most of what is asked now.
                found = self._idle.pop() if self._idle else None
                if found is None or not found.is_alive:
                    found = await to_thread.run_sync(Worker, self._start, self._threads)
                try:
                    yield found
                finally:
                    if found.is_free:
                        self._idle.append(found)
                    else:
                        found.kill()
        finally:
            self._inside -= 1

    def close(self) -> None:
        """End all that are idle; those at work end with this process."""
        while self._idle:
            self._idle.pop().kill()


class Worker:
    """One process, and the socket to it."""

    def __init__(self, start: Start, threads: anyio.CapacityLimiter) -> None:
        self._threads = threads
        self._memory_mb_max = start.memory_mb_max
        self._connection, theirs = fork.FORKED.Pipe()
        with theirs:
            self._process = fork.FORKED.Process(target=worker.main, args=(theirs,), daemon=True)
            self._process.start()
        self._connection.send(start)
        self._words: deque[Any] = deque()
        """What was said, and is still to be heard."""
        self._ending: TimerHandle | None = None
        self._timeout_ms, self._deadline = 0, 0.0
        self._is_cancelled = False
        self.is_free = True

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.is_alive()

    async def ask(self, ask: Ask | Explain) -> Begun | Explained:
        """Ask a query; raise what keeps it from being answered."""
        self.is_free = self._is_cancelled = False
        self._timeout_ms = ask.asked.timeout_ms
        # PostgreSQL ends what takes too long there; this is for what takes long elsewhere.
        self._deadline = CLOCK.monotonic() + self._timeout_ms / 1000 + CANCEL_S
        with suppress(OSError):  # that it has gone is heard
            self._connection.send(ask._replace(request=telemetry.REQUEST.get()))
        said = await self.hear()
        assert isinstance(said, Begun | Explained), said
        return said

    async def hear(self) -> Begun | bytes | Done | Explained:
        """Hear the next word about the query."""
        if not self._words:
            heard = partial(self._heard, self._deadline)
            self._words.extend(
                await to_thread.run_sync(heard, limiter=self._threads, abandon_on_cancel=True)
            )
        said = self._words.popleft()
        if isinstance(said, (Done, Explained, BaseException)):
            self.is_free = True
            if self._ending is not None:
                self._ending.cancel()  # or the next query would end with this one
                self._ending = None
        if isinstance(said, BaseException):
            raise said
        assert isinstance(said, Begun | bytes | Done | Explained), said
        return said

    def cancel(self, id: str) -> None:
        """Have the query at hand end: soon by itself, or else with the process."""
        if self.is_free:  # it is over, and only its last bytes are on their way
            return
        self._is_cancelled = True
        with suppress(OSError):
            self._connection.send(Cancel(id))
        if self._ending is None:
            self._ending = get_running_loop().call_later(CANCEL_S, self.kill)

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.join()  # a thread that still listens hears the end

    def _heard(self, deadline: float) -> tuple[Any, ...]:
        """Wait for the next words; raise why there are no more."""
        try:
            if self._connection.poll(max(deadline - CLOCK.monotonic(), 0)):
                words: tuple[Any, ...] = self._connection.recv()
                return words
        except (EOFError, OSError):
            self._process.join()
        else:
            raise TooSlow(f"the query took longer than {self._timeout_ms} ms", hint=SLOW)
        if self._is_cancelled:
            raise QueryCancelled(CANCELLED, hint="Ask it again.")
        code = self._process.exitcode
        if code == TOO_LARGE:
            raise TooMuchMemory(
                f"the query took more memory than {self._memory_mb_max} MB",
                hint="Ask for less at once; the limit is api.query_memory_mb_max.",
            )
        raise WorkerEnded(
            f"the process that answered the query has ended, with code {code}",
            hint="Ask again; `headrace logs api` may tell more.",
        )
