"""Following: a text that grows, given as far as its tuples are complete.

Nobody sleeps here: whoever follows decides when to ask again. The file is open only while it is
read: a folder may have more of them than a process may have open.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NoReturn

from etl_procs.model import Stream
from etl_procs.wire import Avro, Delimited, Xml
from headrace.errors import HeadraceError, Refused
from ingest import fields
from ingest.reading import scanner
from ingest.records import FRAME_BYTES
from ingest.runs import START, Bookmark, Run, Scanner
from ingest.source import DIGITS, Source, name_of, opened, promises_compression

BEHIND_BYTES = 1_024
"""How much of what was read is looked at again."""

Find = Callable[[str], Bookmark]
"""Tells where reading goes on in a source, by its name."""


class Gone(HeadraceError):
    """A file that was followed is no longer at its path."""


class Unfollowable(Refused):
    """What is no plain text of lines; when it is complete, it can be sent."""


class Follower:
    """A file that grows. It is read from its beginning, to learn its name, and then on from where
    `find` says of that.

    What was read must stay as it is, and the path must go on to name this file; the file may only
    become longer.
    """

    def __init__(
        self, path: str | Path, stream: Stream, find: Find = lambda _: START, source: str = ""
    ) -> None:
        self._format = stream.wire.format
        self.path = os.path.abspath(path)
        self.name = source
        """What it is called in the wire; nothing, until its first tuple is complete."""
        self.header: tuple[str, ...] | None = None
        """The fields' names, of a text that has them in its first line, once that is complete."""
        self._find = find
        self._scanner: Scanner | None = None
        """None until its header and its first tuple are complete: before, nothing is given."""
        self._position = 0
        self._behind = ""
        self._file: tuple[int, int] | None = None
        self._read: os.stat_result | None = None
        """How it looked when all of it was read."""

    @property
    def bookmark(self) -> Bookmark:
        """Where to go on after all that was given."""
        if self._scanner is None:
            return START
        offset, behind = self._scanner.offset, ""
        try:
            with closing(opened(self.path)) as file:
                behind = _digest_behind(file, offset)
        except HeadraceError:
            pass  # it is gone, which is said at the next look; what was read of it counts
        return Bookmark(self._scanner.number, offset, behind)

    def runs(self) -> Iterator[Run]:
        """Give what is complete and was not given yet."""
        while block := self._more():
            assert self._scanner
            yield from self._scanner.feed(block)

    def _more(self) -> bytes:
        """Read on, if there is more than at the last look."""
        now = self._looked_at()
        if self._read and _changed(now) == _changed(self._read):
            return b""
        with closing(opened(self.path)) as file:
            if file.compression:
                self._refuse_kind()
            size = self._checked_size(file)
            block = b""
            if self._scanner is not None or self._begin(file, size):
                block = self._pread(file, self._position, min(FRAME_BYTES, size - self._position))
                self._position += len(block)
                self._behind = _digest_behind(file, self._position)
        if not block:
            self._read = now
        return block

    def _looked_at(self) -> os.stat_result:
        if isinstance(self._format, Avro | Xml) or promises_compression(self.path):
            self._refuse_kind()
        try:
            now = os.stat(self.path)
        except OSError as error:
            if self._file is None:
                raise HeadraceError(
                    f"{self.path} cannot be read: {error.strerror}", hint="Nothing was sent of it."
                ) from error
            self._let_go(f"is gone ({error.strerror})")
        if not stat.S_ISREG(now.st_mode):
            raise Refused(f"{self.path} is no file, and cannot be followed", hint="Leave it out.")
        return now

    def _checked_size(self, file: Source) -> int:
        now = os.fstat(file.raw.fileno())
        self._file = self._file or (now.st_dev, now.st_ino)
        if self._file != (now.st_dev, now.st_ino):
            self._let_go("was replaced by another file")
        if now.st_size < self._position:
            self._refuse("has shrunk")
        if self._position and _digest_behind(file, self._position) != self._behind:
            self._refuse("was written anew before the place that was read last")
        return now.st_size

    def _begin(self, file: Source, size: int) -> bool:
        """Learn the header and the name, if they are complete, and go to where reading goes on."""
        has_header = isinstance(self._format, Delimited) and self._format.header
        scans = scanner(self._format, Bookmark(0 if has_header else 1), tuples_max=1)
        digest, position, start = hashlib.sha256(), 0, START
        while position < size:
            block = self._pread(file, position, min(FRAME_BYTES, size - position))
            for run in scans.feed(block):
                if run.first == 0:
                    assert isinstance(self._format, Delimited)
                    self.header, start = fields.header(self._format, run), Bookmark(1, run.end)
                elif run.raws[0]:
                    digest.update(block[: run.end - position])
                    self.name = self.name or name_of(self.path, digest.hexdigest()[:DIGITS])
                    at = self._find(self.name)
                    self._go_on(file, at if at.offset else start, size)
                    return True
            digest.update(block)
            position += len(block)
        return False

    def _go_on(self, file: Source, at: Bookmark, size: int) -> None:
        if size < at.offset:
            self._refuse("has shrunk")
        if at.behind and _digest_behind(file, at.offset) != at.behind:
            self._refuse("was written anew before the place where reading is to go on")
        self._scanner, self._position = scanner(self._format, at), at.offset

    def _pread(self, file: Source, offset: int, size: int) -> bytes:
        block = os.pread(file.raw.fileno(), size, offset)
        if size and not block:
            self._refuse("has shrunk")
        return block

    def _refuse_kind(self) -> NoReturn:
        raise Unfollowable(
            f"{self.path} cannot be followed: it is no plain text of lines",
            hint="Send it when it is complete.",
        )

    def _refuse(self, what: str) -> NoReturn:
        raise HeadraceError(
            f"{self.path} {what}, and only what grows can be followed",
            hint="What was sent stays. Follow what is there now from its beginning.",
        )

    def _let_go(self, what: str) -> NoReturn:
        rest = f" The rest, where it is now: produce FILE --source '{self.name}'."
        raise Gone(
            f"{self.path} {what}: {self._position:,} bytes of it were read",
            hint="What was sent stays." + (rest if self._scanner else ""),
        )


def _digest_behind(file: Source, offset: int) -> str:
    begin = max(0, offset - BEHIND_BYTES)
    behind = os.pread(file.raw.fileno(), offset - begin, begin)
    return hashlib.sha256(behind).hexdigest()[:DIGITS]


def _changed(seen: os.stat_result) -> tuple[int, ...]:
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns
