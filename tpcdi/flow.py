"""TPC-DI as a dataflow: the file to name in `flows`."""

from tpcdi.dataflow import remains
from tpcdi.dataflow.sources import flow

__all__ = ["flow", "remains"]
