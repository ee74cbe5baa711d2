"""Replies: what the API answers a client over HTTP, and the tree of what goes wrong.

HeadraceError
└── ClientError
    ├── Unreachable       nobody answers there
    ├── BrokenOff         an answer has ended before it was whole
    └── Problem           the API says what is wrong: code, status, request id, and of SQL the place
        ├── BadRequest    what is asked is not what is answered, or not in the time allowed
        ├── Denied        the key is not good, or not for this
        ├── Conflict      what is there does not allow it (409), or no longer does (410)
        ├── Unavailable   too many ask, or a part is away: ask again
        └── ServerFailed
"""

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any

from headrace.errors import HeadraceError, NotRunning, Refused


class ClientError(HeadraceError):
    """What was asked has no answer."""


class Unreachable(ClientError, NotRunning):
    """Nobody answers there."""


class BrokenOff(ClientError, NotRunning):
    """An answer has ended before it was whole."""


class Problem(ClientError):
    """The API says what is wrong."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        hint = document.get("hint") or "`headrace logs api` may tell more."
        super().__init__(str(document.get("detail", "the API refuses")), hint=hint)
        self.document = dict(document)
        self.code = str(document.get("code", ""))
        self.detail = self.what
        self.status = int(document.get("status", 0))
        self.request_id: str | None = document.get("request_id")
        self.line: int | None = document.get("line")
        self.column: int | None = document.get("column")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.document,)


class BadRequest(Problem, Refused):
    """What is asked is not what is answered, or not in the time allowed."""


class Denied(Problem, Refused):
    """The key is not good, or not for this."""


class Conflict(Problem, Refused):
    """What is there does not allow it, or no longer does."""


class Unavailable(Problem, NotRunning):
    """Too many ask, or a part is away: ask again."""


class ServerFailed(Problem):
    """A part failed, or has a bug."""


TOO_SLOW = "TooSlow"
"""A query of ours; another 504 is a proxy's, and does not tell whether anything was done."""
KINDS: Mapping[int, type[Problem]] = {
    401: Denied, 403: Denied, 409: Conflict, 410: Conflict, 429: Unavailable, 503: Unavailable,
}  # fmt: skip


class Reply:
    """An answer that is being read. Its connection is used again when all of it was."""

    def __init__(
        self, connection: HTTPConnection, response: HTTPResponse, idle: list[HTTPConnection]
    ) -> None:
        self.response = response
        self._connection = connection
        self._idle = idle

    def finish(self) -> bytes:
        """Read what is left."""
        rest = self.response.read()
        if self._connection.sock is not None:  # otherwise the server has closed it
            self._idle.append(self._connection)
        return rest

    def document(self) -> Any:
        """Read all of it, as JSON."""
        try:
            return json.loads(self.finish())
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            raise BrokenOff(
                "what the API answers has ended early, or is no JSON",
                hint="Whether it was done is not known. `headrace logs api` may tell more.",
            ) from error

    def problem(self) -> Problem:
        """Read it as what is wrong."""
        try:
            return problem_of(json.loads(self.finish()))
        except (OSError, HTTPException, ValueError, AttributeError):
            self.close()
            status = self.response.status
            what = f"what listens there answers {status}, and not as Headrace's API does"
            hint = "Look at api.host and api.port: another program may have that port."
            return problem_of({"detail": what, "status": status, "hint": hint})

    def lines(self) -> Iterator[bytes]:
        """Give the lines that are whole. (To readline(), one that breaks off has ended.)"""
        begun = b""
        try:
            while piece := self.response.read1():
                *whole, begun = (begun + piece).split(b"\n")
                yield from whole
        except (OSError, HTTPException) as error:
            raise BrokenOff(
                "the subscription has broken off", hint="Go on after the last position."
            ) from error

    def close(self) -> None:
        """Leave it, if it is not at its end."""
        if self._connection not in self._idle:
            self._connection.close()


def problem_of(document: Mapping[str, Any]) -> Problem:
    """Make the error that a problem document tells."""
    status = int(document.get("status", 0))
    if document.get("code") == TOO_SLOW:
        return BadRequest(document)
    return KINDS.get(status, ServerFailed if status >= 500 else BadRequest)(document)
