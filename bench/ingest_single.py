"""The dataflow that brings JSON trades in."""

from bench.ingest_data import COLUMNS
from bench.keeping import keeping
from etl_procs import by_count

BATCH = 5_000

single, trades, kept = keeping("single", COLUMNS, by_count(BATCH, linger_s=0.1))
