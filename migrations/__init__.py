"""Durable migration: what the core has staged, moved into a Postgres warehouse whole and once.

Owns the warehouse's side: its tables and its ledger. (It moves data; it is not a folder of
schema changes.) Of Headrace it may import the kernel and `etl_procs`.
"""
