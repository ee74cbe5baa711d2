"""TPC-DI, the flagship workload: generator, schema, dataflows, audit.

May import every room of Headrace but `headrace.cli`.
"""
