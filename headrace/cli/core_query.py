"""`headrace core`: one SELECT over the core's committed state, without anybody's help."""

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from headrace.cli.command import Command, Context, count
from headrace.cli.table import laid_out
from headrace.errors import Exit

# A table is laid out when all of its rows are known; the other forms are written as they come.
TABLE_ROWS = 1_000

TABLES = """\
SELECT t.name, t.kind, (
    SELECT group_concat(c.name || ' ' || c.type, ', ') FROM pragma_table_info(t.name) AS c
) AS columns
FROM headrace_tables AS t ORDER BY t.kind <> 'table', t.name"""

Row = tuple[Any, ...]


def run_core(context: Context) -> int:
    """Ask the core, and tell which batch of each dataflow the answer is as of."""
    # Here, because every other command would pay for importing Arrow.
    from etl_procs.core import core_path
    from etl_procs.reader import Reader

    arguments = context.arguments
    with Reader(core_path(context.config.home)).snapshot() as snapshot:
        names, rows = snapshot.query(arguments.sql or TABLES)
        most = arguments.lines
        if most is None and arguments.output == "table":
            most = TABLE_ROWS
        {"table": _table, "json": _json, "csv": _csv}[arguments.output](names, islice(rows, most))
        if most is not None and next(rows, None) is not None:
            print(f"only the first {most} rows: -n N gives more", file=sys.stderr)
        batches = ", ".join(f"{name} batch {batch}" for name, batch in snapshot.batches().items())
    print(f"as of {batches or 'no batch: no dataflow was run'}", file=sys.stderr)
    return Exit.OK


def _table(names: Sequence[str], rows: Iterator[Row]) -> None:
    found = [tuple(_shown(value) for value in row) for row in rows]
    numbers = [
        place
        for place in range(len(names))
        if found and all(isinstance(row[place], int | float | None) for row in found)
    ]
    print("\n".join(laid_out(names, found, right=numbers)))


def _json(names: Sequence[str], rows: Iterator[Row]) -> None:
    keys = _told_apart(names)
    for row in rows:
        document = dict(zip(keys, map(_shown, row), strict=True))
        print(json.dumps(document, ensure_ascii=False))


def _csv(names: Sequence[str], rows: Iterator[Row]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_shown(value) for value in row] for row in rows)


def _shown(value: Any) -> Any:
    """Write bytes in PostgreSQL's way; JSON and CSV have no form for them."""
    return "\\x" + value.hex() if isinstance(value, bytes) else value


def _told_apart(names: Sequence[str]) -> list[str]:
    """Give the second of two columns of one name another: an object has each name once."""
    seen: list[str] = []
    for name in names:
        free, number = name, 1
        while free in seen:
            number += 1
            free = f"{name}:{number}"
        seen.append(free)
    return seen


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sql",
        nargs="?",
        metavar="SELECT",
        help="one SELECT in SQLite's dialect; without it, the tables are listed",
    )
    parser.add_argument(
        "--output",
        choices=("table", "json", "csv"),
        default="table",
        help="table (default); json: one object a line; csv",
    )
    parser.add_argument(
        "-n",
        "--lines",
        type=count,
        metavar="N",
        help=f"how many rows, at most (a table: {TABLE_ROWS:,}; otherwise all)",
    )


COMMANDS = [
    Command(
        name="core",
        summary="ask one SELECT of the core: its tables, windows and ledger",
        description="Read the committed state of the core: the tables, windows and aggregates of "
        "the dataflows by their names, and the core's own tables, which begin with headrace_. It "
        "reads the file in the data folder at one point, whether or not an engine runs, and stops "
        "nobody. On stderr it says which batch of each dataflow that point is.",
        examples=(
            "headrace core",
            'headrace core "SELECT * FROM contestants ORDER BY contestant" -n 10',
            'headrace core "SELECT * FROM headrace_ledger" --output json',
            'headrace core "SELECT * FROM totals" --output csv > totals.csv',
        ),
        run=run_core,
        arguments=_arguments,
    )
]
