"""Bookmarks: up to where each source was acknowledged; one small file each in the data folder.

To lose one costs time, and nothing else: the source is sent again from its beginning, and the core
recognises it. A file that is not what it should be is passed over with a word, and written anew.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import Refused
from ingest.runs import START, Beginning, Bookmark

log = logging.getLogger(__name__)

VERSION = 1

T = TypeVar("T")


class Bookmarks:
    """The bookmarks of one topic, which is known by its id: one made again has none."""

    def __init__(self, folder: Path, topic: str, topic_id: str, lane: str) -> None:
        self._folder = folder
        self._lane = lane
        self._about: dict[str, Any] = {"version": VERSION, "topic": topic, "topic_id": topic_id}

    def read(self, source: str) -> Bookmark:
        """Tell where a source goes on: at its beginning, if nothing is known."""

        def kept(found: dict[str, Any]) -> Bookmark:
            kept = Bookmark(found["number"], found["offset"], found["behind"])
            if not all(type(n) is int and n >= 0 for n in kept[:2]) or type(kept[2]) is not str:
                raise ValueError("its places are no places")
            return kept

        return self._read({"source": source}, kept) or START

    def enter(self, source: str) -> None:
        """Note where the tuples of a source go, before any of them does; refuse another way.

        The core knows a repeat within its partition only: what has landed, and is behind the
        bookmark, would count twice.
        """
        if not source:
            return
        begun = self._read({"source": source}, lambda found: str(found.get("lane", "")))
        if begun is None:
            self.write({source: START})
        elif begun not in ("", self._lane):
            raise Refused(
                f"{source} was begun {begun}, and would go on {self._lane}: tuples might be there "
                "twice",
                hint="Send it as it was begun, with that --partition or route; and what is new as "
                "another file.",
            )

    def beginning(self, path: str) -> Beginning | None:
        """Tell what a whole file of this path was called when it was sent first."""

        def kept(found: dict[str, Any]) -> Beginning:
            return Beginning(str(found["name"]), int(found["size"]))

        return self._read({"path": path}, kept)

    def begin(self, path: str, beginning: Beginning) -> None:
        """Keep what a file is called, in case that it grows."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write({"path": path}, beginning._asdict())
        self._sync()

    def _read(self, of: dict[str, str], kept: Callable[[dict[str, Any]], T]) -> T | None:
        path, (whose,) = self._path(of), of.values()
        try:
            found = json.loads(path.read_bytes())
            about = {name: found.get(name) for name in self._about | of}
            known = kept(found)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            log.warning("bookmark %s is passed over, and %s sent whole: %s", path, whose, error)
            return None
        if about != self._about | of:
            log.warning("bookmark %s is of another topic: %s is sent whole", path, whose)
            return None
        return known

    def write(self, places: Mapping[str, Bookmark]) -> None:
        """Keep where sources go on, each whole or not at all, on disk when this returns."""
        if not places:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for source, place in places.items():
            self._write({"source": source}, place._asdict() | {"lane": self._lane})
        self._sync()

    def _write(self, of: dict[str, str], kept: dict[str, Any]) -> None:
        path = self._path(of)
        # Two collectors may be at work on one source: each has a draft of its own.
        draft = path.with_suffix(f".{os.getpid()}")
        with draft.open("w", encoding="utf-8") as file:
            file.write(json.dumps(self._about | of | kept))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def _sync(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _path(self, of: dict[str, str]) -> Path:
        (kind, whose), *_ = of.items()
        text = f"{self._about['topic']}\n{kind}\n{whose}"
        named = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        return self._folder / f"{named[:32]}.json"
