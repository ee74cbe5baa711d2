"""Calls: what clients may have the core do, one transaction each."""

import inspect
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header
from pydantic import BaseModel, BeforeValidator, StrictFloat, StrictInt, StrictStr
from starlette.responses import Response

from api.declared import Fields
from api.grant import Scope
from api.guard import guarded
from api.line import Line
from api.values import to_json
from etl_procs.calls import KEY_LENGTH_MAX, Callers
from etl_procs.model import Call

# Each waits for the core's one write lock: a second thread would only wait there.
AT_ONCE = 1
WAITING_MAX = 64


def _plain(value: Any) -> Any:
    if type(value) in (bool, list, dict):
        raise ValueError(
            "this is no number, text or null. The body itself is the arguments, each by its name: "
            "GET /v1/calls tells which a call has"
        )
    return value


Value = Annotated[StrictInt | StrictFloat | StrictStr | None, BeforeValidator(_plain)]


class CallOut(BaseModel):
    """A call that a dataflow declares."""

    dataflow: str
    name: str
    description: str
    arguments: Fields
    returns: Fields


class CallsOut(BaseModel):
    """All calls."""

    calls: list[CallOut]


class ResultOut(BaseModel):
    """What a call returned: rows, by column name. Infinities are text; integers are exact."""

    rows: list[dict[str, Any]]


def router(callers: Callers) -> APIRouter:
    """Make the routes."""
    made = APIRouter(prefix="/v1/calls", tags=["calls"])
    line = Line("calls", at_once=AT_ONCE, waiting_max=WAITING_MAX)

    @made.get("", **guarded(Scope.LOOK))
    async def list_calls() -> CallsOut:
        """List the calls that the dataflows declare, with their arguments and results."""
        flows = callers.dataflows.values()
        return CallsOut(calls=[_out(call) for flow in flows for call in flow.calls.values()])

    @made.post(
        "/{dataflow}/{name}",
        response_model=ResultOut,
        **guarded(Scope.CALL, 400, 404, 409, 413, 422, 500, 503),
    )
    async def make_call(
        dataflow: str,
        name: str,
        arguments: Annotated[
            dict[str, Value] | None,
            Body(
                description="The arguments by name; one that may be null can be left out.",
                examples=[{"source": 7, "target": 9, "cents": 250}],
            ),
        ] = None,
        idempotency_key: Annotated[
            str | None,
            Header(
                min_length=1,
                max_length=KEY_LENGTH_MAX,
                description="A name for this very call: made again with it, it gives the first "
                "one's result and does nothing. With other arguments it is refused (409).",
            ),
        ] = None,
    ) -> Response:
        """Make one call: one transaction, serializable with every batch and every other call.

        If it fails, nothing of it is kept. 409 with the code `Aborted`: the call itself refused.
        """

        def call() -> dict[str, Any]:
            rows = callers.call(dataflow, name, arguments or {}, key=idempotency_key or "")
            return {"rows": [{of: to_json(value) for of, value in row.items()} for row in rows]}

        return await line.answer(call)

    return made


def _out(call: Call) -> CallOut:
    return CallOut.model_validate(
        {
            "dataflow": call.dataflow,
            "name": call.name,
            "description": inspect.getdoc(call.body) or "",
            "arguments": call.arguments,
            "returns": call.returns,
        }
    )
