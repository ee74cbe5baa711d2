"""Cleaning near the source: fields renamed and left out, tuples left out, columns smoothed.

A tuple that cannot be read is not cleaned: it is marked, so that it becomes a dead letter when it
is decoded.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from math import fsum, inf, isfinite

from etl_procs.errors import text_of
from etl_procs.model import Stream
from etl_procs.wire import Changed, Clean, Delimited, Mean
from headrace.errors import HeadraceError, Refused
from ingest.decoding.texts import DECIMAL
from ingest.fields import (
    JsonLayout,
    Layout,
    Pieces,
    Said,
    Unreadable,
    layout_of,
    new_name,
    written,
)

SHOWN_CHARACTERS = 200
"""Of the names of a source's fields, in an error."""
UNREADABLE = b"\xff"
"""Put after a tuple that cannot be cleaned, and might decode as it is: a line that has not the
fields that its source promised, an object with a key twice. No UTF-8 has it, so it does not."""


class Cleaner:
    """Cleans the tuples of one source, in their order.

    A file whose `header` names other fields than the columns, or the same in another order, is put
    in order; a column that it lacks is NULL.
    """

    def __init__(self, stream: Stream, header: Sequence[str] | None = None) -> None:
        self._clean = stream.wire.clean or Clean()
        names = tuple(header or self._clean.columns or written(stream))
        self._layout = layout_of(stream, names, self._clean)
        if isinstance(stream.wire.format, Delimited):
            self._check_columns(stream, stream.wire.format, names)
        self._smoothers = [_smoother(smooth) for smooth in self._clean.smooth]
        self._rewrites = self._layout is not None and self._layout.changes
        self._rewrites |= any(isinstance(smooth, Mean) for smooth in self._clean.smooth)
        self._looks = bool(self._clean.where or self._smoothers)

    @property
    def needs_history(self) -> bool:
        """Whether a source is cleaned from its beginning, also where reading goes on later."""
        return bool(self._clean.smooth)

    def clean(self, raws: list[bytes], *, but: Collection[int] = ()) -> list[bytes]:
        """Clean tuples, all but those of some indices; what is left out is empty."""
        if not self._rewrites and not self._looks:
            return raws
        return [
            raw if index in but or not raw else self._cleaned(raw) for index, raw in enumerate(raws)
        ]

    def _check_columns(self, stream: Stream, format_: Delimited, names: Sequence[str]) -> None:
        """Refuse a delimited source that cannot fill the columns."""
        fields = [name for name in (new_name(self._clean, name) for name in names) if name]
        in_text = written(stream)
        if not set(fields) & set(in_text):
            raise Refused(
                f"the source has none of the columns {', '.join(in_text)}: its fields are "
                f"{_shown(fields)}",
                hint="Nothing was sent of it. Is there a header, and does it name these fields?",
            )
        for column in stream.columns.columns:
            if column.name in fields or column.name not in in_text:
                continue
            if column.required or format_.null is None:
                raise Refused(
                    f"the source has no field {column.name}, which cannot be NULL: it has "
                    f"{_shown(fields)}",
                    hint="Nothing was sent of it. Name the field by Clean(rename={...}), or mend "
                    "the header.",
                )
        if len(set(fields)) < len(fields):
            raise Refused(
                f"the source has a field twice: {_shown(fields)}",
                hint="Nothing was sent of it. Clean(rename={...}) makes two fields the same.",
            )

    def _cleaned(self, raw: bytes) -> bytes:
        assert self._layout
        try:
            text = raw.decode()
            if not self._looks:
                return self._layout.rewritten(text).encode()
            return self._sent(self._layout, raw, self._layout.read(text))
        except (Unreadable, UnicodeError):
            return raw + UNREADABLE

    def _sent(self, layout: Layout, raw: bytes, pieces: Pieces) -> bytes:
        if self._clean.where and not self._is_wanted(layout, raw, pieces):
            return b""
        for smooth in self._smoothers:
            if not smooth(layout, pieces):
                return b""
        return layout.write(pieces).encode() if self._rewrites else raw

    def _is_wanted(self, layout: Layout, raw: bytes, pieces: Pieces) -> bool:
        assert self._clean.where
        try:
            return bool(self._clean.where(Said(layout, pieces)))
        except Exception as error:
            raise HeadraceError(
                f"`where` cannot say whether {raw[:100]!r} is sent: {text_of(error)}",
                hint="What is before it was sent. Let it answer for every tuple.",
            ) from error


def _shown(names: Sequence[str]) -> str:
    """Show names that a file gave: the beginning of them, and nothing that drives a terminal."""
    text = ", ".join(names)
    more = " ..." if len(text) > SHOWN_CHARACTERS else ""
    return repr(text[:SHOWN_CHARACTERS])[1:-1] + more


Smoother = Callable[[Layout, Pieces], bool]
"""Changes a tuple's fields, and says whether it is sent."""


def _smoother(smooth: Mean | Changed) -> Smoother:
    return _mean(smooth) if isinstance(smooth, Mean) else _changed(smooth)


def _mean(smooth: Mean) -> Smoother:
    lasts: dict[str, deque[float]] = {}

    def smoothed(layout: Layout, pieces: Pieces) -> bool:
        value = _number(layout, pieces.get(smooth.column))
        if value is not None:
            last = lasts.setdefault(_group(smooth.by, layout, pieces), deque(maxlen=smooth.last))
            last.append(value)
            pieces[smooth.column] = repr(fsum(each / len(last) for each in last))
        return True

    return smoothed


def _changed(smooth: Changed) -> Smoother:
    sent: dict[str, float] = {}

    def is_far(layout: Layout, pieces: Pieces) -> bool:
        value = _number(layout, pieces.get(smooth.column))
        if value is None:
            return True
        group = _group(smooth.by, layout, pieces)
        if group in sent and abs(value - sent[group]) < smooth.least:
            return False
        sent[group] = value
        return True

    return is_far


def _group(by: str, layout: Layout, pieces: Pieces) -> str:
    return str(layout.value(pieces[by])) if by in pieces else ""


def _number(layout: Layout, piece: str | None) -> float | None:
    """Tell the number that a field says; None where it is NULL, or no number."""
    value = None if piece is None else layout.value(piece)
    if isinstance(value, bool) or isinstance(value, str) == isinstance(layout, JsonLayout):
        return None
    text = str(value).strip(" ")
    number = float(text) if DECIMAL.fullmatch(text) else inf
    return number if isfinite(number) else None
