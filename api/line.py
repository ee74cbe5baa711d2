"""The line: for a thread to do something in, of limited length."""

from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.responses import Response

from api.errors import Busy
from api.problem import JSON
from api.values import dump

AT_ONCE, WAITING_MAX = 4, 64
"""Of what looks at files for a moment."""

T = TypeVar("T")


class Line:
    """So many at once, so many wait, and whoever comes then is told to come back."""

    def __init__(self, what: str, at_once: int = AT_ONCE, waiting_max: int = WAITING_MAX) -> None:
        self._what = what
        self._threads = CapacityLimiter(at_once)
        self._at_once = at_once
        self._waiting_max = waiting_max
        self._inside = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Do `work` when it is its turn; refuse it when the line is full."""
        if self._inside >= self._at_once + self._waiting_max:
            raise Busy(
                f"as many {self._what} run ({self._at_once}) and wait ({self._waiting_max}) as may",
                hint="Ask again in a moment.",
            )
        self._inside += 1  # all of this runs in the one thread of the event loop
        try:
            return await to_thread.run_sync(work, limiter=self._threads)
        finally:
            self._inside -= 1

    async def answer(self, work: Callable[[], object], status: int = HTTPStatus.OK) -> Response:
        """Do `work`, and answer what it gives as JSON, which is written in its thread too."""
        return Response(await self.run(lambda: dump(work())), status, media_type=JSON)
