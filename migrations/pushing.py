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
    STOPPED = "has stopped"
    """Until somebody has mended what is wrong: it looks now and then."""


NOT_YET = "it has not connected yet"


@dataclass(frozen=True, slots=True)
class Pushing:
    """What the pusher to one warehouse does, since when, and if it does not push, why."""

    state: State
    since: str
    what: str = ""
    hint: str = ""

    @property
    def is_trouble(self) -> bool:
        """Whether something keeps rows from the warehouse."""
        return self.state is not State.PUSHES and self.what != NOT_YET

    def lines(self, warehouse: str) -> list[str]:
        """Say it to people, if it is more than that it pushes."""
        if not self.what:
            return []
        return [f"the pusher to {warehouse} {self.state}: {self.what}", f"  {self.hint}"]


def stopped_by(error: Exception, since: str) -> Pushing:
    """Say that a pusher has stopped, and what is to be done."""
    what, hint = f"a bug: {error!r}", "The engine's log tells more: `headrace logs engine`."
    if isinstance(error, HeadraceError):
        what, hint = error.what, error.hint
    return Pushing(State.STOPPED, since, what, f"{hint} Then it goes on by itself.")


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
