"""Problems: every error that a caller can get, as application/problem+json (RFC 9457)."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api import errors
from api.values import dump
from etl_procs.errors import (
    Aborted,
    KeyReused,
    NoSuchCall,
    NoSuchDataflow,
    NoSuchLetter,
    NotReplayable,
    Passing,
)
from headrace import telemetry
from headrace.errors import HeadraceError, NotRunning, Refused
from migrations.errors import (
    LedgerMismatch,
    MigrationConflict,
    MigrationEnded,
    MigrationUnknown,
    NoSuchWarehouse,
)

MEDIA_TYPE = "application/problem+json"
JSON = "application/json"

# The first that fits counts.
STATUSES: Mapping[HTTPStatus, tuple[type[HeadraceError], ...]] = {
    HTTPStatus.UNAUTHORIZED: (errors.Unauthorized,),
    HTTPStatus.FORBIDDEN: (errors.ScopeMissing, errors.TablesOnly),
    HTTPStatus.TOO_MANY_REQUESTS: (errors.TooManyRequests,),
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: (errors.HeadersTooLarge,),
    HTTPStatus.SERVICE_UNAVAILABLE: (errors.Busy, errors.WorkerEnded, NotRunning, Passing),
    HTTPStatus.NOT_FOUND: (
        *(NoSuchCall, NoSuchDataflow, NoSuchLetter, NoSuchWarehouse, MigrationUnknown),
        *(errors.NoSuchTable, errors.NoSuchRow),
        *(errors.QueryUnknown, errors.ContinuousUnknown),
    ),
    HTTPStatus.GONE: (errors.NoLonger,),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (errors.TooLarge, errors.TooMuchMemory),
    HTTPStatus.GATEWAY_TIMEOUT: (errors.TooSlow,),
    HTTPStatus.CONFLICT: (
        *(Aborted, KeyReused, NotReplayable, LedgerMismatch, MigrationConflict, MigrationEnded),
        *(errors.QueryCancelled, errors.NotYet, errors.Unpublished, errors.ContinuousConflict),
    ),
    HTTPStatus.BAD_REQUEST: (Refused,),
    HTTPStatus.INTERNAL_SERVER_ERROR: (HeadraceError,),
}

TITLES = {HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Content Too Large"}
"""As RFC 9110 has it: it may be of an answer, too."""
RETRY_AFTER_S = 1

DESCRIBED = "GET /openapi.json describes each route, and what it takes."

OF_THE_GUARD = (401, 403, 429, 431)
"""Where a key is needed, each of these can be the answer."""


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
        "title": _title(status),
        "status": status.value,
        "code": code,
        "detail": detail,
        "request_id": telemetry.REQUEST.get() or None,
    }
    return Response(
        dump({name: value for name, value in (document | more).items() if value is not None}),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers=dict(headers or {}),
    )


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems that a route may answer with; 401 brings all of the guard's."""
    guarded = OF_THE_GUARD if 401 in statuses else ()
    return {
        status: {"description": _title(HTTPStatus(status)), "content": {MEDIA_TYPE: {}}}
        for status in sorted({*statuses, *guarded})
    }


def _title(status: HTTPStatus) -> str:
    return TITLES.get(status, status.phrase)


def install(app: FastAPI) -> None:
    """Have `app` tell every error as a problem."""
    app.exception_handler(HeadraceError)(_headrace)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(RequestValidationError)(_invalid)


def status_of(error: HeadraceError) -> HTTPStatus:
    """Tell the status of an answer that is this error."""
    return next(status for status, kinds in STATUSES.items() if isinstance(error, kinds))


def document(error: HeadraceError) -> dict[str, Any]:
    """Write down an error of ours, as a problem has it."""
    told = {"code": type(error).__name__, "detail": error.what, "hint": error.hint}
    if isinstance(error, errors.QueryRefused) and error.line is not None:
        return {**told, "line": error.line, "column": error.column}
    if isinstance(error, errors.Forgotten):
        return {**told, "oldest": error.oldest}
    return told


def refusal(error: HeadraceError) -> Response:
    """Tell an error of ours."""
    status = status_of(error)
    return problem(status, headers=_headers(error, status), **document(error))


def _headers(error: HeadraceError, status: HTTPStatus) -> Mapping[str, str]:
    if isinstance(error, (errors.Unauthorized, errors.ScopeMissing)):
        return {"WWW-Authenticate": error.challenge}
    if isinstance(error, errors.TooManyRequests):
        return {"Retry-After": str(error.after_s)}
    away = status is HTTPStatus.SERVICE_UNAVAILABLE
    return {"Retry-After": str(RETRY_AFTER_S)} if away else {}


async def _headrace(_request: Request, error: HeadraceError) -> Response:
    return refusal(error)


async def _http(request: Request, error: HTTPException) -> Response:
    status = HTTPStatus(error.status_code)
    if status is HTTPStatus.BAD_REQUEST and error.__cause__ is not None:
        # FastAPI says no more than that of a body that is no text, or is nested too deeply.
        what = f"{type(error.__cause__).__name__}: {error.__cause__}"
        return _wrong(f"the body cannot be read as JSON: {what}", [{"at": "body", "what": what}])
    code = status.name.replace("_", " ").title().replace(" ", "")
    is_told = error.detail != status.phrase
    detail = error.detail if is_told else f"{status.phrase}: {request.method} {request.url.path}"
    return problem(status, code, detail, headers=error.headers, hint=DESCRIBED)


async def _invalid(request: Request, error: RequestValidationError) -> Response:
    found = [
        # As what a body was taken is no part of the place: no field has a space in its name.
        {
            "at": "/".join(str(part) for part in one["loc"] if " " not in str(part)),
            "what": _what(one),
        }
        for one in error.errors()
    ]
    detail = "; ".join(f"{one['at']}: {one['what']}" for one in found)
    type_ = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if type_ != JSON and all(one["at"].startswith("body") for one in found):
        detail = f"the body is not said to be JSON: send the header 'Content-Type: {JSON}'"
    return _wrong(detail, found)


def _what(error: Mapping[str, Any]) -> str:
    """Tell what is wrong: in words of ours, and where no JSON is there, of its parser."""
    match error["type"]:
        case "value_error":
            return str(error["ctx"]["error"])
        case "json_invalid":
            return f"{error['msg']}: {error['ctx']['error']}"
        case _:
            return str(error["msg"])


def _wrong(detail: str, found: list[dict[str, str]]) -> Response:
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    return problem(status, "Invalid", detail, hint=DESCRIBED, errors=found)


def bug() -> Response:
    """Tell of a mistake of ours. What it was is in the log; a caller need not see our insides."""
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "Bug",
        "this is a bug in Headrace",
        hint="The API's log tells more: `headrace logs api`.",
    )
