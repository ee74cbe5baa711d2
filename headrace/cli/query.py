"""`headrace query`: one SELECT, asked of the API, printed as a table."""

import argparse
import json
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

from headrace.cli import addresses
from headrace.cli.api import key_of
from headrace.cli.command import Command, Context
from headrace.cli.table import laid_out
from headrace.config import Config
from headrace.errors import Exit, HeadraceError, NotRunning, Refused

# Beyond the query's own limit: for waiting in line, and for the answer to travel.
ANSWER_S = 30.0

NUMBERS = frozenset({"smallint", "integer", "bigint", "numeric", "real", "double precision"})


@dataclass(frozen=True, slots=True)
class Reply:
    """What the API said."""

    status: HTTPStatus
    body: bytes


def run_query(context: Context) -> int:
    """Ask the API and print the answer."""
    arguments = context.arguments
    reply = _ask(context.config, {"sql": arguments.sql, "freshness": arguments.freshness})
    if reply.status is not HTTPStatus.OK:
        raise _refusal(reply)
    if arguments.json:
        print(reply.body.decode())
    else:
        print("\n".join(_lines(json.loads(reply.body))))
    return Exit.OK


def _ask(config: Config, question: dict[str, str]) -> Reply:
    address = addresses.api(config)
    headers = {
        "Authorization": f"Bearer {key_of(config)}",
        "Content-Type": "application/json",
    }
    timeout_s = config.api.query_timeout_ms / 1000 + ANSWER_S
    connection = HTTPConnection(address, timeout=timeout_s)
    try:
        connection.request("POST", "/v1/query", json.dumps(question), headers)
        response = connection.getresponse()
        return Reply(HTTPStatus(response.status), response.read())
    except (OSError, HTTPException) as error:
        raise NotRunning(
            f"the API at {address} does not answer: {error}",
            hint="Run `headrace up`; `headrace status` shows which part is missing.",
        ) from error
    finally:
        connection.close()


def _refusal(reply: Reply) -> HeadraceError:
    try:
        problem = json.loads(reply.body)
        what = problem["detail"]
    except (ValueError, KeyError, TypeError):
        return HeadraceError(
            f"what listens there answers {reply.status.value}, and not as Headrace's API does",
            hint="Look at api.host and api.port: another program may have that port.",
        )
    hint = problem.get("hint", "`headrace logs api` may tell more.")
    if reply.status is HTTPStatus.SERVICE_UNAVAILABLE:
        return NotRunning(what, hint=hint)
    if reply.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return Refused(what, hint=hint)
    return HeadraceError(what, hint=hint)


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
