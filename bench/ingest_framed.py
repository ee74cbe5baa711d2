"""The dataflow that brings delimited trades in."""

from bench.ingest_data import COLUMNS, FORMAT
from bench.keeping import keeping
from etl_procs import by_count

BATCH = 5_000

framed, trades, kept = keeping("framed", COLUMNS, by_count(BATCH, linger_s=0.1), wire=FORMAT)
