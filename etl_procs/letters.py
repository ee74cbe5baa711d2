"""Letters: the dead letters of all partitions, as any process sees and changes them, beside an
engine or without one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

from etl_procs import reader
from etl_procs.dead_letters import NUMBERS, DeadLetters, Tally
from etl_procs.letter import DeadLetter, Sought
from etl_procs.reader import Reader
from etl_procs.store import Store, Write
from headrace.config import Core as Settings
from headrace.crash import CrashPoints


class Letters:
    """The dead letters of several cores. Their numbers tell which is whose."""

    def __init__(self, cores: Sequence[DeadLetters]) -> None:
        self._cores = cores

    def __iter__(self) -> Iterator[DeadLetter]:
        """Give all of them, oldest first in each core."""
        return chain.from_iterable(self._cores)

    def find(self, number: int) -> DeadLetter:
        """Give one, or refuse a number that is none's."""
        return self._core_of(number).find(number)

    def tallies(self) -> list[Tally]:
        """Count them by dataflow and reason, the most frequent first."""
        found: dict[tuple[str, str], Tally] = {}
        for tally in chain.from_iterable(core.tallies() for core in self._cores):
            _, _, letters, tuples, replays = found.get(tally[:2], Tally(*tally[:2], 0, 0, 0))
            counts = letters + tally.letters, tuples + tally.tuples, replays + tally.replays
            found[tally[:2]] = Tally(*tally[:2], *counts)
        return sorted(found.values(), key=lambda t: (-t.tuples, t.dataflow, t.reason))

    def chosen(self, sought: Sought, after: int = 0, most: int = -1) -> list[int]:
        """Name those that are sought, by their numbers: those after one, and so many at most."""
        found = (core.chosen(sought, after, most) for core in self._cores)
        return list(chain.from_iterable(found))[: most if most >= 0 else None]

    def together(self, number: int) -> list[int]:
        """Name those that one unit gave up in one batch, this one among them."""
        return self._core_of(number).together(number)

    def replay(self, numbers: Iterable[int], *, where_possible: bool = False) -> list[int]:
        """Let the engine run letters again: see `DeadLetters.replay`."""
        return self._divided(DeadLetters.replay, numbers, where_possible)

    def drop(self, numbers: Iterable[int], *, where_possible: bool = False) -> list[int]:
        """Delete letters for good: see `DeadLetters.drop`."""
        return self._divided(DeadLetters.drop, numbers, where_possible)

    def _divided(
        self, do: Callable[..., list[int]], numbers: Iterable[int], where_possible: bool
    ) -> list[int]:
        of_core: dict[DeadLetters, list[int]] = {}
        for number in numbers:
            of_core.setdefault(self._core_of(number), []).append(number)
        done = [do(core, some, where_possible=where_possible) for core, some in of_core.items()]
        return sorted(chain.from_iterable(done))

    def _core_of(self, number: int) -> DeadLetters:
        partition = number // NUMBERS
        return self._cores[partition if partition < len(self._cores) else 0]


@contextmanager
def reading(paths: Sequence[Path]) -> Iterator[Letters]:
    """Give the dead letters of some cores as they are at one moment."""
    with reader.cut(paths) as snapshots:
        yield Letters([snapshot.dead_letters for snapshot in snapshots])


@contextmanager
def changing(paths: Sequence[Path], settings: Settings, crash: CrashPoints) -> Iterator[Letters]:
    """Give the dead letters of some cores, to replay or drop some: a transaction in each, which
    commit one after the other; what is refused changes none of them.

    The engine finds in their tables what is to run again, and takes it out as it does so.
    """
    strong = replace(settings, durability="strong")  # nobody else remembers what was asked for
    with ExitStack() as opened:
        cores = []
        for path in paths:
            Reader(path).check()
            store = opened.enter_context(closing(Store(path, strong, crash)))
            cores.append(DeadLetters(opened.enter_context(store.commit(Write.LETTERS))))
        yield Letters(cores)
