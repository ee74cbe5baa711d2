"""Tables on a terminal."""

import json
from collections.abc import Iterable, Mapping, Sequence

NUMBERS = frozenset({"smallint", "integer", "bigint", "numeric", "real", "double precision"})


def answered(columns: Sequence[Mapping[str, str]], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lay the rows of an answer out; numbers are aligned."""
    numbers = [place for place, column in enumerate(columns) if column["type"] in NUMBERS]
    return laid_out([column["name"] for column in columns], rows, right=numbers)


def batches(as_of: Mapping[str, int]) -> str:
    """Name the batches that something is as of."""
    return ", ".join(f"{name} batch {batch}" for name, batch in as_of.items())


def laid_out(
    head: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[int] = ()
) -> list[str]:
    """Lay rows out under their head; the columns numbered in `right` are aligned there."""
    cells = [[_cell(value) for value in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _cell(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return _printable(value)
        case bool() | list():
            return json.dumps(value)
    return str(value)


def _printable(text: str) -> str:
    """Write control characters as escapes: they would break the table, or drive the terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
