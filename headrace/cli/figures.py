"""The engine's figures: what it measures, if it lives."""

from pathlib import Path

from etl_procs import measured
from etl_procs.measured import Measured
from headrace.clock import SystemClock
from headrace.local import lock
from headrace.local.home import Home


def living(root: Path) -> Measured | None:
    """Give the figures of the engine that runs in a data folder; None if none runs, or is stuck."""
    home = Home(root)
    found = measured.read(home.metrics)
    if found is None or not found.is_of(lock.holder(home.writer_lock), SystemClock().now()):
        return None
    return found
