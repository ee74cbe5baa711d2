"""From the opening of a core whose engine was killed to its first commit, by length of history.

A history that is a thousand times as long must not make an engine come back later.
"""

import statistics
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench import bare, killing, recovery_history
from bench.harness import Result, Setup, Times, Trial, copy, in_turns, timed
from bench.ours import Ours, arrivals
from bench.recovery_history import BARE_FILE, KEYS, REJECTED_EVERY

HISTORIES = (1_000, 100_000, 1_000_000)
HISTORIES_QUICK = (1_000, 10_000, 100_000)
KINDS = ("ours", "bare")
KILLS, BETWEEN_KILLS = 4, 1_700
"""Each history is killed at several points of the cycle in which SQLite fills its log and empties
it again (some 7,000 batches): how full it is counts for more than how long the history is."""


def run(setup: Setup) -> Result:
    """Make every history once, and open copies of it again and again."""
    sizes = HISTORIES_QUICK if setup.quick else HISTORIES
    histories = [max(1, round(size * setup.scale)) for size in sizes]
    kills = setup.size(full=KILLS, quick=KILLS)
    trials: dict[str, Trial] = {}
    for history in histories:
        for kind in KINDS:
            for kill, (killed, batches) in enumerate(
                killed_after(setup.folder, kind, history, kills)
            ):
                opened = {"ours": _ours, "bare": _bare}[kind]
                trials[f"{kind}_{history}_{kill}"] = partial(opened, killed, batches)
    times = in_turns(trials, setup)
    figures, by_hand = (
        {f"first_commit_ms_{n}": _ms(times, f"{kind}_{n}_") for n in histories} for kind in KINDS
    )
    return Result(
        figures=figures,
        peers={"bare": by_hand},
        ratios={
            "slowest_to_fastest": [max(figures.values()) / min(figures.values())],
            "bare_slowest_to_fastest": [max(by_hand.values()) / min(by_hand.values())],
        },
        settings={
            "histories_batches": histories,
            "kills_of_each": kills,
            "batches_between_kills": BETWEEN_KILLS,
            "opens_of_each": kills * min(map(len, times.seconds.values())),
            "keys": KEYS,
            "dead_letter_every_batches": REJECTED_EVERY,
            "page_cache": "warm: each open has a fresh copy of the killed core's files",
        },
    )


def killed_after(folder: Path, kind: str, history: int, kills: int) -> Iterator[tuple[Path, int]]:
    """Have processes make a history and be killed, each a little later than the one before.

    Gives the folder that each leaves, and the batches that are committed in it.
    """
    done, before = 0, None
    for kill in range(kills):
        end = history + kill * BETWEEN_KILLS
        killed = folder / f"{kind}-{history}-killed-{kill}"
        killed.mkdir()
        if before is not None:
            copy(before, killed)
        killing.run_until_killed(
            killing.module(recovery_history.__name__, kind, killed, str(done), str(end))
        )
        yield killed, end
        done, before = end, killed


def _ms(times: Times, prefix: str) -> float:
    every = [seconds for name, seconds in times.seconds.items() if name.startswith(prefix)]
    return 1e3 * statistics.median([seconds for opens in every for seconds in opens])


def _ours(killed: Path, batches: int, folder: Path) -> float:
    copy(killed, folder)
    next_one = [(recovery_history.key(batches + 1),)]
    fed = arrivals(recovery_history.ticks, next_one, first_offset=batches)
    with timed() as seconds:
        ours = Ours(folder, recovery_history.flow, "strong")
        ours.feed(fed)
    with ours:
        done = ours.done()
        assert set(done.values()) == {batches + 1}, f"it went on after {done}"
    return seconds()


def _bare(killed: Path, batches: int, folder: Path) -> float:
    copy(killed, folder)
    with timed() as seconds:
        connection = bare.connect(folder / BARE_FILE, "strong")
        connection.execute("BEGIN IMMEDIATE")
        (number,) = connection.execute("SELECT next FROM position").fetchone()
        recovery_history.take_bare(connection, number)
        connection.execute("COMMIT")
    assert number == batches, f"it went on after {number}"
    connection.close()
    return seconds()
