"""Following: a text that grows, given as far as its tuples are complete.

Nobody sleeps here: whoever follows decides when to ask again.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from etl_procs.model import Stream
from etl_procs.wire import Avro, Delimited, Xml
from headrace.errors import HeadraceError, Refused
from ingest import fields
from ingest.reading import scanner
from ingest.records import FRAME_BYTES
from ingest.runs import START, Bookmark, Run
from ingest.source import DIGITS, about, name_of, opened

BEHIND_BYTES = 1_024
"""How much of what was read is looked at again."""


class Follower:
    """A file that grows. It is read from its beginning, to learn its name, and then on from `at`.

    What was read must stay as it is, and the path must go on to name this file; the file may only
    become longer.
    """

    def __init__(
        self, path: str | Path, stream: Stream, *, at: Bookmark = START, source: str = ""
    ) -> None:
        self._format = stream.wire.format
        opening = opened(path)
        self.path, self._file = opening.path, opening.raw
        if isinstance(self._format, Avro | Xml) or opening.compression or not opening.is_file:
            opening.close()
            raise Refused(
                f"{self.path} cannot be followed: it is no plain text of lines in a file",
                hint="Send it when it is complete.",
            )
        self.name = source
        """What it is called in the wire; nothing, until its first tuple is complete."""
        self.header: tuple[str, ...] | None = None
        """The fields' names, of a text that has them in its first line, once that is complete."""
        self.is_begun = False
        """Whether its header and its first tuple are complete: before, nothing is given."""
        self._at = at
        self._scanner = scanner(self._format, at)
        self._position = 0
        self._behind = self._digest_behind(0)

    def __enter__(self) -> "Follower":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def bookmark(self) -> Bookmark:
        """Where to go on after all that was given."""
        offset = self._scanner.offset
        return Bookmark(self._scanner.number, offset, self._digest_behind(offset))

    def runs(self) -> Iterator[Run]:
        """Give what is complete and was not given yet."""
        with about(self.path):
            yield from self._runs()

    def _runs(self) -> Iterator[Run]:
        size = self._checked_size()
        if not self.is_begun and not self._begin(size):
            return
        while self._position < size:
            block = self._pread(self._position, min(FRAME_BYTES, size - self._position))
            self._position += len(block)
            self._behind = self._digest_behind(self._position)
            yield from self._scanner.feed(block)

    def _checked_size(self) -> int:
        now = os.fstat(self._file.fileno())
        try:
            named = os.stat(self.path)
        except OSError as error:
            self._refuse(f"is gone: {error.strerror}")
        if (named.st_dev, named.st_ino) != (now.st_dev, now.st_ino):
            self._refuse("was replaced by another file")
        if now.st_size < max(self._position, self._at.offset):
            self._refuse("has shrunk")
        if self._digest_behind(self._position) != self._behind:
            self._refuse("was written anew before the place that was read last")
        return now.st_size

    def _begin(self, size: int) -> bool:
        """Learn the header and the name, if they are complete, and go to where reading goes on."""
        has_header = isinstance(self._format, Delimited) and self._format.header
        scans = scanner(self._format, Bookmark(0 if has_header else 1), tuples_max=1)
        digest, position, start = hashlib.sha256(), 0, START
        while position < size:
            block = self._pread(position, min(FRAME_BYTES, size - position))
            for run in scans.feed(block):
                if run.first == 0:
                    assert isinstance(self._format, Delimited)
                    self.header, start = fields.header(self._format, run), Bookmark(1, run.end)
                elif run.raws[0]:
                    digest.update(block[: run.end - position])
                    self._go_on(start, digest.hexdigest()[:DIGITS])
                    return True
            digest.update(block)
            position += len(block)
        return False

    def _go_on(self, start: Bookmark, digest: str) -> None:
        self.is_begun = True
        self.name = self.name or name_of(self.path, digest)
        at = self._at if self._at.offset else start
        if at.behind and self._digest_behind(at.offset) != at.behind:
            self._refuse("was written anew before the place where reading is to go on")
        self._scanner, self._position = scanner(self._format, at), at.offset
        self._behind = self._digest_behind(at.offset)

    def _pread(self, offset: int, size: int) -> bytes:
        block = os.pread(self._file.fileno(), size, offset)
        if size and not block:
            self._refuse("has shrunk")
        return block

    def _digest_behind(self, offset: int) -> str:
        begin = max(0, offset - BEHIND_BYTES)
        behind = os.pread(self._file.fileno(), offset - begin, begin)
        return hashlib.sha256(behind).hexdigest()[:DIGITS]

    def _refuse(self, what: str) -> NoReturn:
        raise HeadraceError(
            f"{self.path} {what}, and only what grows can be followed",
            hint="What was sent stays. Follow what is there now from its beginning.",
        )
