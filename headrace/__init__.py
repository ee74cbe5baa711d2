"""Headrace: streaming ETL for polystores, transactional and exactly once.

This package owns the kernel - errors, configuration, clock, crash points, telemetry - which
every room may import and which imports none of them; `headrace.local`, which runs the broker and
PostgreSQL as children; and `headrace.cli`, the only place that wires concrete parts.
"""
