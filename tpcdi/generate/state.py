"""What the generator knows at the end of a batch, and needs to make the next one."""

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tpcdi.generate.columns import Table
from tpcdi.generate.crm import Crm
from tpcdi.generate.listing import Listing
from tpcdi.generate.prospects import Prospects
from tpcdi.generate.records import Record
from tpcdi.generate.scratch import Column, Scratch
from tpcdi.generate.sizes import BATCH_1
from tpcdi.generate.trades import no_lots
from tpcdi.generate.waiting import DUE, Waiting, before

NUMBERS = ("seed", "scale", "batch", "trades", "changes", "moves")


@dataclass(slots=True)
class State:
    """Everything that later batches go on from."""

    scratch: Scratch
    seed: int
    scale: float
    crm: Crm
    brokers: Column
    prospects: Prospects
    listing: Listing
    later: Waiting
    """Rows whose time is to come."""
    moves: int
    """How often customers have changed."""
    batch: int = 1
    trades: int = 0
    changes: int = 0
    held: Table = field(default_factory=no_lots)

    @property
    def today(self) -> date:
        """Tell the day of the batch."""
        return BATCH_1 + timedelta(self.batch - 1)

    def due(self, file: str, fresh: Table, until: int) -> Table:
        """Take what is due before a moment of the new rows and of those that waited, in order."""
        is_due = before(fresh[DUE[file]], until)
        rows = pa.concat_tables([*self.later.take(file, until), fresh.filter(is_due)])
        self.later.put(file, fresh.filter(pc.invert(is_due)))
        return rows.sort_by(DUE[file])

    def save(self, folder: Path) -> None:
        """Keep it in a folder."""
        folder.mkdir()
        for name, pieces in self._tables().items():
            _write(folder / f"{name}.arrow", pieces)
        numbers = {name: getattr(self, name) for name in NUMBERS}
        (folder / "state.json").write_text(json.dumps(numbers | {"asked": self.prospects.asked}))

    @classmethod
    def load(cls, folder: Path, beside: Path | None = None) -> "State":
        """Take it from a folder; what is too much to hold lies beside it, in another one."""
        numbers = json.loads((folder / "state.json").read_text())
        scratch = Scratch(beside)
        crm, brokers, later = Crm(scratch), Column(scratch), Waiting(scratch)
        prospects = Prospects(scratch, numbers.pop("asked"))
        for each in _records(folder / "customers.arrow"):
            crm.enter_customer(each)
        for each in _records(folder / "accounts.arrow"):
            crm.enter_account(each)
        for each in _records(folder / "prospects.arrow"):
            prospects.enter(each)
        for piece in _pieces(folder / "brokers.arrow"):
            brokers.extend(piece["number"].to_numpy())
        for file in DUE:
            for piece in _pieces(folder / f"{file}.arrow"):
                later.put(file, piece)
        return cls(
            scratch=scratch,
            crm=crm,
            brokers=brokers,
            prospects=prospects,
            listing=Listing.of(pa.concat_tables(_pieces(folder / "listing.arrow"))),
            later=later,
            held=pa.concat_tables(_pieces(folder / "held.arrow")),
            **numbers,
        )

    def _tables(self) -> dict[str, Iterable[Table]]:
        return {
            "customers": self.crm.customers.tables(),
            "accounts": self.crm.accounts.tables(),
            "prospects": self.prospects.tables(),
            "brokers": [pa.table({"number": self.brokers.values})],
            "listing": [self.listing.table],
            "held": [self.held],
            **{file: self.later.pieces(file) for file in DUE},
        }


def _write(path: Path, pieces: Iterable[Table]) -> None:
    """Write a table; if it has no piece, nobody will miss it."""
    each = iter(pieces)
    first = next(each, None)
    if first is not None:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as out:
            for piece in itertools.chain([first], each):
                out.write_table(piece)


def _pieces(path: Path) -> Iterator[Table]:
    if path.exists():
        with pa.OSFile(str(path)) as file:
            batches = pa.ipc.open_file(file)
            for number in range(batches.num_record_batches):
                yield pa.Table.from_batches([batches.get_batch(number)])


def _records(path: Path) -> Iterator[Record]:
    for piece in _pieces(path):
        yield from piece.to_pylist()
