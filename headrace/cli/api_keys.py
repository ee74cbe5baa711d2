"""`headrace keys`: who may do what over REST."""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from headrace.cli.command import JSON, Action, Command, Context, argument
from headrace.cli.table import laid_out
from headrace.clock import SystemClock
from headrace.config import Config
from headrace.errors import ConfigError, Exit
from headrace.local.home import Home

if TYPE_CHECKING:
    from api.grant import Restriction
    from api.keyring import Key, Keyring
    from etl_procs.columns import Columns

UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
LASTS = re.compile(r"([1-9][0-9]{0,4})([mhd])")
TABLE = re.compile(r"\s*([a-z][a-z0-9_]*\.[a-z][a-z0-9_]*)\s*(?::(.*))?", re.DOTALL)
COLUMN = re.compile(r"[a-z][a-z0-9_]*")


def _create(context: Context) -> Exit:
    """Make a key, and show it this once."""
    # Here, because every other command would pay for importing them.
    from api.grant import Scope

    arguments = context.arguments
    scopes = frozenset(map(Scope, arguments.scope))
    lasts = _lasts(arguments.expires)
    tables = _restrictions(context.config, arguments.table, arguments.rows)
    Home(context.config.home).create()
    with closing(_keyring(context.config)) as keyring:
        made, shown = keyring.create(
            arguments.name, scopes, tables=tables, rate_per_s=arguments.rate, lasts=lasts
        )
    print(shown)
    until = f"until {_minute(made.expires_at)}" if made.expires_at else "until it is revoked"
    print(
        f"The key {made.grant.id} of {made.grant.name} is good at once, {until}. It is not shown "
        "again: only its SHA-256 is kept.",
        file=sys.stderr,
    )
    return Exit.OK


def _list(context: Context) -> Exit:
    """List the keys that there are and were."""
    with closing(_keyring(context.config)) as keyring:
        keys = keyring.all()
    now = SystemClock().now()
    if context.arguments.json:
        for key in keys:
            print(json.dumps(_as_json(key, now), ensure_ascii=False))
    elif not keys:
        print("There are no keys but the owner's. `headrace keys create` makes one.")
    else:
        head = ("id", "name", "state", "scopes", "tables", "rate/s", "created", "expires")
        print("\n".join(laid_out(head, [_cells(key, now) for key in keys], right=[5])))
    return Exit.OK


def _revoke(context: Context) -> Exit:
    """Have a key open nothing any more."""
    with closing(_keyring(context.config)) as keyring:
        key = keyring.revoke(context.arguments.id)
    assert key.revoked_at is not None
    print(f"The key {key.grant.id} of {key.grant.name} is revoked since {_minute(key.revoked_at)}.")
    return Exit.OK


def _keyring(config: Config) -> "Keyring":
    from api.keyring import Keyring

    home = Home(config.home)
    if not home.is_ours:
        raise ConfigError(
            f"{home.root} is no data folder of Headrace, and has no keys",
            hint="Name the right one with --home DIR; `headrace keys create` makes a new one, too.",
        )
    return Keyring(home.keyring, SystemClock())


def _lasts(text: str) -> timedelta | None:
    if not text:
        return None
    found = LASTS.fullmatch(text)
    if not found:
        raise ConfigError(
            f"--expires {text}: that is no time", hint="Write it as 30d, 12h or 90m, from now on."
        )
    return int(found[1]) * UNITS[found[2]]


def _restrictions(
    config: Config, tables: Sequence[str], rows: Sequence[str]
) -> "Mapping[str, Restriction] | None":
    """Read which tables the key sees, and what of them; None: all."""
    if not tables and not rows:
        return None
    from api.grant import Restriction

    known = _outlets(config)
    columns = dict(_one_table(text, f"--table {text}", known) for text in tables)
    wheres = dict(_one_table(text, f"--rows {text}", known) for text in rows)
    if missing := [name for name, where in wheres.items() if where is None]:
        raise ConfigError(
            f"--rows {missing[0]}: it does not say which rows",
            hint=f"Write --rows '{missing[0]}: price < 10'; all rows are seen without --rows.",
        )
    if len(columns) + len(wheres) < len(tables) + len(rows):
        raise ConfigError(
            "a table is named twice", hint="Give all of its columns at once; join its rows by AND."
        )
    return {
        name: Restriction(
            _columns(name, columns.get(name), known), _where(name, wheres.get(name), known)
        )
        for name in (*columns, *(name for name in wheres if name not in columns))
    }


def _outlets(config: Config) -> "Mapping[str, Columns] | None":
    """Give the columns of all outlets; None, if no dataflow is configured."""
    if not config.flows:
        print(
            "No dataflow is configured here: whether the tables and columns are there is not "
            "checked. Name it with --flow FILE.",
            file=sys.stderr,
        )
        return None
    from etl_procs import loader

    flows = loader.load(config.flows).values()
    return {o.full_name: o.columns for flow in flows for o in flow.outlets.values()}


def _one_table(
    text: str, origin: str, known: "Mapping[str, Columns] | None"
) -> tuple[str, str | None]:
    """Read DATAFLOW.OUTLET, and what stands behind a colon."""
    found = TABLE.fullmatch(text)
    if not found:
        raise ConfigError(
            f"{origin}: there is no DATAFLOW.OUTLET",
            hint="Write --table shop.sales:id,price or --rows 'shop.sales: price < 10'.",
        )
    if known is not None and found[1] not in known:
        raise ConfigError(
            f"{origin}: there is no table {found[1]}",
            hint=f"The tables are: {', '.join(sorted(known)) or 'none'}.",
        )
    return found[1], found[2]


def _columns(
    name: str, text: str | None, known: "Mapping[str, Columns] | None"
) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    there = known[name].names if known else tuple(filter(COLUMN.fullmatch, names))
    if unknown := [column for column in names if column not in there]:
        hint = f"The columns are: {', '.join(there)}." if known else "Separate names by commas."
        raise ConfigError(f"--table {name}: there is no column {unknown[0]!r}", hint=hint)
    return names


def _where(name: str, text: str | None, known: "Mapping[str, Columns] | None") -> str:
    if text is None:
        return ""
    from api import predicate
    from api.errors import QueryRefused

    try:
        return predicate.normal(text, known[name] if known else None)
    except QueryRefused as error:
        told, _, _ = error.what.partition(" (line")  # that of the query it was put into
        raise ConfigError(f"--rows {name}: {told}", hint=error.hint) from error


def _cells(key: "Key", now: datetime) -> Sequence[object]:
    grant = key.grant
    tables = "all" if grant.tables is None else ", ".join(grant.tables)
    return (
        grant.id,
        grant.name,
        key.state(now).value,
        _scopes(key),
        tables,
        "-" if grant.rate_per_s is None else grant.rate_per_s,
        _minute(key.created_at),
        _minute(key.expires_at) if key.expires_at else "never",
    )


def _as_json(key: "Key", now: datetime) -> dict[str, Any]:
    grant = key.grant
    times = {name: getattr(key, name) for name in ("created_at", "expires_at", "revoked_at")}
    return {
        "id": grant.id,
        "name": grant.name,
        "state": key.state(now).value,
        "scopes": _scopes(key).split(),
        "tables": grant.tables and {name: asdict(of) for name, of in grant.tables.items()},
        "rate_per_s": grant.rate_per_s,
        **{name: time and time.isoformat() for name, time in times.items()},
    }


def _scopes(key: "Key") -> str:
    return " ".join(sorted(scope.value for scope in key.grant.scopes))


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}Z"


SCOPES = ("query", "subscribe", "post", "call", "migrate", "operate", "look")
"""As in api/grant.py, which is not imported for a page of help; a test holds both together."""


def _given(text: str) -> list[str]:
    scopes = [scope.strip() for scope in text.split(",")]
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise argparse.ArgumentTypeError(
            f"there is no scope {unknown[0]!r}; there are {', '.join(SCOPES)}"
        )
    return scopes


def _rate(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to 1,000,000")
    return int(text)


COMMANDS = [
    Command(
        name="keys",
        summary="create, list and revoke the API's keys",
        description="Make keys for those who use the API, each with the scopes that it needs, and "
        "revoke them. A key can expire, see some tables only, some columns and rows of them, and "
        "have a rate of its own. The file of keys is in the data folder; an API that runs there "
        "knows of each change with its next request. The key in secrets/api.key, or api.key, is "
        "the owner's: it may do everything. docs/api.md tells what each scope is for.",
        examples=(
            "headrace keys create dashboard --scope query,look --expires 90d",
            "headrace keys create north --scope query --table shop.sales:id,price "
            "--rows \"shop.sales: region = 'north'\" --rate 20",
            "headrace keys list --json | jq -r 'select(.state == \"valid\") | .name'",
            "headrace keys revoke 3f9ac1b2d4e5",
        ),
        actions=(
            Action(
                "create",
                "make a key, and show it this once",
                _create,
                (
                    argument("name", metavar="NAME", help="who is to have it"),
                    argument(
                        "--scope",
                        action="extend",
                        default=[],
                        type=_given,
                        metavar="SCOPE,...",
                        help=f"what it is for: {', '.join(SCOPES)}; several add up",
                    ),
                    argument(
                        "--expires", default="", metavar="TIME", help="after 30d, 12h, 90m (never)"
                    ),
                    argument(
                        "--table",
                        action="append",
                        default=[],
                        metavar="DATAFLOW.OUTLET[:COLUMN,...]",
                        help="it sees only this table, and these columns of it; several add up",
                    ),
                    argument(
                        "--rows",
                        action="append",
                        default=[],
                        metavar="DATAFLOW.OUTLET:SQL",
                        help="of this table, it sees only the rows for which this is true",
                    ),
                    argument(
                        "--rate", type=_rate, metavar="N", help="requests a second (api.rate_per_s)"
                    ),
                ),
            ),
            Action("list", "show all keys, without their secrets", _list, (JSON,)),
            Action(
                "revoke",
                "have one open nothing any more",
                _revoke,
                (argument("id", metavar="ID", help="which; `list` tells"),),
            ),
        ),
    )
]
