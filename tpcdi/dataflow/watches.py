"""Watches: which customer watches which security, from when until when.

What is cancelled is the oldest watch of that customer and security that is open.
"""

import json
from collections import Counter, defaultdict, deque

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_procs import Batch, Transaction
from tpcdi.dataflow.facts import (
    AFTER,
    READS,
    Numbers,
    at,
    customer_at,
    days,
    due,
    joined,
    security_at,
)
from tpcdi.dataflow.forms import ID, TIME, one_of
from tpcdi.dataflow.outlets import OUTLETS, table
from tpcdi.dataflow.phases import Held, Phase
from tpcdi.dataflow.sources import flow, watch_changes, watches

open_watches = flow.table(
    "open_watches",
    "watchid INTEGER PRIMARY KEY, w_c_id INTEGER NOT NULL, w_s_symb TEXT NOT NULL, "
    "sk_customerid INTEGER NOT NULL, sk_securityid INTEGER NOT NULL, placed INTEGER NOT NULL, "
    "UNIQUE (w_c_id, w_s_symb, watchid)",
)
watch_numbers = flow.table("watch_numbers", "only INTEGER PRIMARY KEY, last INTEGER NOT NULL")
held, parked = Held(watches), Held(watches, "parked_watches")

PLACED, CANCELLED = "ACTV", "CNCL"
DATED = "w_dts"
FORMS = {"w_c_id": ID, DATED: TIME, "w_action": one_of(PLACED, CANCELLED)}
OPEN = """\
WITH RECURSIVE oldest (customer, symbol, times, watchid) AS (
    SELECT value ->> 0, value ->> 1, (value ->> 2) + 1, 0 FROM json_each(?)
    UNION ALL
    SELECT customer, symbol, times - 1, (
        SELECT open_watches.watchid FROM open_watches
        WHERE w_c_id = customer AND w_s_symb = symbol AND open_watches.watchid > oldest.watchid
        ORDER BY open_watches.watchid LIMIT 1)
    FROM oldest WHERE times > 1 AND watchid IS NOT NULL)
SELECT open_watches.* FROM oldest JOIN open_watches USING (watchid) ORDER BY watchid"""
"""Of each customer and security the oldest, as many as are cancelled: no more is read, however
many are open.
"""


@flow.procedure(
    takes=[*AFTER, watches, watch_changes],
    reads=READS,
    looks=[customer_at, security_at],
    writes=[open_watches, watch_numbers, held.table, parked.table],
    gives=[OUTLETS["factwatches"]],
)
def watch(tx: Transaction, _listed: Batch, _enrolled: Batch, first: Batch, then: Batch) -> None:
    """Open and close watches."""
    phase, rows = due(tx, joined(tx, first, then, FORMS, DATED), held, parked, DATED)
    if phase is not None:
        Watches(tx, phase, rows).enter()


class Watches:
    """The watches that one batch opens and closes."""

    def __init__(self, tx: Transaction, phase: Phase, rows: pa.Table) -> None:
        self._tx = tx
        self._phase = phase
        self._rows = rows.combine_chunks()
        self._days = days(rows["w_dts"])
        symbols = self._rows["w_s_symb"].combine_chunks().dictionary_encode()
        # A customer and a security are one number.
        indices = symbols.indices.to_numpy()
        self._codes = rows["w_c_id"].to_numpy() * len(symbols.dictionary) + indices
        self._symbols = {symbol: i for i, symbol in enumerate(symbols.dictionary.to_pylist())}

    def enter(self) -> None:
        """Open what is placed, and close what is cancelled."""
        is_placed = pc.equal(self._rows["w_action"], PLACED).to_numpy()
        placed, cancelled = np.flatnonzero(is_placed), np.flatnonzero(~is_placed)
        then = at(self._phase, self._days[placed])
        rows = self._rows.take(placed)
        customers = self._tx.lookup(customer_at, rows["w_c_id"], at=then)["sk_customerid"]
        securities = self._tx.lookup(security_at, rows["w_s_symb"], at=then)["sk_securityid"]
        is_known = pc.and_(customers.is_valid(), securities.is_valid())
        new = pa.table(
            {
                "row": placed,
                "w_c_id": rows["w_c_id"],
                "w_s_symb": rows["w_s_symb"],
                "sk_customerid": customers,
                "sk_securityid": securities,
                "placed": self._days[placed],
            }
        ).filter(is_known)
        new = new.add_column(0, "watchid", pa.array(self._numbers(new.num_rows)))
        old = self._opened(cancelled)
        removed, unmatched = self._matched(new, old, cancelled)
        parked.put(
            self._tx,
            self._rows.take(np.sort([*placed[~is_known.to_numpy()], *unmatched]).astype(np.int64)),
            self._phase.batch,
        )
        self._write(new.drop_columns("row").cast(old.schema), old, removed)

    def _numbers(self, count: int) -> Numbers:
        """Take numbers for new watches."""
        (row,) = self._tx.query("SELECT coalesce(max(last), 0) AS last FROM watch_numbers")
        last = row["last"]
        self._tx.execute("INSERT OR REPLACE INTO watch_numbers VALUES (1, ?)", [last + count])
        return np.arange(last + 1, last + count + 1)

    def _opened(self, cancelled: Numbers) -> pa.Table:
        """Find the watches that may be meant by what is cancelled."""
        rows = self._rows.select(["w_c_id", "w_s_symb"]).take(cancelled).to_pylist()
        times = Counter((row["w_c_id"], row["w_s_symb"]) for row in rows)
        question = [(*pair, count) for pair, count in times.items()]
        found = self._tx.table(OPEN, [json.dumps(question)])
        return found.cast(open_watches.columns.arrow)

    def _matched(
        self, new: pa.Table, old: pa.Table, cancelled: Numbers
    ) -> tuple[dict[int, int], list[int]]:
        """Tell the day on which a watch is removed; and which rows cancel none."""
        waiting: defaultdict[int, deque[int]] = defaultdict(deque)
        for id_, customer, symbol in zip(
            *(old[name].to_pylist() for name in ("watchid", "w_c_id", "w_s_symb")), strict=True
        ):
            waiting[customer * len(self._symbols) + self._symbols[symbol]].append(id_)
        opens = dict(zip(new["row"].to_pylist(), new["watchid"].to_pylist(), strict=True))
        cancels = set(cancelled.tolist())
        removed: dict[int, int] = {}
        unmatched = []
        for row in np.flatnonzero(np.isin(self._codes, self._codes[cancelled])).tolist():
            queue = waiting[self._codes[row]]
            if row in opens:
                queue.append(opens[row])
            elif row in cancels:
                if queue:
                    removed[queue.popleft()] = int(self._days[row])
                else:
                    unmatched.append(row)
        return removed, unmatched

    def _write(self, new: pa.Table, old: pa.Table, removed: dict[int, int]) -> None:
        ids = new["watchid"].to_pylist()
        left = new.filter(pa.array([id_ not in removed for id_ in ids], pa.bool_()))
        self._tx.executemany(
            "INSERT INTO open_watches VALUES (?, ?, ?, ?, ?, ?)",
            zip(*(column.to_pylist() for column in left.columns), strict=True),
        )
        gone = old.filter(pc.is_in(old["watchid"], pa.array(removed, pa.int64())))
        self._tx.executemany(
            "DELETE FROM open_watches WHERE watchid = ?",
            zip(gone["watchid"].to_pylist(), strict=True),
        )
        shown = pa.concat_tables([new, gone])
        rows = table(
            "factwatches",
            watchid=shown["watchid"],
            sk_customerid=shown["sk_customerid"],
            sk_securityid=shown["sk_securityid"],
            sk_dateid_dateplaced=shown["placed"],
            sk_dateid_dateremoved=[removed.get(id_) for id_ in shown["watchid"].to_pylist()],
            batchid=self._phase.batch,
        )
        self._tx.emit(OUTLETS["factwatches"], rows)
