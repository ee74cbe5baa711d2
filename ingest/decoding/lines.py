"""Lines: the fields of delimited and of fixed-width lines, as texts."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs.wire import Delimited, FixedWidth
from ingest.decoding import texts
from ingest.decoding.texts import Fields, More
from ingest.records import SEPARATOR

QUOTES_MAX = 10_000
"""Of a line: of one of nothing else, each would be looked at."""
TOO_MANY = f"more than {QUOTES_MAX:,} quotes"
EMPTY = "empty"
NOT_A_LINE = "holds the byte 0x1E, which ends a tuple"
END = SEPARATOR.decode()


def delimited(
    lines: pa.StringArray, format: Delimited, columns: int, *, unknown_max: int
) -> Fields:
    """Give the fields of lines with a separator, and with quotes or without.

    What comes after `columns` and `unknown_max` fields is one more field.
    """
    broken, most = _no_lines(lines), columns + unknown_max + 1
    quoted: dict[int, Sequence[str | None]] = {}
    if format.quote and texts.holds(lines, format.quote.encode()):
        read = Quoted(format, most)
        for row in _holding(lines, format.quote):
            if row not in broken:
                try:
                    quoted[row] = read.fields(lines[row].as_py())
                except ValueError as error:
                    broken[row] = str(error)
    bare = _without(lines, {*broken, *quoted})
    split = pc.split_pattern(bare, format.separator, max_splits=most - 1)
    counts = pc.list_value_length(split).fill_null(columns).to_numpy()
    few = {row: int(counts[row]) for row in texts.rows(counts < columns)}
    if few:
        split = pc.split_pattern(_without(bare, few), format.separator, max_splits=most - 1)
    few |= {row: len(of) for row, of in quoted.items() if len(of) < columns}
    broken |= {row: f"{count} fields, not {columns}" for row, count in few.items()}
    quoted = {row: of for row, of in quoted.items() if row not in few}
    fields = [pc.list_element(split, number) for number in range(columns)]
    if format.null is not None:
        fields = [pc.if_else(pc.equal(field, format.null), None, field) for field in fields]
    if quoted:
        at = np.zeros(len(lines), bool)
        at[[*quoted]] = True
        by_row = [quoted[row] for row in sorted(quoted)]
        fields = [
            pc.replace_with_mask(
                field, pa.array(at), pa.array([of[n] for of in by_row], pa.string())
            )
            for n, field in enumerate(fields)
        ]
    unknown = {row: of[columns:] for row, of in quoted.items() if len(of) > columns}
    for row in texts.rows(counts > columns):
        unknown[row] = split[row].as_py()[columns:]
    return Fields(fields, broken, {row: _more(of) for row, of in unknown.items()})


def fixed_width(lines: pa.StringArray, format: FixedWidth) -> Fields:
    """Give the fields of lines that have them at fixed places."""
    broken = _no_lines(lines)
    good = _without(lines, broken)
    ends = list(accumulate(map(abs, format.widths)))
    fields = []
    for end, width in zip(ends, format.widths, strict=True):
        if width > 0:
            field = pc.utf8_trim(pc.utf8_slice_codeunits(good, end - width, end), " ")
            fields.append(pc.if_else(pc.equal(field, ""), None, field))
    rest = pc.utf8_trim(pc.utf8_slice_codeunits(good, ends[-1]), " ")
    longer = texts.rows(texts.flags(pc.not_equal(rest, "").fill_null(False)))
    return Fields(fields, broken, {row: _more([rest[row].as_py()]) for row in longer})


def _no_lines(lines: pa.StringArray) -> dict[int, str]:
    """Tell which are no lines, and why."""
    broken: dict[int, str] = {}
    texts.add(broken, texts.rows(texts.flags(pc.equal(lines, "").fill_null(False))), EMPTY)
    if texts.holds(lines, SEPARATOR):
        texts.add(broken, _holding(lines, END), NOT_A_LINE)
    return broken


def _holding(lines: pa.StringArray, part: str) -> list[int]:
    return texts.rows(texts.flags(pc.match_substring(lines, part).fill_null(False)))


def _without(lines: pa.StringArray, rows: Mapping[int, object] | set[int]) -> pa.StringArray:
    """Give lines, with null in place of some."""
    if not rows:
        return lines
    gone = np.zeros(len(lines), bool)
    gone[[*rows]] = True
    return pc.if_else(pa.array(gone), None, lines)


def _more(unknown: Sequence[str | None]) -> More:
    kept = json.dumps(unknown, ensure_ascii=False, separators=(",", ":"))
    return More([text for text in unknown if text is not None], kept)


class Quoted:
    """Reads lines in which there are quotes."""

    def __init__(self, format: Delimited, most: int = QUOTES_MAX) -> None:
        quote, separator = re.escape(format.quote), re.escape(format.separator)
        within, without = (
            rf"{quote}((?:[^{quote}]|{quote}{quote})*+){quote}",
            rf"((?:(?!{separator})[^{quote}])*+)",
        )
        self._field = re.compile(rf"(?:{within}|{without})({separator}|\Z)", re.DOTALL)
        self._format = format
        self._most = most

    def fields(self, line: str) -> list[str | None]:
        """Give the fields of a line; what comes after the most of them is one with the last."""
        quote, null = self._format.quote, self._format.null
        if line.count(quote) > QUOTES_MAX:
            raise ValueError(TOO_MANY)
        fields: list[str | None] = []
        at = rest = 0
        count = 1
        while True:
            found = self._field.match(line, at)
            if found is None:
                raise ValueError("its quotes do not fit")
            if count <= self._most:
                quoted, bare, _ = found.groups()
                if quoted is not None:
                    fields.append(quoted.replace(quote + quote, quote))
                else:
                    fields.append(None if bare == null else bare)
            if not found[3]:
                return fields if count <= self._most else [*fields[:-1], line[rest:]]
            count += 1
            if count <= self._most:
                rest = found.end()
            at = found.end()
