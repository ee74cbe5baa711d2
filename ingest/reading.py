"""Reading: a file, a compressed file or standard input, as runs of numbered tuples.

The numbers of tuples are the same however, and how often, a source is read. A header is number 0.
"""

from collections.abc import Iterator
from pathlib import Path

from etl_procs.model import Stream
from etl_procs.wire import Avro, Delimited, Format, Xml
from headrace.errors import HeadraceError
from ingest import fields
from ingest.datums import datums
from ingest.elements import Document
from ingest.lines import Lines, Records
from ingest.records import FRAME_TUPLES, TUPLE_BYTES_MAX
from ingest.runs import START, Beginning, Bookmark, Run, Scanner
from ingest.source import Source, about, opened


class Reader:
    """A source that is read to its end, once; a context, that closes it."""

    def __init__(
        self,
        path: str | Path,
        stream: Stream,
        *,
        source: str = "",
        before: Beginning | None = None,
    ) -> None:
        self._format = stream.wire.format
        self._before = before
        self.source: Source = opened(path)
        try:
            self.name = source or self._named()
            """What it is called in the wire; nothing, if it is a pipe that nobody named."""
            self.header: tuple[str, ...] | None = None
            """The fields' names, of a text that has them in its first line."""
            self._begin = START
            if isinstance(self._format, Delimited) and self._format.header:
                with about(self.source.path):
                    self._read_header(self._format)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.source.close()

    def runs(self, at: Bookmark = START) -> Iterator[Run]:
        """Give its tuples, from a bookmark on."""
        with about(self.source.path):
            if isinstance(self._format, Avro):
                yield from datums(self._format, self.source, at)
                self.source.check_end(is_ended=False)
            else:
                yield from self._scanned(at if at.offset else self._begin)

    def _scanned(self, at: Bookmark) -> Iterator[Run]:
        is_document = isinstance(self._format, Xml)
        scans = scanner(self._format, at)
        if not is_document:
            self.source.skip_to(at.offset)
        while block := self.source.read():
            yield from scans.feed(block)
        is_ended = not is_document and scans.offset == self.source.position
        self.source.check_end(is_ended=is_ended)
        yield from scans.finish()

    def _named(self) -> str:
        if not self.source.is_file:
            return ""
        is_text = not isinstance(self._format, Avro | Xml) and not self.source.compression
        return self.source.named(self._before if is_text else None)

    def _read_header(self, format_: Delimited) -> None:
        scans, seen = scanner(format_, START, 1), bytearray()
        first: Run | None = None
        while first is None and (block := self.source.read()):
            seen += block
            if len(seen) > TUPLE_BYTES_MAX:
                raise HeadraceError(
                    "its first line is too long to be a header", hint="Mend the file."
                )
            first = next(scans.feed(block), None)
        first = first or next(scans.finish(), None)
        if first is not None:
            self.header = fields.header(format_, first)
            self._begin = Bookmark(1, first.end)
        self.source.unread(bytes(seen))


def scanner(format_: Format, at: Bookmark, tuples_max: int = FRAME_TUPLES) -> Scanner:
    """Make what finds the tuples of a format in the bytes of a source, all but Avro's."""
    assert not isinstance(format_, Avro)
    if isinstance(format_, Xml):
        return Document(format_, at)
    if isinstance(format_, Delimited) and format_.quote:
        return Records(format_, at, tuples_max)
    return Lines(at, tuples_max)
