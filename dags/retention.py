"""### Retention: what every warehouse has, and nobody needs any more, is forgotten

Once a day, Headrace forgets in its core what every warehouse has confirmed and whose time of
keeping is over. What a warehouse lacks is never forgotten, however old it is.

**Repeated, retried, backfilled:** a run asks for one migration, whose id is made of DAG, task and
run; asked for again, it is the same one.

**When it fails,** nothing is lost, and the core's file grows until it succeeds. A warehouse that is
down for long keeps everything it has not confirmed: see the DAG `headrace_freshness`.
"""

from datetime import timedelta

from airflow.sdk import DAG

from headrace_airflow.defaults import DATAFLOWS, DATAFLOWS_PARAM, RUNS, warehouses
from headrace_airflow.migration import MigrationOperator

with DAG(
    dag_id="headrace_retention",
    description="Forget in the core what every warehouse has, when its time is over",
    doc_md=__doc__,
    schedule="23 3 * * *",
    dagrun_timeout=timedelta(hours=4),
    tags=["headrace", "retention"],
    params={"dataflows": DATAFLOWS_PARAM},
    **RUNS,
):
    MigrationOperator(
        task_id="forget",
        kind="retention",
        warehouse=warehouses()[0],
        dataflows=DATAFLOWS,
        limit=timedelta(hours=1),
    )
