"""Elements: the records of an XML document, sliced out of it as they are written.

Names are compared as written, with their prefix; the outermost element of the name is the record.
What stands outside of it does not come along: declarations of namespaces, and defaults of
attributes. A document that declares entities is refused: its records would not mean the same alone.
Other encodings than UTF-8 become UTF-8, and offsets are those of the UTF-8.
"""

import codecs
import re
from collections.abc import Iterator
from typing import NoReturn
from xml.parsers import expat

from etl_procs.wire import Xml
from headrace.errors import HeadraceError
from ingest.records import OVERSIZE_BYTES_KEPT, TUPLE_BYTES_MAX
from ingest.runs import START, Bookmark, Found, Run, Scanner
from ingest.source import Damaged

DEPTH_MAX = 1_000
TOKEN_BYTES_MAX = 2 * TUPLE_BYTES_MAX
"""Of a tag or a comment, of which the parser keeps all."""
DECLARATION_BYTES_MAX = 1_024
DECLARED = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0?\0": "utf-16-le",
    b"\0<\0?": "utf-16-be",
}


class Document(Scanner):
    """Finds the records of one document; memory is bounded whatever it has."""

    def __init__(self, format_: Xml, at: Bookmark = START) -> None:
        # A document is read from its beginning: what is before the bookmark is passed over.
        super().__init__()
        self._from = at.number
        self._start = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._cutter = _Cutter(format_.record)

    def feed(self, block: bytes) -> Iterator[Run]:
        """Give the records that end in the next bytes of the document."""
        if self._decoder is None:
            self._start += block
            if len(self._start) < DECLARATION_BYTES_MAX and b">" not in self._start:
                return iter(())
            block = self._begin()
        return self._decoded(block, is_last=False)

    def finish(self) -> Iterator[Run]:
        """Give nothing more, but refuse a document that is not whole. An empty file is none."""
        if self._decoder is None:
            if not self._start:
                return iter(())
            return self._decoded(self._begin(), is_last=True)
        return self._decoded(b"", is_last=True)

    def _begin(self) -> bytes:
        encoding = next((MARKS[mark] for mark in MARKS if self._start.startswith(mark)), None)
        if encoding is None:
            declared = DECLARED.match(self._start)
            encoding = declared[1].decode() if declared else "utf-8"
        try:
            "".encode(encoding)  # refuses codecs that are no encoding of texts
            self._decoder = codecs.getincrementaldecoder(encoding)()
        except (LookupError, UnicodeError):
            raise HeadraceError(
                f"the document is in the encoding {encoding}, which is not known here",
                hint="Rewrite it in UTF-8 first.",
            ) from None
        start, self._start = self._start, b""
        return start

    def _decoded(self, block: bytes, *, is_last: bool) -> Iterator[Run]:
        assert self._decoder is not None
        error: str | None = None
        try:
            text = self._decoder.decode(block, is_last).encode()
        except UnicodeDecodeError as wrong:
            whole = wrong.object[: wrong.start]
            text, error = whole.decode(wrong.encoding).encode(), str(wrong)
        except UnicodeError as wrong:  # UTF-16 that is none
            text, error = b"", str(wrong)
        found, wrong_xml = self._cutter.cut(text, is_last=is_last)
        passed = min(len(found), max(0, self._from - self.number))
        self.number += passed
        yield from self._given(found[passed:])
        if error or wrong_xml:
            self._refuse(error or wrong_xml or "")

    def _refuse(self, error: str) -> NoReturn:
        raise Damaged(
            f"the document is damaged or cut off after its record {self.number - 1:,}, near byte "
            f"{self._cutter.fed:,}: {error}",
            hint="What was whole before it was given. Get the document again, or mend it.",
        )


class _Refused(Exception):
    """What we do not take, though it may be XML."""


class _Cutter:
    """Cuts one kind of element out of the UTF-8 of a document."""

    def __init__(self, record: str) -> None:
        self.fed = 0
        self._record = record
        self._end_tag = re.compile(b"</%b\\s*>" % re.escape(record.encode()))
        self._text = bytearray()
        self._base = 0
        self._head = b""
        self._depth = 0
        self._outer: int | None = None
        self._began = 0
        self._found: list[Found] = []
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.EntityDeclHandler = self._entity

    def cut(self, text: bytes, *, is_last: bool) -> tuple[list[Found], str | None]:
        """Give the records that end in a text, and what is wrong with it, if it is."""
        self._text += text
        self.fed += len(text)
        error = None
        try:
            self._parser.Parse(text, is_last)
            self._trim()
        except expat.ExpatError as wrong:
            error = str(wrong)
        except _Refused as wrong:
            error = str(wrong)
        found, self._found = self._found, []
        return found, error

    def _trim(self) -> None:
        """Let go of what is behind, but for a record that began; of a big one keep the head."""
        here = max(self._parser.CurrentByteIndex, self._base)
        if self.fed - here > TOKEN_BYTES_MAX:
            raise _Refused(f"a tag or a comment has more than {TOKEN_BYTES_MAX:,} bytes")
        if self._outer is not None and not self._head:
            if here - self._began <= TUPLE_BYTES_MAX:
                here = min(here, self._began)
            else:
                begin = self._began - self._base
                self._head = bytes(self._text[begin : begin + OVERSIZE_BYTES_KEPT])
        del self._text[: here - self._base]
        self._base = here

    def _start(self, name: str, _: object) -> None:
        if self._outer is None and name == self._record:
            self._outer, self._began = self._depth, self._parser.CurrentByteIndex
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise _Refused(f"elements stand in one another {DEPTH_MAX:,} deep")

    def _end(self, _: str) -> None:
        self._depth -= 1
        if self._depth != self._outer:
            return
        self._outer = None
        # Of <record/> the parser says where it ends; of <record></record> where its end tag is.
        at = self._parser.CurrentByteIndex - self._base
        tag = self._end_tag.match(self._text, at)
        end = self._base + (tag.end() if tag else at)
        size = end - self._began
        begin = self._began - self._base
        if size > TUPLE_BYTES_MAX:
            raw = self._head or bytes(self._text[begin : begin + OVERSIZE_BYTES_KEPT])
        else:
            raw = bytes(self._text[begin : begin + size])
        self._head = b""
        self._found.append(Found(raw, size, end))

    def _entity(self, name: str, *_: object) -> None:
        raise _Refused(
            f"it declares the entity {name}: let a tool of yours expand entities first "
            "(xmllint --noent)"
        )
