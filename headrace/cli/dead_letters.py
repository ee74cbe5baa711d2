"""`headrace dead-letters`: the tuples that could not be processed, and why."""

import argparse
import base64
import json
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.cli.command import Command, Context, count
from headrace.cli.table import laid_out
from headrace.errors import Exit

if TYPE_CHECKING:
    from etl_procs.dead_letters import DeadLetter

SHOWN_BYTES = 60


def run_list(context: Context) -> int:
    """List dead letters: counts by reason, then the oldest ones; or all of them as JSON lines."""
    # Here, because every other command would pay for importing Arrow.
    from etl_procs.core import core_path
    from etl_procs.reader import Reader

    with Reader(core_path(context.config.home)).snapshot() as snapshot:
        if context.arguments.json:
            for letter in snapshot.dead_letters():
                print(json.dumps(_as_json(letter), ensure_ascii=False))
            return Exit.OK
        reasons = snapshot.dead_letter_reasons()
        if not reasons:
            print("There are no dead letters.")
            return Exit.OK
        print("\n".join(laid_out(("dataflow", "reason", "tuples"), reasons, right=[2])))
        letters = islice(snapshot.dead_letters(), context.arguments.lines)
        rows = [
            (x.id, f"{x.topic}[{x.partition}]@{x.offset}", x.batch, x.reason, _shown(x.value))
            for x in letters
        ]
        if rows:
            print()
            print("\n".join(laid_out(("id", "position", "batch", "reason", "tuple"), rows)))
    return Exit.OK


def _shown(value: bytes | None) -> str:
    if value is None:
        return "(none)"
    text = value[:SHOWN_BYTES].decode("utf-8", errors="backslashreplace")
    return text + ("..." if len(value) > SHOWN_BYTES else "")


def _as_json(letter: "DeadLetter") -> dict[str, Any]:
    """Write bytes as text where they are text, and in base64 where they are not."""
    fields = asdict(letter)
    value = fields.pop("value")
    try:
        fields["value"] = None if value is None else value.decode("utf-8")
    except UnicodeDecodeError:
        fields["value_base64"] = base64.b64encode(value).decode("ascii")
    return fields


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=["list"], help="list: show them, oldest first")
    parser.add_argument(
        "-n", "--lines", type=count, default=20, metavar="N", help="how many to show (20)"
    )
    parser.add_argument("--json", action="store_true", help="all of them, one JSON object a line")


COMMANDS = [
    Command(
        name="dead-letters",
        summary="show the tuples that could not be processed, and why",
        description="Show the tuples that did not decode or that a procedure rejected: how many "
        "for each reason, and each with its position in Kafka and its bytes. It reads the core, "
        "whether or not an engine runs.",
        examples=(
            "headrace dead-letters list",
            "headrace dead-letters list --json | jq -r .reason | sort | uniq -c",
        ),
        run=run_list,
        arguments=_arguments,
    )
]
