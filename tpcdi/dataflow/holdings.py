"""Holdings: what a customer holds after a trade, at the price and time of that trade."""

import json

import numpy as np
import pyarrow as pa

from etl_procs import Batch, Transaction
from tpcdi.dataflow.facts import READS, READY, joined
from tpcdi.dataflow.outlets import OUTLETS, table
from tpcdi.dataflow.phases import Held, current, has
from tpcdi.dataflow.sources import HOLDING, flow, holding_changes, holdings
from tpcdi.dataflow.trades import closed, closed_trades

waiting = flow.table(
    "waiting_holdings",
    f"number INTEGER PRIMARY KEY, {HOLDING}, UNIQUE (hh_t_id, number)",
    parks=True,
)
"""What is held after trades that are not over."""
held = Held(holdings)

COLUMNS = holdings.columns
OF_CLOSED = f"""\
SELECT {", ".join(COLUMNS.names)} FROM json_each(?) AS asked
JOIN waiting_holdings ON hh_t_id = asked.value ORDER BY number"""
TRADES = """\
SELECT closed_trades.* FROM json_each(?) AS asked JOIN closed_trades ON tradeid = asked.value
WHERE tradeprice IS NOT NULL ORDER BY tradeid"""
WAIT = f"""\
INSERT INTO waiting_holdings ({", ".join(COLUMNS.names)})
VALUES ({", ".join("?" for _ in COLUMNS.names)})"""


@flow.procedure(
    takes=[closed, holdings, holding_changes],
    reads=[*READS, closed_trades],
    writes=[waiting, held.table],
    gives=[OUTLETS["factholdings"]],
)
def hold(tx: Transaction, over: Batch, first: Batch, then: Batch) -> None:
    """Enter holdings; those of trades that are not over wait for them."""
    phase = current(tx)
    ready = has(tx, phase, *READY)
    rows = held.admit(tx, joined(tx, first, then, {}), when=ready)
    if phase is None or not ready:
        return
    rows = pa.concat_tables([_released(tx, over), rows]).combine_chunks()
    if not rows.num_rows:
        return
    ids = np.unique(rows["hh_t_id"].to_numpy())
    trades = tx.table(TRADES, [json.dumps(ids.tolist())]).cast(closed_trades.columns.arrow)
    known = trades["tradeid"].to_numpy()
    place = np.searchsorted(known, rows["hh_t_id"].to_numpy())
    is_over = np.append(known, -1)[place] == rows["hh_t_id"].to_numpy()
    left = rows.filter(pa.array(~is_over))
    tx.executemany(WAIT, zip(*(column.to_pylist() for column in left.columns), strict=True))
    rows, trades = rows.filter(pa.array(is_over)), trades.take(place[is_over])
    entered = table(
        "factholdings",
        tradeid=rows["hh_h_t_id"],
        currenttradeid=rows["hh_t_id"],
        sk_customerid=trades["sk_customerid"],
        sk_accountid=trades["sk_accountid"],
        sk_securityid=trades["sk_securityid"],
        sk_companyid=trades["sk_companyid"],
        sk_dateid=trades["sk_closedateid"],
        sk_timeid=trades["sk_closetimeid"],
        currentprice=trades["tradeprice"],
        currentholding=rows["hh_after_qty"],
        batchid=phase.batch,
    )
    tx.emit(OUTLETS["factholdings"], entered)


def _released(tx: Transaction, over: Batch) -> pa.Table:
    """Give what waited for trades that are over now."""
    ids = [json.dumps(over.table["tradeid"].to_pylist())]
    rows = tx.table(OF_CLOSED, ids).cast(COLUMNS.arrow)
    if rows.num_rows:
        tx.execute(
            "DELETE FROM waiting_holdings WHERE hh_t_id IN (SELECT value FROM json_each(?))", ids
        )
    return rows
