"""`headrace tpcdi`: the flagship workload, beginning with its data."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.command import Command, Context, count
from headrace.clock import SystemClock
from headrace.errors import ConfigError, Exit

if TYPE_CHECKING:
    from headrace.clock import Clock

ACTIONS = ("generate",)
SHOW_EVERY_S = 2.0
ROWS_FIXED, ROWS_PER_SCALE = 112_000, 1_490_000


def run_tpcdi(context: Context) -> int:
    """Do what is asked."""
    match context.arguments.action:
        case "generate":
            return _generate(context.arguments)
    raise AssertionError(context.arguments.action)


def _generate(arguments: argparse.Namespace) -> int:
    # Here, because every other command would pay for importing Arrow.
    from tpcdi.generate import generate

    if arguments.out is None:
        raise ConfigError(
            "it is not said where the files go", hint="Name a directory: --out DIR; it is made."
        )
    clock = SystemClock()
    began = clock.monotonic()
    made = generate(
        arguments.out, arguments.scale, arguments.seed, tell=_Shown(clock, arguments.scale).add
    )
    elapsed_s = max(clock.monotonic() - began, 0.001)
    rows = sum(made.rows.values())
    each = " + ".join(f"{number:,}" for number in made.rows.values())
    print(
        f"{arguments.out}: {rows:,} rows ({each}), {made.size / 1e6:,.1f} MB in {elapsed_s:.1f} s, "
        f"{rows / elapsed_s:,.0f} rows/s; derived from TPC-DI, not comparable to published results"
    )
    return Exit.OK


class _Shown:
    """Shows on stderr how far a long run is."""

    def __init__(self, clock: "Clock", scale: float) -> None:
        self._clock = clock
        self._told = clock.monotonic()
        self._rows = 0
        self._expected = round(ROWS_FIXED + ROWS_PER_SCALE * scale)

    def add(self, rows: int) -> None:
        """Take note of rows."""
        self._rows += rows
        if self._clock.monotonic() - self._told >= SHOW_EVERY_S:
            self._told = self._clock.monotonic()
            print(f"{self._rows:,} rows of about {self._expected:,}", file=sys.stderr, flush=True)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    parser.add_argument("--out", type=Path, metavar="DIR", help="generate: where; it is made")
    parser.add_argument(
        "--scale",
        type=float,
        default=0.1,
        metavar="N",
        help="generate: TPC-DI's scale factor, from 0.01 on; 1 is 1.6 million rows (0.1)",
    )
    parser.add_argument(
        "--seed", type=count, default=1, help="generate: the same one gives the same bytes (1)"
    )


COMMANDS = [
    Command(
        name="tpcdi",
        summary="the benchmark TPC-DI: make its source files",
        description="generate writes the source files of all three batches as the benchmark's own "
        "generator lays them out, with their odd cases and the audit's answers. Results with them "
        "are derived from TPC-DI and not comparable to published results.",
        examples=(
            "headrace tpcdi generate --scale 0.1 --out sf0.1",
            "headrace tpcdi generate --scale 3 --seed 7 --out /data/sf3",
        ),
        run=run_tpcdi,
        arguments=_arguments,
    )
]
