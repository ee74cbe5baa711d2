"""Lines: the tuples of a text, one a line; or one a record, whose quoted fields may span lines.

LF and CRLF end a line, in one file too; a CR alone is text. A byte-order mark of UTF-8 is taken
off, and UTF-16 is refused. All other bytes travel as they are, NUL and bad UTF-8 among them.
"""

import re
from collections.abc import Iterator

from etl_procs.wire import Delimited
from headrace.errors import HeadraceError
from ingest.records import FRAME_BYTES, OVERSIZE_BYTES_KEPT, TUPLE_BYTES_MAX
from ingest.runs import Bookmark, Found, Run, Scanner, kept

UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class Lines(Scanner):
    """Finds the lines of a text; memory is bounded by TUPLE_BYTES_MAX, whatever a line has."""

    def __init__(self, at: Bookmark, tuples_max: int) -> None:
        super().__init__(at, tuples_max)
        self._unfinished = _Unfinished()

    def feed(self, block: bytes) -> Iterator[Run]:
        """Give the lines that end in the next bytes of the source."""
        for begin in range(0, len(block), FRAME_BYTES):
            yield from self._fed(block[begin : begin + FRAME_BYTES])

    def _fed(self, block: bytes) -> Iterator[Run]:
        cut = block.rfind(b"\n") + 1
        if not cut:
            self._unfinished.add(block)
            return
        begun, self._unfinished = self._unfinished, _Unfinished()
        self._unfinished.add(block[cut:])
        text = block[:cut]
        if begun.size + cut <= TUPLE_BYTES_MAX:
            text = bytes(begun.kept) + text
        else:
            first, _, text = text.partition(b"\n")
            begun.add(first)
            yield from self._given([begun.ended(self.offset)])
        if text:
            yield from self._lines(text)

    def finish(self) -> Iterator[Run]:
        """Give the last line, if no end of line is after it."""
        last, self._unfinished = self._unfinished, _Unfinished()
        if last.size:
            yield from self._given([last.found(self.offset, last.size, last.size)])

    def _lines(self, text: bytes) -> Iterator[Run]:
        lines = text.split(b"\n")
        del lines[-1]  # what is after the last LF: nothing
        for index in range(0, len(lines), self._tuples_max):
            raws = lines[index : index + self._tuples_max]
            end = self.offset + sum(map(len, raws)) + len(raws)
            if b"\r" in text:
                raws = [raw.removesuffix(b"\r") for raw in raws]
            if self.offset == 0:
                raws[0] = unmarked(raws[0])
            run = Run(self.number, raws, end)
            self.number, self.offset = run.next, run.end
            yield run


class Records(Scanner):
    """Finds the records of a delimited text whose fields may be quoted.

    A quote opens a field only at its beginning. A record that is too big to be a tuple ends where
    its quotes are even in number: so memory is bounded where a quote is never closed, too. Such a
    record goes to the end of the source, and is one tuple, that does not decode.
    """

    def __init__(self, format_: Delimited, at: Bookmark, tuples_max: int) -> None:
        super().__init__(at, tuples_max)
        self._quote = format_.quote.encode()
        self._record = _record(format_.separator.encode(), self._quote)
        self._begun = bytearray()
        self._big: _Big | None = None

    def feed(self, block: bytes) -> Iterator[Run]:
        """Give the records that end in the next bytes of the source."""
        return self._given(self._found(block))

    def finish(self) -> Iterator[Run]:
        """Give the last record, if no end of line is after it."""
        if self._big:
            yield from self._given([self._big.found(self.offset)])
        elif self._begun:
            begun = bytes(self._begun)
            yield from self._given([_found(begun, self.offset, len(begun))])
        self._begun, self._big = bytearray(), None

    def _found(self, block: bytes) -> Iterator[Found]:
        # self.offset is behind what is found here until a run is given.
        self._begun += block
        if not self._big and b"\n" not in block and len(self._begun) <= TUPLE_BYTES_MAX:
            return  # it is not looked at again and again while nothing can end in it
        offset, text = self.offset, bytes(self._begun)
        self._begun = bytearray()
        while text:
            if self._big:
                rest = self._big.feed(text)
                if rest is None:
                    return
                found, self._big, text = self._big.found(offset), None, rest
                yield found
                offset = found.end
            done = 0
            for raw, begun in self._record.findall(text):
                whole = raw.removesuffix(b"\r")
                # With room for the CR of a line end that may follow.
                if len(begun) > TUPLE_BYTES_MAX + 1 or len(whole) > TUPLE_BYTES_MAX:
                    self._big = _Big(self._quote)
                    break
                if begun:
                    self._begun += begun
                    return
                done += len(raw) + 1
                yield _found(whole, offset, len(raw) + 1)
                offset += len(raw) + 1
            text = text[done:]


class _Unfinished:
    """What there is of a line; of one that is too big to be a tuple, no more than is kept."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self.size = 0
        self.last = b""

    def add(self, more: bytes) -> None:
        self.size += len(more)
        self.last = more[-1:] or self.last
        # With room for the CR of a line end.
        if self.size <= TUPLE_BYTES_MAX + 1:
            self.kept += more
        else:
            self.kept += more[:OVERSIZE_BYTES_KEPT]
            del self.kept[OVERSIZE_BYTES_KEPT:]

    def ended(self, offset: int) -> Found:
        """Give the tuple that it is, at an offset, where a LF ends it."""
        return self.found(offset, self.size - (self.last == b"\r"), self.size + 1)

    def found(self, offset: int, size: int, length: int) -> Found:
        """Give the tuple of a size, that is so long with its line end."""
        raw = bytes(self.kept[: size if size <= TUPLE_BYTES_MAX else OVERSIZE_BYTES_KEPT])
        whole = raw if offset else unmarked(raw)
        return Found(whole, size - len(raw) + len(whole), offset + length)


class _Big:
    """A record that is too big to be a tuple, up to the LF before which its quotes are even."""

    def __init__(self, quote: bytes) -> None:
        self._quote = quote
        self._is_open = self._is_ended = False
        self._seen = _Unfinished()

    def feed(self, block: bytes) -> bytes | None:
        """Take what follows, and give what is after its end, or None if it goes on."""
        start = 0
        while True:
            line_feed = block.find(b"\n", start)
            end = len(block) if line_feed < 0 else line_feed
            self._is_open ^= block.count(self._quote, start, end) % 2 == 1
            if line_feed < 0 or not self._is_open:
                self._is_ended = line_feed >= 0
                self._seen.add(block[:end])
                return block[end + 1 :] if self._is_ended else None
            start = end + 1

    def found(self, offset: int) -> Found:
        if self._is_ended:
            return self._seen.ended(offset)
        return self._seen.found(offset, self._seen.size, self._seen.size)


def unmarked(raw: bytes) -> bytes:
    """Take the byte-order mark off what a text begins with."""
    if raw.startswith(UTF16_MARKS):
        raise HeadraceError(
            "the text begins with the byte-order mark of UTF-16, and UTF-8 is needed",
            hint="Rewrite it first: iconv -f UTF-16 -t UTF-8.",
        )
    return raw.removeprefix(UTF8_MARK)


def _found(raw: bytes, offset: int, length: int) -> Found:
    whole = raw if offset else unmarked(raw)
    return Found(kept(whole), len(whole), offset + length)


def _record(separator: bytes, quote: bytes) -> re.Pattern[bytes]:
    """Match a record and its LF; or what there is of one. Nothing in it can backtrack."""
    s, first, q = re.escape(separator), re.escape(separator[:1]), re.escape(quote)
    quoted = b"%b[^%b]*+(?:%b%b[^%b]*+)*+%b" % (q, q, q, q, q, q)
    # A byte-order mark is nothing, at the beginning of any record: so a quote after it opens.
    field = b"(?:%b|(?!%b))(?:[^\n%b]++|(?!%b)%b)*+" % (quoted, q, first, s, first)
    record = b"(?:%b)?+%b(?:%b%b)*+" % (UTF8_MARK, field, s, field)
    return re.compile(b"(%b)\n|(?s:(.+))" % record)
