"""The routes of continuous queries: registered, looked at, followed, dropped."""

import json
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Header, Query, Request
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

from api import problem
from api.asked import ColumnOut, Scalar
from api.continuous import Continuous
from api.errors import Unauthorized
from api.events import EVENTS, LINES
from api.grant import Scope
from api.guard import needs
from api.problem import problems
from api.registered import Definition, When
from api.standing import Standing
from api.subscriptions import ABOUT_LAST, Begins, form_of, position_of
from api.values import dump

NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
Name = Annotated[str, InPath(pattern=f"^{NAME}$")]


class ToIn(BaseModel):
    """What its results are brought to: a webhook, or a call; one of the two."""

    model_config = ConfigDict(extra="forbid")

    webhook: str = Field(
        "",
        description="http://... or https://..., to which each result is posted.",
        examples=["https://alerts.example/headrace"],
    )
    call: str = Field(
        "",
        description="DATAFLOW/NAME: made for each row, whose columns are its arguments.",
        examples=["bank/freeze"],
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if bool(self.webhook) == bool(self.call):
            raise ValueError("give a webhook, or a call")
        return self


class ContinuousIn(BaseModel):
    """A query that is to be answered at each batch."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "sql": "SELECT contestant, count(*) AS votes FROM votes GROUP BY 1",
                    "to": {"webhook": "https://alerts.example/headrace"},
                    "when": "change",
                }
            ]
        },
    )

    sql: str = Field(
        description="One SELECT in PostgreSQL's dialect.",
        examples=["SELECT contestant, count(*) AS votes FROM votes GROUP BY 1"],
    )
    parameters: list[Scalar | list[Scalar]] = Field([], description="The values of $1 and so on.")
    on: str = Field(
        "",
        description="The dataflow at whose batches it is answered; empty: all that it reads.",
        examples=["leaderboard"],
    )
    to: ToIn | None = Field(None, description="Nothing: its results are to be asked for.")
    when: When = Field(
        When.EACH, description="Which results count: each, or those with other rows than the last."
    )

    def definition(self) -> Definition:
        """Make it a value."""
        parameters = tuple(tuple(one) if isinstance(one, list) else one for one in self.parameters)
        webhook, call = (self.to.webhook, self.to.call) if self.to else ("", "")
        return Definition(self.sql, parameters, self.on, webhook, call, self.when)


class ContinuousOut(ContinuousIn):
    """A continuous query, as far as it has come."""

    model_config = ConfigDict(json_schema_extra=None)

    name: str
    state: Literal["running", "failing", "stopped"] = Field(
        description="failing: the last time, it could not be answered, and it is tried again; "
        "stopped: the key of whoever registered it is over."
    )
    error: dict[str, Any] | None = Field(None, description="Why it is failing, or stopped.")
    as_of: dict[str, int] = Field(description="What its last result is as of.")
    reached: dict[str, int] = Field(description="As of what that is still its answer.")
    delivery: Literal["none", "done", "waiting", "retrying", "failed"] = Field(
        description="How far its results are brought to where they are to go; failed: no more "
        "attempts are made until `retry`."
    )
    waiting: int = Field(description="So many results are still to be brought there.")
    delivery_error: dict[str, Any] | None = None
    created_at: str


class ContinuousListOut(BaseModel):
    """All that the key may see."""

    continuous: list[ContinuousOut]


class ContinuousDroppedOut(BaseModel):
    """What was dropped."""

    dropped: str


class ContinuousResultOut(BaseModel):
    """An answer, as of some batches."""

    name: str
    as_of: dict[str, int]
    position: str = Field(description="The same batches, to follow behind.")
    columns: list[ColumnOut]
    rows: list[list[Any]]


class _Followed(StreamingResponse):
    """The results of a query, for as long as its client listens."""

    def __init__(
        self, continuous: Continuous, standing: Standing, begins: Begins, request: Request
    ) -> None:
        self._continuous = continuous
        form = form_of(request.headers.get("accept", ""))
        after = continuous.begin(standing, position_of(begins.after))
        super().__init__(
            continuous.events(standing.query, form, after, begins.limit, request.state.admitted),
            media_type=form.media_type,
            headers={"Cache-Control": "no-store"},
        )

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        with self._continuous.attended():
            await super().__call__(scope, receive, send)


async def _out(continuous: Continuous, standing: Standing) -> ContinuousOut:
    query, definition = standing.query, standing.query.definition
    refused = continuous.refusal(standing)
    state: Literal["running", "failing", "stopped"] = "running"
    if refused is not None:
        state = "stopped" if isinstance(refused, Unauthorized) else "failing"
    waiting = await continuous.waiting(query) if definition.acts else 0
    delivery: Literal["none", "done", "waiting", "retrying", "failed"] = "none"
    if definition.acts:
        delivery = "waiting" if waiting else "done"
        if waiting and standing.unbrought is not None:
            delivery = "retrying"
        if query.parked is not None:
            delivery = "failed"
    why = query.parked
    if why is None and delivery == "retrying" and standing.unbrought is not None:
        why = problem.document(standing.unbrought)
    to = ToIn(webhook=definition.webhook, call=definition.call) if definition.acts else None
    return ContinuousOut(
        name=query.name,
        sql=definition.sql,
        parameters=json.loads(dump(definition.parameters)),
        on=definition.on,
        to=to,
        when=definition.when,
        state=state,
        error=problem.document(refused) if refused is not None else None,
        as_of=dict(zip(query.places, query.reached, strict=True)),
        reached=dict(zip(query.places, standing.reached, strict=True)),
        delivery=delivery,
        waiting=waiting,
        delivery_error=dict(why) if why is not None else None,
        created_at=query.created_at,
    )


def router(continuous: Continuous) -> APIRouter:
    """Make the routes."""
    made = APIRouter(
        prefix="/v1/continuous", tags=["continuous queries"], lifespan=continuous.running
    )
    to_register = needs(Scope.QUERY, Scope.SUBSCRIBE, keeps_to_tables=True)
    to_see = needs(Scope.SUBSCRIBE, keeps_to_tables=True)
    one = problems(401, 404, 422)

    @made.put(
        "/{name}",
        response_model=ContinuousOut,
        responses={201: {"model": ContinuousOut}, **problems(400, 401, 409, 413, 422, 503, 504)},
        dependencies=to_register,
    )
    async def register(
        request: Request,
        response: Response,
        name: Name,
        asked: ContinuousIn,
        replace: Annotated[
            bool, Query(description="Put it in the place of another one of the name.")
        ] = False,
    ) -> ContinuousOut:
        """Register a query, which is answered now and at each batch from then on. The same again
        is the same one.
        """
        definition = asked.definition()
        standing, is_new = await continuous.put(name, definition, request.state.grant, anew=replace)
        response.status_code = 201 if is_new else 200
        return await _out(continuous, standing)

    @made.get("", responses=problems(401), dependencies=to_see)
    async def list_continuous(request: Request) -> ContinuousListOut:
        """List the continuous queries."""
        found = continuous.all(request.state.grant)
        return ContinuousListOut(continuous=[await _out(continuous, one) for one in found])

    @made.get("/{name}", responses=one, dependencies=to_see)
    async def tell_continuous(request: Request, name: Name) -> ContinuousOut:
        """Tell how far one is."""
        return await _out(continuous, continuous.find(name, request.state.grant))

    @made.delete("/{name}", responses=one, dependencies=to_register)
    async def drop_continuous(request: Request, name: Name) -> ContinuousDroppedOut:
        """Drop one, with its results: nothing more of it is told, or done."""
        await continuous.drop(name, request.state.grant)
        return ContinuousDroppedOut(dropped=name)

    @made.post("/{name}/retry", responses=one, dependencies=to_register)
    async def retry_continuous(request: Request, name: Name) -> ContinuousOut:
        """Bring its results again, after their webhook or call had failed too often."""
        return await _out(continuous, await continuous.retry(name, request.state.grant))

    @made.get(
        "/{name}/result", response_model=ContinuousResultOut, responses=one, dependencies=to_see
    )
    async def tell_result(request: Request, name: Name) -> Response:
        """Give the last result, and what it is as of."""
        standing = continuous.find(name, request.state.grant)
        result = await continuous.last(standing.query)
        return Response(dump(result.document()), media_type=problem.JSON)

    @made.get(
        "/{name}/results",
        response_class=StreamingResponse,
        responses={200: FOLLOWED, **problems(400, 401, 404, 406, 409, 410, 422, 503)},
        dependencies=to_see,
    )
    async def follow(
        request: Request,
        name: Name,
        begins: Annotated[Begins, Query()],
        last_event_id: Annotated[str | None, Header(description=ABOUT_LAST)] = None,
    ) -> Response:
        """Tell the results as they come: first the last one, or those behind a position."""
        standing = continuous.find(name, request.state.grant)
        if last_event_id:
            begins = begins.model_copy(update={"after": last_event_id})
        return _Followed(continuous, standing, begins, request)

    return made


_RESULT = '{"name":"total","as_of":{"bank":4},"position":"4","columns":[],"rows":[[1000]]}'
FOLLOWED: dict[str, Any] = {
    "description": "Result after result.",
    "content": {
        EVENTS.media_type: {"schema": {"type": "string"}, "example": f"id: 4\ndata: {_RESULT}\n\n"},
        LINES.media_type: {"schema": {"type": "string"}, "example": f"{_RESULT}\n"},
    },
}
