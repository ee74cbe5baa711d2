"""A few staged rows, as they are written into a query; and the shelf, on which they stay.

Queries come one after another at one cut, as the charts of a page do: what is staged is read, and
written as PostgreSQL reads it, once for all of them.
"""

from collections import OrderedDict
from collections.abc import Hashable

import pyarrow as pa
import pyarrow.compute as pc

from api.cut import Part
from etl_procs.columns import Column, Type
from etl_procs.model import Outlet
from migrations import staged, tables

FEW_ROWS, FEW_BYTES = 10_000, 2 * 2**20
"""So much of a table at most is written into a query."""
SHELF_BYTES = 16 * 2**20
"""So much stays, with what had been written of it when the next was put there."""


def are_few(part: Part) -> bool:
    """Tell whether what is staged is to be written into the query."""
    return part.rows <= FEW_ROWS and part.size <= FEW_BYTES


class Few:
    """A few rows, and each of their columns as PostgreSQL reads an array."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self._arrays: dict[str, str] = {}
        self._added: Few | None = None

    @property
    def added(self) -> "Few":
        """Give those of them that are no deletions."""
        if self._added is None:
            deleted = self.rows[tables.DELETED]
            has_deleted = pc.any(deleted).as_py()
            self._added = Few(self.rows.filter(pc.invert(deleted))) if has_deleted else self
        return self._added

    @property
    def size(self) -> int:
        """Count the bytes of all of it."""
        own = int(self.rows.nbytes) + sum(map(len, self._arrays.values()))
        return own if self._added in (None, self) else own + self.added.size

    def array(self, column: Column) -> str:
        """Write a column."""
        if column.name not in self._arrays:
            self._arrays[column.name] = _array(column, self.rows[column.name])
        return self._arrays[column.name]


class Shelf:
    """Of each table, the few rows that were asked for last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Outlet, tuple[Hashable, Few]] = OrderedDict()

    def few(self, outlet: Outlet, part: Part) -> Few:
        """Give what is staged of a table, as it is carried: of each key the last operation."""
        of = _identity(outlet, part)
        kept, few = self._kept.get(outlet, (None, None))
        if few is not None and kept == of:
            self._kept.move_to_end(outlet)
            return few
        few = Few(staged.table(outlet, staged.carried_of(outlet, part.size, *part.staged)))
        if of is not None:
            self._kept[outlet] = of, few
            self._kept.move_to_end(outlet)
            while sum(few.size for _, few in self._kept.values()) > SHELF_BYTES:
                self._kept.popitem(last=False)
        return few


def _identity(outlet: Outlet, part: Part) -> Hashable:
    """Name what is staged, if it can be told from whatever else is ever called so: a core that was
    restored gives the numbers of batches again.
    """
    moments = [r.snapshot.committed_at(outlet.dataflow, r.through) for r in part.staged]
    ranges = [(r.snapshot.core_id, r.partition, r.after, r.through) for r in part.staged]
    return None if None in moments else (*ranges, *moments)


def _array(column: Column, values: pa.ChunkedArray) -> str:
    """Write a column as PostgreSQL reads an array."""
    texts = pc.cast(values, pa.string()).combine_chunks()
    if column.type is Type.TEXT:
        escaped = pc.replace_substring_regex(texts, r'(["\\\\])', r"\\\1")
        texts = pc.binary_join_element_wise('"', escaped, '"', "")
    listed = pa.ListArray.from_arrays([0, len(texts)], pc.fill_null(texts, "NULL"))
    return f"{{{pc.binary_join(listed, ',')[0].as_py()}}}"
