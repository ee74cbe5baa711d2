"""A part that Headrace starts, alone, for as long as an experiment needs it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from headrace import config
from headrace.errors import HeadraceError, NotRunning
from headrace.local import child
from headrace.local.child import Child
from headrace.local.home import Home
from headrace.local.part import Part

LOOPBACK = "127.0.0.1"
READY_TIMEOUT_S = 60.0
PROBE_EVERY_S = 0.05


def settings(folder: Path) -> config.Config:
    """Make a data folder, and give what is in force there: nothing but what Headrace comes with."""
    loaded = config.load({"home": str(folder)}, environment={}).config
    Home(loaded.home).create()
    return loaded


@contextmanager
def running(part: Part, home: Home) -> Iterator[int]:
    """Run a part, from when it answers to the end of the block; give its process's number."""
    started = child.spawn(part, home, lambda _child: None)
    assert started is not None, "the folder is new"
    try:
        _wait_until_ready(started)
        yield started.pid
    finally:
        started.stop()
        if not started.dead.wait(part.stop_timeout_s):
            started.kill()
            started.dead.wait()


def _wait_until_ready(started: Child) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            return started.part.probe(started.pid)
        except (NotRunning, OSError, psycopg.OperationalError) as error:
            if time.monotonic() > deadline or started.dead.wait(PROBE_EVERY_S):
                raise HeadraceError(
                    f"the {started.part.name} of the experiment did not become ready: {error}",
                    hint="Look whether another one runs in the folder .bench.",
                ) from error
