"""The process from which Spark forks its Python, with what decoding needs loaded: once for all.

Spark's own loads nothing before it forks, since libraries may start threads, which a fork does not
have. Of ours the only one that does is jemalloc, which Arrow brings and does not use: the session
tells it not to. A test sees that there is no other.
"""

import gc

import pyarrow as pa
import pyspark.worker  # noqa: F401 - each fork would load it
from pyspark.daemon import manager

import ingest.decode  # noqa: F401

if __name__ == "__main__":
    pa.array([None])  # loads pandas, where there is one
    gc.freeze()
    manager()
