"""Fields: the parts of a text tuple, by name, as they are written; and what they say.

A field is kept as its own piece of the text, so that what nobody changes stays as it was.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from operator import itemgetter
from typing import Any

from etl_procs.model import Stream
from etl_procs.wire import Clean, Delimited, FixedWidth, Json, Unknown
from headrace.errors import HeadraceError
from ingest.decoding.lines import Quoted
from ingest.runs import Run

Pieces = dict[str, str]
"""Name -> the piece of the text that the field is; renamed, and only what is kept."""

SPACE = re.compile(r"[ \t\r\n]*")
DIGITS_MAX = 4_300
"""Python refuses to make an int of more."""


class Unreadable(Exception):
    """A tuple has not the form that its format has."""


class Layout(ABC):
    """How fields stand in a text tuple."""

    changes: bool
    """Whether what is written is other than what is read."""

    @abstractmethod
    def read(self, text: str) -> Pieces:
        """Find the fields; or raise Unreadable."""

    @abstractmethod
    def write(self, pieces: Pieces) -> str:
        """Write them as the wire has them."""

    @abstractmethod
    def value(self, piece: str) -> Any:
        """Tell what a field says."""

    def rewritten(self, text: str) -> str:
        """Write what is read."""
        return self.write(self.read(text))


def written(stream: Stream) -> list[str]:
    """Name the columns that are in a tuple's text, in their order."""
    wire = stream.wire
    return [name for name in stream.columns.names if name not in (wire.time, wire.unknown)]


class Said(Mapping[str, Any]):
    """What the fields of a tuple say, by name; found out when it is asked for."""

    def __init__(self, layout: Layout, pieces: Pieces) -> None:
        self._layout, self._pieces = layout, pieces

    def __getitem__(self, name: str) -> Any:
        return self._layout.value(self._pieces[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._pieces)

    def __len__(self) -> int:
        return len(self._pieces)


def new_name(clean: Clean, name: str) -> str | None:
    """Tell what a field is called from now on; None if it is left out."""
    name = clean.rename.get(name, name)
    is_kept = name not in clean.drop and (not clean.keep or name in clean.keep)
    return name if is_kept else None


class JsonLayout(Layout):
    """A JSON object: names and values stay as they are written, and in their order."""

    def __init__(self, clean: Clean) -> None:
        self._clean = clean
        self.changes = bool(clean.rename or clean.keep or clean.drop)
        self._decoder = json.JSONDecoder(
            parse_int=lambda text: int(text) if len(text) < DIGITS_MAX else Decimal(text),
            parse_float=Decimal,
            parse_constant=_no_constant,
        )

    def read(self, text: str) -> Pieces:
        """Find the fields; or raise Unreadable."""
        try:
            pieces = self._members(text)
        except (ValueError, IndexError, RecursionError, InvalidOperation) as error:
            raise Unreadable from error
        rename = self._clean.rename
        if len({rename.get(name, name) for name in pieces}) < len(pieces):
            raise Unreadable  # two fields of one name
        named = ((new_name(self._clean, name), piece) for name, piece in pieces.items())
        return {name: piece for name, piece in named if name is not None}

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


def _expect(text: str, at: int, sign: str) -> int:
    """Go past a sign, and the spaces around it."""
    at = SPACE.match(text, at).end()  # type: ignore[union-attr]
    if text[at] != sign:
        raise Unreadable
    return SPACE.match(text, at + 1).end()  # type: ignore[union-attr]


def _no_constant(_: str) -> None:
    raise Unreadable  # NaN and Infinity are no JSON


class DelimitedLayout(Layout):
    """Fields with a separator between them, of these names; written in the order of `order`."""

    def __init__(
        self, format_: Delimited, names: Sequence[str], order: Sequence[str], clean: Clean
    ) -> None:
        self._separator, self._quote, self._null = format_.separator, format_.quote, format_.null
        self._count, self._order = len(names), order
        self._quoted = _record(format_, len(names)) if format_.quote else None
        fields = [new_name(clean, name) for name in names]
        self.changes = fields != list(order)
        places = {name: at for at, name in enumerate(fields)}
        self._kept = {name: at for name, at in places.items() if name is not None}
        # What is not there is NULL, which is put behind the fields.
        self._ordered = _picked([self._kept.get(name, self._count) for name in order])

    def read(self, text: str) -> Pieces:
        """Find the fields; or raise Unreadable."""
        pieces = self._split(text)
        if len(self._kept) == self._count:
            return dict(zip(self._kept, pieces, strict=True))
        return {name: pieces[at] for name, at in self._kept.items()}

    def _split(self, text: str) -> Sequence[str]:
        if self._quoted is None or self._quote not in text:
            pieces = text.split(self._separator)
            if len(pieces) != self._count:
                raise Unreadable
            return pieces
        found = self._quoted.fullmatch(text)
        if not found:
            raise Unreadable
        return found.groups()

    def write(self, pieces: Pieces) -> str:
        """Write the columns in their order; one that is not there is NULL."""
        null = self._null or ""
        return self._separator.join([pieces.get(name, null) for name in self._order])

    def rewritten(self, text: str) -> str:
        """Write what is read, without a name for each piece: several times as fast."""
        return self._separator.join(self._ordered([*self._split(text), self._null or ""]))

    def value(self, piece: str) -> str | None:
        """Tell the text of a field, None for NULL."""
        return None if piece == self._null else _unquoted(self._quote, piece)


def _picked(places: Sequence[int]) -> Callable[[Sequence[str]], Sequence[str]]:
    """Make what picks pieces by their places; of one place alone, itemgetter gives no sequence."""
    if len(places) == 1:
        return lambda pieces: [pieces[places[0]]]
    return itemgetter(*places)


def _unquoted(quote: str, piece: str) -> str:
    if not quote or not piece.startswith(quote):
        return piece
    return piece[1:-1].replace(quote * 2, quote)


def _field(format_: Delimited) -> str:
    """Match a field of a format with quotes. Nothing in it can backtrack."""
    q, s = re.escape(format_.quote), re.escape(format_.separator)
    first = re.escape(format_.separator[0])
    quoted = f"{q}[^{q}]*+(?:{q}{q}[^{q}]*+)*+{q}"
    bare = f"(?!{q})(?:[^{first}]++|(?!{s}){first})*+"
    return f"({quoted}|{bare})"


def _record(format_: Delimited, fields: int) -> re.Pattern[str]:
    return re.compile(re.escape(format_.separator).join([_field(format_)] * fields))


class FixedLayout(Layout):
    """Fields of so many characters each, which are the columns."""

    def __init__(self, format_: FixedWidth, names: Sequence[str], clean: Clean) -> None:
        self._places: list[tuple[str, int, int]] = []
        self._length, unnamed = 0, iter(names)
        for width in format_.widths:
            if width > 0:
                self._places.append((next(unnamed), self._length, width))
            self._length += abs(width)
        self._kept = [place for place in self._places if new_name(clean, place[0])]
        self.changes = len(self._kept) < len(self._places)

    def read(self, text: str) -> Pieces:
        """Find the fields; those that the line is too short for are empty."""
        return {name: text[at : at + width] for name, at, width in self._kept}

    def write(self, pieces: Pieces) -> str:
        """Write them at their places, and spaces at those of the others."""
        line = [" "] * self._length
        for name, at, width in self._places:
            line[at : at + width] = pieces.get(name, "").ljust(width)
        return "".join(line)

    def value(self, piece: str) -> str | None:
        """Tell the text of a field, None for NULL."""
        return piece.strip(" ") or None


def header(format_: Delimited, run: Run) -> tuple[str, ...]:
    """Read the names in the first line of a file."""
    try:
        text = run.raws[0].decode()
        pieces = Quoted(format_).fields(text) if format_.quote else text.split(format_.separator)
    except ValueError:  # no UTF-8, or quotes that do not fit
        pieces = []
    names = [(piece or "").strip(" ") for piece in pieces]
    if run.oversize or not all(names) or len(set(names)) < len(names) or not names:
        raise HeadraceError(
            f"its first line is no header of names that differ: {run.raws[0][:100]!r}",
            hint="Mend the file, or declare the format without header=True.",
        )
    return tuple(names)


def layout_of(stream: Stream, names: Sequence[str], clean: Clean) -> Layout | None:
    """Tell how fields stand in a stream's tuples; None where they are no text of fields.

    The source may have them by other `names`; what is written has them as the wire does.
    """
    format_, order = stream.wire.format, written(stream)
    if isinstance(format_, Json):
        return JsonLayout(clean)
    if isinstance(format_, Delimited):
        if stream.wire.unknown is not Unknown.IGNORE:
            fields = [new_name(clean, name) for name in names]
            order += [name for name in fields if name is not None and name not in order]
        return DelimitedLayout(format_, names or order, order, clean)
    return FixedLayout(format_, order, clean) if isinstance(format_, FixedWidth) else None
