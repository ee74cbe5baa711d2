"""The load of a warehouse: whether long queries run there, or many sessions are at work."""

from dataclasses import dataclass
from typing import LiteralString

from migrations.registry import Idle
from migrations.warehouse import Connection

# What others do; of sessions that may not be seen there is no state.
ACTIVE: LiteralString = """\
SELECT count(*),
    coalesce(max(extract(epoch FROM clock_timestamp() - query_start)), 0)::double precision
FROM pg_stat_activity
WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid()
    AND application_name NOT LIKE 'headrace%'"""


@dataclass(frozen=True, slots=True)
class Load:
    """How many sessions of others are at work, and for how long the longest."""

    active: int
    longest_s: float

    def holds_back(self, idle: Idle) -> str:
        """Say what is too much; empty when the warehouse is idle."""
        if self.longest_s > idle.query_s_max:
            return f"a query has run for {self.longest_s:.0f} s there"
        if self.active > idle.active_max:
            return f"{self.active} sessions are at work there"
        return ""


def measure(connection: Connection) -> Load:
    """Look at what a warehouse does just now."""
    ((active, longest_s),) = connection.execute(ACTIVE).fetchall()
    assert isinstance(active, int)
    assert isinstance(longest_s, float)
    return Load(active, longest_s)
