"""`headrace query`: one SELECT, asked of the API, printed as a table."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from headrace import client
from headrace.cli.command import JSON, Command, Context, argument
from headrace.cli.table import answered, batches
from headrace.errors import ConfigError, Exit


def run_query(context: Context) -> int:
    """Ask the API and print the answer."""
    arguments = context.arguments
    asked = {
        "sql": arguments.sql,
        "parameters": [_value(text) for text in arguments.value],
        "plan": arguments.plan,
        "max_lag_s": arguments.max_lag,
        "as_of": _batches(arguments.as_of),
    }
    if arguments.freshness is not None:
        asked["freshness"] = arguments.freshness
    path = "/v1/query/explain" if arguments.explain else "/v1/query"
    told = client.of(context.config).ask("POST", path, asked)
    if arguments.json:
        print(json.dumps(told, ensure_ascii=False))
    else:
        print("\n".join(_explained(told) if arguments.explain else _lines(told)))
    return Exit.OK


def _batch(text: str) -> tuple[str, int]:
    name, _, batch = text.rpartition("=")
    if not (name and batch.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=BATCH, such as shop=12")
    return name, int(batch)


def _batches(given: list[tuple[str, int]]) -> dict[str, int] | None:
    batches = dict(given)
    if len(batches) < len(given):
        raise ConfigError(
            "--as-of names two batches of one dataflow",
            hint="Name one batch of each dataflow, or of each of its partitions.",
        )
    return batches or None


def _value(text: str) -> Any:
    """Read a value as JSON has it; what is none is a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _explained(told: dict[str, Any]) -> Iterator[str]:
    """Tell each plan, the cheapest first, and what each engine would be asked."""
    yield f"{told['plan']}, because {told['because']}"
    for table in told["tables"]:
        yield (
            f"  {table['table']}: {table['there']} in {table['warehouse']}, and "
            f"{table['staged_rows']:,} staged rows ({table['staged_bytes']:,} bytes)"
        )
    for candidate in told["candidates"]:
        cost = candidate["cost_ms"]
        said = candidate["why_not"] if cost is None else f"{cost:.1f} ms"
        yield f"{candidate['plan']}: {said}"
        yield from (f"  {engine}: {sql}" for engine, sql in candidate["sql"].items())
    yield _as_of(told)


def _lines(answer: dict[str, Any]) -> list[str]:
    """Lay the answer out: head, rows, and what it is as of."""
    return [*answered(answer["columns"], answer["rows"]), "", _as_of(answer)]


def _as_of(answer: dict[str, Any]) -> str:
    how = f"{answer['freshness']}, by {answer['plan']}"
    return f"as of {batches(answer['as_of']) or 'no batch: no dataflow was read'} ({how})"


ARGUMENTS = (
    argument("sql", metavar="SELECT", help="one SELECT in PostgreSQL's dialect"),
    argument(
        "--freshness",
        choices=("staged", "delta", "main"),
        help="staged: all that the core has committed (default); delta: what has arrived in the "
        "warehouse; main: what is merged there",
    ),
    argument(
        "--max-lag",
        type=float,
        metavar="SECONDS",
        help="in place of a freshness: from wherever it costs least, if nothing is lacking there "
        "that was committed longer ago",
    ),
    argument(
        "--as-of",
        action="append",
        default=[],
        type=_batch,
        metavar="NAME=BATCH",
        help="in place of a freshness: the batch of a dataflow, or of a partition of it, as an "
        "earlier answer told it; one for each that the query reads",
    ),
    argument(
        "--value",
        action="append",
        default=[],
        metavar="V",
        help="the value of $1, then of $2 and so on; as JSON, or else a text",
    ),
    argument(
        "--plan",
        choices=("ship", "split", "gather"),
        help="have this plan taken, if it can be; otherwise the one that costs least",
    ),
    argument(
        "--explain", action="store_true", help="tell each plan and its cost; nothing is asked"
    ),
    JSON,
)


COMMANDS = [
    Command(
        name="query",
        summary="ask one SELECT over what is staged and what has arrived",
        description="Ask the API one SELECT. Tables are the outlets of the dataflows, by name or "
        "as dataflow.outlet. The last line tells the batch that the answer is as of.",
        examples=(
            'headrace query "SELECT contestant, count(*) FROM votes GROUP BY contestant"',
            'headrace query "SELECT count(*) FROM leaderboard.votes" --freshness main --json',
            'headrace query "SELECT count(*) FROM leaderboard.votes" --as-of leaderboard=12',
            "headrace query 'SELECT * FROM votes WHERE phone = $1' --value 555-0100 --explain",
        ),
        run=run_query,
        arguments=ARGUMENTS,
    )
]
