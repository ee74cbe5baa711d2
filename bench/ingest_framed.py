"""The dataflow that brings delimited trades in: a set-based procedure stages a batch as it came."""

from bench.ingest_data import COLUMNS, FORMAT
from etl_procs import Batch, Dataflow, Transaction, by_count

BATCH = 5_000

framed = Dataflow("framed")
trades = framed.stream("trades", COLUMNS, batches=by_count(BATCH, linger_s=0.1), wire=FORMAT)
kept = framed.outlet("kept", COLUMNS)


@framed.procedure(takes=trades, gives=kept)
def keep(tx: Transaction, batch: Batch) -> None:
    """Stage all of it."""
    tx.emit(kept, batch.table)
