"""`headrace watch`: queries that are answered at every batch, and what is done with the results."""

import argparse
import json
from typing import Any
from urllib.parse import quote

from headrace import client
from headrace.cli.command import JSON, Command, Context
from headrace.cli.table import answered, batches, laid_out
from headrace.client import Client
from headrace.errors import Exit, Refused

AT = "/v1/continuous"


def run_watch(context: Context) -> int:
    """Register a query, or do what a flag says with those that are."""
    arguments, api = context.arguments, client.of(context.config)
    flags = ("list", "drop", "follow", "retry")
    chosen = [flag for flag in flags if getattr(arguments, flag)]
    is_registered = arguments.name is not None and arguments.sql is not None
    if len(chosen) + is_registered != 1 or (chosen and arguments.name is not None):
        raise Refused(
            "it is not clear what is wanted",
            hint='Say headrace watch NAME "SELECT ...", or one of --list, --drop NAME, '
            "--follow NAME, --retry NAME.",
        )
    if arguments.list:
        _show(api.ask("GET", AT)["continuous"], as_json=arguments.json)
    elif arguments.drop:
        api.ask("DELETE", _path(arguments.drop))
    elif arguments.retry:
        _show([api.ask("POST", _path(arguments.retry) + "/retry")], as_json=arguments.json)
    elif arguments.follow:
        _follow(api, arguments)
    else:
        _show([_registered(api, arguments)], as_json=arguments.json)
    return Exit.OK


def _show(found: list[dict[str, Any]], *, as_json: bool) -> None:
    """Write how queries are: one line for each, and why one fails below it."""
    if as_json:
        for one in found:
            print(json.dumps(one))
    elif found:
        rows = [
            [one["name"], one["state"], batches(one["as_of"]), _brought(one), one["sql"]]
            for one in found
        ]
        print("\n".join(laid_out(["name", "state", "as of", "results", "query"], rows)))
        for one in found:
            for error in filter(None, (one.get("error"), one.get("delivery_error"))):
                print(f"{one['name']}: {error['detail']}")


def _brought(one: dict[str, Any]) -> str:
    """Say where results are brought, and how many wait for it."""
    to = one.get("to")
    if not to:
        return "kept"
    waiting = f", {one['waiting']} waiting" if one["waiting"] else ""
    return f"to {to.get('call') or to['webhook']}: {one['delivery']}{waiting}"


def _registered(api: Client, arguments: argparse.Namespace) -> Any:
    to = {"webhook": arguments.webhook, "call": arguments.call}
    given = {name: value for name, value in to.items() if value is not None}
    asked = {"sql": arguments.sql, "when": arguments.when, "to": given or None}
    if arguments.on is not None:
        asked["on"] = arguments.on
    query = "?replace=true" if arguments.replace else ""
    return api.ask("PUT", _path(arguments.name) + query, asked)


def _follow(api: Client, arguments: argparse.Namespace) -> None:
    query = "" if arguments.after is None else f"?after={quote(arguments.after)}"
    for line in api.lines(f"{_path(arguments.follow)}/results{query}"):
        print(line.decode() if arguments.json else _result(json.loads(line)), flush=True)


def _result(told: dict[str, Any]) -> str:
    """Lay one result out; what is none is written as it is."""
    if "columns" not in told:
        return json.dumps(told)
    table = answered(told["columns"], told["rows"])
    where = f"as of {batches(told['as_of'])}; --after {told['position']} goes on behind it"
    return "\n".join([*table, "", where, ""])


def _path(name: str) -> str:
    return f"{AT}/{quote(name, safe='')}"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="the query's name")
    parser.add_argument("sql", metavar="SQL", nargs="?", help="one SELECT")
    to = parser.add_mutually_exclusive_group()
    to.add_argument("--webhook", metavar="URL", help="post each result there")
    to.add_argument("--call", metavar="DATAFLOW/NAME", help="make this call for each row")
    parser.add_argument(
        "--when",
        choices=("each batch", "change"),
        default="each batch",
        help="which results count: all, or those with other rows than the last",
    )
    parser.add_argument(
        "--on", metavar="DATAFLOW", help="answer it at the batches of this dataflow alone"
    )
    parser.add_argument(
        "--replace", action="store_true", help="put it in the place of another one of the name"
    )
    parser.add_argument("--list", action="store_true", help="list those that are registered")
    parser.add_argument("--drop", metavar="NAME", help="drop one, with its results")
    parser.add_argument("--follow", metavar="NAME", help="write its results as they come")
    parser.add_argument("--after", metavar="POSITION", help="with --follow: from there on")
    parser.add_argument("--retry", metavar="NAME", help="bring results again that had failed")


COMMANDS = [
    Command(
        name="watch",
        summary="have a query answered at every batch, and act on what it finds",
        description="Register a continuous query: it is answered as of the batches that are "
        "committed, in the API, until it is dropped. Its results can be followed, posted to a "
        "webhook, or called for row by row; the columns are then the call's arguments. The same "
        "again is the same one. With --json, all is written as lines of JSON.",
        examples=(
            'headrace watch total "SELECT count(*) AS votes FROM votes"',
            'headrace watch poor "SELECT name, cents FROM balances WHERE cents < 50" '
            "--call bank/warn --when change",
            'headrace watch poor "SELECT name FROM balances" --webhook https://alerts.example/x',
            "headrace watch --list",
            "headrace watch --follow total --after 41 --json | jq -c .rows",
            "headrace watch --drop total",
        ),
        run=run_watch,
        arguments=(_arguments, JSON),
    )
]
