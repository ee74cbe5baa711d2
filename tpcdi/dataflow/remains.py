"""Remains: what still waits when a phase ends is told."""

from etl_procs import Batch, Table, Transaction
from tpcdi.dataflow import (
    brokers,
    cash,
    holdings,
    listing,
    market,
    people,
    prospects,
    trades,
    watches,
)
from tpcdi.dataflow.messages import MESSAGES, say
from tpcdi.dataflow.phases import ENDS, Phase, marked, phases
from tpcdi.dataflow.sources import flow

WAITING = {
    "DimBroker": [brokers.held.table],
    "DimSecurity": [listing.held.table, listing.parked.table],
    "Prospect": [prospects.held.table],
    "DimCustomer": [people.held_actions.table, people.held_customers.table],
    "DimAccount": [people.held_accounts.table],
    "DimTrade": [trades.held_trades.table, trades.waiting],
    "TradeHistory": [trades.held_events.table, trades.waiting_events],
    "Trade": [trades.held_changes.table, trades.parked_changes.table],
    "FactHoldings": [holdings.held.table, holdings.waiting],
    "FactCashBalances": [cash.held.table, cash.parked.table],
    "FactWatches": [watches.held.table, watches.parked.table],
    "FactMarketHistory": [market.held.table, market.parked.table],
}
"""By what it would become."""
TABLES = [table for tables in WAITING.values() for table in tables]


@flow.procedure(takes=marked, reads=[phases, *TABLES], gives=[MESSAGES])
def remain(tx: Transaction, batch: Batch) -> None:
    """Say how many rows wait for what has not come."""
    for row in batch.rows():
        if row["source"] != ENDS:
            continue
        (ended,) = tx.query("SELECT batch, day FROM phases WHERE batch = ?", [row["batch"]])
        for source, tables in WAITING.items():
            count = sum(_count(tx, table) for table in tables)
            if count:
                say(tx, Phase(**ended), "Alert", source, "Rows that wait", count)


def _count(tx: Transaction, table: Table) -> int:
    (found,) = tx.query(f"SELECT count(*) AS rows FROM {table.name}")
    return int(found["rows"])
