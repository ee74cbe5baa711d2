"""Streams: tuples that clients post into the topics of border streams."""

import json
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, NoReturn

from fastapi import APIRouter, Header, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.grant import Scope
from api.guard import guarded
from api.line import Line
from api.problem import JSON
from etl_procs.dataflow import Dataflow
from etl_procs.model import Stream
from etl_procs.wire import Avro, Delimited, Json, Xml
from headrace.errors import HeadraceError
from ingest import fields
from ingest.cleaning import Cleaner
from ingest.posting import Posting
from ingest.reading import scanner
from ingest.records import SOURCE_BYTES_MAX, TUPLE_BYTES_MAX
from ingest.runs import START, Run

AT_ONCE = 8
WAITING_MAX = 64
SEQ_MAX = 2**63 - 1

LINES = ("application/x-ndjson", "text/plain")
TEXTS = ("text/plain", "text/csv")
DOCUMENTS = ("application/xml", "text/xml")
DATUM = "application/avro"


class RecordOut(BaseModel):
    """A record of the topic that holds some of the tuples."""

    partition: int
    offset: int
    tuples: int


class PostedOut(BaseModel):
    """What was posted, and where it is. Tuples that cleaning left out are not among them."""

    tuples: int = Field(description="How many are in the topic.")
    records: list[RecordOut]


ABOUT_SOURCE = "Who sends them. With `seq` it makes a repeated post have no further effect."
ABOUT_SEQ = "The number of the first tuple in its source; the next ones follow."


class Sent(BaseModel):
    """By whom tuples are sent, in the query. Another name there is refused: a slip would leave
    them without numbers, and a repeat would count.
    """

    model_config = ConfigDict(extra="forbid")

    source: str | None = Field(None, description=ABOUT_SOURCE)
    seq: int | None = Field(None, ge=0, le=SEQ_MAX, description=ABOUT_SEQ)


class Streams:
    """The border streams of the loaded dataflows, and how to post into them."""

    def __init__(self, dataflows: Mapping[str, Dataflow], posting: Posting) -> None:
        self._dataflows = dataflows
        self._posting = posting

    def find(self, dataflow: str, name: str) -> Stream:
        """Find a border stream."""
        flow = self._dataflows.get(dataflow)
        stream = flow.streams.get(name) if flow else None
        if stream is None:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no stream {dataflow}.{name}")
        if stream.batches is None:
            raise HTTPException(
                HTTPStatus.CONFLICT,
                f"{dataflow}.{name} is given by a procedure, and takes nothing from outside",
            )
        return stream

    def post(
        self, stream: Stream, type_: str, body: bytes, source: str, seq: int
    ) -> dict[str, Any]:
        """Post the tuples of a body; give the answer."""
        cleaner, raws = _headed(stream, _tuples(stream, type_, body))
        if any(len(raw) > TUPLE_BYTES_MAX for raw in raws):
            _refuse_large()
        if seq + len(raws) - 1 > SEQ_MAX:
            _refuse(f"the tuples from number {seq} on have numbers above {SEQ_MAX}")
        posted = self._posting.post(stream, cleaner, raws, source, seq)
        records = [record._asdict() for record in posted]
        return {"tuples": sum(record.tuples for record in posted), "records": records}


def router(streams: Streams) -> APIRouter:
    """Make the route."""
    made = APIRouter(prefix="/v1/streams", tags=["streams"])
    line = Line("posts", at_once=AT_ONCE, waiting_max=WAITING_MAX)

    @made.post(
        "/{dataflow}/{stream}",
        status_code=HTTPStatus.ACCEPTED,
        response_model=PostedOut,
        **guarded(Scope.POST, 400, 404, 409, 413, 415, 422, 503, keeps_to_tables=True),
        openapi_extra={"requestBody": REQUEST_BODY},
    )
    async def post_tuples(
        request: Request,
        dataflow: str,
        stream: str,
        sent: Annotated[Sent, Query()],
        headrace_source: Annotated[str | None, Header(description=ABOUT_SOURCE)] = None,
        headrace_seq: Annotated[int | None, Header(ge=0, le=SEQ_MAX, description=ABOUT_SEQ)] = None,
    ) -> Response:
        """Put tuples into a stream's topic; answered when the broker has them durably.

        A tuple that does not decode is accepted all the same, and becomes a dead letter.
        """
        found = streams.find(dataflow, stream)
        type_ = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        _check_type(found, type_)
        name, number = _identity(
            headrace_source if sent.source is None else sent.source,
            headrace_seq if sent.seq is None else sent.seq,
        )
        body = await request.body()
        post = partial(streams.post, found, type_, body, name, number)
        return await line.answer(post, HTTPStatus.ACCEPTED)

    return made


def _identity(source: str | None, seq: int | None) -> tuple[str, int]:
    if (source is None) != (seq is None):
        _refuse("source and seq go together: a number says nothing without whose it is")
    if source is None or seq is None:
        return "", 1
    if not 1 <= len(source.encode()) <= SOURCE_BYTES_MAX or "\0" in source:
        _refuse(f"the source is not between 1 and {SOURCE_BYTES_MAX} bytes long, or holds a NUL")
    return source, seq


def _check_type(stream: Stream, type_: str) -> None:
    taken: tuple[str, ...] = TEXTS
    if isinstance(stream.wire.format, Json):
        taken = (JSON, *LINES)
    elif isinstance(stream.wire.format, Xml):
        taken = DOCUMENTS
    elif isinstance(stream.wire.format, Avro):
        taken = (DATUM,)
    if type_ not in taken:
        raise HTTPException(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"{stream.topic} takes {' or '.join(taken)}: send it as the header Content-Type",
        )


def _tuples(stream: Stream, type_: str, body: bytes) -> list[bytes]:
    if type_ == JSON:
        return _elements(body)
    if type_ == DATUM:
        return [body]
    scans = scanner(stream.wire.format, START)
    try:
        runs = [*scans.feed(body), *scans.finish()]
    except HeadraceError as error:
        _refuse(f"the body is no {type_} of tuples: {error.what}")
    if any(run.oversize for run in runs):  # of which only the beginning is there
        _refuse_large()
    return [raw for run in runs for raw in run.raws]


def _headed(stream: Stream, raws: list[bytes]) -> tuple[Cleaner, list[bytes]]:
    """Take the header off, where a format has one: it names the fields, as it does in a file."""
    format_ = stream.wire.format
    if not raws or not isinstance(format_, Delimited) or not format_.header:
        return Cleaner(stream), raws
    try:
        names = fields.header(format_, Run(0, raws[:1], 0))
        return Cleaner(stream, names), raws[1:]
    except HeadraceError as error:
        _refuse(f"the body does not begin with its header line: {error.what}")


def _elements(body: bytes) -> list[bytes]:
    """Cut an array of objects into the pieces of text that they are; one object is one piece.

    Nothing is written anew: what a number's digits are, or a key twice, is for the stream to say.
    """
    decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_no_constant)
    pieces: list[bytes] = []
    try:
        text = body.decode()
        at = _skip(text, 0)
        is_array = text.startswith("[", at)
        at = _skip(text, at + is_array)
        is_over = is_array and text.startswith("]", at)
        while not is_over:
            if not text.startswith("{", at):
                raise _astray("there is no object", text, at)
            _, end = decoder.raw_decode(text, at)
            pieces.append(text[at:end].encode())
            at = _skip(text, end)
            is_over = not (is_array and text.startswith(",", at))
            at = at if is_over else _skip(text, at + 1)
        if is_array and not text.startswith("]", at):
            raise _astray("a comma, or the array's end, is missing", text, at)
        at = _skip(text, at + is_array)
        if at != len(text):
            raise _astray("something follows", text, at)
    except (ValueError, RecursionError) as error:
        _refuse(f"the body is no JSON object, and no array of them: {error}")
    return pieces


def _astray(what: str, text: str, at: int) -> ValueError:
    return ValueError(f"{what} at character {at}" if at < len(text) else "it ends too early")


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _refuse_large() -> NoReturn:
    raise HTTPException(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a tuple is larger than {TUPLE_BYTES_MAX} bytes"
    )


def _refuse(what: str) -> NoReturn:
    raise HTTPException(HTTPStatus.UNPROCESSABLE_ENTITY, what)


_VOTES = [{"phone": "555-0100", "contestant": 2}, {"phone": "555-0101", "contestant": 1}]
REQUEST_BODY = {
    "required": True,
    "description": "Tuples in the stream's format. JSON: an object, an array of objects, or lines. "
    "Delimited and fixed-width text: lines, after a header line if the format has one. XML: a "
    "document. Avro: one datum.",
    "content": {
        JSON: {
            "schema": {"oneOf": [{"type": "object"}, {"type": "array", "items": {}}]},
            "examples": {"one": {"value": _VOTES[0]}, "many": {"value": _VOTES}},
        },
        **{type_: {"schema": {"type": "string"}} for type_ in (*LINES, "text/csv", *DOCUMENTS)},
        DATUM: {"schema": {"type": "string", "format": "binary"}},
    },
}
