"""Brokers: the employees who are some."""

from etl_procs import Batch, Transaction
from tpcdi.dataflow.outlets import OUTLETS
from tpcdi.dataflow.phases import Held, complete, current, finish, has, phases
from tpcdi.dataflow.reference import calendar, referred
from tpcdi.dataflow.sources import employees, flow
from tpcdi.dataflow.versions import Versions

BROKER = 314
STAGE = "brokers"
FIRST_DAY = 19500101
"""The calendar's first, where there is no calendar."""

brokers = Versions("dimbroker", "brokerid")
held = Held(employees)
employed = flow.stream("employed", "batch INTEGER NOT NULL")


@flow.procedure(
    takes=[referred, employees],
    reads=[phases, calendar],
    writes=[brokers.table, held.table, complete],
    gives=[OUTLETS["dimbroker"], employed],
)
def employ(tx: Transaction, _said: Batch, batch: Batch) -> None:
    """Make brokers of employees; each is one since the first day of the calendar."""
    phase = current(tx)
    rows = held.admit(tx, batch.table, when=has(tx, phase, "Date"))
    if phase is None:
        return
    images = [
        {"brokerid": row["employeeid"], **row}
        for row in rows.to_pylist()
        if row["jobcode"] == BROKER
    ]
    if images:
        (first,) = tx.query("SELECT coalesce(min(day), ?) AS day FROM calendar", [FIRST_DAY])
        brokers.write(tx, images, phase, first["day"])
    if has(tx, phase, "Date", "HR") and not has(tx, phase, STAGE):
        finish(tx, phase, STAGE)
        tx.emit(employed, [{"batch": phase.batch}])
