"""`headrace tpcdi`: the flagship workload: its data, its load, its audit."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import tpcdi
from headrace.cli.command import JSON, Action, Command, Context, argument, count
from headrace.cli.tpcdi_audit import run_audit
from headrace.cli.tpcdi_origin import Origin, alone
from headrace.cli.tpcdi_parts import Stack, tell
from headrace.cli.tpcdi_stream import run_stream
from headrace.clock import SystemClock
from headrace.errors import Exit, Interrupted

if TYPE_CHECKING:
    from headrace.clock import Clock

SHOW_EVERY_S = 2.0
LOADS = "tpcdi-load"
ROWS_FIXED, ROWS_PER_SCALE = 112_000, 1_490_000


def _flow(_: Context) -> int:
    print(Path(tpcdi.__file__).with_name("flow.py"))
    return Exit.OK


def _generate(context: Context) -> int:
    # Here, because every other command would pay for importing Arrow.
    from tpcdi.generate import generate

    arguments, clock = context.arguments, SystemClock()
    began = clock.monotonic()
    made = generate(
        arguments.out, arguments.scale, arguments.seed, tell=_Shown(clock, arguments.scale).add
    )
    elapsed_s = max(clock.monotonic() - began, 0.001)
    rows = sum(made.rows.values())
    each = " + ".join(f"{number:,}" for number in made.rows.values())
    print(
        f"{arguments.out}: {rows:,} rows ({each}), {made.size / 1e6:,.1f} MB in {elapsed_s:.1f} s, "
        f"{rows / elapsed_s:,.0f} rows/s; {tpcdi.DERIVED}"
    )
    return Exit.OK


def _load(context: Context) -> int:
    from tpcdi.load import Load

    folder = context.arguments.folder.resolve()  # its files are known again by their paths
    clock, rows, parts, home = SystemClock(), 0, Stack(context.config), context.config.home
    began = clock.monotonic()
    with alone(home / LOADS, "load"):
        origin = Origin.of(home)
        if origin is not None and origin.forbids(folder, parts.ended()):
            raise origin.refused(folder)
        try:
            done = Load(folder, parts, clock, tell, partial(Origin.keep, home, folder)).run()
        except KeyboardInterrupt:
            raise Interrupted(
                "interrupted: not all of it is loaded",
                hint="Say it again: it goes on where it was.",
            ) from None
    if not done and origin is not None and not origin.is_at(folder):
        raise origin.refused(folder)
    for phase in done:
        print(
            f"phase {phase.batch}: {sum(phase.rows.values()):,} rows in {phase.seconds:.1f} s, "
            f"{sum(phase.rows.values()) / phase.seconds:,.0f} rows/s"
        )
        rows += sum(phase.rows.values())
    elapsed_s = clock.monotonic() - began
    print(
        f"{folder}: {rows:,} rows in {elapsed_s:.1f} s; {tpcdi.DERIVED}"
        if done
        else "all of it was loaded before"
    )
    return Exit.OK


class _Shown:
    """Shows on stderr how far a long run is."""

    def __init__(self, clock: "Clock", scale: float) -> None:
        self._clock = clock
        self._told = clock.monotonic()
        self._rows = 0
        self._expected = ROWS_FIXED + ROWS_PER_SCALE * scale

    def add(self, rows: int) -> None:
        """Take note of rows."""
        self._rows += rows
        if self._clock.monotonic() - self._told >= SHOW_EVERY_S:
            self._told = self._clock.monotonic()
            print(
                f"{self._rows:,} rows of about {self._expected:,.0f}", file=sys.stderr, flush=True
            )


LOADED = argument(
    "folder",
    type=Path,
    nargs="?",
    metavar="DIR",
    help="the one that was loaded, wherever it is now",
)
COMMANDS = [
    Command(
        name="tpcdi",
        summary="the benchmark TPC-DI: make its source files, load them, audit the warehouse",
        description="The benchmark's data, its load and its audit: docs/tpcdi.md. The audit is of "
        "the three batches of files, so audit before you stream. Results are derived from TPC-DI "
        "and not comparable to published results.",
        examples=(
            "headrace tpcdi generate --scale 0.1 --out sf0.1",
            "headrace tpcdi generate --scale 3 --seed 7 --out /data/sf3",
            "headrace tpcdi flow",
            "headrace tpcdi load sf0.1",
            "headrace tpcdi audit",
            "headrace tpcdi stream --rate 1000 --seconds 60",
        ),
        actions=(
            Action(
                "generate",
                "write the source files of all three batches, with their odd cases and the audit's "
                "answers",
                _generate,
                (
                    argument("--out", type=Path, metavar="DIR", required=True, help="it is made"),
                    argument(
                        "--scale",
                        type=float,
                        default=0.1,
                        metavar="N",
                        help="TPC-DI's scale factor, from 0.01 on; 1 is 1.6 million rows (0.1)",
                    ),
                    argument(
                        "--seed", type=count, default=1, help="the same gives the same bytes (1)"
                    ),
                ),
            ),
            Action("flow", "name the dataflow's file, for `headrace up --flow`", _flow),
            Action(
                "load",
                "send a directory's files phase by phase; said again, it goes on where it was",
                _load,
                (argument("folder", type=Path, metavar="DIR"),),
            ),
            Action(
                "stream",
                "go on after the batches that were loaded, day after day of about 10 s each, and "
                "tell how long facts take until they can be read in the warehouse; said again, it "
                "completes the day that was cut off",
                run_stream,
                (
                    LOADED,
                    argument(
                        "--rate",
                        type=count,
                        default=1_000,
                        metavar="R",
                        help="rows of facts a second (1000)",
                    ),
                    argument(
                        "--seconds",
                        type=count,
                        metavar="S",
                        help="send facts for so long, and end with the day complete (until Ctrl-C)",
                    ),
                    JSON,
                ),
            ),
            Action(
                "audit",
                "put every check of the benchmark to the warehouse, compute all tables from the "
                "files a second time, and compare them row by row; without the files, the checks",
                run_audit,
                (
                    LOADED,
                    argument(
                        "--checks",
                        action="store_true",
                        help="the checks alone: they need the warehouse, and no files",
                    ),
                    JSON,
                ),
            ),
        ),
    )
]
