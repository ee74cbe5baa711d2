"""Declared: what a dataflow consists of, as it is told over REST."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from api.tables import OutletOut


class FieldOut(BaseModel):
    """A column of a stream, a table, a window, or a call."""

    name: str
    type: str = Field(description="INTEGER (64 bits), REAL or TEXT.")
    required: bool = Field(description="Whether it is never null.")


class RuleOut(BaseModel):
    """How a border stream is cut into batches."""

    by: Literal["count", "interval", "punctuation"]
    tuples: int | None = Field(None, description="By count: so many are a batch.")
    linger_s: float | None = Field(None, description="By count: a batch waits for others so long.")
    column: str | None = Field(None, description="By interval: the column of event times.")
    length: int | None = Field(None, description="By interval: of each.")
    late: str | None = Field(
        None,
        description="By interval: what comes too late belongs to the `next` batch, or is `dead`, "
        "or goes to the stream that is named.",
    )
    timeout_s: float | None = Field(None, description="After this a batch is said to be missing.")
    on_timeout: Literal["wait", "close", "fill"] | None = Field(
        None, description="What becomes of it then: it stays open, is closed, or is filled by code."
    )


class StreamOut(BaseModel):
    """A stream."""

    name: str
    kind: Literal["border", "interior"] = Field(
        description="A border stream comes from outside, an interior one from a procedure."
    )
    columns: list[FieldOut]
    topic: str | None = Field(description="Of a border stream, its Kafka topic.")
    format: Literal["json", "delimited", "fixed-width", "xml", "avro"] | None = Field(
        description="Of a border stream: how its tuples are written in Kafka."
    )
    batches: RuleOut | None = Field(description="Of a border stream.")
    key: str = Field(description="The column by which partitions divide tuples; or none.")
    order: str = Field(description="The column by which a batch is ordered; or none.")


class ExtentOut(BaseModel):
    """What a window holds."""

    by: Literal["tuples", "batches", "interval"]
    size: int
    slide: int
    column: str | None = Field(None, description="By interval: the column of event times.")


class AggregateOut(BaseModel):
    """Counts and sums over a window."""

    name: str
    by: list[str]
    values: dict[str, str] = Field(description="By their names: count(*), or sum(COLUMN).")


class WindowOut(BaseModel):
    """A window."""

    name: str
    columns: list[FieldOut]
    extent: ExtentOut
    aggregates: list[AggregateOut]


class StateTableOut(BaseModel):
    """A table of the core."""

    name: str
    columns: list[FieldOut]
    parks: bool = Field(description="Whether its rows wait for something.")


class RoutineOut(BaseModel):
    """What a procedure, a trigger or a call may touch, by names."""

    name: str
    reads: list[str]
    writes: list[str]
    gives: list[str] = Field(description="Streams, windows and outlets.")
    looks: list[str] = Field(description="Lookups.")


class ProcedureOut(RoutineOut):
    """A procedure."""

    takes: list[str] = Field(description="The streams whose batches it takes.")
    nested: list[str] = Field(
        description="The procedures that commit with it as one, itself among them; or none."
    )


class TriggerOut(RoutineOut):
    """Work inside a transaction."""

    on: str = Field(description="The stream or the window.")


class FlowCallOut(RoutineOut):
    """A call."""

    arguments: list[FieldOut]
    returns: list[FieldOut]
    key: str = Field(description="The argument that says on which partition it runs; or none.")


class PartitionOut(BaseModel):
    """A partition of a dataflow."""

    name: str = Field(description="As answers name it.")
    partition: int
    last_batch: int | None = Field(description="The last batch committed; null: no core yet.")


class DataflowOut(BaseModel):
    """A dataflow as it is declared, and how far it has come."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "shop",
                    "partitions": [{"name": "shop", "partition": 0, "last_batch": 12}],
                    "streams": [
                        {
                            "name": "orders",
                            "kind": "border",
                            "columns": [{"name": "id", "type": "INTEGER", "required": True}],
                            "topic": "shop.orders",
                            "format": "json",
                            "batches": {"by": "count", "tuples": 100, "linger_s": 0.5},
                            "key": "",
                            "order": "",
                        }
                    ],
                    "procedures": [
                        {
                            "name": "sell",
                            "takes": ["orders"],
                            "reads": [],
                            "writes": [],
                            "gives": ["sales"],
                            "looks": [],
                            "nested": [],
                        }
                    ],
                    "tables": [],
                    "windows": [],
                    "triggers": [],
                    "calls": [],
                    "lookups": [],
                    "outlets": [
                        {
                            "name": "shop.sales",
                            "columns": [{"name": "id", "type": "bigint", "required": True}],
                            "key": [],
                            "indexes": [],
                            "warehouses": ["default"],
                        }
                    ],
                }
            ]
        }
    )

    name: str
    partitions: list[PartitionOut]
    streams: list[StreamOut]
    procedures: list[ProcedureOut]
    tables: list[StateTableOut]
    windows: list[WindowOut]
    triggers: list[TriggerOut]
    calls: list[FlowCallOut]
    lookups: list[str] = Field(description="Their names; GET /v1/lookups tells the rest.")
    outlets: list[OutletOut]


class DataflowsOut(BaseModel):
    """All dataflows."""

    dataflows: list[DataflowOut]
