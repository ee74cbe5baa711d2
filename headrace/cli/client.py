"""What commands ask of the API, and what it answers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any

from headrace.cli import addresses
from headrace.cli.api import key_of
from headrace.config import Config
from headrace.errors import HeadraceError, NotRunning, Refused

ANSWER_S = 30.0
"""For waiting in line, and for the answer to travel."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the API said."""

    status: HTTPStatus
    body: bytes

    @property
    def document(self) -> Any:
        """What the body says."""
        return json.loads(self.body)


def ask(
    config: Config, method: str, path: str, asked: object = None, *, wait_s: float = 0.0
) -> Reply:
    """Ask the API; raise what it refuses. `wait_s` is what it may work for."""
    with _answering(config, method, path, asked, wait_s) as response:
        return Reply(HTTPStatus(response.status), response.read())


def lines(config: Config, path: str) -> Iterator[bytes]:
    """Ask the API for lines, and give each when it is whole; raise what it refuses, also amid
    them.
    """
    with _answering(config, "GET", path, None, 0.0) as response:
        for line in _whole(response):
            if line.startswith(b'{"error":'):
                problem = json.loads(line)["error"]
                raise _refusal(Reply(HTTPStatus(problem["status"]), json.dumps(problem).encode()))
            yield line


def _whole(response: HTTPResponse) -> Iterator[bytes]:
    """Give the lines that are whole; an answer that breaks off is an error. (To readline(), one
    that breaks off has ended.)
    """
    begun: list[bytes] = []
    while piece := response.read1():
        head, end, rest = piece.partition(b"\n")
        while end:
            yield b"".join([*begun, head, end])
            begun = []
            head, end, rest = rest.partition(b"\n")
        begun.append(head)


@contextmanager
def _answering(
    config: Config, method: str, path: str, asked: object, wait_s: float
) -> Iterator[HTTPResponse]:
    """Give the API's answer, to read it, if it is none that refuses."""
    address = addresses.api(config)
    headers = {"Authorization": f"Bearer {key_of(config)}", "Content-Type": "application/json"}
    connection = HTTPConnection(address, timeout=wait_s + ANSWER_S)
    try:
        connection.request(method, path, None if asked is None else json.dumps(asked), headers)
        response = connection.getresponse()
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise _refusal(Reply(HTTPStatus(response.status), response.read()))
        yield response
    except (OSError, HTTPException) as error:
        raise NotRunning(
            f"the API at {address} does not answer: {error}",
            hint="Run `headrace up`; `headrace status` shows which part is missing.",
        ) from error
    finally:
        connection.close()


def _refusal(reply: Reply) -> HeadraceError:
    try:
        problem = json.loads(reply.body)
        what = problem["detail"]
    except (ValueError, KeyError, TypeError):
        return HeadraceError(
            f"what listens there answers {reply.status.value}, and not as Headrace's API does",
            hint="Look at api.host and api.port: another program may have that port.",
        )
    hint = problem.get("hint", "`headrace logs api` may tell more.")
    if reply.status is HTTPStatus.SERVICE_UNAVAILABLE:
        return NotRunning(what, hint=hint)
    if reply.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Refused(what, hint=hint)
    return HeadraceError(what, hint=hint)
