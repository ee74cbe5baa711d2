"""A warehouse: a PostgreSQL that takes what is routed to it, and the connections to it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from etl_procs.dataflow import Dataflow
from etl_procs.model import Outlet
from headrace.config import Config
from headrace.errors import ConfigError
from migrations.errors import NoSuchWarehouse, Twins, translated

Connection = psycopg.Connection[tuple[object, ...]]

# A server that vanished without a word is noticed within half a minute, not within two hours.
CONNECT_TIMEOUT_S = 5
KEEPALIVES_IDLE_S = 10
KEEPALIVES_INTERVAL_S = 5
TCP_USER_TIMEOUT_MS = 30_000
# Who cancels waits for an answer of the server, which may have vanished as well.
CANCEL_TIMEOUT_S = 5.0

# Somebody's forgotten transaction must not hold up a push, or the engine's end, for ever; nor must
# one of ours whose process hangs.
LOCK_TIMEOUT_MS, IDLE_TIMEOUT_MS = 10_000, 60_000
SET_TIMEOUTS: LiteralString = """\
SELECT set_config('lock_timeout', %(lock_ms)s, false),
    set_config('idle_in_transaction_session_timeout', %(idle_ms)s, false)"""

# A role's or a database's limit is meant for queries. A COPY takes as long as its rows do: ended
# each time it would look like a server that is away, and be tried again for ever. (PostgreSQL 17
# has the second one, too.)
UNLIMIT: LiteralString = """\
SELECT set_config(name, '0', false) FROM pg_settings
WHERE name IN ('statement_timeout', 'transaction_timeout')"""

# What has been committed the core forgets: it must be on the server's disk.
SET_DURABLE: LiteralString = """\
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'"""


DEFAULT = "default"
"""The name of the one in the section `warehouse`."""


@dataclass(frozen=True, slots=True)
class Warehouse:
    """A warehouse by its name, and the outlets that are routed to it."""

    name: str
    url: str = field(repr=False)  # it holds a password
    tables: tuple[str, ...] = ("*",)
    """Their names as DATAFLOW.OUTLET; * stands for any part of one."""

    def connect(self, *, application: str) -> Connection:
        """Connect to it."""
        return connect(self.url, application=application, name=self.name)

    def outlets(self, dataflow: Dataflow) -> tuple[Outlet, ...]:
        """Give those of a dataflow."""
        return tuple(outlet for outlet in dataflow.outlets.values() if self.takes(outlet))

    def takes(self, outlet: Outlet) -> bool:
        """Tell whether an outlet is routed here."""
        return any(fnmatchcase(outlet.full_name, pattern) for pattern in self.tables)


def warehouses(config: Config) -> tuple[Warehouse, ...]:
    """Give all that are configured; the one of the section `warehouse` is the first."""
    first = Warehouse(DEFAULT, config.warehouse.url, tuple(config.warehouse.tables.split()))
    others = config.warehouses.items()
    known = (first, *(Warehouse(name, of.url, tuple(of.tables.split())) for name, of in others))
    names = {place.url: place.name for place in known}
    for place in known:
        if names[place.url] != place.name:
            raise one_database(place.name, names[place.url])
    return known


def one_database(first: str, second: str) -> Twins:
    """Say that two warehouses are one database."""
    return Twins(
        f"the warehouses {first} and {second} are one database: it has one ledger, and what one of "
        "them has moved would be taken for what the other lacks",
        hint="Give it one name, and both their tables.",
    )


def named(places: Iterable[Warehouse], name: str) -> Warehouse:
    """Find a warehouse by its name."""
    known = {place.name: place for place in places}
    if name not in known:
        raise NoSuchWarehouse(
            f"there is no warehouse {name!r}",
            hint=f"There are: {', '.join(known)}. Engine and API know one that is new in the "
            "configuration from their next start on: `headrace down`, `headrace up`.",
        )
    return known[name]


def check_routes(config: Config, dataflows: Iterable[Dataflow]) -> None:
    """Refuse outlets that are routed nowhere: what they stage would wait for ever. A pattern that
    no outlet has was meant otherwise.
    """
    known, outlets = warehouses(config), [o for flow in dataflows for o in flow.outlets.values()]
    for one in known:
        for pattern in one.tables:
            if pattern != "*" and not any(fnmatchcase(o.full_name, pattern) for o in outlets):
                raise ConfigError(
                    f"the warehouse {one.name} is to take {pattern}, and no outlet is called so",
                    hint=f"There are: {', '.join(o.full_name for o in outlets)}.",
                )
    for outlet in outlets:
        if not any(one.takes(outlet) for one in known):
            raise ConfigError(
                f"no warehouse takes {outlet.full_name}",
                hint="Add it to those of one: warehouse.tables, or warehouses.NAME.tables.",
            )


def connect(url: str, *, application: str, name: str = DEFAULT) -> Connection:
    """Connect in autocommit mode: what must hold together says so by a transaction block."""
    _check_url(url, name)
    with translated(f"connecting to the warehouse {name}"):
        connection = psycopg.connect(
            watchful(url), autocommit=True, application_name=application, client_encoding="utf8"
        )
        timeouts = {"lock_ms": str(LOCK_TIMEOUT_MS), "idle_ms": str(IDLE_TIMEOUT_MS)}
        connection.execute(UNLIMIT)
        connection.execute(SET_TIMEOUTS, timeouts)
        connection.execute(SET_DURABLE)
        return connection


def watchful(url: str) -> str:
    """Write how a connection is opened that notices a server which vanished."""
    return make_conninfo(
        url,
        connect_timeout=CONNECT_TIMEOUT_S,
        keepalives_idle=KEEPALIVES_IDLE_S,
        keepalives_interval=KEEPALIVES_INTERVAL_S,
        tcp_user_timeout=TCP_USER_TIMEOUT_MS,
    )


def cancel(connection: Connection) -> None:
    """Have the server end the statement at hand; for a while, for it may not answer."""
    connection.cancel_safe(timeout=CANCEL_TIMEOUT_S)


def _check_url(url: str, name: str) -> None:
    """Refuse what is no connection URL. What PostgreSQL's library says quotes it: never pass it on.

    A password with a raw @ or / spills over into what is taken for the host and the port.
    """
    try:
        parts = conninfo_to_dict(url)
        spilt = any("@" in host[1:] for host in str(parts.get("host") or "").split(","))
        ports = str(parts.get("port") or "").split(",")
        understood = not spilt and all(port.isdecimal() or not port for port in ports)
    except (psycopg.Error, UnicodeError):
        understood = False
    if not understood:
        key = "warehouse.url" if name == DEFAULT else f"warehouses.{name}.url"
        raise ConfigError(
            f"{key} is not a connection URL that PostgreSQL's library understands",
            hint="Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %XX in place of what "
            "is special in a URL (%40 for @, %2F for /, %25 for %).",
        )


def names(columns: Iterable[str]) -> sql.Composed:
    """Name columns, as in a list of them."""
    return sql.SQL(", ").join(map(sql.Identifier, columns))
