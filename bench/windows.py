"""A window's sums kept as tuples come and go, against summing it up anew for every batch.

One reading a batch; after each, the loudest sensor of the last 100, 1,000 and 10,000 readings is
looked up. Both ways in our engine, and both by hand in SQLite.
"""

import sqlite3
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from bench import bare
from bench.bare import GROUP_BATCHES
from bench.harness import Figures, Result, Setup, Trial, in_turns_per
from bench.ours import GROUP_MS, fed
from etl_procs import Batch, Dataflow, Transaction, by_count, last_tuples

SENSORS = 50
SIZES, SIZES_QUICK = (100, 1_000, 10_000), (100, 1_000)
SEED = 2026

READING = "sensor INTEGER NOT NULL, volume INTEGER NOT NULL"
LOUDEST = "SELECT sensor, readings, volume FROM sums ORDER BY volume DESC, sensor LIMIT 1"
LOUDEST_ANEW = """
    SELECT sensor, count(*) AS readings, sum(volume) AS volume FROM recent
    GROUP BY sensor ORDER BY volume DESC, sensor LIMIT 1"""
KEEP = "UPDATE loudest SET sensor = ?, readings = ?, volume = ?, checked = checked + ?"

SCHEMA = (
    f"CREATE TABLE recent (number INTEGER PRIMARY KEY, {READING})",
    "CREATE TABLE sums (sensor INTEGER PRIMARY KEY, readings INTEGER NOT NULL, "
    "volume INTEGER NOT NULL)",
    "CREATE TABLE loudest (sensor INTEGER NOT NULL, readings INTEGER NOT NULL, "
    "volume INTEGER NOT NULL, checked INTEGER NOT NULL)",
)
ENTER = "INSERT INTO recent VALUES (?, ?, ?)"
LEAVE = "DELETE FROM recent WHERE number = ? RETURNING volume, sensor"
ADD = (
    "INSERT INTO sums VALUES (?, 1, ?) "
    "ON CONFLICT DO UPDATE SET readings = readings + 1, volume = volume + excluded.volume"
)
TAKE = "UPDATE sums SET readings = readings - 1, volume = volume - ? WHERE sensor = ?"

Reading = tuple[int, int]
Loudest = tuple[int, int, int, int]
"""A sensor, its readings in the window and their volume; and all such volumes so far, summed up."""


def run(setup: Setup) -> Result:
    """Compare both ways at every size, in turns."""
    count = setup.size(full=20_000, quick=5_000)
    figures: Figures = {}
    peers: dict[str, Figures] = {"ours_anew": {}, "bare": {}, "bare_anew": {}}
    found: dict[str, list[float]] = {}
    for size in SIZES_QUICK if setup.quick else SIZES:
        made = readings(count)
        times = in_turns_per(trials(made, size), setup, count)
        figures[f"strong_batches_per_s_{size}"] = times.rate("ours")
        figures[f"strong_us_per_batch_{size}"] = times.us("ours")
        for name, peer in peers.items():
            peer[f"batches_per_s_{size}"] = times.rate(name)
        found[f"kept_to_anew_{size}"] = times.ratios("ours", "ours_anew")
        found[f"strong_to_bare_{size}"] = times.ratios("ours", "bare")
        found[f"strong_to_bare_anew_{size}"] = times.ratios("ours", "bare_anew")
        found[f"anew_to_bare_anew_{size}"] = times.ratios("ours_anew", "bare_anew")
    return Result(
        figures=figures,
        peers=peers,
        ratios=found,
        settings={
            "batches": count,
            "rounds": min(map(len, found.values())),
            "sensors": SENSORS,
            "seed": SEED,
            "group_batches": GROUP_BATCHES,
            "group_ms_max": GROUP_MS,
        },
    )


def trials(made: list[Reading], size: int) -> dict[str, Trial]:
    """Both ways, in our engine and by hand."""
    expected = loudest_of(made, size)
    return {
        "ours": partial(_ours, made, expected, size, LOUDEST),
        "bare": partial(_bare, made, expected, size, _kept),
        "ours_anew": partial(_ours, made, expected, size, LOUDEST_ANEW),
        "bare_anew": partial(_bare, made, expected, size, _anew),
    }


def readings(count: int) -> list[Reading]:
    """Make readings: the sensors are equally busy, and some louder than others."""
    random = Random(SEED)  # noqa: S311 - no secret
    sensors = (random.randrange(SENSORS) for _ in range(count))
    return [(sensor, random.randint(1, 100 + sensor)) for sensor in sensors]


def loudest_of(made: list[Reading], size: int) -> Loudest:
    """Say in plain Python what everybody must end with."""
    recent: deque[Reading] = deque()
    counts: Counter[int] = Counter()
    sums: Counter[int] = Counter()
    sensor, checked = 0, 0
    for entering in made:
        recent.append(entering)
        counts[entering[0]] += 1
        sums[entering[0]] += entering[1]
        if len(recent) > size:
            left, volume = recent.popleft()
            counts[left] -= 1
            sums[left] -= volume
        sensor = min(sums, key=lambda s: (-sums[s], s))
        checked += sums[sensor]
    return sensor, counts[sensor], sums[sensor], checked


def dataflow(size: int, loudest: str) -> Dataflow:
    """Declare a window of that size, and the way in which the loudest is looked up."""
    flow = Dataflow("windows")
    taken = flow.stream("readings", READING, batches=by_count(1))
    found = flow.table(
        "loudest",
        "sensor INTEGER NOT NULL, readings INTEGER NOT NULL, volume INTEGER NOT NULL, "
        "checked INTEGER NOT NULL",
        rows=[(0, 0, 0, 0)],
    )
    recent = flow.window("recent", READING, last_tuples(size))
    if loudest == LOUDEST:
        flow.aggregate("sums", recent, by="sensor", readings="count(*)", volume="sum(volume)")

    @flow.procedure(takes=taken, writes=[found], gives=[recent])
    def listen(tx: Transaction, batch: Batch) -> None:
        tx.emit(recent, batch.rows())
        (most,) = tx.query(loudest)
        tx.execute(KEEP, (most["sensor"], most["readings"], most["volume"], most["volume"]))

    return flow


def _ours(made: list[Reading], expected: Loudest, size: int, loudest: str, folder: Path) -> float:
    return fed(folder, dataflow(size, loudest), made, partial(_compare, expected))


Way = Callable[[sqlite3.Connection, int, int, Reading], None]


def _bare(made: list[Reading], expected: Loudest, size: int, way: Way, folder: Path) -> float:
    connection = bare.connect(folder / "bare.sqlite", "strong")
    bare.make(connection, SCHEMA)
    connection.execute("INSERT INTO loudest VALUES (0, 0, 0, 0)")
    number = 0

    def take(reading: Reading) -> None:
        nonlocal number
        number += 1
        bare.savepoint(connection, way, connection, size, number, reading)

    return bare.ran(connection, made, take, partial(_compare, expected))


def _kept(connection: sqlite3.Connection, size: int, number: int, reading: Reading) -> None:
    execute = connection.execute
    execute(ENTER, (number, *reading))
    execute(ADD, reading)
    gone = execute(LEAVE, (number - size,)).fetchall()
    if gone:
        execute(TAKE, gone[0])
    sensor, readings, volume = execute(LOUDEST).fetchone()
    execute(KEEP, (sensor, readings, volume, volume))


def _anew(connection: sqlite3.Connection, size: int, number: int, reading: Reading) -> None:
    execute = connection.execute
    execute(ENTER, (number, *reading))
    execute("DELETE FROM recent WHERE number = ?", (number - size,))
    sensor, readings, volume = execute(LOUDEST_ANEW).fetchone()
    execute(KEEP, (sensor, readings, volume, volume))


def _compare(expected: Loudest, connection: sqlite3.Connection) -> None:
    found = connection.execute("SELECT sensor, readings, volume, checked FROM loudest").fetchone()
    assert found == expected, f"it ended with {found}, and the rules with {expected}"
