"""Queries: asked, answered as their answer comes, and ended."""

import logging
from asyncio import create_task
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from anyio import CancelScope, CapacityLimiter, to_thread
from fastapi import APIRouter, Header, Request
from fastapi import Path as InPath
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from api.asked import ID, CursorIn, ExplainedOut, QueryIn, QueryOrCursor, QueryOut
from api.errors import CANCELLED, QueryCancelled, QueryUnknown
from api.formats import Format, error_line
from api.grant import Grant, Scope
from api.guard import needs
from api.island import Setting
from api.messages import Ask, Begun, Done, Explain, Explained
from api.pages import Pages
from api.problem import document, problems
from api.recent import Following, Recent
from api.values import dump
from api.workers import Worker, Workers
from headrace.clock import Clock
from headrace.config import Api
from headrace.errors import HeadraceError, Refused

log = logging.getLogger(__name__)

TURNED_AT_ONCE = 2
"""Pages that are read at once: each may be large, and is written as JSON in this process."""


class Queries:
    """The queries that are being answered."""

    def __init__(self, setting: Setting, limits: Api, pages: Path, clock: Clock) -> None:
        self.setting = setting
        self._pages = Pages(pages, limits.pages_mb_max, limits.pages_keep_s, clock)
        self._turning = CapacityLimiter(TURNED_AT_ONCE)
        self._limits = limits
        self._workers = Workers(
            setting,
            size=limits.query_workers,
            waiting_max=limits.queries_waiting_max,
            memory_mb_max=limits.query_memory_mb_max,
        )
        self._running: dict[tuple[str, str], Callable[[], None]] = {}
        """What ends each, by whose it is, and its id: nobody can end another's, or take its id."""
        self.recent = Recent(clock)

    async def answer(self, asked: QueryIn, format_: Format, asker: Grant) -> Response:
        """Answer a query; what goes wrong before the first row is raised."""
        id = asked.id or uuid4().hex
        limits, is_whole = self._limits, format_ is Format.JSON
        timeout_ms = limits.query_timeout_ms if is_whole else limits.stream_timeout_ms
        rows_max = limits.query_rows_max if is_whole else 0
        keep = None
        async with AsyncExitStack() as stack:
            following = stack.enter_context(self.recent.follow(id, asked.sql, asker))
            if asked.page_rows is not None:
                _check_pages(asked.page_rows, rows_max, format_)
                keep, rows_max = self._pages.keep(asked.page_rows, asker.id), 0
                stack.callback(self._pages.drop_begun, keep)
            worker = await self._turn(stack, asker, id)
            begun = await worker.ask(
                Ask(id, asked.asked(timeout_ms, asker), format_, rows_max, keep)
            )
            assert isinstance(begun, Begun)
            following.begun(begun)
            headers = {
                "Headrace-Query-Id": id,
                "Headrace-As-Of": dump(begun.as_of).decode(),
                "Headrace-Freshness": begun.freshness,
                "Headrace-Plan": begun.plan,
            }
            pieces = _pieces(worker, following, format_)
            if is_whole:  # all of it, or a problem
                body = b"".join([piece async for piece in pieces])
                return Response(body, media_type=format_.value, headers=headers)
            return _Streamed(pieces, stack.pop_all(), format_, headers)

    async def _turn(self, stack: AsyncExitStack, asker: Grant, id: str) -> Worker:
        """Have a worker as long as the stack, once it is the query's turn; meanwhile, too, the
        query can be ended.
        """
        if (asker.id, id) in self._running:
            raise HTTPException(HTTPStatus.CONFLICT, f"a query of the id {id} is running")
        with CancelScope() as waiting:
            self._running[asker.id, id] = waiting.cancel
            stack.callback(self._running.pop, (asker.id, id))
            worker = await stack.enter_async_context(self._workers.turn())
        if waiting.cancel_called:
            raise QueryCancelled(CANCELLED, hint="Ask it again.")
        self._running[asker.id, id] = partial(worker.cancel, id)
        return worker

    async def turn(self, cursor: str, format_: Format, asker: Grant) -> Response:
        """Give the next page of an answer."""
        _check_pages(1, 1, format_)
        page = await to_thread.run_sync(self._pages.read, cursor, asker.id, limiter=self._turning)
        return Response(page, media_type=format_.value)

    async def explain(self, asked: QueryIn, grant: Grant) -> Response:
        """Tell how a query would be answered."""
        timeout_ms = self._limits.query_timeout_ms
        async with self._workers.turn() as worker:
            told = await worker.ask(Explain(asked.asked(timeout_ms, grant)))
        assert isinstance(told, Explained)
        # A key that is for some tables is told nothing of how many rows others have staged.
        proposal = self.recent.proposal(asked.sql, grant) if grant.tables is None else None
        whole = {**told.document, "proposal": proposal and asdict(proposal)}
        return Response(dump(whole), media_type=Format.JSON.value)

    def close(self) -> None:
        """End the processes that answer."""
        self._workers.close()
        self._pages.close()

    def cancel(self, id: str, asker: Grant) -> None:
        """Have a query of one's own end."""
        end = self._running.get((asker.id, id))
        if end is None:
            raise QueryUnknown(
                f"no query of the id {id} is running",
                hint="It may have ended; the header Headrace-Query-Id tells an answer's id.",
            )
        end()


class _Streamed(StreamingResponse):
    """An answer as it comes. One that fails after its first byte has said so in its last; where
    a reader might not look there, the transfer is broken off.
    """

    def __init__(
        self,
        pieces: AsyncIterator[bytes],
        held: AsyncExitStack,
        format_: Format,
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(pieces, media_type=format_.value, headers=headers)
        self._held = held
        self._breaks = format_ is not Format.LINES

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        async with self._held:
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except HeadraceError as error:
            log.warning("an answer has ended early: %s", error.what)
            if not self._breaks:
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _pieces(worker: Worker, following: Following, format_: Format) -> AsyncIterator[bytes]:
    try:
        while isinstance(said := await worker.hear(), bytes):
            yield said
    except HeadraceError as error:  # it is told in the answer, where its format can
        following.failed(error)
        if not worker.is_free:  # it has ended, and could not tell it
            yield error_line(format_, document(error))
        raise
    assert isinstance(said, Done)
    following.done(said)


def router(queries: Queries) -> APIRouter:
    """Make the routes."""
    needed = needs(Scope.QUERY, keeps_to_tables=True)
    made = APIRouter(prefix="/v1", tags=["queries"], dependencies=needed)

    @made.post(
        "/query",
        response_class=Response,
        responses={
            200: {"model": QueryOut, "content": _CONTENT},
            **problems(406),
            **_REFUSALS,
        },
    )
    async def query(
        request: Request,
        asked: QueryOrCursor,
        accept: Annotated[str, Header(include_in_schema=False)] = "*/*",
    ) -> Response:
        """Answer one SELECT at one consistent point.

        As JSON it is whole, or a problem. As lines, CSV or an Arrow stream it comes as it is made,
        of any size: lines and Arrow tell at their end that they are whole, or what went wrong.
        With `page_rows`, JSON comes in pages of one cut: each but the last names the next one.
        """
        if isinstance(asked, CursorIn):
            return await queries.turn(asked.cursor, _format(accept), request.state.grant)
        with CancelScope() as asking:
            going = create_task(_gone(request, asking))
            try:
                return await queries.answer(asked, _format(accept), request.state.grant)
            finally:
                going.cancel()
        raise ClientDisconnect

    @made.post("/query/explain", response_model=ExplainedOut, responses=_REFUSALS)
    async def explain(request: Request, asked: QueryIn) -> Response:
        """Tell how a query would be answered now: each plan with its cost, and the SQL of each
        engine. Nothing of it is asked.
        """
        return await queries.explain(asked, request.state.grant)

    @made.delete("/queries/{id}", status_code=202, responses=problems(401, 404, 422))
    async def end_query(
        request: Request, id: Annotated[str, InPath(pattern=f"^{ID}$")]
    ) -> dict[str, str]:
        """Have a query of one's own end."""
        queries.cancel(id, request.state.grant)
        return {"id": id}

    return made


async def _gone(request: Request, asking: CancelScope) -> None:
    """End what is asked when whoever has asked it goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    asking.cancel()


def _check_pages(rows: int, rows_max: int, format_: Format) -> None:
    if format_ is not Format.JSON:
        raise HTTPException(
            HTTPStatus.NOT_ACCEPTABLE,
            f"pages are {Format.JSON.value}, and not {format_.value}, which is of any size",
        )
    if rows > rows_max:
        raise Refused(
            f"a page of {rows} rows is asked for, and {rows_max} are allowed",
            hint="Ask for smaller pages; the limit is api.query_rows_max.",
        )


def _format(accept: str) -> Format:
    """Choose the format that is wanted the most; JSON where any will do."""
    wanted: list[tuple[float, str]] = []
    for one in accept.split(","):
        type_, *more = (part.strip().lower() for part in one.split(";"))
        weights = [part[2:] for part in more if part.startswith("q=")]
        wanted.append((-_weight(weights[0]) if weights else -1.0, type_))
    known = {format_.value: format_ for format_ in Format}
    for weight, type_ in sorted(wanted, key=lambda of: of[0]):
        if weight == 0:
            continue
        if type_ in known:
            return known[type_]
        if type_ in ("*/*", "application/*"):
            return Format.JSON
    raise HTTPException(
        HTTPStatus.NOT_ACCEPTABLE, f"an answer is {', '.join(known)}, and not {accept}"
    )


def _weight(text: str) -> float:
    try:
        return min(max(float(text), 0.0), 1.0)
    except ValueError:
        return 0.0


_REFUSALS = problems(400, 401, 409, 410, 413, 422, 503, 504)

_CONTENT: Mapping[str, Any] = {
    format_.value: {"schema": {"type": "string", "format": "binary"}}
    for format_ in Format
    if format_ is not Format.JSON
}
