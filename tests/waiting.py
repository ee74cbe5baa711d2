"""Waiting for a condition, with a limit, and with a word about what was not reached."""

import time
from collections.abc import Callable


def until(condition: Callable[[], bool], limit_s: float, explain: Callable[[], str]) -> None:
    """Return when `condition` holds; fail with `explain()` when it does not within `limit_s`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s\n{explain()}"
        time.sleep(0.05)
