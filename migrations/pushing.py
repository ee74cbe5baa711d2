"""Pushing: whether rows go to a warehouse, told in a file that other processes read.

It says for which engine it was written: what one that is gone has left behind tells nothing.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from headrace.errors import HeadraceError

log = logging.getLogger(__name__)


class State(StrEnum):
    """What a pusher does."""

    PUSHES = "pushes"
    WAITS = "waits"
    """For what passes by itself."""
    ENDED = "has ended"
    """Until somebody has mended what is wrong, and the engine starts anew."""


@dataclass(frozen=True, slots=True)
class Pushing:
    """What the pusher to one warehouse does, since when, and if it does not push, why."""

    state: State
    since: str
    what: str = ""
    hint: str = ""


def ended_by(error: Exception, since: str) -> Pushing:
    """Say that a pusher has ended, and what is to be done."""
    what, hint = f"a bug: {error!r}", "The engine's log tells more: `headrace logs engine`."
    if isinstance(error, HeadraceError):
        what, hint = error.what, error.hint
    return Pushing(State.ENDED, since, what, f"{hint} Then restart the engine.")


class Board:
    """Writes the file of one engine; each time, it is replaced whole."""

    def __init__(self, path: Path, pid: int) -> None:
        self._path = path
        self._pid = pid
        self._written: Mapping[str, Pushing] | None = None

    def write(self, pushers: Mapping[str, Pushing]) -> None:
        """Write what is so now, unless it was written before. That it cannot be harms nobody: the
        disk may be full, and it is tried again the next time.
        """
        if pushers == self._written:
            return
        told = {name: asdict(pushing) for name, pushing in pushers.items()}
        new = self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps({"pid": self._pid, "pushers": told}), encoding="utf-8")
            new.replace(self._path)
        except OSError as error:
            log.warning("what the pushers do cannot be written to %s: %s", self._path, error)
        else:
            self._written = dict(pushers)


def read(path: Path, pid: int | None) -> dict[str, Pushing]:
    """Read what the pushers of the engine that runs as `pid` do, by warehouse."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["pid"] != pid:
            return {}
        return {
            name: Pushing(State(of["state"]), of["since"], of["what"], of["hint"])
            for name, of in document["pushers"].items()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}
