"""The harness: what an experiment is given and gives, and how it takes the time.

Machines are noisy, so what is compared runs in turns, round after round, and the median counts.
"""

import gc
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = ".bench"
"""Where data lies during a run: below the working folder, because /tmp may be memory."""

Figures = dict[str, float]
Trial = Callable[[Path], float]
"""Does the work in an empty folder, checks what came of it, and tells the seconds of the work."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How an experiment is to be run."""

    folder: Path
    quick: bool = False
    rounds: int = 1
    scale: float = 1.0
    """By how much the work is multiplied; tests run very little of it."""
    until: float = math.inf
    """The moment, by the performance counter, after which no other round is begun."""

    def size(self, full: int, quick: int) -> int:
        """Choose how much of something there is."""
        return max(1, round((quick if self.quick else full) * self.scale))

    def turns(self) -> Iterator[int]:
        """Number the rounds, of which there is at least one."""
        for number in range(self.rounds):
            if number and time.perf_counter() > self.until:
                return  # a machine that is busy with something else
            yield number


@dataclass(frozen=True, slots=True)
class Result:
    """What an experiment found; every key ends in its unit."""

    figures: Figures
    peers: dict[str, Figures]
    ratios: Mapping[str, Sequence[float]]
    """One for each round; their median counts."""
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds that each trial took, round by round: for all of its work, or for one piece."""

    seconds: Mapping[str, Sequence[float]]

    def per(self, counts: Mapping[str, int]) -> "Times":
        """Divide each trial's seconds by the number of pieces that it did."""
        return Times(
            {name: [s / counts[name] for s in several] for name, several in self.seconds.items()}
        )

    def rate(self, name: str) -> float:
        """How many a second, at the median."""
        return 1 / statistics.median(self.seconds[name])

    def us(self, name: str) -> float:
        """Microseconds, at the median."""
        return 1e6 * statistics.median(self.seconds[name])

    def ratios(self, ours: str, peer: str) -> list[float]:
        """How many times as fast as the peer we were, in each round."""
        both = zip(self.seconds[ours], self.seconds[peer], strict=True)
        return [peer_s / ours_s for ours_s, peer_s in both]

    def fastest(self, names: Iterable[str]) -> str:
        """Name the fastest, by the median."""
        return min(names, key=lambda name: statistics.median(self.seconds[name]))


def in_turns(trials: Mapping[str, Trial], setup: Setup) -> Times:
    """Run every trial in each round, of which there is at least one.

    Every second round goes backwards, so that nobody always runs after the same one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in trials}
    for number in setup.turns():
        for name in trials if number % 2 == 0 else reversed(list(trials)):
            with folder(setup.folder, name) as place:
                gc.collect()
                seconds[name].append(trials[name](place))
    return Times(seconds)


def in_turns_per(trials: Mapping[str, Trial], setup: Setup, count: int) -> Times:
    """Run every trial in each round, and divide its seconds by the pieces that all of them do."""
    return in_turns(trials, setup).per(dict.fromkeys(trials, count))


@contextmanager
def folder(parent: Path, name: str) -> Iterator[Path]:
    """Make an empty folder, and delete it afterwards with all that is in it."""
    made = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def copy(source: Path, target: Path) -> None:
    """Copy a folder's files to the disk: what is left to be written would slow who syncs next."""
    for file in source.iterdir():
        copied = shutil.copyfile(file, target / file.name)
        with copied.open("rb") as opened:
            os.fsync(opened.fileno())


@contextmanager
def data_folder() -> Iterator[Path]:
    """Make the folder of one run, on the disk of the working folder and ignored by git."""
    parent = Path.cwd() / DATA
    parent.mkdir(exist_ok=True)
    (parent / ".gitignore").write_text("*\n", encoding="ascii")
    with folder(parent, "run") as made:
        yield made


@contextmanager
def timed() -> Iterator[Callable[[], float]]:
    """Take the time of a block; the result tells its seconds once it is over."""
    ended: list[float] = []
    start = time.perf_counter()
    yield lambda: ended[0] - start
    ended.append(time.perf_counter())
