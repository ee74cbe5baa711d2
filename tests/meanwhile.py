"""Doing something over and over in another thread, meanwhile."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeating(step: Callable[[], object]) -> Iterator[None]:
    """Repeat `step` until the block ends; what goes wrong with it, goes wrong with the block."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.is_set():
                step()
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread of the test
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    for failure in failures:
        raise failure
