"""What commands ask of the API, and what it answers."""

import json
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
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
    address = addresses.api(config)
    headers = {"Authorization": f"Bearer {key_of(config)}", "Content-Type": "application/json"}
    connection = HTTPConnection(address, timeout=wait_s + ANSWER_S)
    try:
        connection.request(method, path, None if asked is None else json.dumps(asked), headers)
        response = connection.getresponse()
        reply = Reply(HTTPStatus(response.status), response.read())
    except (OSError, HTTPException) as error:
        raise NotRunning(
            f"the API at {address} does not answer: {error}",
            hint="Run `headrace up`; `headrace status` shows which part is missing.",
        ) from error
    finally:
        connection.close()
    if reply.status >= HTTPStatus.BAD_REQUEST:
        raise _refusal(reply)
    return reply


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
