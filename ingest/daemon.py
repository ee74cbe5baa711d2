"""The process from which Spark forks its Python, with what decoding needs loaded: once for all."""

import gc

import pyarrow as pa
import pyspark.worker  # noqa: F401 - each fork would load it
from pyspark.daemon import manager

import ingest.decode  # noqa: F401

if __name__ == "__main__":
    pa.array([None])  # loads pandas, where there is one
    gc.freeze()
    manager()
