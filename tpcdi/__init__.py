"""TPC-DI, the flagship workload: generator, schema, dataflows, audit.

May import every room of Headrace but `headrace.cli`.
"""

DERIVED = "derived from TPC-DI, not comparable to published results"
"""Stands beside every figure that is shown."""
