"""The dataflow whose latency is measured: small batches, closed soon."""

from bench.keeping import keeping
from etl_procs import by_count

BATCH = 100
LINGER_S = 0.01
COLUMNS = "id INTEGER NOT NULL, sent_us INTEGER NOT NULL, reading REAL NOT NULL"

timed, readings, kept = keeping(
    "timed", COLUMNS, by_count(BATCH, linger_s=LINGER_S), stream="readings"
)
