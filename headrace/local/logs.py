"""The parts' logs: their last lines, and turning them over when they get long.

A part writes to its file itself, in append mode; so its log can be copied away and cut to nothing
under its feet. Lines written between the two steps are lost: they are logs.
"""

import contextlib
import shutil
from collections import deque
from datetime import datetime
from pathlib import Path

SUPERVISOR = "supervisor"
OWN_ERROR = "headrace: "


def last_lines(path: Path, count: int, *, after: int = 0) -> list[str]:
    """Give the last lines of a log, of those after a position."""
    try:
        with path.open("rb") as file:
            file.seek(after if after <= path.stat().st_size else 0)  # it was turned over since
            found = deque(file, maxlen=count)
    except FileNotFoundError:
        return []
    return [line.decode(errors="replace").rstrip("\n") for line in found]


def last_words(path: Path, count: int, *, after: int = 0) -> list[str]:
    """Give the last lines; from the error on that a program of ours ended with, if one is there."""
    lines = last_lines(path, count, after=after)
    errors = [place for place, line in enumerate(lines) if line.startswith(OWN_ERROR)]
    return lines[errors[-1] :] if errors else lines


def turn_over(path: Path, bytes_max: int) -> None:
    """Move what is in a log that is too long to `<log>.1`, replacing what was there."""
    if not path.exists() or path.stat().st_size <= bytes_max:
        return
    former = path.with_name(path.name + ".1")
    draft = path.with_name(path.name + ".new")
    try:
        shutil.copyfile(path, draft)
        draft.replace(former)
    except OSError:  # a full disk: the old lines give way
        draft.unlink(missing_ok=True)
    with path.open("r+b") as file:
        file.truncate(0)


def append(path: Path, now: datetime, text: str) -> None:
    """Add an event of the supervisor's to its log."""
    with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(f"{now.isoformat(timespec='milliseconds')} {text}\n")
