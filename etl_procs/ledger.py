"""The ledger: which batch each procedure has committed, and which positions that consumed.

Order and exactly-once rest on `step`: it moves a procedure from batch b-1 to b inside the
transaction of batch b, or fails. Whoever comes second changes nothing.
"""

import sqlite3
from collections.abc import Mapping

from etl_procs.errors import CoreError, DefinitionChanged, Superseded
from etl_procs.dataflow import Dataflow
from etl_procs.model import Procedure

ENTER = "INSERT OR IGNORE INTO headrace_ledger VALUES (:dataflow, :procedure, 0)"

ENTERED = "SELECT procedure FROM headrace_ledger WHERE dataflow = :dataflow"

CLAIM = "INSERT OR IGNORE INTO headrace_topics VALUES (:dataflow, :topic, :id)"

CLAIMED = "SELECT id FROM headrace_topics WHERE dataflow = :dataflow AND topic = :topic"

STEP = """\
UPDATE headrace_ledger SET batch = :batch
WHERE dataflow = :dataflow AND procedure = :procedure AND batch = :batch - 1"""

# A batch of a dataflow is done when the last of its procedures has done it.
LAST_BATCH = "SELECT coalesce(min(batch), 0) FROM headrace_ledger WHERE dataflow = :dataflow"

POSITIONS = """\
SELECT partition, next_offset FROM headrace_positions
WHERE dataflow = :dataflow AND topic = :topic"""

MOVE = """\
INSERT INTO headrace_positions VALUES (:dataflow, :topic, :partition, :next_offset)
ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset
WHERE excluded.next_offset > next_offset"""


def enter(connection: sqlite3.Connection, dataflow: Dataflow) -> None:
    """Give each procedure of a dataflow its place in the ledger, before its first batch."""
    entered = {name for (name,) in connection.execute(ENTERED, {"dataflow": dataflow.name})}
    gone = entered - dataflow.procedures.keys()
    if gone:
        raise DefinitionChanged(
            f"dataflow {dataflow.name} no longer defines {', '.join(sorted(gone))}, a procedure "
            "that has committed batches: under another name it would begin again at batch 1",
            hint="Give it back its name, or start over with `headrace reset`.",
        )
    for procedure in dataflow.procedures.values():
        connection.execute(ENTER, {"dataflow": dataflow.name, "procedure": procedure.name})


def last_batch(connection: sqlite3.Connection, dataflow: str) -> int:
    """Tell the last batch that a dataflow has done; 0 before the first."""
    (batch,) = connection.execute(LAST_BATCH, {"dataflow": dataflow}).fetchone()
    return int(batch)


def step(connection: sqlite3.Connection, procedure: Procedure, batch: int) -> None:
    """Move `procedure` from the batch before to `batch`, or refuse."""
    moved = connection.execute(
        STEP, {"dataflow": procedure.dataflow, "procedure": procedure.name, "batch": batch}
    )
    if moved.rowcount != 1:
        raise Superseded(
            f"procedure {procedure.dataflow}.{procedure.name} is not at batch {batch - 1}: "
            f"another engine has committed batch {batch}",
            hint="Only one engine can run a dataflow on this data folder; stop one of them. "
            "Nothing was changed by this one.",
        )


def claim(connection: sqlite3.Connection, dataflow: str, topic: str, topic_id: str) -> None:
    """Bind a topic's positions to the topic that they were read from, or refuse another one."""
    of = {"dataflow": dataflow, "topic": topic}
    connection.execute(CLAIM, {**of, "id": topic_id})
    (claimed,) = connection.execute(CLAIMED, of).fetchone()
    if claimed != topic_id:
        raise CoreError(
            f"the topic {topic} is not the one that was read before: it was deleted and made again",
            hint="Reading on from the old positions would skip what it holds. Start over with a "
            "new data folder and a new schema in the warehouse.",
        )


def positions(connection: sqlite3.Connection, dataflow: str, topic: str) -> dict[int, int]:
    """Tell the next offset of each partition of a topic; a partition not yet read has none."""
    return dict(connection.execute(POSITIONS, {"dataflow": dataflow, "topic": topic}))


def move_positions(
    connection: sqlite3.Connection, dataflow: str, topic: str, next_offsets: Mapping[int, int]
) -> None:
    """Record the positions that a batch has consumed."""
    for partition, next_offset in next_offsets.items():
        moved = connection.execute(
            MOVE,
            {
                "dataflow": dataflow,
                "topic": topic,
                "partition": partition,
                "next_offset": next_offset,
            },
        )
        assert moved.rowcount == 1, "positions only move forward"
