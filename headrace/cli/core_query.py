"""`headrace core`: one SELECT over the core's committed state, without anybody's help."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from headrace.cli.command import Command, Context, argument, count
from headrace.cli.table import laid_out
from headrace.errors import Exit, Refused

if TYPE_CHECKING:
    from etl_procs.reader import Snapshot

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
    from etl_procs import reader
    from etl_procs.core import core_paths

    arguments = context.arguments
    paths = core_paths(context.config.home)
    if arguments.partition is not None:
        if arguments.partition >= len(paths):
            raise Refused(
                f"there is no partition {arguments.partition}",
                hint=f"They are numbered from 0 to {len(paths) - 1}.",
            )
        paths = paths[arguments.partition :][:1]
    with reader.cut([*map(reader.Reader, paths)]) as snapshots:
        limit_s = context.config.api.query_timeout_ms / 1000
        names, rows = _answer(snapshots, arguments.sql or TABLES, limit_s)
        most = arguments.lines
        if most is None and arguments.output == "table":
            most = TABLE_ROWS
        {"table": _table, "json": _json, "csv": _csv}[arguments.output](names, islice(rows, most))
        if most is not None and next(rows, None) is not None:
            print(f"only the first {most} rows: -n N gives more", file=sys.stderr)
        batches = [
            (f"{name}[{partition}]" if len(paths) > 1 else name, batch)
            for partition, snapshot in enumerate(snapshots)
            for name, batch in snapshot.batches().items()
        ]
    said = ", ".join(f"{name} batch {batch}" for name, batch in batches)
    print(f"as of {said or 'no batch: no dataflow was run'}", file=sys.stderr)
    return Exit.OK


def _answer(
    snapshots: "Sequence[Snapshot]", sql: str, limit_s: float
) -> tuple[Sequence[str], Iterator[Row]]:
    """Ask each partition; where there are several, their rows say of which they are."""
    (names, rows), *others = [snapshot.query(sql, row_s_max=limit_s) for snapshot in snapshots]
    if not others:
        return names, rows
    answers = enumerate([rows, *(rows for _, rows in others)])
    return ("partition", *names), ((of, *row) for of, rows in answers for row in rows)


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


ARGUMENTS = (
    argument(
        "sql",
        nargs="?",
        metavar="SELECT",
        help="one SELECT in SQLite's dialect; without it, the tables are listed",
    ),
    argument(
        "--output",
        choices=("table", "json", "csv"),
        default="table",
        help="table (default); json: one object a line; csv",
    ),
    argument(
        "--partition",
        type=count,
        metavar="N",
        help="ask one partition; otherwise all are asked, at one point, and each row says of which "
        "it is, if there are several",
    ),
    argument(
        "-n",
        "--lines",
        type=count,
        metavar="N",
        help=f"how many rows, at most (a table: {TABLE_ROWS:,}; otherwise all)",
    ),
)


COMMANDS = [
    Command(
        name="core",
        summary="ask one SELECT of the core: its tables, windows and ledger",
        description="Read the committed state of the core: the tables, windows and aggregates of "
        "the dataflows by their names, and the core's own tables, which begin with headrace_. It "
        "reads the file in the data folder at one point, whether or not an engine runs, and stops "
        "nobody. It works for api.query_timeout_ms on a row, at most. On stderr it says which "
        "batch of each dataflow that point is.",
        examples=(
            "headrace core",
            'headrace core "SELECT * FROM contestants ORDER BY contestant" -n 10',
            'headrace core "SELECT * FROM headrace_ledger" --output json',
            'headrace core "SELECT * FROM totals" --output csv > totals.csv',
        ),
        run=run_core,
        arguments=ARGUMENTS,
    )
]
