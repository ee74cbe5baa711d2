"""Remains: what still waits when a phase ends is told."""

from etl_procs import Batch, Transaction
from tpcdi.dataflow import cash, holdings, listing, market, trades, watches
from tpcdi.dataflow.messages import MESSAGES, say
from tpcdi.dataflow.phases import ENDS, Phase, marked, phases
from tpcdi.dataflow.sources import flow

WAITING = {
    "DimSecurity": listing.parked.table,
    "DimTrade": trades.waiting,
    "TradeHistory": trades.waiting_events,
    "Trade": trades.parked_changes.table,
    "FactHoldings": holdings.waiting,
    "FactCashBalances": cash.parked.table,
    "FactWatches": watches.parked.table,
    "FactMarketHistory": market.parked.table,
}


@flow.procedure(takes=marked, reads=[phases, *WAITING.values()], gives=[MESSAGES])
def remain(tx: Transaction, batch: Batch) -> None:
    """Say how many rows wait for what has not come."""
    for row in batch.rows():
        if row["source"] != ENDS:
            continue
        (ended,) = tx.query("SELECT batch, day FROM phases WHERE batch = ?", [row["batch"]])
        for source, table in WAITING.items():
            (found,) = tx.query(f"SELECT count(*) AS rows FROM {table.name}")
            if found["rows"]:
                say(tx, Phase(**ended), "Alert", source, "Rows that wait", found["rows"])
