"""### Merge: delta becomes main

Once an hour, Headrace merges in each warehouse what has arrived into the main tables, in one
transaction. It is heavy work for the warehouse, so its load is looked at first: while a query runs
for longer than `query_s_max` seconds, or more than `active_max` sessions are active, it is held
back - until `deadline_s`, then it runs anyway, for a delta that grows makes every query slower.

**Repeated, retried, backfilled:** a run asks for one migration per warehouse, whose id is made of
DAG, task and run; asked for again, it is the same one.

**When it fails,** the error names a code and a hint. Nothing is half merged; the next run makes up
for this one. If it fails by its time limit, look for what holds locks in the warehouse.
"""

from datetime import timedelta

from airflow.sdk import DAG

from headrace_airflow.defaults import (
    DATAFLOWS,
    DATAFLOWS_PARAM,
    IDLE,
    RUNS,
    idle_params,
    warehouses,
)
from headrace_airflow.migration import MigrationOperator

with DAG(
    dag_id="headrace_merge",
    description="Merge what has arrived into the main tables, when the warehouse has time",
    doc_md=__doc__,
    schedule="17 * * * *",
    dagrun_timeout=timedelta(hours=4),
    tags=["headrace", "merge"],
    params={
        "dataflows": DATAFLOWS_PARAM,
        **idle_params(query_s_max=60, active_max=4, deadline_s=1800),
    },
    **RUNS,
):
    for warehouse in warehouses():
        MigrationOperator(
            task_id=f"merge_{warehouse}",
            kind="merge",
            warehouse=warehouse,
            dataflows=DATAFLOWS,
            idle=IDLE,
            limit=timedelta(minutes=90),
        )
