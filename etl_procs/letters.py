"""Letters: what becomes of dead letters, said by any process, beside an engine or without one."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from etl_procs.dead_letters import DeadLetters
from etl_procs.reader import Reader
from etl_procs.store import Store, Write
from headrace.config import Core as Settings
from headrace.crash import CrashPoints


@contextmanager
def changing(path: Path, settings: Settings, crash: CrashPoints) -> Iterator[DeadLetters]:
    """Give a core's dead letters, to replay or drop some in one transaction of their own.

    The engine finds in their table what is to run again, and takes it out as it does so.
    """
    Reader(path).check()
    strong = replace(settings, durability="strong")  # nobody else remembers what was asked for
    with (
        closing(Store(path, strong, crash)) as store,
        store.commit(Write.LETTERS) as connection,
    ):
        yield DeadLetters(connection)
