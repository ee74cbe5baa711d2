"""Waiting without a worker: look again and again until there is something to tell."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace_airflow.api import Unreachable

PAUSE_FIRST_S = 0.5
PAUSE_S_MAX = 60.0

T = TypeVar("T")


class Overdue(Exception):
    """Time was up before there was anything to tell."""


async def told(
    look: Callable[[], T | None],
    until: float,
    pause_s: float,
    *,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> T:
    """Look, at least once, until it gives something; pauses grow to `pause_s`.

    An API that cannot be reached is waited for: a restart of it goes unnoticed.
    """
    pause = min(PAUSE_FIRST_S, pause_s)
    while True:
        trouble: Unreachable | None = None
        try:
            found = await asyncio.to_thread(look)
        except Unreachable as unreachable:
            found, trouble = None, unreachable
        if found is not None:
            return found
        left = until - now()
        if left <= 0:
            raise Overdue(str(trouble) if trouble else "it has not ended") from trouble
        wished = trouble.retry_after_s if trouble else 0.0
        await sleep(min(max(pause, min(wished, PAUSE_S_MAX)), left))
        pause = min(pause * 2, pause_s)
