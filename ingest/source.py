"""Sources: the bytes of a file, of a compressed file or of standard input, and whether they hold.

A file is read to the end that it had when it was opened. What a file is compressed with is told by
its first bytes, and not by its name.
"""

import bz2
import gzip
import hashlib
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from headrace.errors import HeadraceError
from ingest.records import FRAME_BYTES, SOURCE_BYTES_MAX
from ingest.runs import Beginning

DIGITS = 16
"""How much of a digest names a source: 64 bits."""
STANDARD_INPUT = "-"
MAGIC_BYTES_MAX = 10


class Ended(HeadraceError):
    """Nobody can go on in a source: what is sent in its place is another one."""


class Changed(Ended):
    """A file is no longer what it was when it was opened."""


class Damaged(Ended):
    """A source is damaged or cut off; what is whole before it was given."""


def _with_arrow(codec: str) -> Callable[[Any], Any]:
    # Buffered, for its read1: what comes before damage is given.
    def reader(raw: Any) -> Any:
        return BufferedReader(pa.CompressedInputStream(pa.PythonFile(raw, "r"), codec))

    return reader


# Magic bytes -> its name, the ending that promises it, and who reads it. Members in a row are one.
COMPRESSIONS: dict[bytes, tuple[str, str, Callable[[Any], Any]]] = {
    b"\x1f\x8b\x08": ("gzip", ".gz", lambda raw: gzip.GzipFile(fileobj=raw)),
    b"BZh": ("bzip2", ".bz2", bz2.BZ2File),
    b"\xfd7zXZ\0": ("xz", ".xz", lzma.LZMAFile),
    b"\x28\xb5\x2f\xfd": ("zstd", ".zst", _with_arrow("zstd")),
    b"\x04\x22\x4d\x18": ("lz4", ".lz4", _with_arrow("lz4")),
}
BZIP2_BLOCKS = (b"1AY&SY", b"\x17rE8P\x90")
"""What follows after BZh and a digit: without it, it is a text."""
CORRUPT = (EOFError, OSError, zlib.error, lzma.LZMAError, ValueError)


class Source:
    """An opened source, read once from its beginning or from where reading goes on."""

    def __init__(self, path: str, raw: Any) -> None:
        self.path = path
        self.called = called(path)
        """What errors call it."""
        self.position = 0
        """How much of its (decompressed) bytes was read."""
        self.raw = raw
        self._before = os.fstat(raw.fileno()) if path != STANDARD_INPUT else None
        self.is_file = self._before is not None and stat.S_ISREG(self._before.st_mode)
        self.size = self._before.st_size if self._before and self.is_file else None
        """How many bytes there are to take; None where nobody knows."""
        self._unread = b""
        self._damage = ""
        self.compression, self._content = self._decompressed()

    @property
    def taken(self) -> int:
        """How much of `size` was taken."""
        return int(self.raw.tell()) if self.compression and self.is_file else self.position

    def named(self, before: Beginning | None) -> str:
        """Name a file by all of its bytes, as they lie on the disk; or as it was called before it
        has grown: by the first of them.
        """
        assert self.size is not None
        digest, done = hashlib.sha256(), 0
        self.raw.seek(0)
        while done < self.size:
            upto = before.size if before and done < before.size < self.size else self.size
            block = self.raw.read(min(upto - done, 2**20))
            if not block:
                self._refuse_shrunk()
            digest.update(block)
            done += len(block)
            if before == (name_of(self.path, digest.hexdigest()[:DIGITS]), done):
                if done < self.size and not block.endswith(b"\n"):
                    self._refuse_grown(done)
                break
        self.raw.seek(0)
        return name_of(self.path, digest.hexdigest()[:DIGITS])

    def read(self, size: int = FRAME_BYTES) -> bytes:
        """Give the next bytes, none at the end."""
        if self._unread:
            block, self._unread = self._unread[:size], self._unread[size:]
        elif self.compression:
            block = self._decompress(size)
        else:
            block = self._plain(size)
        self.position += len(block)
        return block

    def unread(self, block: bytes) -> None:
        """Take back what was read last."""
        self._unread = block + self._unread
        self.position -= len(block)

    def skip_to(self, offset: int) -> None:
        """Go on at an offset in a text: a plain file is moved there, all else is read and passed
        over.
        """
        if self.is_file and not self.compression:
            self._unread = b""
            if self.size is not None and offset > self.size:
                self._refuse_short(self.size, offset)
            self.raw.seek(max(offset - 1, 0))
            before = self.raw.read(min(offset, 1))
            # Its last line had no end when it was sent: what follows is no tuple, but its rest.
            if self.size is not None and offset < self.size and before not in (b"", b"\n"):
                self._refuse_grown(offset)
            self.position = offset
        while self.position < offset:
            if not self.read(min(FRAME_BYTES, offset - self.position)):
                self._refuse_short(self.position, offset)

    def check_end(self, *, is_ended: bool) -> None:
        """Refuse a file that has changed since it was opened.

        One that only grew is read to the end that it had, if its last tuple `is_ended` there.
        """
        if not self.is_file:
            return
        assert self._before is not None
        now = os.fstat(self.raw.fileno())
        if now.st_size < self._before.st_size:
            self._refuse_shrunk()
        if now.st_mtime_ns == self._before.st_mtime_ns and now.st_size == self._before.st_size:
            return
        if now.st_size == self._before.st_size:
            raise Changed(
                f"{self.path} was changed while it was read",
                hint="What was sent may be a mixture, and stays. Sent again, it is another source, "
                "all of which counts.",
            )
        if self.compression or not is_ended:
            raise Changed(
                f"{self.path} grows while it is read, and its last tuple may be half written: it "
                f"begins before byte {self.position:,} of its content",
                hint="What is before it was given, and stays: sent again, the longer file is "
                "another source, all of which counts. Follow a plain text that grows, with "
                "--follow, from the first; send any other when it is complete.",
            )

    def close(self) -> None:
        """Close what was opened here."""
        if self.path != STANDARD_INPUT:
            self.raw.close()

    def _decompressed(self) -> tuple[str, Any]:
        start = self.raw.peek(MAGIC_BYTES_MAX)[:MAGIC_BYTES_MAX]
        for magic, (name, ending, reader) in COMPRESSIONS.items():
            if start.startswith(magic) and (name != "bzip2" or start[4:] in BZIP2_BLOCKS):
                return name, reader(self.raw)
            if start and self.path.endswith(ending):
                raise HeadraceError(
                    f"{self.path} is no {name} file, in spite of its name",
                    hint="Name it as what it is.",
                )
        return "", self.raw

    def _plain(self, size: int) -> bytes:
        if self.size is None:
            return bytes(self.raw.read1(size))
        block = bytes(self.raw.read1(min(size, self.size - self.position)))
        if not block and self.position < self.size:
            self._refuse_shrunk()
        return block

    def _decompress(self, size: int) -> bytes:
        """Give a whole block, or what there is before the end or the damage."""
        blocks = []
        try:
            while size and not self._damage:
                block = self._content.read1(size)
                if not block:
                    break
                blocks.append(block)
                size -= len(block)
        except CORRUPT as error:
            self._damage = str(error) or type(error).__name__
        if self._damage and not blocks:
            raise Damaged(
                f"{self.called} is damaged or cut off ({self.compression}: {self._damage}) after "
                f"{self.position:,} bytes of its content",
                hint="What was whole before it was given. Get the file again.",
            )
        return b"".join(blocks)

    def _refuse_shrunk(self) -> NoReturn:
        raise Changed(
            f"{self.path} has shrunk while it was read: it had {self.size:,} bytes",
            hint="What was sent is no longer there, and stays. Sent again, the file is another "
            "source, all of which counts.",
        )

    def _refuse_grown(self, size: int) -> NoReturn:
        raise Changed(
            f"{self.path} has grown since it was sent, and its last line was not ended then, at "
            f"byte {size:,}",
            hint=f"What was sent stays: also that line's beginning, up to byte {size:,}, unless an "
            "error said then that it was half written. Cut off what was sent, and send the rest by "
            "another --source.",
        )

    def _refuse_short(self, size: int, offset: int) -> NoReturn:
        raise HeadraceError(
            f"{self.called} has {size:,} bytes, and reading is to go on at {offset:,}",
            hint="It is not the source of this name. Give it another --source.",
        )


def promises_compression(path: str) -> bool:
    """Tell whether the name of a file says that it is compressed."""
    return path.endswith(tuple(ending for _, ending, _ in COMPRESSIONS.values()))


def called(path: str) -> str:
    """Call a source by its path, and `-` by what it means."""
    return "standard input" if path == STANDARD_INPUT else path


def opened(path: str | Path) -> Source:
    """Open a file, or `-`: standard input. A pipe waits here for its writer."""
    if str(path) == STANDARD_INPUT:
        return Source(STANDARD_INPUT, sys.stdin.buffer)
    absolute = os.path.abspath(path)
    try:
        raw = open(absolute, "rb")  # noqa: SIM115 - the source closes it
    except OSError as error:
        raise HeadraceError(
            f"{absolute} cannot be read: {error.strerror}", hint="Nothing was sent of it."
        ) from error
    try:
        return Source(absolute, raw)
    except BaseException:
        raw.close()
        raise


@contextmanager
def about(path: str) -> Iterator[None]:
    """Let errors say which source they are about."""
    try:
        yield
    except OSError as error:
        raise HeadraceError(
            f"{called(path)} cannot be sent: {error}", hint="What was sent of it stays."
        ) from error
    except HeadraceError as error:
        if error.what.startswith(called(path)):
            raise
        raise type(error)(f"{called(path)}: {error.what}", hint=error.hint) from error


def name_of(path: str, digest: str) -> str:
    """Name a source by its file and a digest of its content."""
    name = os.fsencode(path).decode("utf-8", "backslashreplace") + ":" + digest
    if len(name.encode()) > SOURCE_BYTES_MAX:
        raise HeadraceError(
            f"{path} is too long a path to name a source", hint="Name it with --source."
        )
    return name
