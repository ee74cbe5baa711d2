"""What runs, and where: `<home>/run/stack.json`, written by the supervisor, read by clients.

Whether a supervisor lives is told by its lock, never by this file; whether a part lives, by the
part. What is read here is what the supervisor knew when it last wrote.
"""

import dataclasses
import json
import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from headrace.local import lock
from headrace.local.home import Home


class State(StrEnum):
    """The state of a part, or of the stack."""

    WAITING = "waiting"
    """For the parts that it needs."""
    STARTING = "starting"
    READY = "ready"
    HEALING = "healing"
    """It was ready, died, and is being started again; the stack: one of its parts is."""
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"
    """It was given up."""
    SILENT = "silent"
    """It should be ready, and does not answer."""
    EXTERNAL = "external"
    """Given by the configuration; not ours to start or stop."""


@dataclass(frozen=True, slots=True)
class PartState:
    """What the supervisor knows of one part."""

    state: State
    address: str
    pid: int | None = None
    started: str | None = None
    """In ISO 8601."""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class StackState:
    """What the supervisor knows of itself and its parts."""

    pid: int
    state: State
    started: str
    why: str = ""
    """Why it failed."""
    parts: dict[str, PartState] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Replace the file in one step, so that a reader never sees half of it."""
        draft = path.with_suffix(".new")
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(self), indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())  # or a power loss may leave an empty file under the name
        draft.replace(path)


def read(home: Home) -> StackState | None:
    """Read what the last supervisor wrote, if there was one and it can be read."""
    try:
        found = json.loads(home.state.read_text())
        parts = {
            name: PartState(**part | {"state": State(part["state"])})
            for name, part in found["parts"].items()
        }
        return StackState(**found | {"state": State(found["state"]), "parts": parts})
    except (FileNotFoundError, ValueError, LookupError, TypeError):
        return None  # derived: the next supervisor writes it anew


def running(home: Home) -> StackState | None:
    """Read the state of the stack that runs now, or None if none does."""
    pid = lock.holder(home.supervisor_lock)
    found = read(home)
    return found if found is not None and found.pid == pid else None
