"""The status page: some files, which hold no data; their script asks for /v1/status with a key."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse

HERE = Path(__file__).parent

PATHS: Mapping[str, tuple[str, str]] = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/style.css": ("style.css", "text/css; charset=utf-8"),
    "/page/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
    "/page/picture.js": ("picture.js", "text/javascript; charset=utf-8"),
}
"""By path: the file, and its media type."""

HEADERS: Mapping[str, str] = {
    # Whatever text came into the page, it could not run, nor send a key anywhere else.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",  # the next version of Headrace has another page
}


def router() -> APIRouter:
    """Make the routes."""
    made = APIRouter(include_in_schema=False)
    for path, (name, type_) in PATHS.items():
        made.add_api_route(path, _giving(name, type_), response_class=FileResponse)
    return made


def _giving(name: str, type_: str) -> Callable[[], Awaitable[FileResponse]]:
    async def give() -> FileResponse:
        """Give a file of the page."""
        return FileResponse(HERE / name, media_type=type_, headers=dict(HEADERS))

    return give
