"""The API as tasks see it: a few requests over HTTP, and two kinds of trouble.

Standard library only: tests use it without Airflow.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

Document = dict[str, Any]

TIMEOUT_S = 10.0
BYTES_MAX = 8 * 2**20
PASSING = frozenset({408, 425, 429})
"""What of 4xx passes by itself; of 5xx, everything may."""


class Unreachable(Exception):
    """The API does not answer, or says that it cannot now: this may pass by itself."""

    def __init__(self, what: str, retry_after_s: float = 0.0) -> None:
        super().__init__(what)
        self.retry_after_s = retry_after_s


class Problem(Exception):
    """The API has understood and refuses: it would refuse again."""

    def __init__(self, status: int, code: str, what: str, hint: str) -> None:
        super().__init__(f"{code}: {what}" + (f"\n  {hint}" if hint else ""))
        self.status = status
        self.code = code


class _NoRedirects(HTTPRedirectHandler):
    """The key is for the API alone: it does not travel to where somebody else points."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


OPENER: OpenerDirector = build_opener(_NoRedirects())


@dataclass(frozen=True, slots=True)
class Api:
    """Headrace's API at an address."""

    url: str
    key: str = field(repr=False)
    timeout_s: float = TIMEOUT_S

    def put(self, id_: str, body: Mapping[str, Any]) -> Document:
        """Ask for a migration; to ask again for the same changes nothing."""
        return self._ask("PUT", _path(id_), body)

    def migration(self, id_: str) -> Document | None:
        """Look how a migration is, if there is one of this id."""
        try:
            return self._ask("GET", _path(id_))
        except Problem as problem:
            if problem.status == 404:
                return None
            raise

    def cancel(self, id_: str) -> None:
        """End a migration; one that has ended, or is unknown, needs none of it."""
        try:
            self._ask("DELETE", _path(id_))
        except Problem as problem:
            if problem.status not in (404, 409):
                raise

    def warehouse(self, name: str) -> Document:
        """Look how far the dataflows have come in a warehouse."""
        for found in self._ask("GET", "/v1/warehouses")["warehouses"]:
            if found["name"] == name:
                return dict(found)
        raise Problem(
            404,
            "WarehouseUnknown",
            f"Headrace has no warehouse {name}",
            "Correct the Variable headrace_warehouses.",
        )

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Document:
        headers = {"Authorization": f"Bearer {self.key}", "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310
        try:
            with OPENER.open(request, timeout=self.timeout_s) as response:
                return _document(self.url, response.read(BYTES_MAX))
        except HTTPError as error:
            raise _refusal(self.url, error) from error
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Unreachable(f"the API at {self.url} does not answer: {reason}") from error


def _path(id_: str) -> str:
    return "/v1/migrations/" + quote(id_, safe="")


def _document(url: str, raw: bytes) -> Document:
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    raise Problem(
        200,
        "NotHeadrace",
        f"what answers at {url} is not Headrace's API",
        "Correct host, port and schema of the connection.",
    )


def _refusal(url: str, error: HTTPError) -> Exception:
    """Tell what passes by itself from what does not."""
    said = _said(error)
    code = str(said.get("code") or f"HTTP {error.code}")
    what = str(said.get("detail") or f"the API at {url} answers {error.code} {error.reason}")
    if error.code >= 500 or error.code in PASSING:
        return Unreachable(f"{code}: {what}", _seconds(error.headers.get("Retry-After")))
    return Problem(error.code, code, what, str(said.get("hint") or ""))


def _said(error: HTTPError) -> Document:
    try:
        found = json.loads(error.read(BYTES_MAX))
    except (ValueError, OSError, HTTPException):
        return {}
    return found if isinstance(found, dict) else {}


def _seconds(retry_after: str | None) -> float:
    return float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
