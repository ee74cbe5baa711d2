"""The catalogue: which tables can be asked for, by the names that people use for them."""

from collections.abc import Mapping

from api.errors import QueryRefused
from etl_procs.dataflow import Dataflow
from etl_procs.model import Outlet


class Catalogue:
    """The outlets of the loaded dataflows."""

    def __init__(self, dataflows: Mapping[str, Dataflow]) -> None:
        self.dataflows = dataflows
        self.outlets = tuple(
            outlet for dataflow in dataflows.values() for outlet in dataflow.outlets.values()
        )
        self.columns = frozenset(name for o in self.outlets for name in o.columns.names)

    def find(self, schema: str, name: str) -> Outlet:
        """Find the outlet called `name`; the schema may be left out when only one is."""
        found = [o for o in self.outlets if o.name == name and schema in ("", o.dataflow)]
        asked = f"{schema}.{name}" if schema else name
        if not found:
            known = ", ".join(sorted(outlet.full_name for outlet in self.outlets)) or "none"
            raise QueryRefused(
                f"there is no table {asked}",
                hint=f"The tables are: {known}.",
            )
        if len(found) > 1:
            raise QueryRefused(
                f"the table {asked} is in {len(found)} dataflows",
                hint=f"Write one of: {', '.join(outlet.full_name for outlet in found)}.",
            )
        return found[0]
