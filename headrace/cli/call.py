"""`headrace call`: one call of a dataflow, made on the core, with an engine or without one."""

import argparse
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

from headrace.cli import addresses
from headrace.cli.command import Command, Context, argument
from headrace.cli.table import laid_out
from headrace.crash import CrashPoints
from headrace.errors import Exit, Refused

if TYPE_CHECKING:
    from etl_procs.columns import Column
    from etl_procs.model import Call


def run_call(context: Context) -> int:
    """Make the call and print its rows."""
    # Here, because every other command would pay for importing Arrow.
    from etl_procs import loader
    from etl_procs.calls import Callers
    from migrations.asking import Asker

    config, arguments = context.config, context.arguments
    dataflows = loader.load(config.flows)
    dataflow, _, name = arguments.call.partition(".")
    declared = dataflows[dataflow].calls.get(name) if dataflow in dataflows else None
    if arguments.key == "":
        raise Refused("the key of the call is empty", hint="Name the call by it, or leave it out.")
    given = _given(arguments, declared)
    crash = CrashPoints(config.testing.crash_at)

    def reached() -> Asker:
        return Asker(addresses.warehouse(config))

    with closing(Callers(config.home, dataflows, config.core, crash, reached)) as callers:
        rows = callers.call(dataflow, name, given, key=arguments.key or "")
    assert declared is not None, "or it was refused"
    print("\n".join(_lines(declared, rows, as_json=arguments.output == "json")))
    return Exit.OK


def _given(arguments: argparse.Namespace, call: "Call | None") -> dict[str, Any]:
    """Put the arguments together: those of --json first, then each that has a word of its own."""
    given = _json("--json", arguments.json) if arguments.json else {}
    if not isinstance(given, dict):
        raise Refused(f"--json {arguments.json}: no object", hint="As in --json '{\"id\": 1}'.")
    types = {column.name: column for column in call.arguments.columns} if call else {}
    for word in arguments.arguments:
        name, equals, text = word.partition("=")
        if not equals:
            raise Refused(
                f"the argument {word} has no value",
                hint="Write NAME=VALUE, or NAME:=JSON, as in note:=null.",
            )
        as_json = name.endswith(":")
        name = name.removesuffix(":")
        given[name] = _json(name, text) if as_json else _typed(types.get(name), text)
    return given


def _json(of: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Refused(
            f"{of}: {text} is not JSON: {error}", hint="Quote it for the shell."
        ) from None


def _typed(column: "Column | None", text: str) -> Any:
    """Read a value as its argument is declared; one that nobody declares is refused later."""
    from etl_procs.columns import Type

    if column is None or column.type is Type.TEXT:
        return text
    try:
        return int(text) if column.type is Type.INTEGER else float(text)
    except ValueError:
        raise Refused(
            f"the argument {column.name} is {text!r}, and no {column.type.value}",
            hint=f"Leave it out, or write {column.name}:=null, for NULL."
            if not column.required
            else f"Give it as {column.name}=1.",
        ) from None


def _lines(call: "Call", rows: list[dict[str, Any]], *, as_json: bool) -> list[str]:
    from etl_procs.columns import Type

    if as_json:
        return [json.dumps(rows, ensure_ascii=False)]
    if not call.returns.columns:
        return ["Done."]
    numbers = [n for n, column in enumerate(call.returns.columns) if column.type is not Type.TEXT]
    return laid_out(call.returns.names, [tuple(row.values()) for row in rows], right=numbers)


ARGUMENTS = (
    argument("call", metavar="DATAFLOW.NAME", help="the call"),
    argument(
        "arguments",
        nargs="*",
        default=[],  # or argparse says that one is required
        metavar="NAME=VALUE",
        help="an argument, read as it is declared; NAME= is empty text, NAME:=JSON any value "
        "(note:=null); one that is left out is NULL",
    ),
    argument("--json", metavar="OBJECT", help="arguments as one JSON object"),
    argument(
        "--key",
        help="a name for this very call: made again with it, it gives the first one's result and "
        "does nothing",
    ),
    argument(
        "--output", choices=("table", "json"), default="table", help="table (default), or JSON"
    ),
)


COMMANDS = [
    Command(
        name="call",
        summary="make a call of a dataflow: one transaction on the core",
        description="Run a function that a dataflow declares with @flow.call, as one transaction "
        "between the batches, and print what it returns. It needs the core's file and the flow's, "
        "and no engine. If it fails, nothing of it is kept.",
        examples=(
            "headrace call bank.transfer source=7 target=9 cents=250 --key order-4711",
            "headrace call bank.open owner=Ann note:=null --output json",
            'headrace call bank.open --json \'{"owner": "Ann"}\'',
        ),
        run=run_call,
        arguments=ARGUMENTS,
    )
]
