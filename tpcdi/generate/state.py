"""What the generator knows at the end of a batch, and needs to make the next one."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import feather

from tpcdi.generate import prospects
from tpcdi.generate.columns import Table, table_of
from tpcdi.generate.crm import Crm
from tpcdi.generate.listing import Listing
from tpcdi.generate.prospects import Prospects
from tpcdi.generate.sizes import BATCH_1
from tpcdi.generate.trades import no_lots

NUMBERS = ("seed", "scale", "batch", "trades", "changes", "moves")


@dataclass(slots=True)
class State:
    """Everything that later batches go on from."""

    seed: int
    scale: float
    crm: Crm
    brokers: list[int]
    prospects: Prospects
    listing: Listing
    moves: int
    """How often customers have changed."""
    batch: int = 1
    trades: int = 0
    changes: int = 0
    held: Table = field(default_factory=no_lots)
    later: dict[str, Table] = field(default_factory=dict)
    """Rows whose time is to come, by file."""

    @property
    def today(self) -> date:
        """Tell the day of the batch."""
        return BATCH_1 + timedelta(self.batch - 1)

    def due(self, file: str, column: str, fresh: Table, until: int) -> Table:
        """Take what is due before a moment of the new rows and of those that waited, in order."""
        waiting = [self.later[file], fresh] if file in self.later else [fresh]
        rows = pa.concat_tables(waiting)
        is_due = _before(rows[column], until)
        self.later[file] = rows.filter(pc.invert(is_due))
        return rows.filter(is_due).sort_by(column)

    def waiting(self, columns: Mapping[str, str], until: int) -> int:
        """Count what waits and is due before a moment; files have it in these columns."""
        return sum(
            pc.sum(_before(self.later[file][column], until)).as_py() or 0
            for file, column in columns.items()
            if file in self.later
        )

    def save(self, folder: Path) -> None:
        """Keep it in a folder."""
        folder.mkdir()
        for name, table in self._tables().items():
            feather.write_feather(table, folder / f"{name}.arrow", compression="uncompressed")
        numbers = {name: getattr(self, name) for name in NUMBERS}
        (folder / "state.json").write_text(json.dumps(numbers | {"asked": self.prospects.asked}))

    @classmethod
    def load(cls, folder: Path) -> "State":
        """Take it from a folder."""
        numbers = json.loads((folder / "state.json").read_text())
        tables = {each.stem: feather.read_table(each) for each in folder.glob("*.arrow")}
        crm = Crm(tables.pop("customers").to_pylist(), tables.pop("accounts").to_pylist())
        prospects = Prospects(tables.pop("prospects").to_pylist(), numbers.pop("asked"))
        return cls(
            crm=crm,
            prospects=prospects,
            brokers=tables.pop("brokers")["number"].to_pylist(),
            listing=Listing.of(tables.pop("listing")),
            held=tables.pop("held"),
            later=tables,
            **numbers,
        )

    def _tables(self) -> dict[str, Table]:
        return {
            "customers": table_of(self.crm.customers, list(self.crm.customers[0])),
            "accounts": table_of(self.crm.accounts, list(self.crm.accounts[0])),
            "prospects": table_of(self.prospects.records, prospects.COLUMNS),
            "brokers": pa.table({"number": self.brokers}),
            "listing": self.listing.table,
            "held": self.held,
            **self.later,
        }


def _before(times: pa.ChunkedArray, moment: int) -> pa.ChunkedArray:
    return pc.less(times, pa.scalar(moment, pa.timestamp("s")))
