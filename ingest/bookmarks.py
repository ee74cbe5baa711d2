"""Bookmarks: up to where each source was acknowledged, where it goes, and what its file is called.

They are one SQLite database in the data folder, with a journal that stays there: 203 small files,
entered by 32 at a time, cost 10 ms so, and 450 ms when each of their notes was a file that was
made, synced and renamed. With a WAL a commit is a fifth of a millisecond cheaper, but to open and
close it costs more, and processes that make it at once are refused, one time in twenty.

To lose how far a source is costs time, and nothing else: it is sent again from its beginning, and
the core recognises it. To lose where it goes, or what its file was called, costs more: what is
sent another way then, or has grown since, counts twice. As all of them are lost together, a
database that is damaged is not passed over in silence: nothing is sent until somebody has moved it
away, and the error says which sources to leave out then.
"""

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from etl_procs.errors import primary_code
from headrace.errors import HeadraceError, Refused
from ingest.runs import START, Beginning, Bookmark

log = logging.getLogger(__name__)

NAME = "bookmarks.sqlite"
BUSY_TIMEOUT_MS = 10_000

SOURCES = """\
CREATE TABLE IF NOT EXISTS sources (
    topic    TEXT NOT NULL,
    source   TEXT NOT NULL,
    topic_id TEXT NOT NULL,
    lane     TEXT NOT NULL,
    number   INTEGER NOT NULL CHECK (number >= 0),
    offset   INTEGER NOT NULL CHECK (offset >= 0),
    behind   TEXT NOT NULL,
    PRIMARY KEY (topic, source)
) STRICT, WITHOUT ROWID"""

# A path is bytes: it need not be a text.
FILES = """\
CREATE TABLE IF NOT EXISTS files (
    topic    TEXT NOT NULL,
    path     BLOB NOT NULL,
    topic_id TEXT NOT NULL,
    name     TEXT NOT NULL,
    size     INTEGER NOT NULL,
    PRIMARY KEY (topic, path)
) STRICT, WITHOUT ROWID"""

READ = """\
SELECT topic_id, number, offset, behind FROM sources WHERE topic = :topic AND source = :source"""

LANE = "SELECT lane FROM sources WHERE topic = :topic AND source = :source"

ENTER = """\
INSERT INTO sources VALUES (:topic, :source, :topic_id, :lane, :number, :offset, :behind)
ON CONFLICT DO UPDATE SET
    topic_id = excluded.topic_id, lane = excluded.lane, number = excluded.number,
    offset = excluded.offset, behind = excluded.behind
WHERE topic_id <> excluded.topic_id"""

WRITE = """\
INSERT OR REPLACE INTO sources
VALUES (:topic, :source, :topic_id, :lane, :number, :offset, :behind)"""

BEGINNING = "SELECT topic_id, name, size FROM files WHERE topic = :topic AND path = :path"

BEGIN = "INSERT OR REPLACE INTO files VALUES (:topic, :path, :topic_id, :name, :size)"


class Unkept(HeadraceError):
    """Bookmarks cannot be read or kept: this is no one source's fault, and nothing more is sent."""


class Bookmarks:
    """The bookmarks of one topic, which is known by its id: one made again has none.

    For one thread; others, and other processes, have their own on the same folder.
    """

    def __init__(self, folder: Path, topic: str, topic_id: str, lane: str) -> None:
        self._path = folder / NAME
        self._of = {"topic": topic, "topic_id": topic_id, "lane": lane}
        self._begun: dict[str, Beginning] = {}
        """Files that nothing was entered of yet."""
        if not self._path.exists() and any(folder.glob("*.json")):
            raise Unkept(f"the bookmarks in {folder} are of an older Headrace", hint=self._moved)
        with self._translated():
            folder.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(self._path, isolation_level=None)
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
            self._connection.execute("PRAGMA journal_mode = PERSIST")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(SOURCES)
            self._connection.execute(FILES)

    def close(self) -> None:
        """Close the database; what was written stays."""
        self._connection.close()

    def read(self, source: str) -> Bookmark:
        """Tell where a source goes on: at its beginning, if nothing is known."""
        found = self._found(READ, source, source=source)
        return Bookmark(*found) if found else START

    def enter(self, sources: Iterable[str]) -> dict[str, Refused]:
        """Note where the tuples of sources go, before any of them does; tell whose may not go.

        The core knows a repeat within its partition only: what has landed, and is behind the
        bookmark, would count twice.
        """
        refused: dict[str, Refused] = {}
        named = [source for source in sources if source]
        if not named:
            return refused
        with self._writing() as connection:
            for source in named:
                connection.execute(ENTER, self._of | {"source": source} | START._asdict())
                ((begun,),) = connection.execute(LANE, self._of | {"source": source})
                if begun != self._of["lane"]:
                    refused[source] = self._another_way(source, begun)
        return refused

    def _another_way(self, source: str, begun: str) -> Refused:
        return Refused(
            f"{source} was begun {begun}, and would go on {self._of['lane']}: tuples might be "
            "there twice",
            hint="Send it as it was begun, with that --partition or route; and what is new as "
            "another file.",
        )

    def beginning(self, path: str) -> Beginning | None:
        """Tell what a whole file of this path was called when it was sent first."""
        found = self._found(BEGINNING, path, path=os.fsencode(path))
        return Beginning(*found) if found else None

    def begin(self, path: str, beginning: Beginning) -> None:
        """Keep what a file is called, in case that it grows; with what is entered or written next,
        as no tuple of it goes before.
        """
        self._begun[path] = beginning

    def write(self, places: Mapping[str, Bookmark]) -> None:
        """Keep where sources go on, all or none of them, on disk when this returns."""
        if not places and not self._begun:
            return
        with self._writing() as connection:
            connection.executemany(
                WRITE,
                [self._of | {"source": of} | place._asdict() for of, place in places.items()],
            )

    def _found(self, query: str, whose: str, **of: str | bytes) -> list[Any] | None:
        """Look for what is known of a source or of a path, of this very topic."""
        with self._translated():
            found = self._connection.execute(query, self._of | of).fetchone()
        if found is None:
            return None
        topic_id, known = found[0], list(found[1:])
        if topic_id != self._of["topic_id"]:
            log.warning("what is known of %s is of another topic: it is sent whole", whose)
            return None
        return known

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Run the block as one transaction, with what files are called that have begun."""
        with self._translated():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(
                    BEGIN,
                    [
                        self._of | {"path": os.fsencode(path)} | beginning._asdict()
                        for path, beginning in self._begun.items()
                    ],
                )
                yield self._connection
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
        self._begun.clear()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise self._unkept(error) from error

    def _unkept(self, error: Exception) -> Unkept:
        """Say what it means that the database could not be read or written."""
        match primary_code(error) if isinstance(error, sqlite3.Error) else 0:
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                return Unkept(
                    f"the bookmarks in {self._path} are damaged: {error}",
                    hint=self._moved,
                )
            case sqlite3.SQLITE_FULL:
                return Unkept(
                    f"the disk of {self._path} is full",
                    hint="Make room there. What was sent stays, and nothing was half-written.",
                )
            case sqlite3.SQLITE_BUSY:
                return Unkept(
                    f"another process has held {self._path} for {BUSY_TIMEOUT_MS // 1000} s",
                    hint="Find who has the file open: `fuser` tells.",
                )
        return Unkept(
            f"the bookmarks in {self._path} cannot be used: {error}",
            hint="Is that of the right data folder (--home DIR), and yours? What was sent stays.",
        )

    @property
    def _moved(self) -> str:
        """Say how to go on without bookmarks."""
        return (
            f"Move {self._path.parent} away, and run the same command again: sources are sent from "
            "their beginning, and what the core has counts once. But leave out files that have "
            "grown since they were sent, and sources whose --partition or route is another now: "
            "they would count twice."
        )
