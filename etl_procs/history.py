"""The history: when batches were committed, and where in the log their tuples are.

Each group that begins batches, or ends some, writes it down in its commit. What the last groups
have written lies beside the epoch, on a page that is written anyway: one page more in each commit
costs a group of one batch 6 %. When that becomes too much, it is made one row of the history. The
oldest rows go when a dataflow has too many of them: of what is forgotten, nothing is said.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from etl_procs.batch import Round

MB = 2**20
AGAIN = ""
"""Stands among the names of streams for dead letters that ran again."""
RECENT_BYTES_MAX = 900
"""With more than 1,000 bytes, a row would have a page of its own."""
ROW_BYTES = 24
"""What a row takes beside its data, about."""

BEGIN = """\
INSERT OR IGNORE INTO headrace_histories
SELECT :dataflow, count(*) << 40 FROM headrace_histories"""

# `total` counts the bytes of all rows that a dataflow ever had: so it is seen, without looking at
# all of them, how much there is.
OF_FLOW = """\
SELECT base, coalesce((
    SELECT total FROM headrace_history WHERE number BETWEEN base AND base + (1 << 40) - 1
    ORDER BY number DESC LIMIT 1), 0), coalesce(recent, '')
FROM headrace_histories LEFT JOIN headrace_epochs USING (dataflow) WHERE dataflow = :dataflow"""

INSERT = "INSERT INTO headrace_history VALUES (:number, :data, :total)"

SETTLED = "UPDATE headrace_epochs SET recent = '' WHERE dataflow = :dataflow"

TRIM = """\
DELETE FROM headrace_history WHERE number >= :base AND number < (
    SELECT number FROM headrace_history WHERE number >= :base AND total > :forgotten
    ORDER BY number LIMIT 1)"""

FIND = """\
SELECT data FROM headrace_histories
JOIN headrace_history ON number BETWEEN base + :number AND base + (1 << 40) - 1
WHERE dataflow = :dataflow ORDER BY number LIMIT 1"""

RECENT = "SELECT recent FROM headrace_epochs WHERE dataflow = :dataflow"


class Taken(NamedTuple):
    """Where in a border stream's topic the tuples of a batch are: places of one partition."""

    stream: str
    partition: int
    first: int
    """That of its first record."""
    next: int
    """That after its last. What lies in between and is no tuple of the batch was passed over:
    marks, repeats, and tuples that are other partitions' of the dataflow."""


class Origins(NamedTuple):
    """Where the tuples of a batch came from: in each border stream, in order of partitions."""

    taken: tuple[Taken, ...]
    again: int | None
    """The batch whose dead letters it ran again; such a one takes nothing from the log."""


class History(NamedTuple):
    """What is remembered of one dataflow."""

    dataflow: str
    base: int
    """What its rows are numbered from."""
    total: int
    """The bytes of all rows that it ever had."""
    recent: str
    """The groups that are in no row yet."""

    @classmethod
    def of(cls, connection: sqlite3.Connection, dataflow: str) -> "History":
        """Find that of a dataflow, which was begun."""
        found = connection.execute(OF_FLOW, {"dataflow": dataflow}).fetchone()
        return cls(dataflow, *found)

    def settled(
        self, connection: sqlite3.Connection, number: int, data: str, mb_max: int
    ) -> "History":
        """Make a row of groups, the last of which came to a number."""
        size = len(data) + ROW_BYTES
        total = self.total + size
        row = {"number": self.base + number, "data": data, "total": total}
        connection.execute(INSERT, row)
        if total % MB < size:  # once for each megabyte
            connection.execute(TRIM, {"base": self.base, "forgotten": total - mb_max * MB})
        return self._replace(total=total, recent="")


def write(
    connection: sqlite3.Connection,
    history: History,
    at: datetime,
    was: int,
    now: int,
    told: dict[str, list[int]],
    mb_max: int,
    *,
    has_epoch: bool,
) -> History:
    """Write down how far a group has come, as `number` tells it, and what it took, as `taken` does.
    If it closes an epoch, what is recent then is to be written with that.
    """
    if was == now:
        return history
    # JSON's own writer takes 3 us for a group of one batch, and zlib 50 us for one of 64.
    took = ",".join([f'"{name}":{numbers}' for name, numbers in told.items()])
    group = f"[{now},{now - was},{at.timestamp():.3f},{{{took}}}]".replace(" ", "")
    data = f"{history.recent},{group}" if history.recent else group
    if has_epoch and len(data) <= RECENT_BYTES_MAX:
        return history._replace(recent=data)
    if history.recent and not has_epoch:
        connection.execute(SETTLED, {"dataflow": history.dataflow})
    return history.settled(connection, now, data, mb_max)


def number(begun: int, done: int) -> int:
    """Make one number of the last batch that a dataflow has begun, and the last that all of it has
    done, which is the same or the one before: it rises with each group.
    """
    assert done in (begun, begun - 1), "one round after the other"
    return begun + done


def begin(connection: sqlite3.Connection, dataflow: str) -> None:
    """Begin the history of a dataflow, unless it has one."""
    connection.execute(BEGIN, {"dataflow": dataflow})


def keep(connection: sqlite3.Connection, before: History, mb_max: int) -> None:
    """Make a row of what was recent before, if the epoch that it was beside has gone."""
    if before.recent and History.of(connection, before.dataflow).recent != before.recent:
        before.settled(connection, _groups(before.recent)[-1][0], before.recent, mb_max)


def origins(connection: sqlite3.Connection, dataflow: str, batch: int) -> Origins | None:
    """Tell where the tuples of a batch came from; None if that is forgotten, or not known yet."""
    found = _find(connection, dataflow, number(batch, batch - 1))
    if found is None:
        return None
    _, told = found
    numbers = told.pop(AGAIN, [])
    again = dict(zip(numbers[::2], numbers[1::2], strict=True))
    taken = [place for name, of in told.items() for id_, place in _read(name, of) if id_ == batch]
    return Origins(tuple(sorted(taken)), again.get(batch))


def committed_at(connection: sqlite3.Connection, dataflow: str, batch: int) -> datetime | None:
    """Tell when the last procedure of a dataflow committed a batch; None if that is forgotten, or
    not so yet. The clock is looked at right before the commit.
    """
    found = _find(connection, dataflow, number(batch, batch))
    return None if found is None else datetime.fromtimestamp(found[0], UTC)


Group = tuple[int, int, float, dict[str, list[int]]]
"""The number to which it came, by how much, when, and the places that it took."""


def _find(
    connection: sqlite3.Connection, dataflow: str, wanted: int
) -> tuple[float, dict[str, list[int]]] | None:
    """Find the group with which a dataflow came to a number, or past it."""
    of = {"dataflow": dataflow, "number": wanted}
    row = connection.execute(FIND, of).fetchone() or connection.execute(RECENT, of).fetchone()
    for last, step, at, places in _groups(row[0] if row else ""):
        if last >= wanted:
            return (at, places) if wanted > last - step else None
    return None


def _groups(data: str) -> list[Group]:
    return json.loads(f"[{data}]")  # type: ignore[no-any-return]


def taken(rounds: Iterable[Round], again: Mapping[int, int]) -> dict[str, list[int]]:
    """Write what batches took of each stream: of each, and of each partition, how many batches it
    is after the one before it, the partition, how many places are between them and how many it
    has, and how often that comes again: where batches are alike, all of them are five numbers.
    And the batch whose dead letters a batch ran again, by that one.
    """
    told: dict[str, list[int]] = {}
    ends: dict[str, tuple[int, int, tuple[int, ...]]] = {}
    for round_ in rounds:
        for of in round_.inputs:
            if not of.firsts:
                continue
            batch, name = of.batch.id, of.batch.stream.name
            numbers = told.setdefault(name, [])
            before, after, alike = ends.get(name, (0, 0, ()))
            for partition, first in of.firsts.items():
                next_ = of.positions[partition]
                step = batch - before, partition, first - after, next_ - first
                if step == alike:
                    numbers[-1] += 1
                else:
                    numbers += *step, 1
                before, after, alike = batch, next_, step
            ends[name] = before, after, alike
    if again:
        told[AGAIN] = [number for pair in again.items() for number in pair]
    return told


def _read(stream: str, numbers: list[int]) -> Iterator[tuple[int, Taken]]:
    """Read what `taken` wrote: each batch, and what it took."""
    batch = next_ = 0
    for at in range(0, len(numbers), 5):
        step, partition, gap, places, times = numbers[at : at + 5]
        for _ in range(times):
            batch, first = batch + step, next_ + gap
            next_ = first + places
            yield batch, Taken(stream, partition, first, next_)
