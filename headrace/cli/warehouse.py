"""`headrace warehouse`: a warehouse's tables, how far they are, and who may read them."""

import json
from collections.abc import Callable
from dataclasses import asdict, astuple
from functools import partial
from typing import TYPE_CHECKING

from headrace.cli import addresses
from headrace.cli.command import JSON, Action, Command, Context, argument
from headrace.cli.table import laid_out
from headrace.errors import Exit

if TYPE_CHECKING:
    from etl_procs.dataflow import Dataflow
    from migrations.warehouse import Connection, Warehouse

HEAD = (
    "warehouse",
    "state",
    "pusher",
    "dataflow",
    "committed",
    "arrived",
    "merged",
    "rows",
    "moved (UTC)",
)


def _flows(context: Context) -> "list[Dataflow]":
    # Here, because every other command would pay for importing Arrow.
    from etl_procs import loader

    return list(loader.load(context.config.flows).values())


def _roles(context: Context) -> int:
    from migrations import roles

    print(roles.script(_flows(context)))
    return Exit.OK


def _init(connection: "Connection", place: "Warehouse", flow: "Dataflow") -> str:
    from migrations import layout

    layout.prepare(connection, place, flow)
    return f"{place.name} has the tables of {flow.name}"


def _check(connection: "Connection", place: "Warehouse", flow: "Dataflow") -> str:
    from migrations import layout

    layout.require(connection, place, flow)
    return f"{place.name} has the tables of {flow.name} as they are defined"


def _upgrade(connection: "Connection", place: "Warehouse", flow: "Dataflow") -> str:
    from migrations import layout

    done = layout.upgrade(connection, place, flow)
    return "\n".join(done) or f"{place.name} has the tables of {flow.name} as defined"


def _at_each(do: "Callable[[Connection, Warehouse, Dataflow], str]", context: Context) -> int:
    """Do it in each warehouse for each dataflow that it takes, and print what was done."""
    from migrations import twins
    from migrations.warehouse import check_routes

    flows = _flows(context)
    if do is _check:
        check_routes(context.config, flows)
    known = addresses.warehouses(context.config)

    def do_all(place: "Warehouse") -> None:
        with place.connect(application="headrace warehouse") as connection:
            twins.refuse(connection, place, known)
            for flow in flows:
                if place.outlets(flow):
                    print(do(connection, place, flow))

    addresses.at_each_warehouse(context.config, context.arguments.name, do_all)
    return Exit.OK


def _status(context: Context) -> int:
    from etl_procs.core import core_paths
    from headrace.cli import figures
    from migrations.places import Places

    config, flows = context.config, _flows(context)
    places = addresses.warehouses(config, context.arguments.name)
    dataflows, pushers = {flow.name: flow for flow in flows}, partial(figures.pushing, config.home)
    found = Places(places, dataflows, core_paths(config.home), pushers).look()
    code = Exit.NOT_RUNNING if any(each.is_trouble for each in found) else Exit.OK
    if context.arguments.json:
        print(json.dumps([asdict(each) for each in found]))
        return code
    rows = [
        (
            each.name,
            "ok" if each.state == "ok" else "see below",
            each.pusher.state if each.pusher else "-",
            *map(_shown, astuple(standing)),
        )
        for each in found
        for standing in each.dataflows
    ]
    print("\n".join(laid_out(HEAD, rows, right=[4, 5, 6, 7])))
    for each in found:
        if each.state != "ok":
            print(f"{each.name}: {each.state}")
        for line in each.pusher.lines(each.name) if each.pusher else ():
            print(line)
    return code


def _shown(value: object) -> object:
    return "-" if value is None else value[:19] if isinstance(value, str) else value


NAME = argument("name", nargs="?", default="", help="which warehouse; without: all")

COMMANDS = [
    Command(
        name="warehouse",
        summary="make, check and upgrade a warehouse's tables; how far it has come",
        description="A warehouse's tables, and how far it has come: docs/migration.md. It is asked "
        "itself, and no API.",
        examples=(
            "headrace warehouse check",
            "headrace warehouse upgrade default",
            "headrace warehouse status",
            "headrace warehouse roles | psql postgresql://admin@warehouse/db",
        ),
        actions=(
            Action(
                "init",
                "make what the dataflows lack there, as the engine does when it starts",
                partial(_at_each, _init),
                (NAME,),
            ),
            Action(
                "check",
                "name each column that is not as it is defined, and change nothing",
                partial(_at_each, _check),
                (NAME,),
            ),
            Action(
                "upgrade",
                "bring tables of an older layout over, and add missing columns and indexes",
                partial(_at_each, _upgrade),
                (NAME,),
            ),
            Action("status", "tell how far each has come", _status, (NAME, JSON)),
            Action(
                "roles",
                "print a script for psql that makes a role that moves rows, and one for each "
                "dataflow that may read it",
                _roles,
            ),
        ),
    )
]
