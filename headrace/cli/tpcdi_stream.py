"""`headrace tpcdi stream`: the days after the batches of files, as a live stream."""

import json
import sys
import time
from math import inf
from typing import TYPE_CHECKING

from headrace.cli.command import Context
from headrace.cli.tpcdi_origin import Origin, alone, chosen, made
from headrace.cli.tpcdi_parts import Stack
from headrace.clock import SystemClock
from headrace.errors import ConfigError, Exit, Interrupted
from tpcdi import DERIVED

if TYPE_CHECKING:
    from tpcdi.stream import Live

KEPT = "tpcdi-stream"
"""Where the data folder keeps how far the stream is."""


def run_stream(context: Context) -> int:
    """Send days until it is enough, and say how fresh the warehouse was."""
    from tpcdi.days import Days
    from tpcdi.freshness import Freshness
    from tpcdi.stream import Live

    arguments = context.arguments
    if not arguments.rate:
        raise ConfigError("no stream has a rate of 0", hint="Choose one from 1 row/s on.")
    clock, parts = SystemClock(), Stack(context.config)
    kept, origin = context.config.home / KEPT, Origin.of(context.config.home)
    folder = chosen(arguments.folder, origin)
    if origin is not None and made(folder) and not origin.is_like(folder):
        raise origin.refused(folder)
    with alone(kept, "stream"), parts.passage() as passage:
        days = Days(folder, kept, parts.ended())
        live = Live(days, parts, Freshness(passage, clock), clock, time.sleep, _tell)
        seconds = inf if arguments.seconds is None else arguments.seconds
        try:
            live.run(arguments.rate, seconds)
        except KeyboardInterrupt:
            _show(live, as_json=arguments.json)
            raise Interrupted(
                "interrupted: a day may be cut off",
                hint="Say it again: it completes that day, and goes on with the next.",
            ) from None
    _show(live, as_json=arguments.json)
    return Exit.OK


def _show(live: "Live", *, as_json: bool) -> None:
    done, figures = live.progress, live.freshness.figures()
    if as_json:
        told = {
            "days": done.days,
            "rows": done.rows,
            "seconds": round(done.seconds, 3),
            "rows_per_s": round(done.rows_per_s, 1),
            "other_seconds": round(done.other_seconds, 3),
            "freshness": {
                "rows": figures.rows,
                "p50_ms": figures.p50,
                "p99_ms": figures.p99,
                "worst_ms": figures.worst,
            },
            "results": DERIVED,
        }
        print(json.dumps(told))
    else:
        print(
            f"{done.days} day{'s' * (done.days != 1)} complete, {done.rows:,} rows of facts sent, "
            f"{done.rows_per_s:,.0f} rows/s; {figures}; {done.other_seconds:.1f} s for dimensions "
            f"and ends; {DERIVED}"
        )


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
