"""Dead letters: what could not be processed, listed, shown, run again and dropped over REST.

It is what `headrace dead-letters` does, on the same files and by the same code.
"""

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StrictInt
from starlette.responses import Response

from api.errors import CursorRefused
from api.grant import Scope
from api.guard import guarded
from api.line import Line
from api.resources import Resources
from api.values import dump, to_json
from etl_procs import letters
from etl_procs.dead_letters import DeadLetters
from etl_procs.letter import DeadLetter, Kind, Sought

CHANGES_AT_ONCE = 1
"""Each waits for the core's write lock: a second thread would only wait there."""

ID_MAX = 2**63 - 1
PAGE, PAGE_MAX = 100, 1_000
PAGE_BYTES = 4 * 2**20
"""A page ends with the letter that fills so much: one alone may have 8 MiB of bytes."""
ROWS, ROWS_MAX = 20, 10_000
AT_ONCE_MAX = 10_000
"""So many letters are changed by one request."""


class DeadLetterOut(BaseModel):
    """A tuple, or a batch of one stream, that could not be processed."""

    id: int
    kind: Kind = Field(
        description="undecoded: a tuple that did not decode; rejected: a tuple that a procedure "
        "rejected; failed: a batch with which a procedure failed until its attempts were used up."
    )
    dataflow: str
    unit: str = Field(
        description="The procedure; of a nested group, all of them with + between; empty: none."
    )
    stream: str
    batch: int
    reason: str
    attempts: int
    at: str = Field(description="When it was set aside.")
    row_count: int = Field(description="Its tuples.")
    topic: str | None = Field(description="Where in Kafka a tuple came from; null: from nowhere.")
    partition: int | None
    offset: int | None
    index: int | None = Field(description="In a frame, its entry; null: the last one.")
    value: str | None = Field(None, description="A tuple's bytes, if they are text.")
    value_base64: str = Field("", description="In place of `value`: bytes that are no text.")
    fields: list[Any] | None = Field(description="The values of a tuple that did decode.")
    rows: list[dict[str, Any]] | None = Field(
        None, description="Of a batch, its first tuples, each with its place in Kafka and bytes."
    )
    replay: bool = Field(description="Whether it is to run again, when an engine comes to it.")


class LetterOut(DeadLetterOut):
    """One dead letter, and those that go with it."""

    together: list[int] = Field(
        description="The letters that were given up with it, other streams of the same batch, and "
        "itself: they run again together."
    )


class DeadLettersOut(BaseModel):
    """A page of dead letters, by their numbers: in each partition, the oldest first."""

    dead_letters: list[DeadLetterOut]
    next: str | None = Field(description="The cursor of the next page; null: this is the last.")


class ReasonOut(BaseModel):
    """How many letters there are for one reason."""

    dataflow: str
    reason: str
    letters: int
    tuples: int
    replays: int = Field(description="Letters that are to run again.")


class ReasonsOut(BaseModel):
    """Dead letters by their reasons, the most frequent first."""

    reasons: list[ReasonOut]
    more: int = Field(description="So many more reasons there are.")


class LettersIn(BaseModel):
    """Which letters are meant."""

    model_config = ConfigDict(extra="forbid")

    ids: list[Annotated[StrictInt, Field(ge=0, le=ID_MAX)]] = Field(
        min_length=1, max_length=AT_ONCE_MAX, description="Their numbers: none is given twice."
    )
    where_possible: bool = Field(
        False,
        strict=True,
        description="Pass over those that are not there, or cannot; otherwise it is all or none.",
    )


class ReplayedOut(BaseModel):
    """What is to run again."""

    replayed: list[int] = Field(
        description="With a batch go those of other streams that it was given up with."
    )


class DroppedOut(BaseModel):
    """What is gone."""

    dropped: list[int]


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("there is no such moment in UTC") from None


class SoughtIn(BaseModel):
    """Which letters are listed; a name that is none of these is refused."""

    model_config = ConfigDict(extra="forbid")

    dataflow: str = Field("", description="Those of this dataflow.")
    stream: str = Field("", description="Those of this stream.")
    procedure: str = Field("", description="Those that this procedure gave up or rejected.")
    kind: Kind | None = Field(None, description="Those that are so.")
    reason: str = Field("", description="Those whose reason holds this text.")
    since: Annotated[AwareDatetime, AfterValidator(_in_utc)] | None = Field(
        None, description="Those set aside at this moment or later: ISO 8601, with its zone."
    )
    rows: int = Field(0, ge=0, le=ROWS_MAX, description="So many tuples of each batch.")
    limit: int = Field(PAGE, ge=1, le=PAGE_MAX, description="So many letters at most.")
    cursor: str = Field(
        "", max_length=200, description="`next` of the page before, asked for in the same words."
    )

    @property
    def sought(self) -> Sought:
        """Make it a value."""
        return Sought(
            self.dataflow,
            self.stream,
            self.procedure,
            self.kind.value if self.kind else "",
            self.reason,
            self.since.isoformat() if self.since else "",
        )


def router(resources: Resources) -> APIRouter:
    """Make the routes."""
    made = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])
    line = Line("requests for dead letters")
    changes = Line("changes of them", at_once=CHANGES_AT_ONCE)

    @made.get("", response_model=DeadLettersOut, **guarded(Scope.LOOK, 400, 422, 503))
    async def list_dead_letters(asked: Annotated[SoughtIn, Query()]) -> Response:
        """List dead letters, page by page.

        A page may be shorter than its limit: it ends at about 4 MiB.
        """
        return await line.answer(partial(_page, resources, asked))

    @made.get("/reasons", response_model=ReasonsOut, **guarded(Scope.LOOK, 422, 503))
    async def list_reasons(
        dataflow: Annotated[str, Query(description="Of this dataflow.")] = "",
        reason: Annotated[str, Query(description="That hold this text.")] = "",
        limit: Annotated[int, Query(ge=1, le=PAGE_MAX, description="So many at most.")] = PAGE,
    ) -> Response:
        """Count dead letters by dataflow and reason, the most frequent first."""
        return await line.answer(partial(_reasons, resources, dataflow, reason, limit))

    @made.get("/{id}", response_model=LetterOut, **guarded(Scope.LOOK, 404, 422, 503))
    async def get_dead_letter(
        id: Annotated[int, Path(ge=0, le=ID_MAX, description="Its number, as the list tells it.")],
        rows: Annotated[
            int, Query(ge=0, le=ROWS_MAX, description="So many tuples of a batch at most.")
        ] = ROWS,
    ) -> Response:
        """Tell all that is known of one: reason, place, bytes, and the tuples of a batch."""
        return await line.answer(partial(_one, resources, id, rows))

    @made.post(
        "/replay",
        response_model=ReplayedOut,
        **guarded(Scope.OPERATE, 404, 409, 413, 422, 503),
    )
    async def replay_dead_letters(asked: LettersIn) -> Response:
        """Have the engine run letters again, as the next batch of their dataflow.

        The wish is durable; a letter is gone in the commit that has run it, and what fails again
        is a new one with a number of its own. So the same request again has no further effect.
        409 `NotReplayable`: what did not decode, or what nobody takes as it is any more.
        """
        change = partial(_changed, resources, DeadLetters.replay, asked)
        return await changes.answer(lambda: {"replayed": change()})

    @made.post("/drop", response_model=DroppedOut, **guarded(Scope.OPERATE, 404, 413, 422, 503))
    async def drop_dead_letters(asked: LettersIn) -> Response:
        """Delete letters for good. The numbers are nobody else's ever: again, it drops nothing."""
        change = partial(_changed, resources, DeadLetters.drop, asked)
        return await changes.answer(lambda: {"dropped": change()})

    return made


def _page(resources: Resources, asked: SoughtIn) -> dict[str, Any]:
    sought = asked.sought
    after = _place(sought, asked.cursor) if asked.cursor else 0
    told, size = [], 0
    with letters.reading(resources.cores) as dead:
        wanted = dead.chosen(sought, after, asked.limit + 1)
        for number in wanted[: asked.limit]:
            told.append(described(dead.find(number), asked.rows))
            size += len(dump(told[-1]))
            if size >= PAGE_BYTES:
                break
    more = len(told) < len(wanted)
    next = f"{wanted[len(told) - 1]}.{_digest(sought)}" if more else None
    return {"dead_letters": told, "next": next}


def _place(sought: Sought, cursor: str) -> int:
    """Read where a page begins; a cursor of other letters would leave some out."""
    after, _, digest = cursor.partition(".")
    if digest == _digest(sought) and after.isdecimal() and int(after) <= ID_MAX:
        return int(after)
    raise CursorRefused(
        "the cursor is not one of this list",
        hint="Give `next` of the page before, with the same dataflow, stream, procedure, kind, "
        "reason and since; or begin without one.",
    )


def _digest(sought: Sought) -> str:
    return hashlib.sha256(repr(sought).encode()).hexdigest()[:16]


def _reasons(resources: Resources, dataflow: str, reason: str, limit: int) -> dict[str, Any]:
    with letters.reading(resources.cores) as dead:
        found = [
            tally._asdict()
            for tally in dead.tallies()
            if dataflow in ("", tally.dataflow) and reason in tally.reason
        ]
    return {"reasons": found[:limit], "more": max(len(found) - limit, 0)}


def _one(resources: Resources, number: int, rows: int) -> dict[str, Any]:
    with letters.reading(resources.cores) as dead:
        letter = dead.find(number)
        return {**described(letter, rows), "together": dead.together(number)}


def _changed(resources: Resources, change: Callable[..., list[int]], asked: LettersIn) -> list[int]:
    numbers = list(dict.fromkeys(asked.ids))
    with letters.changing(resources.cores, resources.settings, resources.crash) as dead:
        return change(dead, numbers, where_possible=asked.where_possible)


def described(letter: DeadLetter, rows: int) -> dict[str, Any]:
    """Write a letter as it is told; numbers that JSON has no form for are text."""
    told = {"kind": letter.kind, **letter.document(rows)}
    if told["fields"] is not None:
        told["fields"] = to_json(told["fields"])
    if "rows" in told:
        told["rows"] = [{n: to_json(value) for n, value in row.items()} for row in told["rows"]]
    return told
