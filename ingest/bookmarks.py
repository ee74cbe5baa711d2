"""Bookmarks: up to where each source was acknowledged; one small file each in the data folder.

To lose one costs time, and nothing else: the source is sent again from its beginning, and the core
recognises it. A file that is not what it should be is passed over with a word, and written anew.
"""

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingest.runs import START, Bookmark

log = logging.getLogger(__name__)

VERSION = 1


class Bookmarks:
    """The bookmarks of one topic, which is known by its id: one made again has none."""

    def __init__(self, folder: Path, topic: str, topic_id: str) -> None:
        self._folder = folder
        self._about: dict[str, Any] = {"version": VERSION, "topic": topic, "topic_id": topic_id}

    def read(self, source: str) -> Bookmark:
        """Tell where a source goes on: at its beginning, if nothing is known."""
        path = self._path(source)
        try:
            found = json.loads(path.read_bytes())
            kept = Bookmark(found["number"], found["offset"], found["behind"])
            if not all(type(n) is int and n >= 0 for n in kept[:2]) or type(kept[2]) is not str:
                raise ValueError("its places are no places")
        except FileNotFoundError:
            return START
        except (OSError, ValueError, LookupError, TypeError) as error:
            log.warning("bookmark %s is passed over, and %s sent whole: %s", path, source, error)
            return START
        if {name: found.get(name) for name in self._about} | {"source": found.get("source")} != (
            self._about | {"source": source}
        ):
            log.warning("bookmark %s is of another topic: %s is sent whole", path, source)
            return START
        return kept

    def write(self, places: Mapping[str, Bookmark]) -> None:
        """Keep where sources go on, each whole or not at all, on disk when this returns."""
        if not places:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for source, place in places.items():
            text = json.dumps(self._about | {"source": source} | place._asdict())
            path = self._path(source)
            # Two collectors may be at work on one source: each has a draft of its own.
            draft = path.with_suffix(f".{os.getpid()}")
            with draft.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _path(self, source: str) -> Path:
        named = hashlib.sha256(f"{self._about['topic']}\n{source}".encode()).hexdigest()
        return self._folder / f"{named[:32]}.json"
