"""### Freshness: how far has each warehouse come?

Every five minutes, for each warehouse:

* `moved_WAREHOUSE` makes an event of the asset `headrace_WAREHOUSE` if the warehouse has moved
  since the last event; its `extra` holds the batch that each dataflow has `reached` and `merged`.
  Other DAGs run on it: `schedule=[Asset(name="headrace_default", uri="headrace://default")]`. If
  nothing has moved, or the warehouse is away, the task is skipped.
* `arrival_WAREHOUSE` looks what the core has and the warehouse lacks, waits until it has arrived,
  and fails - an alert - if it has not after `late_s` seconds.

**When `arrival_WAREHOUSE` fails,** the error says what is late, since when, and how the warehouse
is. It goes on telling until the warehouse moves. Look at `headrace status`, at the warehouse's load
and locks, and at the runs of `headrace_pull_WAREHOUSE`. Nothing is lost: the core keeps what has
not arrived.
"""

from datetime import timedelta

from airflow.sdk import DAG, Param

from headrace_airflow.defaults import RUNS, warehouses
from headrace_airflow.freshness import ArrivalOperator, MovedOperator

with DAG(
    dag_id="headrace_freshness",
    description="An asset event when a warehouse has moved, an alert when it is late",
    doc_md=__doc__,
    schedule="*/5 * * * *",
    dagrun_timeout=timedelta(hours=2),
    tags=["headrace", "freshness"],
    params={
        "late_s": Param(
            900, type="integer", minimum=1, description="Alert if it takes longer to arrive (s)."
        )
    },
    **RUNS,
):
    for warehouse in warehouses():
        MovedOperator(task_id=f"moved_{warehouse}", warehouse=warehouse)
        ArrivalOperator(
            task_id=f"arrival_{warehouse}", warehouse=warehouse, late_s="{{ params.late_s }}"
        )
