"""Tables: what can be asked for in SQL, with its columns, as PostgreSQL names their types."""

from collections.abc import Iterable, Sequence

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from api.grant import Grant, Restriction, Scope
from api.guard import needs
from api.problem import problems
from api.resources import Resources
from etl_procs.model import Outlet
from migrations import tables
from migrations.warehouse import Warehouse

ALL = Restriction()


class TableColumnOut(BaseModel):
    """A column of a table."""

    name: str
    type: str = Field(description="PostgreSQL's name of its type.", examples=["numeric(9,2)"])
    required: bool = Field(description="Whether it is never null.")


class OutletOut(BaseModel):
    """A table that can be asked for: what a dataflow's outlet of this name brings to warehouses."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "leaderboard.votes",
                    "columns": [
                        {"name": "phone", "type": "text", "required": True},
                        {"name": "contestant", "type": "bigint", "required": True},
                    ],
                    "key": ["phone"],
                    "indexes": [["contestant"]],
                    "warehouses": ["default"],
                }
            ]
        }
    )

    name: str = Field(
        description="As DATAFLOW.OUTLET; in SQL the dataflow can be left out where it is plain."
    )
    columns: list[TableColumnOut]
    key: list[str] = Field(
        description="The columns by which rows are replaced and deleted; none: they are appended."
    )
    indexes: list[list[str]] = Field(description="The columns of each index in the warehouse.")
    warehouses: list[str] = Field(description="Those that take it; the first answers queries.")


class TablesOut(BaseModel):
    """All tables that the caller's key sees."""

    tables: list[OutletOut]


def router(resources: Resources) -> APIRouter:
    """Make the route."""
    made = APIRouter(prefix="/v1/tables", tags=["tables"])
    outlets = [o for flow in resources.dataflows.values() for o in flow.outlets.values()]

    @made.get("", responses=problems(401), dependencies=needs(Scope.LOOK, keeps_to_tables=True))
    async def list_tables(request: Request) -> TablesOut:
        """List the tables that can be asked for in SQL.

        A key that is for some tables sees those, and of them the columns that it may see.
        """
        held: Grant = request.state.grant
        seen = {o.full_name: ALL for o in outlets} if held.tables is None else held.tables
        shown = [outlet for outlet in outlets if outlet.full_name in seen]
        return TablesOut(
            tables=[
                described(outlet, resources.warehouses, seen[outlet.full_name].columns)
                for outlet in shown
            ]
        )

    return made


def described(
    outlet: Outlet, warehouses: Iterable[Warehouse], seen: Sequence[str] | None = None
) -> OutletOut:
    """Tell what a table is like, with the columns that are seen; None: all."""
    names = outlet.columns.names if seen is None else seen
    columns = [column for column in tables.main(outlet).columns if column.name in names]
    return OutletOut(
        name=outlet.full_name,
        columns=[
            TableColumnOut(
                name=column.name,
                type=column.type.compile(dialect=tables.DIALECT).lower().replace(", ", ","),
                required=not column.nullable,
            )
            for column in columns
        ],
        key=list(outlet.key) if set(outlet.key) <= set(names) else [],
        indexes=[list(index) for index in outlet.indexes if set(index) <= set(names)],
        warehouses=[place.name for place in warehouses if place.takes(outlet)],
    )
