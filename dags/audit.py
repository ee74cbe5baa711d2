"""### Audit: is the warehouse what the definitions say?

Once a day, Headrace compares each warehouse with the definitions of its dataflows: drift of tables
and columns, the ledger, counts, keys. It changes nothing.

**When it fails with `AuditFailed`,** each finding is a line of the task's log, and stands in the
migration's document. It is not tried again: the same would be found. Somebody has changed the
warehouse beside Headrace, or there is a bug in it. Keep the findings, mend the cause, and clear the
task's run or wait for the next; clearing it asks for a new audit.

Other failures (the warehouse is away) are tried again five times.
"""

from datetime import timedelta

from airflow.sdk import DAG

from headrace_airflow.defaults import DATAFLOWS, DATAFLOWS_PARAM, RUNS, warehouses
from headrace_airflow.migration import MigrationOperator

with DAG(
    dag_id="headrace_audit",
    description="Compare each warehouse with the definitions of its dataflows",
    doc_md=__doc__,
    schedule="41 4 * * *",
    dagrun_timeout=timedelta(hours=8),
    tags=["headrace", "audit"],
    params={"dataflows": DATAFLOWS_PARAM},
    **RUNS,
):
    for warehouse in warehouses():
        MigrationOperator(
            task_id=f"audit_{warehouse}",
            kind="audit",
            warehouse=warehouse,
            dataflows=DATAFLOWS,
            limit=timedelta(hours=3),
        )
