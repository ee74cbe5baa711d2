"""The query island and its REST API: one answer over what is staged and what has arrived.

The only room that may import `fastapi` and `sqlglot`. Of Headrace it may import the kernel,
`etl_procs`, `ingest` and `migrations`.
"""
