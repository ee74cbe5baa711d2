"""The dataflow whose latency is measured: small batches, closed soon."""

from etl_procs import Batch, Dataflow, Transaction, by_count

BATCH = 100
LINGER_S = 0.01
COLUMNS = "id INTEGER NOT NULL, sent_us INTEGER NOT NULL, reading REAL NOT NULL"

timed = Dataflow("timed")
readings = timed.stream("readings", COLUMNS, batches=by_count(BATCH, linger_s=LINGER_S))
kept = timed.outlet("kept", COLUMNS)


@timed.procedure(takes=readings, gives=kept)
def keep(tx: Transaction, batch: Batch) -> None:
    """Stage all of it."""
    tx.emit(kept, batch.table)
