"""Versions: the history of a dimension, of which a day has at most one version for each key.

The core's table has the warehouse's rows. A key that changes ends its last version on that day and
begins another; if it has changed on that day before, or later, that version changes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from etl_procs import Outlet, Table, Transaction
from etl_procs.rules import Value
from tpcdi.dataflow.outlets import OUTLETS, day, shown, stored
from tpcdi.dataflow.phases import Phase
from tpcdi.dataflow.sources import flow
from tpcdi.schema import OPEN_END

END = day(OPEN_END)

Image = dict[str, Any]


class Versions:
    """The versions of one dimension."""

    def __init__(self, outlet: str, key: str, *, more: str = "", unique: str = "") -> None:
        self.outlet: Outlet = OUTLETS[outlet]
        self.key = key
        (self.sk,) = self.outlet.key
        constraints = (f"PRIMARY KEY ({self.sk})", f"UNIQUE ({key}, effectivedate)", unique)
        declared = (stored(outlet), more, *constraints)
        self.table: Table = flow.table(outlet, ", ".join(part for part in declared if part))
        names = self.table.columns.names
        self._put = (
            f"INSERT OR REPLACE INTO {outlet} VALUES ({', '.join(':' + name for name in names)})"
        )
        self._latest = f"SELECT * FROM {outlet} WHERE {key} = ? ORDER BY effectivedate DESC LIMIT 1"
        self._last = f"SELECT coalesce(max({self.sk}), 0) AS last FROM {outlet}"

    def latest(self, tx: Transaction, key: Value) -> Image | None:
        """Give the latest version of a key."""
        found = tx.query(self._latest, [key])
        return found[0] if found else None

    def write(
        self,
        tx: Transaction,
        images: Iterable[Mapping[str, Any]],
        phase: Phase,
        on: int,
        ending: Mapping[str, Any] | None = None,
    ) -> dict[Any, int]:
        """Make each image the version of its key from a day `on`; tell their surrogate keys.

        `ending` is what an older version loses.
        """
        (row,) = tx.query(self._last)
        last, rows, keys = row["last"], [], {}
        for image in images:
            key = image[self.key]
            before = self.latest(tx, key)
            begins = on
            if before is not None and before["effectivedate"] >= on:
                number, begins = before[self.sk], before["effectivedate"]
            else:
                last = number = last + 1
                if before is not None:
                    before |= {"iscurrent": 0, "enddate": on, **(ending or {})}
                    tx.execute(self._put, before)
                    rows.append(shown(self.outlet.name, before))
            now = {
                **image,
                self.sk: number,
                "iscurrent": 1,
                "batchid": phase.batch,
                "effectivedate": begins,
                "enddate": END,
            }
            tx.execute(self._put, now)
            rows.append(shown(self.outlet.name, now))
            keys[key] = number
        tx.emit(self.outlet, rows)
        return keys
