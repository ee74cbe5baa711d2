"""What a query is asked with, and what its answer looks like: bodies of the routes of queries."""

from typing import Annotated, Any, Self

from fastapi import Body
from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)

from api.cut import Freshness, Moment, There
from api.grant import Grant
from api.island import Asked
from api.pages import CURSOR
from api.parse import Parameter
from api.plans import Plan
from api.recent import Proposal

ID = r"[A-Za-z0-9_.-]{1,64}"

Scalar = StrictBool | StrictInt | StrictFloat | StrictStr | None


EXAMPLES: list[Any] = [
    {"sql": "SELECT contestant, count(*) FROM votes GROUP BY 1", "freshness": "main"},
    {"sql": "SELECT name FROM votes WHERE contestant = $1", "parameters": [1]},
]


class QueryIn(BaseModel):
    """A query, and how fresh its answer must be."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": EXAMPLES},
    )

    sql: str = Field(
        description="One SELECT in PostgreSQL's dialect.",
        examples=["SELECT contestant, count(*) FROM votes WHERE contestant = $1 GROUP BY 1"],
    )
    parameters: list[Scalar | list[Scalar]] = Field(
        [], description="The values of $1, $2 and so on.", examples=[[1]]
    )
    freshness: Freshness = Field(
        Freshness.STAGED,
        description="staged: all that the core has committed; delta: what has arrived in the "
        "warehouse; main: what is merged there.",
    )
    as_of: dict[str, int] | None = Field(
        None,
        description="In place of a freshness: the batch of each dataflow (or of each partition) "
        "that the query reads, as an answer tells it.",
        examples=[{"leaderboard": 12}],
    )
    max_lag_s: float | None = Field(
        None,
        ge=0,
        allow_inf_nan=False,
        description="In place of a freshness: answer from wherever it costs least, if nothing is "
        "lacking there that was committed longer ago.",
    )
    plan: Plan | None = Field(
        None,
        description="The plan that is to be taken, if it can be; otherwise the one that costs "
        "least.",
    )
    id: str | None = Field(
        None,
        pattern=f"^{ID}$",
        description="A name for this query, by which it can be ended; otherwise it is given one.",
    )

    page_rows: int | None = Field(
        None,
        ge=1,
        description="Answer in pages of so many rows, at most api.query_rows_max; as JSON. If "
        "there are more, `next` in the answer's end is the cursor of the next page.",
    )

    @model_validator(mode="after")
    def _has_one_moment(self) -> Self:
        moments = {"freshness", "as_of", "max_lag_s"} & self.model_fields_set
        given = sorted(name for name in moments if getattr(self, name) is not None)
        if len(given) > 1:
            raise ValueError(f"give one of {', '.join(given)}")
        return self

    def asked(self, timeout_ms: int, grant: Grant) -> Asked:
        """Make it a value."""
        parameters: tuple[Parameter, ...] = tuple(
            tuple(one) if isinstance(one, list) else one for one in self.parameters
        )
        moment = Moment(self.freshness, self.as_of or {}, self.max_lag_s)
        tables = None if grant.tables is None else tuple(sorted(grant.tables.items()))
        return Asked(self.sql, parameters, moment, timeout_ms, self.plan, tables)


class CursorIn(BaseModel):
    """The next page of an answer, in place of a query."""

    model_config = ConfigDict(extra="forbid")

    cursor: str = Field(pattern=f"^{CURSOR}$", description="What an answer's end has as `next`.")


class ColumnOut(BaseModel):
    """A column of the answer, with PostgreSQL's name for its type."""

    name: str
    type: str


class EndOut(BaseModel):
    """That the answer is whole."""

    rows: int
    next: str | None = Field(
        None, description="The cursor of the next page, if the answer is in pages and has one."
    )


class QueryOut(BaseModel):
    """An answer. Decimals, NaN, infinities, dates and times are text; integers are exact."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "columns": [
                        {"name": "contestant", "type": "bigint"},
                        {"name": "count", "type": "bigint"},
                    ],
                    "as_of": {"leaderboard": 12},
                    "freshness": "staged",
                    "plan": "split",
                    "rows": [[1, 5021], [2, 4870]],
                    "end": {"rows": 2},
                }
            ]
        }
    )

    columns: list[ColumnOut]
    as_of: dict[str, int] = Field(
        description="The batch of each dataflow that it is as of; of one with partitions, the "
        "batch of each: `bank[0]`, `bank[1]`."
    )
    freshness: Freshness
    plan: str = Field(description="Where it was answered.")
    rows: list[list[Any]]
    end: EndOut


class CandidateOut(BaseModel):
    """A plan, and what it would cost; or why it cannot be."""

    plan: Plan
    cost_ms: float | None
    why_not: str
    sql: dict[str, str] = Field(description="What each engine would be asked, by its name.")


class TableOut(BaseModel):
    """A table of the query, and where its rows are."""

    table: str
    warehouse: str
    there: There = Field(
        description="What counts of the rows there: those in main, all that are live, or those up "
        "to a batch."
    )
    staged_rows: int
    staged_bytes: int


class ExplainedOut(BaseModel):
    """How a query would be answered."""

    plan: Plan
    because: str
    candidates: list[CandidateOut]
    tables: list[TableOut]
    as_of: dict[str, int]
    freshness: Freshness
    proposal: Proposal | None = Field(
        description="A migration, if the query was asked so often of late that it would have paid."
    )


def _kind(body: Any) -> str:
    return "a cursor" if isinstance(body, dict) and "cursor" in body else "a query"


QueryOrCursor = Annotated[
    Annotated[QueryIn, Tag("a query")] | Annotated[CursorIn, Tag("a cursor")],
    Discriminator(_kind),
    Body(examples=[*EXAMPLES, {"cursor": f"{'x' * 32}.0"}]),
]
"""A body with a cursor is one, whatever else it has."""
