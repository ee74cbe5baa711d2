"""`headrace jars`: the broker's and Spark's jars, fetched once and verified."""

import sys

from headrace.cli.command import Command, Context
from headrace.errors import Exit
from headrace.local import jars


def fetch_jars(context: Context) -> int:
    """Fetch what is not there; then every jar is the pinned one."""
    if not jars.is_whole(context.config):
        print(f"fetching {len(jars.pins())} jars, 54 MB (half a minute)", file=sys.stderr)
        jars.fetch(context.config, _show)
    print(f"{len(jars.pins())} jars, verified, in {jars.folder(context.config)}")
    return Exit.OK


def _show(done: int, total: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{100 * done // total} %", end=end, file=sys.stderr, flush=True)


COMMANDS = [
    Command(
        name="jars",
        summary="fetch or verify the jars of the broker and of Spark's Kafka source",
        description="Fetch the jars that are not there, through the Ivy that PySpark carries, and "
        "verify every one against the pinned digests. Once they are there it works offline.",
        examples=("headrace jars", "headrace jars --set jars=/srv/headrace/jars"),
        run=fetch_jars,
    )
]
