"""Feeds: sources on their way into a topic - what of each comes next, and where it goes on then.

A whole file is open until its end; a followed one only while there is something to read.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator

from etl_procs.model import Stream
from headrace.clock import Clock
from ingest.bookmarks import Bookmarks
from ingest.cleaning import Cleaner
from ingest.following import Follower
from ingest.reading import Reader
from ingest.runs import START, Beginning, Bookmark, Run
from ingest.source import Damaged

SETTLED_S = 3.0
"""What nobody has changed for so long is taken to be complete."""


class Feed(ABC):
    """A source, of which some was taken."""

    name = ""
    """What it is called in the topic."""
    is_done = False
    may_be_silent = False
    """Whether what comes next may have to be waited for, as of a pipe."""
    is_entered = False
    """Whether it was noted where its tuples go."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.at = self.begun = START

    @property
    def taken(self) -> int:
        """How much of the file was taken."""
        return self.at.offset

    @abstractmethod
    def next(self) -> Run | None:
        """Give the next run, cleaned; None at the end, or while there is none."""

    def close(self) -> None:  # noqa: B027 - most have nothing open between two runs
        """Close the file, if it is open."""


class Whole(Feed):
    """A source that is read to its end."""

    def __init__(self, path: str, stream: Stream, bookmarks: Bookmarks, name: str) -> None:
        super().__init__(path)
        before = None if name else bookmarks.beginning(path)
        self._reader = Reader(path, stream, source=name, before=before)
        self.name = self._reader.name
        self.may_be_silent = not self._reader.source.is_file
        size = self._reader.source.size
        if size and not name and (before is None or before.name != self.name):
            bookmarks.begin(path, Beginning(self.name, size))
        self.at = self.begun = bookmarks.read(self.name) if self.name else START
        try:
            self._cleaner = Cleaner(stream, self._reader.header)
        except BaseException:
            self.close()
            raise
        # What smoothing gives depends on all that was before.
        self._runs = self._reader.runs(START if self._cleaner.needs_history else self.at)

    @property
    def taken(self) -> int:
        """How much of the file was taken."""
        return self._reader.source.taken

    def next(self) -> Run | None:
        """Give the next run, cleaned; None at the end."""
        try:
            for run in self._runs:
                new = _new(self._cleaner, run, self.at)
                if new is not None:
                    self.at = Bookmark(run.next, run.end)
                    return new
        except Damaged as error:
            if not self.name or self.at == START:
                raise
            raise Damaged(
                error.what,
                hint=f"{error.hint} The mended one: produce FILE --source '{self.name}'. By "
                "another name, what was given counts again.",
            ) from error
        self.is_done = True
        return None

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


class Followed(Feed):
    """A source that grows."""

    def __init__(self, path: str, stream: Stream, bookmarks: Bookmarks, name: str) -> None:
        super().__init__(path)
        self._stream = stream
        self._bookmarks = bookmarks
        self._follower = Follower(path, stream, self._begin, name)
        self._cleaner: Cleaner | None = None
        self._runs: Iterator[Run] = iter(())

    def next(self) -> Run | None:
        """Give the next run, cleaned; None while there is none."""
        run = next(self._runs, None)
        if run is None:
            self._runs = self._follower.runs()
            run = next(self._runs, None)
        if run is None:
            return None
        assert self._cleaner is not None, "it has a name"
        new = _new(self._cleaner, run, self.at)
        if new is not None:
            self.at = self._follower.bookmark
        return new or run._replace(raws=[])

    def _begin(self, name: str) -> Bookmark:
        """Say where reading goes on, now that there is a name."""
        self.name = name
        self.at = self.begun = self._bookmarks.read(name)
        self._cleaner = Cleaner(self._stream, self._follower.header)
        return START if self._cleaner.needs_history else self.at


def _new(cleaner: Cleaner, run: Run, at: Bookmark) -> Run | None:
    """Clean a run, and give what is behind a bookmark; the rest was read for the history's sake."""
    raws = cleaner.clean(run.raws, but=run.oversize)
    known = max(0, at.number - run.first)
    if known >= len(raws) > 0:
        return None
    return run._replace(raws=[b""] * known + raws[known:]) if known else run._replace(raws=raws)


class Settling:
    """Files that cannot be followed, and wait until they are complete."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[object, float]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def add(self, path: str) -> None:
        """Begin to look at a file."""
        self._seen[path] = _look(path), self._clock.monotonic()

    def take(self, most: int) -> list[str]:
        """Give, once, files that have not changed for SETTLED_S; or that are gone."""
        now, settled = self._clock.monotonic(), list[str]()
        for path, (seen, since) in list(self._seen.items()):
            look = _look(path)
            if look != seen:
                self._seen[path] = look, now
            elif now - since >= SETTLED_S and len(settled) < most:
                del self._seen[path]
                settled.append(path)
        return settled


def _look(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
