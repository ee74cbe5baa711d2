"""What can go wrong with a query.

HeadraceError
├── Busy                as many queries run and wait as may
├── NotRunning
│   └── NotReady        the warehouse does not yet have what the query asks for
└── Refused
    ├── QueryRefused    the SQL is not what the island answers; with its place in the text
    └── LimitExceeded   the query would take longer, or answer more, than is allowed
"""

from headrace.errors import HeadraceError, NotRunning, Refused


class Busy(HeadraceError):
    """As many queries run and wait as may; the same one may be answered in a moment."""


class NotReady(NotRunning):
    """The warehouse does not yet have what the query asks for."""


class QueryRefused(Refused):
    """The SQL is not what the island answers."""

    def __init__(
        self, what: str, *, hint: str, line: int | None = None, column: int | None = None
    ) -> None:
        place = f" (line {line}, column {column})" if line is not None else ""
        super().__init__(what + place, hint=hint)
        self.line = line
        self.column = column


class LimitExceeded(Refused):
    """The query would take longer, or answer more, than is allowed."""
