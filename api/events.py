"""Events: the batches of a stream or a table, told one after the other as text.

All that is kept of a subscription is how far it has come: each turn reads on in the core from
there, for as long as it takes to write a piece of text. So however slow a reader and however large
a batch is, no more than a piece is in memory, and no core's log is held back meanwhile.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from api import problem
from api.errors import Forgotten, NotYet, Unpublished
from api.values import to_json
from etl_procs.model import Outlet, Stream
from etl_procs.reader import Reader, Snapshot
from etl_procs.staging import BATCH, DELETED
from etl_procs.store import translated
from headrace.errors import HeadraceError

PIECE_CHARACTERS = 2**20
ROWS_AT_ONCE = 1_000


class Form(NamedTuple):
    """How events are written, and what is written while there are none."""

    media_type: str
    beat: bytes

    def head(self, position: str, kind: str = "") -> str:
        """Write what stands before the document of an event."""
        if self is LINES:
            return ""
        return (f"event: {kind}\n" if kind else "") + f"id: {position}\ndata: "

    @property
    def tail(self) -> str:
        """Write what stands behind it."""
        return "\n" if self is LINES else "\n\n"

    def begun(self, position: str) -> bytes:
        """Tell where a subscription begins that has not said it."""
        return f'{self.head(position, "position")}{{"position":"{position}"}}{self.tail}'.encode()

    def ended(self, error: HeadraceError) -> bytes:
        """Tell why it ends before it was meant to."""
        document = bytes(problem.refusal(error).body)
        if self is LINES:
            return b'{"error":' + document + b"}\n"
        return b"event: error\ndata: " + document + b"\n\n"


LINES = Form("application/x-ndjson", b"\n")
EVENTS = Form("text/event-stream", b":\n\n")


@dataclass(slots=True)
class Place:
    """How far a subscription has come in one partition."""

    batch: int
    """The last batch that is told whole."""
    number: int = 0
    """The blob to read on in."""
    row: int = 0
    """How many of its rows were read, before anything of the next batch."""
    is_amid: bool = False
    """Whether the event of the next batch has begun."""
    has_rows: bool = False
    """Whether it has rows already."""


class Subscription:
    """One reader of the batches of a stream or table, on the cores of its partitions."""

    def __init__(
        self, what: Stream | Outlet, cores: Sequence[Path], form: Form, limit: int | None
    ) -> None:
        self._what = what
        self._cores = cores
        self.form = form
        self._left = inf if limit is None else limit
        self._places: list[Place] = []
        self._turn = 0
        """The partition that is read first."""
        self._text: list[str] = []
        self._size = 0

    @property
    def dataflow(self) -> str:
        """The dataflow that it reads of."""
        return self._what.dataflow

    @property
    def partitions(self) -> int:
        """How many partitions it reads."""
        return len(self._cores)

    @property
    def followed(self) -> Sequence[Path]:
        """The cores of which it reads what is staged."""
        return self._cores if isinstance(self._what, Outlet) else ()

    def begin(self, after: Sequence[int] | None, last: Sequence[int]) -> None:
        """Begin behind these batches, or behind the `last` that are there; refuse what cannot be
        had.
        """
        kept = []
        for core in self._cores:
            with Reader(core).snapshot() as snapshot, translated():
                kept.append(self._kept_after(snapshot))
        # A stream that was published amid a round is kept behind a batch that is not yet done.
        ends = [max(batches) for batches in zip(kept, last, strict=True)]
        self._places = [Place(batch) for batch in after or ends]
        if any(place.batch > end for place, end in zip(self._places, ends, strict=True)):
            raise NotYet(
                f"{self._what.full_name} is at {_text(ends)}, and not yet at {self.position}",
                hint="That position is of another data folder. Subscribe without one, from now on.",
            )
        if any(place.batch < batch for place, batch in zip(self._places, kept, strict=True)):
            raise self._forgotten(kept)

    @property
    def position(self) -> str:
        """The last batch of each partition that is told whole."""
        return _text([place.batch for place in self._places])

    @property
    def is_done(self) -> bool:
        """Whether as many batches are told as were asked for."""
        return self._left <= 0

    @property
    def is_amid(self) -> bool:
        """Whether an event has begun, and not ended."""
        return any(place.is_amid for place in self._places)

    def is_behind(self, last: Sequence[int]) -> bool:
        """Whether there are batches to tell, up to the `last` of each partition."""
        return any(p.batch < batch for p, batch in zip(self._places, last, strict=True))

    def turn(self, last: Sequence[int]) -> bytes:
        """Write the next piece of what is there, up to the `last` batch of each partition."""
        while self._places[self._turn].batch >= last[self._turn]:
            self._turn = (self._turn + 1) % len(self._places)
        self._text, self._size = [], 0
        place = self._places[self._turn]
        with Reader(self._cores[self._turn]).snapshot() as snapshot, translated():
            kept = self._kept_after(snapshot)
            if place.batch < kept:
                raise self._forgotten([kept if p is place else p.batch for p in self._places])
            self._tell(snapshot, place, last[self._turn])
        if not place.is_amid:
            self._turn = (self._turn + 1) % len(self._places)
        return "".join(self._text).encode()

    def _kept_after(self, snapshot: Snapshot) -> int:
        kept = snapshot.kept_after(self._what)
        if kept is None:
            of = f"{self._what.dataflow}/{self._what.name}"
            raise Unpublished(
                f"the stream {self._what.full_name} is not published: nothing of it is kept",
                hint=f"PUT /v1/streams/{of}/published, or `headrace subscribe "
                f"{self._what.full_name} --publish`: it is kept from then on.",
            )
        return kept

    def _forgotten(self, kept: Sequence[int]) -> Forgotten:
        ends = [max(p.batch, batch) for p, batch in zip(self._places, kept, strict=True)]
        limits = "core.published_keep_s and core.published_mb_max"
        if isinstance(self._what, Outlet):
            limits = "core.keep_s, and a minute while one follows, once all warehouses have them"
        return Forgotten(
            f"not all batches of {self._what.full_name} behind {self.position} are kept: the "
            f"oldest are those behind {_text(kept)}",
            hint=f"Go on with ?after={_text(ends)}, and without what lies between. How long "
            f"batches are kept say {limits}.",
            oldest=_text(ends),
        )

    @property
    def _is_full(self) -> bool:
        return self._size >= PIECE_CHARACTERS or self.is_done

    def _tell(self, snapshot: Snapshot, place: Place, through: int) -> None:
        """Tell what is kept, in order; and of batches of which nothing is kept, that."""
        for number, table in snapshot.kept(self._what, after=place.batch, number=place.number):
            batches = table[BATCH].to_numpy()
            begin = int(batches.searchsorted(place.batch, "right"))
            if number == place.number:
                begin = max(begin, place.row)
            end = int(batches.searchsorted(through, "right"))
            for first in range(begin, end, ROWS_AT_ONCE):
                rows, read = table.slice(first, min(ROWS_AT_ONCE, end - first)), first
                for batch, documents in _by_batch(self._what, rows):
                    if not self._reach(place, batch):
                        return
                    self._write_rows(place, documents)
                    read += len(documents)
                    place.number, place.row = number, read
                if self._is_full:
                    return
        if place.is_amid:
            self._end(place)
        self._reach(place, through + 1, begins=False)

    def _reach(self, place: Place, batch: int, *, begins: bool = True) -> bool:
        """End all batches before this one, and begin its event; tell if there was room for it."""
        if place.is_amid and place.batch + 1 < batch:
            self._end(place)
        while place.batch + 1 < batch and not self._is_full:
            self._begin(place)
            self._end(place)
        if self._is_full:
            return False
        if begins and not place.is_amid:
            self._begin(place)
        return True

    def _begin(self, place: Place) -> None:
        batch = place.batch + 1
        ends = [batch if p is place else p.batch for p in self._places]
        position = _text(ends)
        self._write(
            f'{self.form.head(position)}{{"batch":{batch},"partition":{self._turn},'
            f'"position":"{position}","rows":['
        )
        place.is_amid, place.has_rows = True, False

    def _write_rows(self, place: Place, rows: list[dict[str, Any]]) -> None:
        text = json.dumps(rows, allow_nan=False, separators=(",", ":"))[1:-1]
        self._write(f",{text}" if place.has_rows else text)
        place.has_rows = True

    def _end(self, place: Place) -> None:
        self._write(f"]}}{self.form.tail}")
        place.batch += 1
        place.is_amid = False
        self._left -= 1

    def _write(self, text: str) -> None:
        self._text.append(text)
        self._size += len(text)


def _by_batch(what: Stream | Outlet, rows: pa.Table) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Give rows as JSON has them, batch by batch; of a key that is deleted, only that."""
    names = [name for name in rows.column_names if name != BATCH]
    columns = [[to_json(value) for value in rows[name].to_pylist()] for name in names]
    documents = (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
    if isinstance(what, Outlet) and what.key:
        documents = (_changed(what.key, document) for document in documents)
    of_batches = zip(rows[BATCH].to_pylist(), documents, strict=True)
    for batch, some in groupby(of_batches, itemgetter(0)):
        yield batch, [document for _, document in some]


def _changed(key: Sequence[str], row: Mapping[str, Any]) -> dict[str, Any]:
    if not row[DELETED]:
        return dict(row)
    return {DELETED: True, **{name: row[name] for name in key}}


def _text(batches: Sequence[int]) -> str:
    return ",".join(map(str, batches))
