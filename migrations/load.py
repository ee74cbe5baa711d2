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


BLIND: LiteralString = """\
SELECT current_user WHERE NOT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"""


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


def blind(connection: Connection) -> list[str]:
    """Tell that the load cannot be seen, if it cannot."""
    return [
        f"the sessions of others were not waited for: {user} may not see them (GRANT "
        f"pg_read_all_stats TO {user})"
        for (user,) in connection.execute(BLIND)
    ]


def measure(connection: Connection) -> Load:
    """Look at what a warehouse does just now."""
    ((active, longest_s),) = connection.execute(ACTIVE).fetchall()
    assert isinstance(active, int)
    assert isinstance(longest_s, float)
    return Load(active, longest_s)
