"""The look: something that takes a while to see, seen for all who ask at about the same time."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from anyio import to_thread

from headrace.clock import Clock

AGE_S = 0.5
"""What is so old is looked at again: pages ask every second."""
REST = 5
"""So many times as long as a look took it is not taken again: many pages cost no more than one."""

T = TypeVar("T")


class Look(Generic[T]):
    """Something that is looked at in a thread while somebody asks, however many ask at once."""

    def __init__(self, look: Callable[[], T], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._running: asyncio.Task[None] | None = None
        self._seen: tuple[T, float, float] | None = None
        """What was seen last, when that look began, and when the next may."""

    async def seen(self, wait_s: float | None = None) -> tuple[T, float] | None:
        """Tell what is seen, and how long ago; None if it takes longer than is waited, at first."""
        now = self._clock.monotonic()
        if self._running is None and (self._seen is None or now >= self._seen[2]):
            self._running = asyncio.create_task(self._run())
        if self._running is not None:
            running = self._running
            await asyncio.wait([running], timeout=wait_s)
            if running.done():
                running.result()  # a bug is raised, and the next who asks looks again
        if self._seen is None:
            return None
        return self._seen[0], self._clock.monotonic() - self._seen[1]

    async def _run(self) -> None:
        began = self._clock.monotonic()
        try:
            found = await to_thread.run_sync(self._look, abandon_on_cancel=True)
            now = self._clock.monotonic()
            self._seen = found, began, now + max(AGE_S, REST * (now - began))
        finally:
            self._running = None
