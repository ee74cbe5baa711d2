"""The ledger: which batch each procedure has committed, and which positions that consumed.

Order and exactly-once rest on `step`: it moves procedures from the batches where this engine
found them to those that its transaction has done, or fails. Whoever comes second changes nothing.
"""

import sqlite3
from collections.abc import Collection, Iterable, Mapping

from etl_procs.batch import index_of, offset_of, place_of
from etl_procs.errors import CoreError, DefinitionChanged, Superseded
from etl_procs.graph import Unit

HOLD = "UPDATE headrace_core SET fence = fence + 1, holder = :holder RETURNING fence"

HOLDER = "SELECT fence, holder, published FROM headrace_core"

DIVIDE = "INSERT OR IGNORE INTO headrace_dataflows VALUES (?, ?)"

DIVIDED = "SELECT partitions FROM headrace_dataflows WHERE name = :dataflow"

KEY = "INSERT OR IGNORE INTO headrace_keys VALUES (:dataflow, :stream, :key)"

KEYED = "SELECT key FROM headrace_keys WHERE dataflow = :dataflow AND stream = :stream"

ENTER = "INSERT INTO headrace_ledger VALUES (?, ?, ?)"

RENAME = "UPDATE headrace_ledger SET procedure = ? WHERE dataflow = ? AND procedure = ?"

RENAME_TAKER = "UPDATE headrace_takes SET procedure = ? WHERE dataflow = ? AND procedure = ?"

LEAVE = "DELETE FROM headrace_ledger WHERE dataflow = :dataflow AND procedure = :procedure"

DONE = "SELECT procedure, batch FROM headrace_ledger WHERE dataflow = :dataflow"

STEP = """\
UPDATE headrace_ledger SET batch = ? WHERE dataflow = ? AND procedure = ? AND batch = ?"""

STEP_TOGETHER = """\
UPDATE headrace_ledger SET batch = :batch WHERE dataflow = :dataflow AND batch = :was"""

TAKE_NOTHING = "DELETE FROM headrace_takes WHERE dataflow = :dataflow"

TAKE = "INSERT OR IGNORE INTO headrace_takes VALUES (?, ?, ?, ?, ?)"

NESTS = """\
SELECT group_concat(DISTINCT procedure) FROM headrace_takes WHERE dataflow = :dataflow
GROUP BY unit HAVING count(DISTINCT procedure) > 1"""

TAKERS = """\
SELECT procedure, columns FROM headrace_takes
WHERE dataflow = :dataflow AND stream = :stream ORDER BY procedure"""

# A batch of a dataflow is done when the last of its procedures has done it.
LAST_BATCHES = """\
SELECT dataflow, min(batch) FROM headrace_ledger GROUP BY dataflow ORDER BY dataflow"""

EPOCH = "SELECT rule, epoch FROM headrace_epochs WHERE dataflow = :dataflow"

CLOSE_EPOCH = """\
INSERT INTO headrace_epochs VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET rule = excluded.rule, epoch = excluded.epoch, recent = excluded.recent"""

DROP_EPOCH = "DELETE FROM headrace_epochs WHERE dataflow = :dataflow"

CLAIM = "INSERT OR IGNORE INTO headrace_topics VALUES (:dataflow, :stream, :id)"

CLAIMED = "SELECT id FROM headrace_topics WHERE dataflow = :dataflow AND stream = :stream"

POSITIONS = """\
SELECT partition, next_offset, next_index FROM headrace_positions
WHERE dataflow = :dataflow AND stream = :stream"""

FINISHED = """\
SELECT partition FROM headrace_positions
WHERE dataflow = :dataflow AND stream = :stream AND finished"""

MOVE = """\
INSERT INTO headrace_positions VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
next_offset = excluded.next_offset, next_index = excluded.next_index, finished = excluded.finished
WHERE (excluded.next_offset, excluded.next_index) > (next_offset, next_index)"""


def hold(connection: sqlite3.Connection, holder: str) -> int:
    """Take the next number of the fence: whoever held the core before is shut out."""
    (fence,) = connection.execute(HOLD, {"holder": holder}).fetchone()
    return int(fence)


def check_held(connection: sqlite3.Connection, fence: int) -> int:
    """Refuse to go on if somebody has taken the core over; tell how often it has changed what is
    published.
    """
    now, holder, published = connection.execute(HOLDER).fetchone()
    if now != fence:
        raise Superseded(
            f"this core is held by {holder}, which opened it later",
            hint="Only one engine can run on a data folder; stop one of them. Nothing was changed "
            "by this one.",
        )
    return int(published)


def divide(connection: sqlite3.Connection, dataflow: str, partitions: int) -> None:
    """Fix the number of partitions of a dataflow, or refuse another one."""
    # A core that was made before there were several says nothing, and has the state of all keys.
    first = 1 if done(connection, dataflow) else partitions
    connection.execute(DIVIDE, [dataflow, first])
    (was,) = connection.execute(DIVIDED, {"dataflow": dataflow}).fetchone()
    if was != partitions:
        raise DefinitionChanged(
            f"dataflow {dataflow} has {partitions} partitions now, and its state is divided "
            f"among {was}: its keys would be looked for where they are not",
            hint=f"Declare partitions={was}; or start over with a new data folder and a new "
            "schema in the warehouse.",
        )


def key(connection: sqlite3.Connection, dataflow: str, keys: Mapping[str, str]) -> None:
    """Fix the keys by which a dataflow's streams are divided, or refuse others."""
    for stream, key in keys.items():
        of = {"dataflow": dataflow, "stream": stream}
        connection.execute(KEY, {**of, "key": key})
        (was,) = connection.execute(KEYED, of).fetchone()
        if was != key:
            raise DefinitionChanged(
                f"stream {dataflow}.{stream} is divided by {key} now, and was by {was}: tuples "
                "that one partition has still to take would be others', and be lost or taken twice",
                hint=f"Declare key={was!r}; or start over with a new data folder and a new schema "
                "in the warehouse.",
            )


def done(connection: sqlite3.Connection, dataflow: str) -> dict[str, int]:
    """Tell the last batch of each procedure."""
    return dict(connection.execute(DONE, {"dataflow": dataflow}))


def last_batch(connection: sqlite3.Connection, dataflow: str) -> int:
    """Tell the last batch that all of a dataflow has done; 0 before the first."""
    return last_batches(connection).get(dataflow, 0)


def last_batches(connection: sqlite3.Connection) -> dict[str, int]:
    """Tell, for each dataflow, the last batch that all of it has done."""
    return dict(connection.execute(LAST_BATCHES))


def enter(connection: sqlite3.Connection, dataflow: str, procedure: str, batch: int) -> None:
    """Give a procedure its place in the ledger: it has done everything through `batch`."""
    connection.execute(ENTER, [dataflow, procedure, batch])


def leave(connection: sqlite3.Connection, dataflow: str, procedure: str) -> None:
    """Take a procedure's place away."""
    connection.execute(LEAVE, {"dataflow": dataflow, "procedure": procedure})


def rename(connection: sqlite3.Connection, dataflow: str, was: str, now: str) -> None:
    """Give a procedure's place to the same one under its new name."""
    for statement in (RENAME, RENAME_TAKER):
        connection.execute(statement, [now, dataflow, was])


def take(connection: sqlite3.Connection, dataflow: str, units: Iterable[Unit]) -> None:
    """Note what each procedure of a dataflow takes, for those who do not load it."""
    connection.execute(TAKE_NOTHING, {"dataflow": dataflow})
    for unit in units:
        for procedure in unit.procedures:
            for stream in procedure.takes:
                taken = [dataflow, procedure.name, stream.name, stream.columns.sql, unit.name]
                connection.execute(TAKE, taken)


def nests(connection: sqlite3.Connection, dataflow: str) -> set[str]:
    """Name the procedures of each nested group, as of the last `take`."""
    found = connection.execute(NESTS, {"dataflow": dataflow})
    return {", ".join(sorted(names.split(","))) for (names,) in found}


def takers(connection: sqlite3.Connection, dataflow: str, stream: str) -> dict[str, str]:
    """Name the procedures that take a stream, each with the columns that it has for them."""
    return dict(connection.execute(TAKERS, {"dataflow": dataflow, "stream": stream}))


def step(
    connection: sqlite3.Connection, dataflow: str, was: Mapping[str, int], now: Mapping[str, int]
) -> None:
    """Move each procedure from the batch where it was to where it is now, or refuse."""
    befores, afters = {*was.values()}, {*now.values()}
    if len(befores) == len(afters) == 1 and befores != afters:  # as most do: one statement for all
        (before,), (after,) = befores, afters
        all_ = {"dataflow": dataflow, "batch": after, "was": before}
        if connection.execute(STEP_TOGETHER, all_).rowcount != len(now):
            there = done(connection, dataflow)
            others = [procedure for procedure in now if there.get(procedure) != after]
            raise _superseded(dataflow, [*others, *now][0], before)
        return
    for procedure, batch in now.items():
        if batch == was[procedure]:
            continue
        moved = connection.execute(STEP, [batch, dataflow, procedure, was[procedure]])
        if moved.rowcount != 1:
            raise _superseded(dataflow, procedure, was[procedure])


def _superseded(dataflow: str, procedure: str, was: int) -> Superseded:
    return Superseded(
        f"procedure {dataflow}.{procedure} is not at batch {was}: another engine has moved it",
        hint="Only one engine can run a dataflow on this data folder; stop one of them. Nothing "
        "was changed by this one.",
    )


def epoch(connection: sqlite3.Connection, dataflow: str) -> int | None:
    """Tell the last interval or punctuation that was closed; None before the first."""
    found = connection.execute(EPOCH, {"dataflow": dataflow}).fetchone()
    return found and int(found[1])


def close_epoch(
    connection: sqlite3.Connection, dataflow: str, rule: str, epoch: int, recent: str = ""
) -> None:
    """Record the last interval or punctuation that was closed, the rule that counts them, and what
    of the history is recent.
    """
    connection.execute(CLOSE_EPOCH, [dataflow, rule, epoch, recent])


def keep_epoch(connection: sqlite3.Connection, dataflow: str, rule: str) -> list[str]:
    """Bring the last epoch over to the rule that counts now; say what changes."""
    found = connection.execute(EPOCH, {"dataflow": dataflow}).fetchone()
    if found is None or found[0] == rule:
        return []
    was, epoch = found
    kind, _, length = rule.partition(" ")
    old_kind, _, old_length = was.partition(" ")
    if kind == old_kind == "interval":
        # Only what is closed to its end: an interval that is closed in part takes the rest.
        through = (epoch + 1) * int(old_length) // int(length) - 1
        close_epoch(connection, dataflow, rule, through)
        return [f"dataflow {dataflow} is cut by intervals of {length}, and no more of {old_length}"]
    connection.execute(DROP_EPOCH, {"dataflow": dataflow})
    return [f"dataflow {dataflow} is cut by {kind}, and no more by {old_kind}: it counts anew"]


def claim(
    connection: sqlite3.Connection,
    dataflow: str,
    stream: str,
    topic_id: str,
    begins: Mapping[int, int],
) -> None:
    """Bind a stream's positions to the topic that they were read from, or refuse another one.

    A topic that is new here is read from where it `begins`: what is deleted from then on before it
    was read is missed. Without a position, that is the offset 0.
    """
    of = {"dataflow": dataflow, "stream": stream}
    if connection.execute(CLAIM, {**of, "id": topic_id}).rowcount:
        places = {partition: place_of(offset, 0) for partition, offset in begins.items() if offset}
        move_positions(connection, dataflow, {stream: places})
    (claimed,) = connection.execute(CLAIMED, of).fetchone()
    if claimed != topic_id:
        raise CoreError(
            f"the topic {dataflow}.{stream} is not the one that was read before: it was deleted "
            "and made again",
            hint="Reading on from the old positions would skip what it holds. Start over with a "
            "new data folder and a new schema in the warehouse.",
        )


def topic(connection: sqlite3.Connection, dataflow: str, stream: str) -> str | None:
    """Tell the id of the topic to which a stream's positions are bound."""
    found = connection.execute(CLAIMED, {"dataflow": dataflow, "stream": stream}).fetchone()
    return found and str(found[0])


def positions(connection: sqlite3.Connection, dataflow: str, stream: str) -> dict[int, int]:
    """Tell the next place in each partition of a topic; a partition not yet read has none."""
    found = connection.execute(POSITIONS, {"dataflow": dataflow, "stream": stream})
    return {partition: place_of(offset, index) for partition, offset, index in found}


def finished(connection: sqlite3.Connection, dataflow: str, stream: str) -> set[int]:
    """Name the partitions that nobody waits for: before the position is the mark that says so."""
    found = connection.execute(FINISHED, {"dataflow": dataflow, "stream": stream})
    return {partition for (partition,) in found}


def move_positions(
    connection: sqlite3.Connection,
    dataflow: str,
    moved: Mapping[str, Mapping[int, int]],
    finished: Mapping[str, Collection[int]] | None = None,
) -> None:
    """Record, by stream, the positions up to which a log is consumed, and what is finished there;
    a batch ends before the mark of that.
    """
    for stream, next_places in moved.items():
        ended = (finished or {}).get(stream, ())
        for partition, place in next_places.items():
            at = offset_of(place), index_of(place), partition in ended
            done = connection.execute(MOVE, (dataflow, stream, partition, *at))
            assert done.rowcount == 1, "positions only move forward"
