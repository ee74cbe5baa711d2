"""The clock comes in through the front door, so that tests can hold it."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where a part reads the time."""

    def now(self) -> datetime:
        """Tell the wall clock, in UTC."""

    def monotonic(self) -> float:
        """Tell a time in seconds that never goes backwards."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Tell the wall clock, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Tell a time in seconds that never goes backwards."""
        return time.monotonic()
