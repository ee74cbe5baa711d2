"""`headrace subscribe`: the batches of a stream or a table as they are committed, as JSON lines."""

import argparse
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from headrace import client
from headrace.cli.command import Command, Context, argument
from headrace.errors import Exit, NotRunning, Refused

if TYPE_CHECKING:
    from etl_procs.dataflow import Dataflow

HEAD_BYTES = 1_000
POSITION = re.compile(rb'^\{(?:"batch":[0-9]+,"partition":[0-9]+,)?"position":"([0-9,]+)"')
"""Looked for where a line begins: a batch may be large."""


def run_subscribe(context: Context) -> int:
    """Write one line for each batch, until as many have come as were asked for."""
    # Here, because every other command would pay for importing Arrow.
    from etl_procs import loader

    arguments, config = context.arguments, context.config
    api = client.of(config)
    path = _path(loader.load(config.flows), arguments.what, is_table=arguments.table)
    if arguments.publish:
        if arguments.table:
            raise Refused("a table is not published", hint="Leave --publish out: it is staged.")
        api.ask("PUT", f"{path}/published")
    asked = {"after": arguments.after, "limit": arguments.limit}
    query = urlencode({name: value for name, value in asked.items() if value is not None})
    position = arguments.after
    try:
        for line in api.lines(f"{path}/batches?{query}"):
            if found := POSITION.match(line[:HEAD_BYTES]):
                position = found[1].decode()
            if line.startswith(b'{"position"'):
                print(f"behind {position}", file=sys.stderr)
            else:
                sys.stdout.buffer.write(line + b"\n")
                sys.stdout.buffer.flush()
    except NotRunning as error:
        if position is None:
            raise
        raise NotRunning(
            error.what, hint=f"{error.hint}\n  --after {position} goes on behind what has come."
        ) from error
    return Exit.OK


def _path(dataflows: "Mapping[str, Dataflow]", name: str, *, is_table: bool) -> str:
    """Find a stream or a table by its name, or by DATAFLOW.NAME: its path in the API."""
    kind = "table" if is_table else "stream"
    known = [
        one
        for flow in dataflows.values()
        for one in (flow.outlets if is_table else flow.streams).values()
    ]
    found = [one for one in known if name in (one.name, one.full_name)]
    if len(found) != 1:
        raise Refused(
            f"{f'no {kind} is' if not found else f'several {kind}s are'} called {name}",
            hint=f"Use one of: {', '.join(one.full_name for one in known) or 'none'}."
            + ("" if is_table else " Of a table, say --table."),
        )
    return f"/v1/{kind}s/{found[0].dataflow}/{found[0].name}"


def _least_one(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


ARGUMENTS = (
    argument(
        "what",
        metavar="STREAM_OR_TABLE",
        help="a stream, or dataflow.stream; with --table, a table",
    ),
    argument(
        "--table", action="store_true", help="what the batches give to a table of the warehouse"
    ),
    argument(
        "--after",
        metavar="POSITION",
        help="begin behind this position (a batch, or one for each partition: 3,7), if what comes "
        "then is still kept; without it, begin now",
    ),
    argument("--limit", type=_least_one, metavar="N", help="end after N batches"),
    argument("--publish", action="store_true", help="have the stream's batches kept from now on"),
)


COMMANDS = [
    Command(
        name="subscribe",
        summary="write the batches of a stream or table as they are committed",
        description="Write each committed batch of a stream or a table as one line of JSON, once "
        "and whole, in the order of each partition: the batch, the partition, the position, and "
        "the rows. With --after and the position of the last line that was used, it goes on "
        "there. A stream has to be published first, by which its batches are kept for a while; "
        "of a table, there is what is staged.",
        examples=(
            "headrace subscribe leaderboard.votes --publish",
            "headrace subscribe leaderboard.votes --after 41 --limit 10",
            "headrace subscribe votes --table | jq -c '.rows[]'",
        ),
        run=run_subscribe,
        arguments=ARGUMENTS,
    )
]
