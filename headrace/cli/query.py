"""`headrace query`: one SELECT, asked of the API, printed as a table."""

import argparse
from typing import Any

from headrace.cli import client
from headrace.cli.command import Command, Context
from headrace.cli.table import laid_out
from headrace.errors import Exit

NUMBERS = frozenset({"smallint", "integer", "bigint", "numeric", "real", "double precision"})


def run_query(context: Context) -> int:
    """Ask the API and print the answer."""
    arguments = context.arguments
    asked = {"sql": arguments.sql, "freshness": arguments.freshness}
    wait_s = context.config.api.query_timeout_ms / 1000
    reply = client.ask(context.config, "POST", "/v1/query", asked, wait_s=wait_s)
    if arguments.json:
        print(reply.body.decode())
    else:
        print("\n".join(_lines(reply.document)))
    return Exit.OK


def _lines(answer: dict[str, Any]) -> list[str]:
    """Lay the answer out: head, rows, and what it is as of."""
    columns = answer["columns"]
    numbers = [place for place, column in enumerate(columns) if column["type"] in NUMBERS]
    table = laid_out([column["name"] for column in columns], answer["rows"], right=numbers)
    return [*table, "", _as_of(answer)]


def _as_of(answer: dict[str, Any]) -> str:
    batches = ", ".join(f"{name} batch {batch}" for name, batch in answer["as_of"].items())
    return f"as of {batches or 'no batch: no table was read'} ({answer['freshness']})"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sql", metavar="SELECT", help="one SELECT in PostgreSQL's dialect")
    parser.add_argument(
        "--freshness",
        choices=("staged", "delta", "main"),
        default="staged",
        help="staged: all that the core has committed (default); delta: what has arrived in the "
        "warehouse; main: what is merged there",
    )
    parser.add_argument("--json", action="store_true", help="print the API's answer as it came")


COMMANDS = [
    Command(
        name="query",
        summary="ask one SELECT over what is staged and what has arrived",
        description="Ask the API one SELECT. Tables are the outlets of the dataflows, by name or "
        "as dataflow.outlet. The last line tells the batch that the answer is as of.",
        examples=(
            'headrace query "SELECT contestant, count(*) FROM votes GROUP BY contestant"',
            'headrace query "SELECT count(*) FROM leaderboard.votes" --freshness main --json',
        ),
        run=run_query,
        arguments=_arguments,
    )
]
