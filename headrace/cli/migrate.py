"""`headrace migrate`: what is moved into warehouses: planned, asked for, looked at, cancelled."""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode
from uuid import uuid4

from headrace.cli import addresses, client
from headrace.cli.command import Command, Context
from headrace.cli.table import laid_out
from headrace.config import Config
from headrace.errors import ConfigError, Exit, HeadraceError, NotRunning, Refused
from migrations import ids

if TYPE_CHECKING:
    from migrations.warehouse import Warehouse

ASKED = ("pull", "merge", "retention", "audit", "rebuild")
KINDS = {"push": "pull", **{kind: kind for kind in ASKED}}
"""What is asked for, by the word; a push at once is a pull."""
OF_ONE = ("show", "cancel")
ACTIONS = ("plan", *KINDS, "list", *OF_ONE)
STATES = ("waiting", "running", "succeeded", "failed", "cancelled")
OPTIONS = {
    "warehouse": ("plan", "push", "pull", "merge", "audit", "rebuild", "list"),
    "dataflow": ("plan", *KINDS),
    "id": tuple(KINDS),
    "idle-for": ("push", "pull", "merge", "audit", "rebuild"),
    "source": ("rebuild",),
    "no-wait": (*KINDS, "cancel"),
    "state": ("list",),
    "lines": ("list",),
    "json": (*KINDS, "list", *OF_ONE),
}
"""Which actions take an option."""
LINES, LINES_MAX = 20, 1_000
POLL_S = 0.2
AWAY_S = 30.0
"""So long an API that is started again is waited for."""
CANCELLED_S = 10.0
"""So long it is waited until what is cancelled has stopped."""
SAY_EVERY_S = 5.0
"""How often it is said how far it is, where no terminal shows it."""
HEAD = ("id", "kind", "warehouse", "state", "rows", "bytes", "created (UTC)", "stage")


def run_migrate(context: Context) -> int:
    """Do what is asked."""
    arguments = context.arguments
    action = arguments.action
    if (action in OF_ONE) != (arguments.one is not None):
        raise ConfigError(
            f"migrate {action} takes {'an ID' if action in OF_ONE else 'no ID'}",
            hint="`headrace migrate list` tells the IDs; a new one is given by --id.",
        )
    for option, actions in OPTIONS.items():
        if action not in actions and getattr(arguments, option.replace("-", "_")):
            raise ConfigError(
                f"migrate {action} takes no --{option}", hint="See `headrace migrate --help`."
            )
    if action == "plan":
        return _plan(context)
    if action == "list":
        return _list(context)
    if action in OF_ONE:
        return _of_one(context)
    return _ask(context)


def _of_one(context: Context) -> int:
    """Show a migration, or cancel it and wait a while until it has stopped."""
    arguments = context.arguments
    one = _One(context.config, arguments.one)
    if arguments.action == "show":
        return _show(one.ask("GET"), as_json=arguments.json)
    one.ask("DELETE")
    return _show(one.wait(0.0 if arguments.no_wait else CANCELLED_S), as_json=arguments.json)


def _plan(context: Context) -> int:
    """Print what a push would do now."""
    # Here, because every other command would pay for importing Arrow.
    from etl_procs import loader
    from etl_procs.core import core_path
    from etl_procs.reader import Reader
    from migrations import explain, layout, ledger, push
    from migrations.errors import translated

    config = context.config
    dataflows = loader.load(config.flows)
    for name in context.arguments.dataflow or ():
        if name not in dataflows:
            known = ", ".join(dataflows)
            raise Refused(f"there is no dataflow {name}", hint=f"There are: {known}.")
    wanted = [dataflows[name] for name in context.arguments.dataflow or dataflows]

    def plan(place: "Warehouse") -> None:
        print(f"warehouse {place.name}")
        with translated("planning"), place.connect(application="headrace plan") as connection:
            layout.require_version(connection, place)
            is_there = layout.version(connection) is not None
            arrived = ledger.read(connection, list(dataflows)) if is_there else {}
        for flow in wanted:
            for partition in range(flow.partitions if place.outlets(flow) else 0):
                at = arrived.get((flow.name, partition))
                if at is None:
                    print(f"there are no tables of {flow.place(partition)} yet: warehouse init")
                    continue
                with Reader(core_path(config.home, partition)).snapshot() as snapshot:
                    through = snapshot.batch(flow.name)
                    found = push.decide(place, flow, partition, at, snapshot, through)
                print("\n".join(explain.lines(found)) or f"nothing of {flow.place(partition)}")

    addresses.at_each_warehouse(config, context.arguments.warehouse, plan)
    return Exit.OK


def _ask(context: Context) -> int:
    """Ask for a migration, and wait for its end."""
    arguments, config = context.arguments, context.config
    asked: dict[str, Any] = {
        "kind": KINDS[arguments.action],
        "warehouse": arguments.warehouse or "default",
        "dataflows": arguments.dataflow or None,
        "source": arguments.source,
    }
    if arguments.idle_for is not None:
        asked["idle"] = {"deadline_s": arguments.idle_for}
    one = _One(config, f"cli-{uuid4()}" if arguments.id is None else arguments.id)
    found = one.ask("PUT", asked)
    if not arguments.no_wait:
        found = one.wait()
    code = _show(found, as_json=arguments.json)
    if found["state"] == "cancelled":
        raise HeadraceError(
            f"the migration {one.id} was cancelled",
            hint="What it has committed stays; another one, under an id of its own, does the rest.",
        )
    return code


class _One:
    """A migration, as it is asked for."""

    def __init__(self, config: Config, id_: str) -> None:
        if not ids.is_one(id_):
            raise ConfigError(f"{id_!r} is no id of a migration", hint=f"An id has {ids.RULE}.")
        self.id = id_
        self._config = config

    def ask(self, method: str, asked: object = None) -> dict[str, Any]:
        path = f"/v1/migrations/{self.id}"
        found: dict[str, Any] = client.ask(self._config, method, path, asked).document
        return found

    def wait(self, seconds: float = math.inf) -> dict[str, Any]:
        """Wait for its end, so long at most, and say meanwhile how far it is."""
        until, said, say_at = time.monotonic() + seconds, "", time.monotonic() + SAY_EVERY_S
        while (found := self._look())["ended_at"] is None and time.monotonic() < until:
            is_time = sys.stderr.isatty() or time.monotonic() > say_at
            if is_time and found["stage"] != said:
                said, say_at = found["stage"], time.monotonic() + SAY_EVERY_S
                print(f"{self.id}: {said}", file=sys.stderr)
            time.sleep(POLL_S)
        return found

    def _look(self) -> dict[str, Any]:
        """Look how it is; the API may just be started again."""
        until = time.monotonic() + AWAY_S
        while True:
            try:
                return self.ask("GET")
            except NotRunning as error:
                if time.monotonic() > until:
                    raise NotRunning(
                        error.what,
                        hint=f"The migration {self.id} goes on with the API: `headrace status` "
                        f"shows that one, `headrace migrate show {self.id}` the migration.",
                    ) from error
            time.sleep(POLL_S)


def _list(context: Context) -> int:
    arguments = context.arguments
    wanted = {
        "warehouse": arguments.warehouse,
        "state": arguments.state,
        "limit": arguments.lines or LINES,
    }
    query = urlencode({name: value for name, value in wanted.items() if value})
    found = client.ask(context.config, "GET", f"/v1/migrations?{query}").document["migrations"]
    if arguments.warehouse and not found:
        told = client.ask(context.config, "GET", "/v1/warehouses").document["warehouses"]
        known = [place["name"] for place in told]
        if arguments.warehouse not in known:
            raise Refused(
                f"there is no warehouse {arguments.warehouse!r}, and no migration of one",
                hint=f"There are: {', '.join(known)}.",
            )
    if arguments.json:
        print("\n".join(json.dumps(each) for each in found))
    elif found:
        print("\n".join(laid_out(HEAD, [_row(each) for each in found], right=[4, 5])))
    else:
        print("There is no such migration.")
    return Exit.OK


def _row(found: dict[str, Any]) -> tuple[object, ...]:
    names = ("id", "kind", "warehouse", "state", "rows", "bytes")
    return (*(found[name] for name in names), found["created_at"][:19], found["stage"])


def _show(found: dict[str, Any], *, as_json: bool) -> int:
    print(json.dumps(found) if as_json else "\n".join(_lines(found)))
    if found["error"]:
        raise HeadraceError(found["error"]["what"], hint=found["error"]["hint"])
    return Exit.OK


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['kind']} {found['id']} ({found['warehouse']}): {found['state']}"
    if found["stage"]:
        yield f"  {found['stage']}"
    rows = "1 row" if found["rows"] == 1 else f"{found['rows']:,} rows"
    yield f"  {rows}, {found['bytes']:,} bytes"
    if found["reached"]:
        batches = ", ".join(f"{place} batch {batch}" for place, batch in found["reached"].items())
        yield f"  reached {batches}"
    yield from (f"  - {finding}" for finding in found["findings"])


def _seconds(text: str) -> float:
    if not text.replace(".", "", 1).isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return float(text)


def _lines_of(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LINES_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to {LINES_MAX:,}")
    return int(text)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("one", nargs="?", metavar="ID", help="show, cancel: the migration")
    parser.add_argument("--warehouse", default="", metavar="NAME", help="which one")
    parser.add_argument("--dataflow", action="append", metavar="NAME", help="which; without: all")
    parser.add_argument(
        "--id",
        metavar="ID",
        help=f"the id of a new migration ({ids.RULE}): the same again is the same migration",
    )
    parser.add_argument(
        "--idle-for",
        type=_seconds,
        metavar="SECONDS",
        help="wait until the warehouse is idle, but no longer than this",
    )
    parser.add_argument("--source", default="", metavar="NAME", help="rebuild: from this warehouse")
    parser.add_argument("--no-wait", action="store_true", help="return when it is taken on")
    parser.add_argument("--state", choices=STATES, help="list: those in this state")
    parser.add_argument(
        "-n",
        "--lines",
        type=_lines_of,
        metavar="N",
        help=f"list: so many, the newest (default: {LINES})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, as the API tells it")


COMMANDS = [
    Command(
        name="migrate",
        summary="move what is staged into a warehouse now; plan, merge, audit, look",
        description="plan prints what a push would do, and does nothing. pull (or push: at once, "
        "without waiting for the engine) brings what the cores have staged into a warehouse, merge "
        "its deltas into main, retention forgets what all warehouses have had for long enough, "
        "audit holds a warehouse against definition, ledger and cores, rebuild replaces its tables "
        "by those of another warehouse. Each runs in the API under an id: the same again is the "
        "same migration. list, show and cancel look after them.",
        examples=(
            "headrace migrate plan",
            "headrace migrate pull --warehouse default --id nightly-2026-11-19 --idle-for 600",
            "headrace migrate merge",
            "headrace migrate list --state failed",
        ),
        run=run_migrate,
        arguments=_arguments,
    )
]
