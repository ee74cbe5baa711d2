"""Airflow's DAGs. They import the standard library, `airflow.sdk` and providers, nothing of
Headrace, and speak HTTP to its API.
"""
