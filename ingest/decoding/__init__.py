"""Decoding, part by part: heads and entries of records, and each format; see ingest.decode."""
