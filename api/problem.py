"""Problems: every error that a caller can get, as application/problem+json (RFC 9457)."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.errors import Busy, QueryRefused
from api.values import dump
from etl_procs.errors import Aborted, KeyReused, NoSuchCall, Passing
from headrace.errors import HeadraceError, NotRunning, Refused
from migrations.errors import (
    LedgerMismatch,
    MigrationConflict,
    MigrationEnded,
    MigrationUnknown,
)

MEDIA_TYPE = "application/problem+json"
JSON = "application/json"

# The first that fits counts.
STATUSES: tuple[tuple[type[HeadraceError], HTTPStatus], ...] = (
    (Busy, HTTPStatus.SERVICE_UNAVAILABLE),
    (NotRunning, HTTPStatus.SERVICE_UNAVAILABLE),
    (Passing, HTTPStatus.SERVICE_UNAVAILABLE),
    (NoSuchCall, HTTPStatus.NOT_FOUND),
    (KeyReused, HTTPStatus.CONFLICT),
    (Aborted, HTTPStatus.CONFLICT),
    (LedgerMismatch, HTTPStatus.CONFLICT),
    (MigrationUnknown, HTTPStatus.NOT_FOUND),
    (MigrationConflict, HTTPStatus.CONFLICT),
    (MigrationEnded, HTTPStatus.CONFLICT),
    (Refused, HTTPStatus.BAD_REQUEST),
    (HeadraceError, HTTPStatus.INTERNAL_SERVER_ERROR),
)

RETRY_AFTER_S = "1"


def problem(
    status: HTTPStatus,
    code: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Make the response that tells a problem."""
    document = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "code": code,
        "detail": detail,
    }
    return Response(
        dump(document | {name: value for name, value in more.items() if value is not None}),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems that a route may answer with."""
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {}}}
        for status in statuses
    }


def install(app: FastAPI) -> None:
    """Have `app` tell every error as a problem."""
    app.exception_handler(HeadraceError)(_headrace)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(Exception)(_bug)


async def _headrace(_request: Request, error: HeadraceError) -> Response:
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    away = status is HTTPStatus.SERVICE_UNAVAILABLE
    place = (error.line, error.column) if isinstance(error, QueryRefused) else (None, None)
    return problem(
        status,
        type(error).__name__,
        error.what,
        headers={"Retry-After": RETRY_AFTER_S} if away else None,
        hint=error.hint,
        line=place[0],
        column=place[1],
    )


async def _http(_request: Request, error: HTTPException) -> Response:
    status = HTTPStatus(error.status_code)
    code = status.name.replace("_", " ").title().replace(" ", "")
    return problem(status, code, error.detail, headers=error.headers)


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    found = [
        {"at": "/".join(str(part) for part in one["loc"]), "what": one["msg"]}
        for one in error.errors()
    ]
    detail = "; ".join(f"{one['at']}: {one['what']}" for one in found)
    type_ = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if type_ != JSON and all(one["at"].startswith("body") for one in found):
        detail = f"the body is not said to be JSON: send the header 'Content-Type: {JSON}'"
    return problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "Invalid",
        detail,
        errors=found,
    )


async def _bug(_request: Request, _error: Exception) -> Response:
    # What it was is in the log, with its traceback; a caller need not see our insides.
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "Bug",
        "this is a bug in Headrace",
        hint="The API's log tells more: `headrace logs api`.",
    )
