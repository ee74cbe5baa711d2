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
from bench.memory import Memory
from bench.tpcdi_ours import Loaded
from tpcdi import oracle, seen
from tpcdi.generate import generate

FULL, QUICK = 3.0, 0.1
"""All of it at 0.3 took five minutes at a load of 24, and at 0.1 three minutes at a load of 11."""
SMALL, LARGE = 1.0, 10.0
"""Between these the time per row is to be flat."""
LEAST = 0.01
"""The generator makes nothing smaller."""
ROUNDS_MAX = 3
"""One of ours is minutes, of a quick run half of one."""
SEED = 1
PEER = "postgres_elt"


def run(setup: Setup) -> Result:
    """Load at one scale in turns with the peer; and in full, at a smaller and a larger one."""
    setup = replace(setup, rounds=1 if setup.quick else min(setup.rounds, ROUNDS_MAX))
    scale = scaled(setup, QUICK if setup.quick else FULL)
    load = os.getloadavg()[0]
    whole = _beside_the_peer(setup, scale)
    if not setup.quick:
        whole = _flat(setup, whole)
    whole.settings.update(
        scale=scale,
        rounds=setup.rounds,
        historical="ends when the rows are there and counted; the audit comes after all phases",
        peer_settings=" ".join(tpcdi_elt.SERVER),
        results="derived from TPC-DI, not comparable to published results",
        load_1m=[round(load, 1), round(os.getloadavg()[0], 1)],
    )
    return whole


def scaled(setup: Setup, scale: float) -> float:
    """Choose a scale factor of TPC-DI."""
    return max(LEAST, round(scale * setup.scale, 3))


def _beside_the_peer(setup: Setup, scale: float) -> Result:
    """Load in turns; the figures are those of our last load, the ratio has all."""
    loads: list[Loaded] = []
    peers: list[Figures] = []

    with _files(setup, scale) as directory:

        def ours(at: Path) -> float:
            loads.append(tpcdi_ours.load(at, directory, scale))
            return loads[-1].historical_s

        def peer(at: Path) -> float:
            seconds, figures = elt(at, directory)
            peers.append(figures)
            return seconds

        times = in_turns({"ours": ours, PEER: peer}, setup)
    rows = loads[-1].historical_rows
    rate = {"historical_rows_per_s": rows * times.rate(PEER)}
    ratios = {f"to_{PEER}": times.ratios("ours", PEER)}
    figures = loads[-1].figures() | {"historical_rows_per_s": rows * times.rate("ours")}
    return Result(figures, {PEER: rate | peers[-1]}, ratios, {"historical_rows": rows})


def _flat(setup: Setup, whole: Result) -> Result:
    """Load at two scales, of which the larger one is ten times the other."""
    figures: Figures = {}
    per_row = []
    for scale in (scaled(setup, SMALL), scaled(setup, LARGE)):
        with _files(setup, scale) as directory, folder(setup.folder, "ours") as at:
            loaded = tpcdi_ours.load(at, directory, scale)
        per_row.append(loaded.historical_s / loaded.historical_rows)
        found = loaded.figures()
        kept = {key: found[key] for key in found if key.startswith(("historical_", "memory_"))}
        figures |= {f"at_{scale:g}_{key}": value for key, value in kept.items()}
    ratios = {**whole.ratios, "time_per_row_10_to_1": [per_row[1] / per_row[0]]}
    return replace(whole, figures=whole.figures | figures, ratios=ratios)


def elt(place: Path, directory: Path) -> tuple[float, Figures]:
    """Build the historical warehouse in an empty PostgreSQL; one that is wrong is no figure."""
    with postgres.server(place, *tpcdi_elt.SERVER) as conninfo:
        with Memory({"peer": os.getpid()}).watched() as memory:
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
    steps = {f"{name.replace(' ', '_')}_s": took for name, took in sorted(built.steps.items())}
    figures = {"historical_s": ended - began, "validation_s": ended - counting}
    return ended - began, figures | steps | {"memory_postgres_mb": memory.peaks_mb()["postgres"]}


@contextmanager
def _files(setup: Setup, scale: float) -> Iterator[Path]:
    """Generate the files of a scale, and delete them afterwards."""
    with folder(setup.folder, "files") as made:
        generate(made / "tpcdi", scale, SEED)
        yield made / "tpcdi"
