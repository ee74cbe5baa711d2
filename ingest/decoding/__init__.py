"""Decoding, part by part, in Python over Arrow: heads and entries of records, and each format."""
