"""A peer as people write it: dlt, which reads changes from Kafka and merges them by key.

    python migrate_dlt.py JOB

is a program for dlt's own environment, which has nothing of ours; JOB is a JSON object with what
`Job` has. Its places in Kafka are in dlt's state, as dlt's own Kafka source keeps them. It may kill
itself with SIGKILL where PostgreSQL has committed a file of rows and dlt has not noted that.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import dlt
from dlt.common.storages.load_package import PackageStorage
from kafka import KafkaConsumer, TopicPartition

POLL_MS, POLL_RECORDS = 500, 5_000
KEPT, HISTORY = "kept", "history"


@dataclass(frozen=True)
class Job:
    """What is to be done."""

    bootstrap: str
    topic: str
    url: str
    schema: str
    folder: str
    types: dict[str, str]
    records_max: int
    """So many at most in one run of the pipeline."""
    tables: list[str]
    dies: bool = False
    aborts: bool = False
    """Whether it gives up first what could not be loaded: what dlt tells its operator to do."""


class Topic:
    """Reads a topic from places that somebody else keeps."""

    def __init__(self, job: Job) -> None:
        self.most = job.records_max
        self.consumer = KafkaConsumer(
            bootstrap_servers=job.bootstrap,
            enable_auto_commit=False,
            max_poll_records=min(POLL_RECORDS, job.records_max),
        )
        partitions = sorted(self.consumer.partitions_for_topic(job.topic))
        self.at = [TopicPartition(job.topic, p) for p in partitions]
        self.consumer.assign(self.at)
        self.ends = self.consumer.end_offsets(self.at)

    def records(self, places: dict[str, int]) -> Iterator[list[Any]]:
        """Give what comes after some places, not too much of it, and move them."""
        for lane in self.at:
            self.consumer.seek(lane, places.get(str(lane.partition), 0))
        read = 0
        while read < self.most and self._is_more():
            polled = self.consumer.poll(POLL_MS).values()
            yield [record for records in polled for record in records]
            read += sum(map(len, polled))
            places |= {str(lane.partition): self.consumer.position(lane) for lane in self.at}

    def is_read(self, places: dict[str, int]) -> bool:
        """Tell whether some places are the end."""
        return all(places.get(str(lane.partition), 0) >= self.ends[lane] for lane in self.at)

    def _is_more(self) -> bool:
        return any(self.consumer.position(lane) < self.ends[lane] for lane in self.at)


def resource(topic: Topic, job: Job, table: str, places: dict[str, int]) -> Any:
    """Declare a table, and how it is filled."""
    columns: dict[str, Any] = {
        name: {"data_type": of, "nullable": True} for name, of in job.types.items()
    }
    how = {"write_disposition": "append"}
    if table == KEPT:
        columns["_place"] = {"data_type": "bigint", "dedup_sort": "desc"}
        columns["_deleted"] = {"data_type": "bool", "hard_delete": True}
        how = {"write_disposition": "merge", "primary_key": "id"}

    def rows() -> Iterator[list[dict[str, Any]]]:
        kept = dlt.current.resource_state(table).setdefault("places", {})
        make = _operations if table == KEPT else _appended
        for records in topic.records(kept):
            yield make(records)
        places.update(kept)

    return dlt.resource(rows, name=table, columns=columns, **how)


def _operations(records: list[Any]) -> list[dict[str, Any]]:
    return [
        {**json.loads(record.key), "_place": record.offset, "_deleted": True}
        if record.value is None
        else {**json.loads(record.value), "_place": record.offset}
        for record in records
    ]


def _appended(records: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(record.value) for record in records if record.value is not None]


def run(job: Job) -> float:
    """Run the pipeline until the topic is read; tell the seconds."""
    pipeline = dlt.pipeline(
        pipeline_name=job.schema,
        pipelines_dir=job.folder,
        destination=dlt.destinations.postgres(job.url),
        dataset_name=job.schema,
    )
    if job.aborts:
        pipeline.abort_packages()
    topics = {table: Topic(job) for table in job.tables}
    began = time.perf_counter()
    while True:
        places: dict[str, dict[str, int]] = {table: {} for table in job.tables}
        resources = [resource(topics[table], job, table, places[table]) for table in job.tables]
        pipeline.run(resources, loader_file_format="csv")
        # A run after a kill ends what was begun, and reads nothing.
        if all(topics[table].is_read(places[table]) for table in job.tables):
            return time.perf_counter() - began


def die_before_noting() -> None:
    """Have dlt end where a file of the table without a key is committed and not noted."""
    note = PackageStorage.save_pending_transition

    def die(storage: PackageStorage, load_id: str, file_name: str, *state: str | None) -> None:
        if file_name.startswith(f"{HISTORY}."):
            os.kill(os.getpid(), signal.SIGKILL)
        note(storage, load_id, file_name, *state)

    PackageStorage.save_pending_transition = die


if __name__ == "__main__":
    wanted = Job(**json.loads(sys.argv[1]))
    if wanted.dies:
        die_before_noting()
    print(run(wanted))
