"""Who moves the same changes into PostgreSQL: how fast, and what a SIGKILL leaves of them.

Each is killed where it is worst: where PostgreSQL has committed, and it has not yet noted that.
Then it is started again and ends. `kept` shows what is lost or came back, `history` also what is
doubled, and a reader looks all the time whether a batch is there by halves.

The peers read Kafka, and `kafka_python` does that and nothing else. Ours has read before: its rate
is that of the push of what a core has staged; `python -m bench ingest` measures the way there.
"""

import json
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from bench import (
    broker,
    connect_jars,
    dlt_environment,
    killing,
    migrate_changes,
    migrate_consumers,
    migrate_kafka_connect,
    migrate_ours,
    migrate_state,
    postgres,
)
from bench.harness import Figures, Setup, folder
from bench.ingest_data import PARSED
from bench.migrate_changes import BATCH, Batch, Change
from bench.migrate_consumers import READING
from bench.migrate_kafka_connect import Sink
from bench.migrate_state import FAILED, HISTORY, KEPT
from etl_procs.columns import Type
from headrace.crash import Point

HEADRACE, DLT, DEBEZIUM = "headrace", "dlt", "debezium_jdbc"
DLT_TYPES = {Type.INTEGER: "bigint", Type.REAL: "double", Type.TEXT: "text"}
DIES_AT = 1
"""At which commit a consumer is killed."""
DLT_RECORDS, DLT_HARMED_RECORDS = 50_000, 1_000
"""Records in one run of its pipeline; fewer where it is killed, so that there are several."""
QUICK_S = 25.0
TAKES_S = {DLT: 9.0, DEBEZIUM: 28.0}
"""Who starts slowly takes so long at least: in a quick run all of it is to end within QUICK_S."""


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
    """Moves all changes and tells how fast; or is killed, and another ends its work."""

    rows_per_s: Callable[[Work, str], float]
    killed: Callable[[Work, str], int]
    """Tells how many starts failed afterwards."""


def sizes(setup: Setup) -> Sizes:
    """Choose them."""
    return Sizes(
        changes=setup.size(full=4_000, quick=200),
        harmed=setup.size(full=400, quick=40),
    )


def peers(setup: Setup, conninfo: str, size: Sizes) -> dict[str, Figures]:
    """Let everybody move the changes, one after the other."""
    ends = time.perf_counter() + QUICK_S
    with broker.server(setup.folder) as bootstrap:
        work = _work(setup, bootstrap, postgres.url(conninfo), size)
        found = {
            HEADRACE: ours(work, migrate_ours.POINTS[-1:] if setup.quick else migrate_ours.POINTS)
        }
        found |= {name: measured(work, name, peer) for name, peer in QUICK.items()}
        found[READING] = {"rows_per_s": _consumer_rows_per_s(READING, work, READING)}
        for name, peer in SLOW.items():
            has_time = time.perf_counter() + TAKES_S[name] < ends
            if not setup.quick or (has_time and IS_THERE[name]()):
                found[name] = measured(work, name, peer)
    return found


def settings(size: Sizes, found: Iterable[str]) -> dict[str, Any]:
    """Say what was moved, and who did it."""
    return {
        "changes": size.changes * BATCH,
        "changes_at_a_kill": size.harmed * BATCH,
        "changes_a_batch": BATCH,
        "records_a_poll": migrate_consumers.POLL_RECORDS,
        "records_a_dlt_run": DLT_RECORDS,
        "records_a_dlt_run_at_a_kill": DLT_HARMED_RECORDS,
        "partitions_of_a_topic": migrate_changes.PARTITIONS,
        "peers_run": list(found),
    }


def measured(work: Work, name: str, peer: Peer) -> Figures:
    """Measure the harm of one, and its speed."""
    schema = f"{name}_harmed"
    migrate_state.make(work.url, schema)
    with migrate_state.reading(work.url, schema) as reader:
        failed = peer.killed(work, schema)
    harm = migrate_state.harm(work.url, schema, _flat(work.harmed))
    migrate_state.make(work.url, name)
    speed = peer.rows_per_s(work, name)
    wanted = migrate_changes.outcome(_flat(work.changes))
    assert migrate_state.there(work.url, name) == wanted, name
    return {"rows_per_s": speed, **harm, **reader.figures, FAILED: float(failed)}


def ours(work: Work, points: Sequence[Point]) -> Figures:
    """Measure the same of ours: a core has staged the changes, and its push is killed."""
    origin, harmed = work.folder / "changed", work.folder / "harmed"
    for place, flow, batches in (
        (harmed, migrate_ours.harmed, work.harmed),
        (origin, migrate_ours.changed, work.changes),
    ):
        place.mkdir()
        migrate_ours.stage(place, flow, batches)
    migrate_ours.prepare(work.url, migrate_ours.harmed)
    with migrate_state.reading(work.url, migrate_ours.harmed.name) as reader:
        for point in points:
            killing.run_until_killed(
                killing.module("bench.migrate_ours", harmed, work.url, point.value)
            )
        migrate_ours.push(harmed, work.url, migrate_ours.harmed, migrate_ours.HARMED_BATCHES)
    harm = migrate_state.harm(work.url, migrate_ours.harmed.name, _flat(work.harmed))
    with folder(work.folder, HEADRACE) as place:
        seconds = migrate_ours.pushed(work.url, origin, place)
    wanted = migrate_changes.outcome(_flat(work.changes))
    assert migrate_state.there(work.url, migrate_ours.changed.name) == wanted
    return {"rows_per_s": len(_flat(work.changes)) / seconds, **harm, **reader.figures, FAILED: 0.0}


def _work(setup: Setup, bootstrap: str, url: str, size: Sizes) -> Work:
    changes, harmed = (list(migrate_changes.batches(n, BATCH)) for n in size)
    migrate_changes.fill(bootstrap, migrate_ours.changes, _flat(changes))
    migrate_changes.fill(bootstrap, migrate_ours.harmed_changes, _flat(harmed))
    return Work(bootstrap, url, setup.folder, changes, harmed)


def _flat(batches: Sequence[Batch]) -> list[Change]:
    return list(chain.from_iterable(batches))


def _consumer_rows_per_s(how: str, work: Work, schema: str) -> float:
    where = (work.bootstrap, migrate_ours.changes.topic, work.url, schema)
    return len(_flat(work.changes)) / migrate_consumers.run(*where, how, 0, history=False)


def _consumer_killed(how: str, work: Work, schema: str) -> int:
    where = (work.bootstrap, migrate_ours.harmed_changes.topic, work.url, schema, how)
    program = killing.module("bench.migrate_consumers", *where, str(DIES_AT))
    killing.run_until_killed(program)
    migrate_consumers.run(*where, 0, history=True)
    return 0


def _dlt_rows_per_s(work: Work, schema: str) -> float:
    said = killing.run(_dlt(work, schema, topic=migrate_ours.changes.topic, tables=[KEPT]))
    return len(_flat(work.changes)) / float(said.split()[-1])


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
    return [dlt_environment.python(), dlt_environment.PROGRAM, json.dumps(job)]


def _debezium_rows_per_s(work: Work, schema: str) -> float:
    sink = _sink(work, migrate_ours.changes.topic, schema)
    return migrate_kafka_connect.rows_per_s(sink, _flat(work.changes))


def _debezium_killed(work: Work, schema: str) -> int:
    sink = _sink(work, migrate_ours.harmed_changes.topic, schema)
    migrate_kafka_connect.killed(sink, _flat(work.harmed))
    return 0


def _sink(work: Work, topic: str, schema: str) -> Sink:
    place = work.folder / schema
    place.mkdir()
    return Sink(work.bootstrap, topic, work.url, schema, place)


def _consumer(how: str) -> Peer:
    return Peer(partial(_consumer_rows_per_s, how), partial(_consumer_killed, how))


QUICK = {how: _consumer(how) for how in migrate_consumers.CONSUMERS}
SLOW = {
    DLT: Peer(_dlt_rows_per_s, _dlt_killed),
    DEBEZIUM: Peer(_debezium_rows_per_s, _debezium_killed),
}
IS_THERE = {DLT: dlt_environment.is_there, DEBEZIUM: connect_jars.are_there}
