"""A peer as people run it: Debezium's JDBC sink in a worker of Kafka Connect, which is a JVM.

It commits what a poll brings, and notes its places in Kafka once a minute, as Connect comes. So it
is killed when half of the rows are there, and any other moment would be as bad.
"""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString, NamedTuple
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from bench import peer_jars
from bench.ingest_data import PARSED
from bench.migrate_changes import Change, outcome
from bench.migrate_state import HISTORY, KEPT
from etl_procs.columns import Type
from headrace import config
from headrace.errors import HeadraceError
from headrace.local import java

WORKER = "org.apache.kafka.connect.cli.ConnectStandalone"
MEMORY_MB = 512
LOOK_EVERY_S, STILL_S, PATIENCE_S = 0.02, 3.0, 300.0
"""After a kill it is at the end when nothing has come for so long: it begins with a poll's wait."""

TYPES = {Type.INTEGER: "int64", Type.REAL: "double", Type.TEXT: "string"}
CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
SINK = {
    "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
    "tasks.max": "1",
    "schema.evolution": "none",
    "consumer.override.auto.offset.reset": "earliest",
    # After a kill the next one waits for so long until the broker takes it in: 45 s, as it comes.
    "consumer.override.session.timeout.ms": "6000",
    "consumer.override.heartbeat.interval.ms": "2000",
}
TABLES = {
    KEPT: {
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "primary.key.fields": "id",
        "use.reduction.buffer": "true",  # or each deletion between others is a commit of its own
    },
    HISTORY: {"insert.mode": "insert", "delete.enabled": "false", "primary.key.mode": "none"},
}

PROGRESS: LiteralString = "SELECT count(*), coalesce(sum(customer), 0) FROM {table}"

Progress = tuple[int, int]


class Sink(NamedTuple):
    """What is moved whence and where to."""

    bootstrap: str
    topic: str
    url: str
    schema: str
    folder: Path


def seconds(sink: Sink, changes: Sequence[Change]) -> float:
    """Tell how long changes come into the table with the key, from the first that is seen there."""
    wanted = outcome(changes)
    whole = len(wanted), sum(wanted.values())
    with _running(sink, [KEPT]) as worker:
        _until(worker, lambda: _progress(sink, KEPT)[0] > 0)
        began = time.perf_counter()
        _until(worker, lambda: _progress(sink, KEPT) == whole)
        return time.perf_counter() - began


def killed(sink: Sink, changes: Sequence[Change]) -> None:
    """Kill it amid its work, and let another go on to the end."""
    appended = sum(change.row is not None for change in changes)
    with _running(sink, [KEPT, HISTORY]) as worker:
        _until(worker, lambda: _progress(sink, HISTORY)[0] >= appended / 2)
        worker.kill()
        worker.wait()
    before = _progress(sink, HISTORY)
    with _running(sink, [KEPT, HISTORY]) as worker:
        _until(worker, lambda: _progress(sink, HISTORY) != before)
        _until_still(worker, lambda: (_progress(sink, HISTORY), _progress(sink, KEPT)))


@contextmanager
def _running(sink: Sink, tables: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    environment = config.child_environment({})
    files = [_written(sink.folder / "worker.properties", _worker(sink))]
    files += [
        _written(sink.folder / f"{table}.properties", _table(sink, table)) for table in tables
    ]
    program = [str(java.find(environment).program), f"-Xmx{MEMORY_MB}m"]
    with (sink.folder / "connect.log").open("ab") as log:
        worker = subprocess.Popen(
            [*program, "-cp", peer_jars.connect(), WORKER, *files],
            env=environment,
            stdout=log,
            stderr=log,
        )
        try:
            yield worker
        finally:
            worker.kill()
            worker.wait()


def _worker(sink: Sink) -> dict[str, str]:
    fields = [{"field": c.name, "type": TYPES[c.type], "optional": not c.required} for c in PARSED]
    key, value = (
        json.dumps({"type": "struct", "optional": False, "fields": some})
        for some in (fields[:1], fields)
    )
    return {
        "bootstrap.servers": sink.bootstrap,
        "offset.storage.file.filename": str(sink.folder / "offsets"),
        "listeners": "HTTP://127.0.0.1:0",
        "plugin.discovery": "service_load",
        "key.converter": CONVERTER,
        "key.converter.schema.content": key,
        "value.converter": CONVERTER,
        "value.converter.schema.content": value,
    }


def _table(sink: Sink, table: str) -> dict[str, str]:
    at = urlsplit(sink.url)
    return {
        **SINK,
        **TABLES[table],
        "name": f"{sink.schema}-{table}",
        "topics": sink.topic,
        "connection.url": f"jdbc:postgresql://{at.hostname}:{at.port}{at.path}",
        "connection.username": at.username or "",
        "connection.password": at.password or "",
        "collection.name.format": f"{sink.schema}.{table}",
    }


def _written(path: Path, settings: dict[str, str]) -> Path:
    text = "".join(f"{key}={value}\n" for key, value in settings.items())
    path.write_text(text, encoding="ascii")
    return path


def _progress(sink: Sink, table: str) -> Progress:
    query = sql.SQL(PROGRESS).format(table=sql.Identifier(sink.schema, table))
    with psycopg.connect(sink.url) as connection:
        ((count, numbers),) = connection.execute(query).fetchall()
    return int(count), int(numbers)


def _until(worker: subprocess.Popen[bytes], is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if worker.poll() is not None or time.monotonic() > deadline:
            raise HeadraceError(
                "Debezium's JDBC sink did not do its work", hint="Its log is connect.log."
            )
        time.sleep(LOOK_EVERY_S)


def _until_still(worker: subprocess.Popen[bytes], look: Callable[[], object]) -> None:
    seen, since = look(), time.monotonic()

    def is_still() -> bool:
        nonlocal seen, since
        if (found := look()) != seen:
            seen, since = found, time.monotonic()
        return time.monotonic() - since > STILL_S

    _until(worker, is_still)
