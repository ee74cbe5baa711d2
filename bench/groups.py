"""What the bounds of a group do: the voter at several of them, and how long a commit takes then.

A vote is too small for `core.group_mb_max`; batches and milliseconds end these groups.
"""

from collections import defaultdict
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import NamedTuple

from bench.bare import GROUP_BATCHES
from bench.harness import Figures, Result, Setup, Trial, in_turns_per, timed
from bench.ours import GROUP_MS, Ours, arrivals
from bench.voter import EXAMPLE, STRONG, WEAK, Play, play
from etl_procs import loader
from etl_procs.dataflow import Dataflow

NO_BATCHES_MAX = 1_000_000


class Bounds(NamedTuple):
    """What ends a group."""

    batches: int
    ms: int

    @property
    def name(self) -> str:
        """Name them, for a key."""
        if self.ms == GROUP_MS:
            return f"{self.batches}_batches"
        return f"{self.ms}_ms"


DEFAULT = Bounds(GROUP_BATCHES, GROUP_MS)
BOUNDS = (
    DEFAULT,
    *(Bounds(batches, GROUP_MS) for batches in (1, 8, 512)),
    *(Bounds(NO_BATCHES_MAX, ms) for ms in (1, 10, 100)),
)

Commits = defaultdict[tuple[str, Bounds], list[float]]
"""The seconds of each commit, from the group's begin."""


def run(setup: Setup) -> Result:
    """Count votes under all bounds, in turns."""
    played = play(setup.size(full=20_000, quick=3_000))
    commits: Commits = defaultdict(list)
    each = in_turns_per(trials(played, commits), setup, len(played.votes))

    def figures(bounds: Bounds) -> Figures:
        found = {}
        for durability in (STRONG, WEAK):
            took = commits[durability, bounds]
            found[f"{durability}_batches_per_s"] = each.rate(f"{durability}_{bounds.name}")
            found[f"{durability}_commit_ms_median"] = 1e3 * median(took)
            found[f"{durability}_commit_ms_p99"] = 1e3 * quantiles([*took, max(took)], n=100)[-1]
        return found

    return Result(
        figures=figures(DEFAULT),
        peers={bounds.name: figures(bounds) for bounds in BOUNDS if bounds != DEFAULT},
        ratios={
            f"{durability}_{DEFAULT.name}_to_{bounds.name}": each.ratios(
                f"{durability}_{DEFAULT.name}", f"{durability}_{bounds.name}"
            )
            for durability in (STRONG, WEAK)
            for bounds in BOUNDS
            if bounds != DEFAULT
        },
        settings={
            "votes": len(played.votes),
            "rounds": len(each.seconds[f"{STRONG}_{DEFAULT.name}"]),
            "group_ms_max": f"{GROUP_MS}, unless the name says otherwise",
            "group_batches_max": f"{NO_BATCHES_MAX}, unless the name says otherwise",
            "commit": "from the first batch of a group to its commit",
        },
    )


def trials(played: Play, commits: Commits) -> dict[str, Trial]:
    """Each of the bounds, strong and weak."""
    flow = loader.load([EXAMPLE])["voter"]
    return {
        f"{durability}_{bounds.name}": partial(
            _ours, played, flow, durability, bounds, commits[durability, bounds]
        )
        for durability in (STRONG, WEAK)
        for bounds in BOUNDS
    }


def _ours(
    played: Play,
    flow: Dataflow,
    durability: str,
    bounds: Bounds,
    commits: list[float],
    folder: Path,
) -> float:
    fed = arrivals(flow.streams["votes"], played.votes)
    with Ours(folder, flow, durability, bounds.batches, bounds.ms) as ours:
        with timed() as seconds:
            for arrived in fed:
                ours.core.feed(arrived)
                began = perf_counter()
                while ours.core.commit_next() is not None:
                    ended = perf_counter()
                    commits.append(ended - began)
                    began = ended
        assert set(ours.done().values()) == {len(played.votes)}
    return seconds()
