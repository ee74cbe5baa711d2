"""The fork: a process that imports what workers need, and off which they are forked."""

from multiprocessing import get_context
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running

FORKED: ForkServerContext = get_context("forkserver")
FORKED.set_forkserver_preload(["api.worker"])


def begin() -> None:
    """Have it import from now on, if it does not yet: beside whoever has other things to do."""
    ensure_running()
