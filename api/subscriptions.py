"""Subscriptions: the committed batches of streams and tables, told to clients as they come."""

import logging
import re
from asyncio import Task, create_task
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

from anyio import CapacityLimiter, Event, current_time, move_on_after, sleep, to_thread
from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from api.errors import Busy
from api.events import EVENTS, LINES, Form, Subscription
from api.grant import Scope as Needed
from api.guard import Admitted, needs
from api.problem import problems
from api.standing import bug_of
from etl_procs.dataflow import Dataflow
from etl_procs.followed import FOLLOWED_S, follow
from etl_procs.model import Outlet, Stream
from etl_procs.publisher import Publisher
from etl_procs.reader import Reader
from etl_procs.watch import Watch
from headrace.errors import HeadraceError, NotRunning

log = logging.getLogger(__name__)

SUBSCRIBERS_MAX = 100
TURNS_AT_ONCE = 4
"""A turn takes a core some tens of milliseconds, and nobody waits for a client in it."""
LOOK_S = 0.05
FOLLOW_EVERY_S = FOLLOWED_S / 6
HEARTBEAT_S = 15.0

POSITION = re.compile(r"[0-9]{1,18}(,[0-9]{1,18})*")
MEDIA_TYPES = {EVENTS.media_type: EVENTS, LINES.media_type: LINES, "*/*": LINES, "": LINES}


class Begins(BaseModel):
    """Where a subscription begins and ends. Another name is refused: a slip would begin now."""

    model_config = ConfigDict(extra="forbid")

    after: str | None = Field(
        None,
        description="The position behind which it begins: a batch, or one for each partition, with "
        "commas in between. Without it, it begins now, and says where that is.",
        examples=["3", "3,7"],
    )
    limit: int | None = Field(None, ge=1, description="End after so many batches.")


class PublishedOut(BaseModel):
    """Whether a stream's batches are kept for those who subscribe to it."""

    published: bool
    oldest: str | None = Field(None, description="The position behind which all of them are kept.")


class _CutOff(Exception):
    """A subscription ends amid an event: its connection has to break, or that would seem whole."""


class _Told(StreamingResponse):
    """The events of a subscription, for as long as its client listens."""

    def __init__(
        self,
        subscriptions: "Subscriptions",
        told: Subscription,
        admitted: Admitted,
        *,
        begins: bool,
    ) -> None:
        self._subscriptions = subscriptions
        self._told = told
        super().__init__(
            subscriptions.events(told, admitted, begins=begins),
            media_type=told.form.media_type,
            headers={"Cache-Control": "no-store"},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._subscriptions.attended(self._told):
            await super().__call__(scope, receive, send)

    async def stream_response(self, send: Send) -> None:
        with suppress(_CutOff):  # the server breaks a connection whose answer has no end
            await super().stream_response(send)


class Subscriptions:
    """Who subscribes to what. While somebody does, the cores are looked at for all of them."""

    def __init__(
        self, dataflows: Mapping[str, Dataflow], cores: Sequence[Path], publisher: Publisher
    ) -> None:
        self._dataflows = dataflows
        self._cores = cores
        self.publisher = publisher
        self._watch = Watch(cores)
        self._watching = CapacityLimiter(1)
        self._turns = CapacityLimiter(TURNS_AT_ONCE)
        self._present = 0
        self._followed = Counter[Path]()
        self._task: Task[None] | None = None
        self._changed = Event()
        self._failure: HeadraceError | None = None
        self.is_ending: Callable[[], bool] = lambda: False
        """Whether the API has been told to stop: then subscriptions end."""

    def stream(self, dataflow: str, name: str) -> Stream:
        """Find a stream."""
        flow = self._dataflows.get(dataflow)
        found = flow.streams.get(name) if flow else None
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no stream {dataflow}.{name}")
        return found

    def table(self, dataflow: str, name: str) -> Outlet:
        """Find a table: an outlet."""
        flow = self._dataflows.get(dataflow)
        found = flow.outlets.get(name) if flow else None
        if found is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no table {dataflow}.{name}")
        return found

    def partitions(self, dataflow: str) -> int:
        """Tell among how many partitions a dataflow is divided."""
        return self._dataflows[dataflow].partitions

    def published(self, stream: Stream) -> PublishedOut:
        """Tell whether a stream is published in all of its partitions."""
        oldest = []
        for core in self._cores[: self.partitions(stream.dataflow)]:
            with Reader(core).snapshot() as snapshot:
                oldest.append(snapshot.kept_after(stream))
        if None in oldest:
            return PublishedOut(published=False, oldest=None)
        return PublishedOut(published=True, oldest=",".join(map(str, oldest)))

    async def begin(
        self, what: Stream | Outlet, form: Form, after: Sequence[int] | None, limit: int | None
    ) -> Subscription:
        """Begin a subscription; refuse one that cannot be served."""
        cores = self._cores[: self.partitions(what.dataflow)]
        if after is not None and len(after) != len(cores):
            raise HTTPException(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"the position has {len(after)} batches, and {what.dataflow} has {len(cores)} "
                "partitions: one for each, in their order",
            )
        await self._look()
        made = Subscription(what, cores, form, limit)
        last = self._watch.batches(what.dataflow, len(cores))
        await to_thread.run_sync(_follow, made.followed, limiter=self._turns)
        await to_thread.run_sync(partial(made.begin, after, last), limiter=self._turns)
        return made

    @contextmanager
    def attended(self, told: Subscription) -> Iterator[None]:
        """Look at the cores meanwhile, and say which are followed; refuse one more if there are as
        many as may be.
        """
        if self._present >= SUBSCRIBERS_MAX:
            raise Busy(
                f"as many subscriptions are served as may be ({SUBSCRIBERS_MAX})",
                hint="Ask again when one has ended.",
            )
        self._present += 1
        self._followed.update(told.followed)
        if self._task is None or self._task.done():
            self._failure = None
            self._task = create_task(self._look_on())
        try:
            yield
        finally:
            self._present -= 1
            self._followed.subtract(told.followed)

    async def events(
        self, told: Subscription, admitted: Admitted, *, begins: bool
    ) -> AsyncIterator[bytes]:
        """Give the events of a subscription, until it is done, or its client or key is gone."""
        if begins:
            yield told.form.begun(told.position)
        try:
            while not told.is_done:
                if self._failure is not None:
                    raise self._failure
                await admitted()
                changed = self._changed
                last = self._watch.batches(told.dataflow, told.partitions)
                if told.is_behind(last):
                    yield await to_thread.run_sync(told.turn, last, limiter=self._turns)
                    continue
                with move_on_after(HEARTBEAT_S) as quiet:
                    await changed.wait()
                if quiet.cancelled_caught:
                    yield told.form.beat
        except HeadraceError as error:
            if told.is_amid:
                raise _CutOff from error
            yield told.form.ended(error)

    async def _look_on(self) -> None:
        """Wake those who wait whenever something is committed."""
        try:
            follow_at = 0.0
            while self._present:
                await sleep(LOOK_S)
                if current_time() >= follow_at:
                    follow_at = current_time() + FOLLOW_EVERY_S
                    await to_thread.run_sync(_follow, list(+self._followed), limiter=self._watching)
                if self.is_ending():
                    raise NotRunning(
                        "the API ends",
                        hint="Subscribe again when it is back, behind the last position.",
                    )
                await self._look()
        except HeadraceError as error:  # all of them tell it, and end
            self._failure = error
        except Exception as error:
            log.exception("a bug in what looks for batches")
            self._failure = bug_of(error)
        finally:
            self._wake()

    async def _look(self) -> None:
        if await to_thread.run_sync(self._watch.look, limiter=self._watching):
            self._wake()

    def _wake(self) -> None:
        woken, self._changed = self._changed, Event()
        woken.set()


def _follow(cores: Sequence[Path]) -> None:
    try:
        for core in cores:
            follow(core)
    except OSError as error:
        raise NotRunning(
            f"that a table is followed cannot be written beside the core: {error.strerror}",
            hint="Has the disk room, and may the API write in the data folder? Then ask again.",
        ) from error


def router(subscriptions: Subscriptions) -> APIRouter:
    """Make the routes."""
    made = APIRouter(prefix="/v1", tags=["subscriptions"])

    async def answer(
        request: Request, what: Stream | Outlet, begins: Begins, last_event_id: str | None
    ) -> Response:
        form = form_of(request.headers.get("accept", ""))
        # A client that comes again asks as at first, and says beside it how far it has come.
        after = position_of(last_event_id or begins.after)
        told = await subscriptions.begin(what, form, after, begins.limit)
        return _Told(subscriptions, told, request.state.admitted, begins=after is None)

    @made.get(
        "/streams/{dataflow}/{stream}/batches",
        response_class=StreamingResponse,
        responses={**TOLD, **problems(401, 404, 406, 409, 410, 422, 503)},
        dependencies=needs(Needed.SUBSCRIBE),
    )
    async def subscribe_to_stream(
        request: Request,
        dataflow: str,
        stream: str,
        begins: Annotated[Begins, Query()],
        last_event_id: Annotated[str | None, Header(description=ABOUT_LAST)] = None,
    ) -> Response:
        """Tell the committed batches of a published stream, each once and whole, as they come."""
        return await answer(request, subscriptions.stream(dataflow, stream), begins, last_event_id)

    @made.get(
        "/tables/{dataflow}/{table}/batches",
        response_class=StreamingResponse,
        responses={**TOLD, **problems(401, 404, 406, 409, 410, 422, 503)},
        dependencies=needs(Needed.SUBSCRIBE),
    )
    async def subscribe_to_table(
        request: Request,
        dataflow: str,
        table: str,
        begins: Annotated[Begins, Query()],
        last_event_id: Annotated[str | None, Header(description=ABOUT_LAST)] = None,
    ) -> Response:
        """Tell what committed batches give to a table, each once and whole, as they come."""
        return await answer(request, subscriptions.table(dataflow, table), begins, last_event_id)

    publication, refusals = "/streams/{dataflow}/{stream}/published", problems(401, 404, 422, 503)
    publication_answers: dict[str, Any] = {"response_model": PublishedOut, "responses": refusals}

    @made.put(publication, **publication_answers, dependencies=needs(Needed.OPERATE))
    def publish(dataflow: str, stream: str) -> PublishedOut:
        """Keep the batches of a stream from now on, for those who subscribe to it."""
        found = subscriptions.stream(dataflow, stream)
        subscriptions.publisher.publish(found, subscriptions.partitions(dataflow))
        return subscriptions.published(found)

    @made.delete(publication, **publication_answers, dependencies=needs(Needed.OPERATE))
    def unpublish(dataflow: str, stream: str) -> PublishedOut:
        """Keep them no more, and drop those that there are; subscriptions end."""
        found = subscriptions.stream(dataflow, stream)
        subscriptions.publisher.unpublish(found, subscriptions.partitions(dataflow))
        return subscriptions.published(found)

    @made.get(publication, **publication_answers, dependencies=needs(Needed.SUBSCRIBE))
    def tell_published(dataflow: str, stream: str) -> PublishedOut:
        """Tell whether the batches of a stream are kept, and from where on."""
        return subscriptions.published(subscriptions.stream(dataflow, stream))

    return made


def form_of(accept: str) -> Form:
    """Choose the form that is asked for first."""
    wanted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for name in wanted:
        if name in MEDIA_TYPES:
            return MEDIA_TYPES[name]
    raise HTTPException(
        HTTPStatus.NOT_ACCEPTABLE,
        f"batches are told as {EVENTS.media_type} or {LINES.media_type}: send one of them as the "
        "header Accept",
    )


def position_of(text: str | None) -> list[int] | None:
    """Read a position; refuse what is none."""
    if text is None:
        return None
    if not POSITION.fullmatch(text):
        raise HTTPException(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            f"{text[:100]!r} is no position: a batch, or one for each partition, as 3,7",
        )
    return [int(batch) for batch in text.split(",")]


ABOUT_LAST = "The position to go on behind, when a connection was lost; it counts before `after`."
_TOLD = '{"batch": 4, "partition": 0, "position": "4", "rows": [{"phone": "555", "contestant": 2}]}'
_TEXT = {"type": "string"}
TOLD: dict[int | str, dict[str, object]] = {
    200: {
        "description": "Batch after batch. Rows of a table with a key have `_deleted`.",
        "content": {
            EVENTS.media_type: {"schema": _TEXT, "example": f"id: 4\ndata: {_TOLD}\n\n"},
            LINES.media_type: {"schema": _TEXT, "example": f"{_TOLD}\n"},
        },
    }
}
