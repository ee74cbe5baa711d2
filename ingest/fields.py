"""Fields: the parts of a text tuple, by name, as they are written; and what they say.

A field is kept as its own piece of the text, so that what nobody changes stays as it was.
"""

import json
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Protocol

from etl_procs.model import Stream
from etl_procs.wire import Delimited, FixedWidth, Json
from headrace.errors import HeadraceError
from ingest.runs import Run

Pieces = dict[str, str]
"""Name -> the piece of the text that the field is."""

SPACE = re.compile(r"[ \t\r\n]*")
DIGITS_MAX = 4_300
"""Python refuses to make an int of more."""


class Unreadable(Exception):
    """A tuple has not the form that its format has."""


class Layout(Protocol):
    """How fields stand in a text tuple."""

    def read(self, text: str) -> Pieces:
        """Find the fields; or raise Unreadable."""

    def write(self, pieces: Pieces) -> str:
        """Write them as the wire has them."""

    def value(self, piece: str) -> Any:
        """Tell what a field says."""

    def number(self, value: float) -> str:
        """Make the piece of a number."""


def written(stream: Stream) -> list[str]:
    """Name the columns that are in a tuple's text, in their order."""
    wire = stream.wire
    return [name for name in stream.columns.names if name not in (wire.time, wire.unknown)]


class JsonLayout:
    """A JSON object: names and values stay as they are written, and in their order."""

    def __init__(self) -> None:
        self._decoder = json.JSONDecoder(
            parse_int=lambda text: int(text) if len(text) < DIGITS_MAX else Decimal(text),
            parse_float=Decimal,
            parse_constant=_no_constant,
        )

    def read(self, text: str) -> Pieces:
        """Find the fields; or raise Unreadable."""
        try:
            return self._members(text)
        except (ValueError, IndexError, RecursionError, InvalidOperation) as error:
            raise Unreadable from error

    def _members(self, text: str) -> Pieces:
        pieces: Pieces = {}
        at = _expect(text, 0, "{")
        while text[at] != "}" or pieces:
            name, at = self._decoder.raw_decode(text, at)
            if not isinstance(name, str):
                raise Unreadable
            begin = _expect(text, at, ":")
            _, end = self._decoder.raw_decode(text, begin)
            if name in pieces:
                raise Unreadable
            pieces[name] = text[begin:end]
            at = SPACE.match(text, end).end()  # type: ignore[union-attr]
            if text[at] != ",":
                break
            at = _expect(text, at, ",")
        if text[at] != "}" or text[at + 1 :].strip(" \t\r\n"):
            raise Unreadable
        return pieces

    def write(self, pieces: Pieces) -> str:
        """Write them in their order."""
        members = (
            json.dumps(name, ensure_ascii=False) + ": " + piece for name, piece in pieces.items()
        )
        return "{" + ", ".join(members) + "}"

    def value(self, piece: str) -> Any:
        """Tell what a field says; numbers are exact."""
        return self._decoder.decode(piece)

    def number(self, value: float) -> str:
        """Make the piece of a number."""
        return repr(value)


def _expect(text: str, at: int, sign: str) -> int:
    """Go past a sign, and the spaces around it."""
    at = SPACE.match(text, at).end()  # type: ignore[union-attr]
    if text[at] != sign:
        raise Unreadable
    return SPACE.match(text, at + 1).end()  # type: ignore[union-attr]


def _no_constant(_: str) -> None:
    raise Unreadable  # NaN and Infinity are no JSON


class DelimitedLayout:
    """Fields with a separator between them, of these names; written in the order of `order`."""

    def __init__(self, format_: Delimited, names: Sequence[str], order: Sequence[str]) -> None:
        self._format, self._names, self._order = format_, names, order
        self._field = _field(format_)

    def read(self, text: str) -> Pieces:
        """Find the fields; or raise Unreadable."""
        pieces = self.split(text)
        if len(pieces) != len(self._names):
            raise Unreadable
        return dict(zip(self._names, pieces, strict=True))

    def split(self, text: str) -> list[str]:
        """Find the fields, without their names; or raise Unreadable."""
        if self._field is None or self._format.quote not in text:
            return text.split(self._format.separator)
        pieces, at = [], 0
        while True:
            found = self._field.match(text, at)
            if not found:
                raise Unreadable
            pieces.append(found[1])
            at = found.end()
            if not found[2]:
                return pieces

    def write(self, pieces: Pieces) -> str:
        """Write the columns in their order; one that is not there is NULL."""
        null = self._format.null or ""
        return self._format.separator.join([pieces.get(name, null) for name in self._order])

    def value(self, piece: str) -> str | None:
        """Tell the text of a field, None for NULL."""
        quote = self._format.quote
        if quote and piece.startswith(quote):
            return piece[1:-1].replace(quote * 2, quote)
        return None if piece == self._format.null else piece

    def number(self, value: float) -> str:
        """Make the piece of a number."""
        return repr(value)


def _field(format_: Delimited) -> re.Pattern[str] | None:
    if not format_.quote:
        return None
    q, s = re.escape(format_.quote), re.escape(format_.separator)
    first = re.escape(format_.separator[0])
    quoted = f"{q}[^{q}]*+(?:{q}{q}[^{q}]*+)*+{q}"
    bare = f"(?!{q})(?:[^{first}]++|(?!{s}){first})*+"
    return re.compile(f"({quoted}|{bare})({s}|\\Z)")


class FixedLayout:
    """Fields of so many characters each, which are the columns."""

    def __init__(self, format_: FixedWidth, names: Sequence[str]) -> None:
        self._places: list[tuple[str, int, int]] = []
        self._length, unnamed = 0, iter(names)
        for width in format_.widths:
            if width > 0:
                self._places.append((next(unnamed), self._length, width))
            self._length += abs(width)

    def read(self, text: str) -> Pieces:
        """Find the fields; those that the line is too short for are empty."""
        return {name: text[at : at + width] for name, at, width in self._places}

    def write(self, pieces: Pieces) -> str:
        """Write them at their places, and spaces at those of the others."""
        line = [" "] * self._length
        for name, at, width in self._places:
            line[at : at + width] = pieces.get(name, "").ljust(width)
        return "".join(line)

    def value(self, piece: str) -> str | None:
        """Tell the text of a field, None for NULL."""
        return piece.strip(" ") or None

    def number(self, value: float) -> str:
        """Refuse: a number of its own has no place in a width."""
        raise AssertionError(value)  # wire.Clean.check has refused it


def header(format_: Delimited, run: Run) -> tuple[str, ...]:
    """Read the names in the first line of a file."""
    layout = DelimitedLayout(format_, (), ())
    try:
        names = [layout.value(piece) or "" for piece in layout.split(run.raws[0].decode())]
    except (Unreadable, UnicodeDecodeError):
        names = []
    names = [name.strip(" ") for name in names]
    if run.oversize or not all(names) or len(set(names)) < len(names) or not names:
        raise HeadraceError(
            f"its first line is no header of names that differ: {run.raws[0][:100]!r}",
            hint="Mend the file, or declare the format without header=True.",
        )
    return tuple(names)


def layout_of(stream: Stream, names: Sequence[str] = ()) -> Layout | None:
    """Tell how fields stand in a stream's tuples; None where they are no text of fields."""
    format_, order = stream.wire.format, written(stream)
    if isinstance(format_, Json):
        return JsonLayout()
    if isinstance(format_, Delimited):
        return DelimitedLayout(format_, names or order, order)
    return FixedLayout(format_, order) if isinstance(format_, FixedWidth) else None
