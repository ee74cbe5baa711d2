"""`headrace migrate`: what is moved into warehouses: planned, asked for, looked at, cancelled."""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

from headrace.cli import addresses, client
from headrace.cli.command import Command, Context
from headrace.cli.table import laid_out
from headrace.errors import ConfigError, Exit, HeadraceError

ASKED = ("pull", "merge", "retention", "audit", "rebuild")
KINDS = {"push": "pull", **{kind: kind for kind in ASKED}}
"""What is asked for, by the word; a push at once is a pull."""
OF_ONE = ("show", "cancel")
ACTIONS = ("plan", *KINDS, "list", *OF_ONE)
POLL_S = 0.2
HEAD = ("id", "kind", "warehouse", "state", "rows", "bytes", "created", "stage")


def run_migrate(context: Context) -> int:
    """Do what is asked."""
    arguments = context.arguments
    action = arguments.action
    if (action in OF_ONE) != bool(arguments.id):
        raise ConfigError(
            f"migrate {action} takes {'an ID' if action in OF_ONE else 'no ID'}",
            hint="`headrace migrate list` tells the IDs; a new one is given by --id.",
        )
    if action == "plan":
        return _plan(context)
    if action == "list":
        return _list(context)
    if action in OF_ONE:
        method = "DELETE" if action == "cancel" else "GET"
        found = client.ask(context.config, method, f"/v1/migrations/{arguments.id}").document
        return _show(found, as_json=arguments.json)
    return _ask(context)


def _plan(context: Context) -> int:
    """Print what a push would do now."""
    # Here, because every other command would pay for importing Arrow.
    from etl_procs import loader
    from etl_procs.core import core_path
    from etl_procs.reader import Reader
    from migrations import explain, layout, ledger, push, warehouse
    from migrations.errors import translated

    config = context.config
    dataflows = loader.load(config.flows)
    for place in addresses.warehouses(config, context.arguments.warehouse):
        print(f"warehouse {place.name}")
        with (
            translated("planning"),
            warehouse.connect(place.url, application="headrace plan") as connection,
        ):
            layout.require_version(connection)
            is_there = layout.version(connection) is not None
            arrived = ledger.read(connection, list(dataflows)) if is_there else {}
        for flow in dataflows.values():
            for partition in range(flow.partitions if place.outlets(flow) else 0):
                at = arrived.get((flow.name, partition))
                if at is None:
                    print(f"there are no tables of {flow.place(partition)} yet: warehouse init")
                    continue
                with Reader(core_path(config.home, partition)).snapshot() as snapshot:
                    through = snapshot.batch(flow.name)
                    plan = push.decide(place, flow, partition, at, snapshot, through)
                print("\n".join(explain.lines(plan)) or f"nothing of {flow.place(partition)}")
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
    path = f"/v1/migrations/{arguments.use_id or f'cli-{uuid4()}'}"
    found = client.ask(config, "PUT", path, asked).document
    said = ""
    while found["ended_at"] is None and not arguments.no_wait:
        if found["stage"] != said and sys.stderr.isatty():
            said = found["stage"]
            print(said, file=sys.stderr)
        time.sleep(POLL_S)
        found = client.ask(config, "GET", path).document
    return _show(found, as_json=arguments.json)


def _list(context: Context) -> int:
    arguments = context.arguments
    wanted = {"warehouse": arguments.warehouse, "state": arguments.state, "limit": arguments.lines}
    query = urlencode({name: value for name, value in wanted.items() if value})
    found = client.ask(context.config, "GET", f"/v1/migrations?{query}").document["migrations"]
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
    yield f"  {found['rows']:,} rows, {found['bytes']:,} bytes"
    if found["reached"]:
        batches = ", ".join(f"{place} batch {batch}" for place, batch in found["reached"].items())
        yield f"  reached {batches}"
    yield from (f"  - {finding}" for finding in found["findings"])


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("id", nargs="?", metavar="ID", help="show, cancel: the migration")
    parser.add_argument("--warehouse", default="", metavar="NAME", help="which one")
    parser.add_argument("--dataflow", action="append", metavar="NAME", help="which; without: all")
    parser.add_argument(
        "--id",
        dest="use_id",
        metavar="ID",
        help="the id of a new migration: the same again is the same migration",
    )
    parser.add_argument(
        "--idle-for",
        type=float,
        metavar="SECONDS",
        help="wait until the warehouse is idle, but no longer than this",
    )
    parser.add_argument("--source", default="", metavar="NAME", help="rebuild: from this warehouse")
    parser.add_argument("--no-wait", action="store_true", help="return when it is taken on")
    parser.add_argument("--state", default="", help="list: those in this state")
    parser.add_argument("-n", "--lines", type=int, default=20, help="list: so many, the newest")
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
