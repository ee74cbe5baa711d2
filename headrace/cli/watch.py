"""`headrace watch`: queries that are answered at every batch, and what is done with the results."""

import argparse
import json
import sys
from urllib.parse import quote

from headrace import client
from headrace.cli.command import Command, Context
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
        for one in api.ask("GET", AT)["continuous"]:
            print(json.dumps(one))
    elif arguments.drop:
        api.ask("DELETE", _path(arguments.drop))
    elif arguments.retry:
        print(json.dumps(api.ask("POST", _path(arguments.retry) + "/retry")))
    elif arguments.follow:
        _follow(api, arguments.follow, arguments.after)
    else:
        _register(api, arguments)
    return Exit.OK


def _register(api: Client, arguments: argparse.Namespace) -> None:
    to = {"webhook": arguments.webhook, "call": arguments.call}
    given = {name: value for name, value in to.items() if value is not None}
    asked = {"sql": arguments.sql, "when": arguments.when, "to": given or None}
    if arguments.on is not None:
        asked["on"] = arguments.on
    query = "?replace=true" if arguments.replace else ""
    print(json.dumps(api.ask("PUT", _path(arguments.name) + query, asked)))


def _follow(api: Client, name: str, after: str | None) -> None:
    query = "" if after is None else f"?after={quote(after)}"
    for line in api.lines(f"{_path(name)}/results{query}"):
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


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
        "again is the same one. All is written as lines of JSON.",
        examples=(
            'headrace watch total "SELECT count(*) AS votes FROM votes"',
            'headrace watch poor "SELECT name, cents FROM balances WHERE cents < 50" '
            "--call bank/warn --when change",
            'headrace watch poor "SELECT name FROM balances" --webhook https://alerts.example/x',
            "headrace watch --list",
            "headrace watch --follow total --after 41 | jq -c .rows",
            "headrace watch --drop total",
        ),
        run=run_watch,
        arguments=(_arguments,),
    )
]
