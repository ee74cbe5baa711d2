"""TPC-DI from files to an audited warehouse, beside an ELT of the same files in PostgreSQL alone.

Both build the warehouse of the historical batch, on the disk, and the time ends when its rows are
there with their indexes and have been counted, as the benchmark's validation wants it. Ours then
goes on with two batches of changes; all of it is audited and compared with the oracle, and the
peer's tables with it too. Derived from TPC-DI, not comparable to published results.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psycopg

from bench import postgres, tpcdi_elt, tpcdi_ours
from bench.harness import Figures, Result, Setup, folder, in_turns
from bench.tpcdi_ours import Loaded
from bench.usage import Usage
from tpcdi import DERIVED, oracle, seen
from tpcdi.generate import generate

FULL, QUICK = 3.0, 0.05
SMALL, LARGE = 1.0, 10.0
"""Between these the time per row is to be flat."""
LEAST = 0.01
"""The generator makes nothing smaller."""
RATES, RATES_QUICK = (1_000, 10_000), (1_000,)
SEED = 1
PEER = "postgres_elt"


def run(setup: Setup) -> Result:
    """Load at one scale, and the peer after it; and in full, at a smaller and a larger one.

    There is one round: each scale of a full run takes minutes.
    """
    setup = replace(setup, rounds=1)
    scale = scaled(setup, QUICK if setup.quick else FULL)
    load = os.getloadavg()[0]
    whole = _beside_the_peer(setup, scale)
    if not setup.quick:
        whole = _flat(setup, whole)
    whole.settings.update(
        scale=scale,
        rounds=setup.rounds,
        historical="with the seconds of the audit, which comes after all phases and is of all",
        historical_counted="ends when the rows are there and counted: so does the peer, and what a "
        "row takes",
        sources="sent until the broker has them, taken until the core has; some are at a time",
        cpu="of the historical phase",
        stream_s=_stream_s(setup),
        stream="begins when what was loaded is merged; its own rows are merged meanwhile",
        peer_settings=" ".join(tpcdi_elt.SERVER),
        results=DERIVED,
        load_1m=[round(load, 1), round(os.getloadavg()[0], 1)],
    )
    return whole


def _stream_s(setup: Setup) -> int:
    return setup.size(full=70, quick=5)  # merges are every 60 s


def scaled(setup: Setup, scale: float) -> float:
    """Choose a scale factor of TPC-DI."""
    return max(LEAST, round(scale * setup.scale, 3))


def _beside_the_peer(setup: Setup, scale: float) -> Result:
    """Load both ways, and go on as a stream."""
    loads: list[Loaded] = []
    figures: Figures = {}
    peer: Figures = {}

    with _files(setup, scale) as directory:

        def ours(at: Path) -> float:
            with tpcdi_ours.stack(at) as running:
                loaded = running.load(directory, scale)
                running.compare(directory)
                figures.update(loaded.figures() | {"merge_s": running.merge()})
                for rate in RATES_QUICK if setup.quick else RATES:
                    figures.update(running.stream(directory, rate, _stream_s(setup)))
                figures.update(running.memory())
            loads.append(loaded)
            return loaded.historical_s

        def elt_in_postgres(at: Path) -> float:
            peer.update(elt(at, directory))
            return peer["historical_s"]

        times = in_turns({"ours": ours, PEER: elt_in_postgres}, setup)
    rows = loads[0].historical_rows
    peer["historical_counted_rows_per_s"] = rows / peer["historical_s"]
    ratios = {f"to_{PEER}": times.ratios("ours", PEER)}
    return Result(figures, {PEER: peer}, ratios, {"historical_rows": rows})


def _flat(setup: Setup, whole: Result) -> Result:
    """Load at two scales more, of which the larger one is ten times the other."""
    figures: Figures = {}
    per_row = [1 / whole.figures["historical_counted_rows_per_s"]]
    for scale in (scaled(setup, SMALL), scaled(setup, LARGE)):
        with (
            _files(setup, scale) as directory,
            folder(setup.folder, "ours") as at,
            tpcdi_ours.stack(at) as running,
        ):
            loaded = running.load(directory, scale)
            found = loaded.figures() | running.memory()
        per_row.append(loaded.historical_s / loaded.historical_rows)
        kept = {key: found[key] for key in found if key.startswith(("historical_", "memory_"))}
        figures |= {f"at_{scale:g}_{key}": value for key, value in kept.items()}
    _, small, large = per_row
    ratios = {
        **whole.ratios,
        "time_per_row_10_to_1": [large / small],
        "time_per_row_most_to_least": [max(per_row) / min(per_row)],
    }
    return replace(whole, figures=whole.figures | figures, ratios=ratios)


def elt(place: Path, directory: Path) -> Figures:
    """Build the historical warehouse in an empty PostgreSQL; one that is wrong is no figure."""
    with postgres.server(place, *tpcdi_elt.SERVER) as conninfo:
        with Usage({"client": os.getpid()}).watched() as usage:
            began = time.perf_counter()
            built = tpcdi_elt.build(conninfo, directory)
            with psycopg.connect(conninfo, autocommit=True) as warehouse:
                counting = time.perf_counter()
                seen.valid(warehouse)
            ended = time.perf_counter()
        with (
            psycopg.connect(conninfo, autocommit=True) as warehouse,
            oracle.compute(directory, batches=1) as computed,
        ):
            differences = oracle.compare(warehouse, computed)
    assert not differences, "\n".join(map(str, differences))
    return {
        "historical_s": ended - began,
        "validation_s": ended - counting,
        **{f"step_{name.replace(' ', '_')}_s": took for name, took in sorted(built.steps.items())},
        **{f"cpu_{part}_s": seconds for part, seconds in usage.cpu_s(began, ended).items()},
        "memory_postgres_mb": usage.peaks_mb()["postgres"],
    }


@contextmanager
def _files(setup: Setup, scale: float) -> Iterator[Path]:
    """Generate the files of a scale, and delete them afterwards."""
    with folder(setup.folder, "files") as made:
        generate(made / "tpcdi", scale, SEED)
        yield made / "tpcdi"
