"""File locks (flock): the kernel lets go when the last holder is gone, so none is ever stale."""

import fcntl
import os
import time
from pathlib import Path

from headrace.clock import Clock

RETRY_S = 0.02


def take(path: Path) -> int | None:
    """Take the lock, unsigned, and give its descriptor, or None while somebody holds it.

    The lock is held until this descriptor and every copy that a child inherited are closed.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    return descriptor


def take_within(path: Path, seconds: float, clock: Clock) -> int | None:
    """Take the lock, waiting a bounded time for its holder to go."""
    deadline = clock.monotonic() + seconds
    while (descriptor := take(path)) is None:
        if clock.monotonic() >= deadline:
            return None
        time.sleep(RETRY_S)  # flock has no wait with a limit
    return descriptor


def wait_until_free(path: Path, seconds: float, clock: Clock) -> bool:
    """Wait a bounded time for the holder to go; tell whether it went."""
    descriptor = take_within(path, seconds, clock)
    if descriptor is None:
        return False
    os.close(descriptor)
    return True


def sign_for(descriptor: int, pid: int) -> None:
    """Write the pid of its holder into a lock."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, str(pid).encode(), 0)


def is_held(path: Path) -> bool:
    """Whether somebody holds the lock."""
    if not path.exists():
        return False
    descriptor = take(path)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def holder(path: Path) -> int | None:
    """Tell the pid that the lock's holder signed with, if somebody holds it."""
    if not is_held(path):
        return None
    signed = path.read_text(encoding="ascii").strip()
    return int(signed) if signed else None
