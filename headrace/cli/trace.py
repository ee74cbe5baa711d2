"""`headrace trace`: from a row of a table back to its batch, procedure and tuples in Kafka."""

import json
from typing import Any
from urllib.parse import quote, urlencode

from headrace import client
from headrace.cli.command import JSON, Command, Context, argument
from headrace.cli.table import laid_out
from headrace.errors import ConfigError, Exit

FORGOTTEN = "forgotten: it was longer ago than core.history_mb_max reaches"


def run_trace(context: Context) -> int:
    """Ask the API and print what it tells."""
    arguments = context.arguments
    dataflow, dot, table = arguments.table.rpartition(".")
    if not table or "." in dataflow or (dot and not dataflow):
        raise ConfigError(
            f"{arguments.table!r} is no table", hint="Write it as in queries: DATAFLOW.OUTLET."
        )
    asked = [("key", value) for value in arguments.key]
    asked += [("where", condition) for condition in arguments.where]
    asked += [("warehouse", arguments.warehouse)] if arguments.warehouse else []
    asked += [("tuples", "true")] if arguments.tuples else []
    path = f"/v1/tables/{quote(dataflow or '-', safe='')}/{quote(table, safe='')}/trace"
    told = client.of(context.config).ask("GET", f"{path}?{urlencode(asked)}")
    if arguments.json:
        print(json.dumps(told, ensure_ascii=False))
    else:
        print("\n\n".join("\n".join(_lines(told, row)) for row in told["rows"]))
        if told["more"]:
            print("\n... and more, which are older: say more of its columns")
    return Exit.OK


def _lines(told: dict[str, Any], row: dict[str, Any]) -> list[str]:
    """Write everything about one row."""
    of = "" if row["partition"] is None else f" of partition {row['partition']}"
    facts: list[tuple[str, object]] = [
        (told["table"], ", ".join(f"{name}={_shown(v)}" for name, v in row["values"].items())),
        ("is", _where(told, row)),
        ("operation", row["operation"]),
        (
            "batch",
            f"{row['batch']}{of}"
            if row["batch"]
            else "unknown: it was merged before main kept batches",
        ),
    ]
    if row["batch"]:
        facts.append(("committed", row["committed_at"] or FORGOTTEN))
    if row["arrived_by"]:
        facts.append(("arrived", f"by {row['arrived_by']}, when the last push was"))
    facts.append(("given by", f"procedure {' or '.join(told['procedures'])}"))
    facts += [("ran again", f"dead letters of batch {batch}") for batch in row["again"]]
    if row["places"]:
        facts += [("from Kafka", _place(place)) for place in row["places"]]
    elif row["places"] is not None:
        facts.append(("from Kafka", "nothing: the batch took no tuple of " + _any(told)))
    elif row["batch"]:
        facts.append(("from Kafka", FORGOTTEN))
    facts += [("tuple", _tuple(one)) for one in row["tuples"] or ()]
    if row["lacking"]:
        facts.append(("tuples", row["lacking"]))
    return laid_out(("", ""), facts)[2:]


def _any(told: dict[str, Any]) -> str:
    streams: list[str] = told["streams"]
    return " or ".join(streams)


def _where(told: dict[str, Any], row: dict[str, Any]) -> str:
    if row["where"] == "staged":
        return f"staged: not yet in the warehouse {told['warehouse']}"
    return f"in {row['where']} of the warehouse {told['warehouse']}"


def _place(place: dict[str, Any]) -> str:
    first = "" if place["first_index"] is None else f"#{place['first_index']}"
    last = place["next_offset"] - (place["next_index"] == 0)
    end = f"#{place['next_index'] - 1}" if place["next_index"] else ""
    of = f"{place['topic']}[{place['partition']}]"
    return f"{of}@{place['first_offset']}{first} to @{last}{end}"


def _tuple(one: dict[str, Any]) -> str:
    index = "" if one["index"] is None else f"#{one['index']}"
    by = "" if one["source"] is None else f" ({one['source']}, number {one['seq']})"
    said = "" if one["reason"] is None else f" did not decode: {one['reason']}:"
    value = one["value"] if one["value_base64"] is None else f"base64 {one['value_base64']}"
    return f"{one['stream']}[{one['partition']}]@{one['offset']}{index}{by}{said} {value}"


def _shown(value: object) -> str:
    return "NULL" if value is None else str(value)


ARGUMENTS = (
    argument("table", metavar="TABLE", help="the table, by name or as DATAFLOW.OUTLET"),
    argument(
        "key", nargs="*", metavar="KEY", help="the values of its key, in the order of the key"
    ),
    argument(
        "--where",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="of a table without a key: what a column is equal to; several are all meant",
    ),
    argument(
        "--warehouse", default="", metavar="NAME", help="the warehouse; the first that has it"
    ),
    argument(
        "--tuples",
        action="store_true",
        help="read the batch's tuples back from Kafka, a hundred at most",
    ),
    JSON,
)


COMMANDS = [
    Command(
        name="trace",
        summary="tell where a row of a table came from",
        description="Ask the API for a row - staged, in delta or in main - and tell which batch of "
        "which procedure brought it there last, when that was committed, and where in Kafka the "
        "batch's tuples are. A deletion is told as long as it is staged or in delta.",
        examples=(
            "headrace trace leaderboard.totals 7",
            "headrace trace balances alice 3 --warehouse reports --tuples",
            "headrace trace votes --where phone=555-0100 --json | jq '.rows[].places'",
        ),
        run=run_trace,
        arguments=ARGUMENTS,
    )
]
