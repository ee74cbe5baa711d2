"""Letters: the dead letters of all partitions, as any process sees and changes them, beside an
engine or without one.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from etl_procs import reader
from etl_procs.dead_letters import DeadLetters
from etl_procs.reader import Reader
from etl_procs.store import Write
from headrace.config import Core as Settings
from headrace.crash import CrashPoints


@contextmanager
def reading(paths: Sequence[Path]) -> Iterator[DeadLetters]:
    """Give the dead letters of some cores as they are at one moment."""
    with reader.cut([*map(Reader, paths)]) as snapshots:
        yield DeadLetters(*(snapshot.connection for snapshot in snapshots))


@contextmanager
def changing(
    paths: Sequence[Path], settings: Settings, crash: CrashPoints
) -> Iterator[DeadLetters]:
    """Give the dead letters of some cores, to replay or drop some: a transaction in each, which
    commit one after the other; what is refused changes none of them.

    The engine finds in their tables what is to run again, and takes it out as it does so.
    """
    with ExitStack() as opened:
        commits = [reader.changing(path, settings, crash, Write.LETTERS) for path in paths]
        yield DeadLetters(*(opened.enter_context(commit) for commit in commits))
