"""Ingest: tuples into Kafka, and batches out of Kafka through Spark.

The only room that may import `pyspark` and `kafka`. Of Headrace it may import the kernel and
`etl_procs`; it hands Arrow batches to whoever runs it and knows no core.
"""
