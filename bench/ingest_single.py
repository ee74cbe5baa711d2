"""The dataflow that brings JSON trades in: a set-based procedure stages a batch as it came."""

from bench.ingest_data import COLUMNS
from etl_procs import Batch, Dataflow, Transaction, by_count

BATCH = 5_000

single = Dataflow("single")
trades = single.stream("trades", COLUMNS, batches=by_count(BATCH, linger_s=0.1))
kept = single.outlet("kept", COLUMNS)


@single.procedure(takes=trades, gives=kept)
def keep(tx: Transaction, batch: Batch) -> None:
    """Stage all of it."""
    tx.emit(kept, batch.table)
