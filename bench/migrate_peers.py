"""Who moves the same changes into PostgreSQL: how fast, and what a SIGKILL leaves of them.

Each is killed where it is worst: where PostgreSQL has committed, and it has not yet noted that.
Then it is started again and ends. `kept` shows what is lost or came back, `history` also what is
doubled, and a reader looks all the time whether a batch is there by halves.

The peers read Kafka, and `kafka_python` does that and nothing else. Ours has read before: its rates
are those of the push, and of push and merge, of what a core has staged; `python -m bench ingest`
measures the way there.
"""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from bench import (
    broker,
    consumers,
    killing,
    migrate_changes,
    migrate_kafka_connect,
    migrate_ours,
    migrate_state,
    peers_environment,
    postgres,
)
from bench.consumers import READING
from bench.harness import Figures, Result, Setup, Trial, in_turns_per
from bench.ingest_data import PARSED
from bench.migrate_changes import BATCH, Batch, Change
from bench.migrate_kafka_connect import Sink
from bench.migrate_state import FAILED, HISTORY, KEPT
from etl_procs.columns import Type
from headrace.crash import Point
from migrations import tables

HEADRACE, DLT, DEBEZIUM = "headrace", "dlt", "debezium_jdbc"
PUSH_ALONE = "headrace_push_alone"
"""Ours until everybody sees it, and not until it is merged."""
DLT_TYPES = {Type.INTEGER: "bigint", Type.REAL: "double", Type.TEXT: "text"}
DIES_AT = 1
"""At which commit a consumer is killed."""
DLT_PROGRAM = Path(__file__).parent / "migrate_dlt.py"
DLT_RECORDS, DLT_HARMED_RECORDS = 50_000, 1_000
"""Records in one run of its pipeline; fewer where it is killed, so that there are several."""
SLOW = (consumers.CORE, DLT, DEBEZIUM)
"""Who takes 5, 13 and 30 s, of which most is its start: left out of a quick run."""


class Sizes(NamedTuple):
    """How many batches of changes are moved."""

    changes: int
    harmed: int


class Work(NamedTuple):
    """Where the changes are, and where they belong."""

    bootstrap: str
    url: str
    folder: Path
    changes: Sequence[Batch]
    harmed: Sequence[Batch]


class Peer(NamedTuple):
    """Moves all changes, or is killed and another ends its work."""

    seconds: Callable[[Work, str], float]
    """How long it takes."""
    killed: Callable[[Work, str], int]
    """Tells how many starts failed afterwards."""


def run(setup: Setup, conninfo: str) -> Result:
    """Run all of them."""
    size = sizes(setup)
    found = peers(setup, conninfo, size)
    return Result({}, found, {}, settings(size, found))


def sizes(setup: Setup) -> Sizes:
    """Choose them."""
    return Sizes(
        changes=setup.size(full=1_500, quick=200),
        harmed=setup.size(full=400, quick=40),
    )


def peers(setup: Setup, conninfo: str, size: Sizes) -> dict[str, Figures]:
    """Kill everybody, one after the other; then let all move the changes in turns."""
    with broker.server(setup.folder) as bootstrap:
        work = _work(setup, bootstrap, postgres.url(conninfo), size)
        points = migrate_ours.WORST if setup.quick else migrate_ours.POINTS
        found = {HEADRACE: ours_harmed(work, points)}
        trials: dict[str, Trial] = {
            HEADRACE: partial(_ours_seconds, work, migrate_ours.pushed_and_merged),
            PUSH_ALONE: partial(_ours_seconds, work, migrate_ours.pushed),
            READING: lambda place: _consumer_seconds(READING, work, place.name),
        }
        for name, peer in PEERS.items():
            if setup.quick and name in SLOW:
                continue
            found[name] = harmed(work, name, peer)
            trials[name] = partial(moved, work, name, peer, count())
        rounds = 1 if setup.quick else setup.rounds
        times = in_turns_per(trials, replace(setup, rounds=rounds), len(_flat(work.changes)))
    return {name: {"rows_per_s": times.rate(name), **found.get(name, {})} for name in trials}


def settings(size: Sizes, found: Collection[str]) -> dict[str, Any]:
    """Say what was moved, and who did not."""
    return {
        "changes": size.changes * BATCH,
        "changes_at_a_kill": size.harmed * BATCH,
        "changes_a_batch": BATCH,
        "records_a_poll": consumers.POLL_RECORDS,
        "records_a_dlt_run": DLT_RECORDS,
        "records_a_dlt_run_at_a_kill": DLT_HARMED_RECORDS,
        "partitions_of_a_topic": migrate_changes.PARTITIONS,
        "peers_left_out": [name for name in PEERS if name not in found],
    }


def harmed(work: Work, name: str, peer: Peer) -> Figures:
    """Count what a kill does."""
    schema = f"{name}_harmed"
    migrate_state.make(work.url, schema)
    with migrate_state.reading(work.url, schema) as reader:
        failed = peer.killed(work, schema)
    harm = migrate_state.harm(work.url, schema, _flat(work.harmed))
    return {**harm, **reader.figures, FAILED: float(failed)}


def moved(work: Work, name: str, peer: Peer, numbers: Iterator[int], _place: Path) -> float:
    """Move all changes into tables that nobody had before; tell the seconds."""
    schema = f"{name}_{next(numbers)}"
    migrate_state.make(work.url, schema)
    seconds = peer.seconds(work, schema)
    wanted = migrate_changes.outcome(_flat(work.changes))
    assert migrate_state.there(work.url, schema) == wanted, schema
    return seconds


def ours_harmed(work: Work, points: Sequence[Point]) -> Figures:
    """Count the same for ours, in live and in main: its pushes and merges are killed."""
    origin, flow = work.folder / "harmed", migrate_ours.harmed
    origin.mkdir()
    migrate_ours.stage(origin, flow, work.harmed)
    migrate_ours.prepare(work.url, flow, origin)
    live, main, _ = tables.schemas(flow.name)
    with (
        migrate_state.reading(work.url, live) as of_live,
        migrate_state.reading(work.url, main) as of_main,
    ):
        for point in points:
            killing.run_until_killed(
                killing.module("bench.migrate_ours", origin, work.url, point.value)
            )
        migrate_ours.end(origin, work.url)
    changes = _flat(work.harmed)
    found = [migrate_state.harm(work.url, schema, changes) for schema in (live, main)]
    return {**_added(*found), **_added(of_live.figures, of_main.figures), FAILED: 0.0}


def _added(one: Figures, other: Figures) -> Figures:
    return {key: one[key] + other[key] for key in one}


def _ours_seconds(work: Work, way: Callable[[str, Path, Path], float], place: Path) -> float:
    origin = work.folder / "changed"
    if not origin.exists():
        origin.mkdir()
        migrate_ours.stage(origin, migrate_ours.changed, work.changes)
    seconds = way(work.url, origin, place)
    wanted = migrate_changes.outcome(_flat(work.changes))
    assert migrate_state.there(work.url, migrate_ours.changed.name) == wanted
    return seconds


def _work(setup: Setup, bootstrap: str, url: str, size: Sizes) -> Work:
    changes, harmed = (list(migrate_changes.batches(n, BATCH)) for n in size)
    migrate_changes.fill(bootstrap, migrate_ours.changes, _flat(changes))
    migrate_changes.fill(bootstrap, migrate_ours.harmed_changes, _flat(harmed))
    return Work(bootstrap, url, setup.folder, changes, harmed)


def _flat(batches: Sequence[Batch]) -> list[Change]:
    return list(chain.from_iterable(batches))


def _consumer_seconds(how: str, work: Work, schema: str) -> float:
    where = (work.bootstrap, migrate_ours.changes.topic, work.url, schema)
    return consumers.run(*where, how).seconds


def _consumer_killed(how: str, work: Work, schema: str) -> int:
    where = (work.bootstrap, migrate_ours.harmed_changes.topic, work.url, schema, how)
    program = killing.module("bench.consumers", *where, str(DIES_AT))
    killing.run_until_killed(program)
    consumers.run(*where, history=True)
    return 0


def _dlt_seconds(work: Work, schema: str) -> float:
    said = killing.run(_dlt(work, schema, topic=migrate_ours.changes.topic, tables=[KEPT]))
    return float(said.split()[-1])


def _dlt_killed(work: Work, schema: str) -> int:
    program = partial(
        _dlt,
        work,
        schema,
        topic=migrate_ours.harmed_changes.topic,
        tables=[KEPT, HISTORY],
        records_max=DLT_HARMED_RECORDS,
    )
    killing.run_until_killed(program(dies=True))
    if killing.ends_well(program()):
        return 0
    killing.run(program(aborts=True))
    return 1


def _dlt(
    work: Work,
    schema: str,
    *,
    topic: str,
    tables: list[str],
    records_max: int = DLT_RECORDS,
    **more: bool,
) -> list[str | Path]:
    """Name dlt's program, and say what it is to do."""
    job = {
        "bootstrap": work.bootstrap,
        "topic": topic,
        "url": work.url,
        "schema": schema,
        "folder": str(work.folder / DLT),
        "types": {column.name: DLT_TYPES[column.type] for column in PARSED},
        "records_max": records_max,
        "tables": tables,
        **more,
    }
    return [peers_environment.python(), DLT_PROGRAM, json.dumps(job)]


def _debezium_seconds(work: Work, schema: str) -> float:
    sink = _sink(work, migrate_ours.changes.topic, schema)
    return migrate_kafka_connect.seconds(sink, _flat(work.changes))


def _debezium_killed(work: Work, schema: str) -> int:
    sink = _sink(work, migrate_ours.harmed_changes.topic, schema)
    migrate_kafka_connect.killed(sink, _flat(work.harmed))
    return 0


def _sink(work: Work, topic: str, schema: str) -> Sink:
    place = work.folder / schema
    place.mkdir()
    return Sink(work.bootstrap, topic, work.url, schema, place)


def _consumer(how: str) -> Peer:
    return Peer(partial(_consumer_seconds, how), partial(_consumer_killed, how))


PEERS = {
    **{how: _consumer(how) for how in consumers.CHANGING},
    DLT: Peer(_dlt_seconds, _dlt_killed),
    DEBEZIUM: Peer(_debezium_seconds, _debezium_killed),
}
