"""Reference: calendar, clock, and the small tables that others look into."""

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs import Batch, Transaction
from tpcdi.dataflow.forms import DAY, TRUTH, decimal, formed
from tpcdi.dataflow.outlets import OUTLETS
from tpcdi.dataflow.phases import marked
from tpcdi.dataflow.sources import (
    dates,
    flow,
    industries,
    statuses,
    tax_rates,
    times,
    trade_types,
)

calendar = flow.table("calendar", "day INTEGER PRIMARY KEY")
industry_names = flow.table("industry_names", "id TEXT PRIMARY KEY, name TEXT NOT NULL")
status_names = flow.table("status_names", "id TEXT PRIMARY KEY, name TEXT NOT NULL")
taxes = flow.table("taxes", "id TEXT PRIMARY KEY, name TEXT NOT NULL, rate TEXT NOT NULL")
type_names = flow.table(
    "type_names", "id TEXT PRIMARY KEY, name TEXT NOT NULL, is_market INTEGER NOT NULL"
)
referred = flow.stream("referred", "batch INTEGER NOT NULL, source TEXT NOT NULL")

TABLES = (calendar, industry_names, status_names, taxes, type_names)
SHOWN = ("dimdate", "dimtime", "industry", "statustype", "taxrate", "tradetype")
COMPLETE = ("Date", "Time", "StatusType", "TaxRate", "TradeType", "Industry")


@flow.procedure(
    takes=[marked, dates, times, industries, statuses, tax_rates, trade_types],
    writes=TABLES,
    gives=[referred, *(OUTLETS[name] for name in SHOWN)],
)
def refer(
    tx: Transaction,
    said: Batch,
    days: Batch,
    seconds: Batch,
    branches: Batch,
    states: Batch,
    rates: Batch,
    kinds: Batch,
) -> None:
    """Pass reference data on, and keep what others look into."""
    known = formed(tx, days, {"datevalue": DAY, "holidayflag": TRUTH})
    _emit(tx, "dimdate", known, datevalue=pa.date32(), holidayflag=pa.bool_())
    flags = dict.fromkeys(("markethoursflag", "officehoursflag"), pa.bool_())
    _emit(tx, "dimtime", formed(tx, seconds, dict.fromkeys(flags, TRUTH)), **flags)
    _emit(tx, "industry", branches.table)
    _emit(tx, "statustype", states.table)
    brackets = formed(tx, rates, {"tx_rate": decimal(6, 5)})
    _emit(tx, "taxrate", brackets, tx_rate=pa.decimal128(6, 5))
    _emit(tx, "tradetype", kinds.table, tt_is_sell=pa.bool_(), tt_is_mrkt=pa.bool_())
    keep = "INSERT OR REPLACE INTO {} VALUES ({})"
    tx.executemany(keep.format("calendar", "?"), zip(known["sk_dateid"].to_pylist(), strict=True))
    tx.executemany(keep.format("industry_names", "?, ?"), [row[:2] for row in branches.tuples])
    tx.executemany(keep.format("status_names", "?, ?"), states.tuples)
    tx.executemany(
        keep.format("taxes", "?, ?, ?"),
        zip(*(column.to_pylist() for column in brackets.columns), strict=True),
    )
    tx.executemany(
        keep.format("type_names", "?, ?, ?"), [(row[0], row[1], row[3]) for row in kinds.tuples]
    )
    tx.emit(referred, said.table)


def _emit(tx: Transaction, name: str, rows: pa.Table, **types: pa.DataType) -> None:
    if not len(rows):
        return
    for column, type_ in types.items():
        at = rows.column_names.index(column)
        rows = rows.set_column(at, column, pc.cast(rows[column], type_))
    tx.emit(OUTLETS[name], rows)
