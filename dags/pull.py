"""### Pull: what the core has goes into the warehouse

Every quarter of an hour, Headrace moves what it has staged for this warehouse: each dataflow's
batches as one transaction, with the warehouse's own ledger. The engine pushes by itself; the pull
is for warehouses that are to be loaded when *they* have time. While long queries run or many
sessions are active, it waits, up to a deadline.

**Repeated, retried, backfilled:** a run asks for one migration, whose id is made of DAG, task and
run; asked for again, it is the same one. And a pull only moves what is not there yet.

**When it fails,** the error names a code and a hint. `Away` and the like pass when the warehouse is
back: the task is tried again five times within a quarter of an hour, and the next run makes up for
this one. What would fail again, as `Drift` or `LedgerMismatch`, is not tried again: mend it, and
clear the task. A run that was cancelled stays so; clear the task to have another.

**By hand:** trigger it with other limits, or with `deadline_s` 0 to move everything now.
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

for warehouse in warehouses():
    with DAG(
        dag_id=f"headrace_pull_{warehouse}",
        description=f"Move what the core has staged into the warehouse {warehouse}",
        doc_md=__doc__,
        schedule="*/15 * * * *",
        dagrun_timeout=timedelta(hours=2),
        tags=["headrace", "pull"],
        params={
            "dataflows": DATAFLOWS_PARAM,
            **idle_params(query_s_max=60, active_max=16, deadline_s=300),
        },
        **RUNS,
    ):
        MigrationOperator(
            task_id="pull",
            kind="pull",
            warehouse=warehouse,
            dataflows=DATAFLOWS,
            idle=IDLE,
            limit=timedelta(minutes=45),
        )
