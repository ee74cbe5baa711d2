"""Messages: what the rules want to be said, and what the loader has seen in the warehouse."""

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs import Batch, Transaction
from tpcdi.dataflow.forms import DAY, FILLED, WHOLE, decimal, or_empty, without, wrong
from tpcdi.dataflow.outlets import OUTLETS, date
from tpcdi.dataflow.phases import Phase
from tpcdi.dataflow.sources import answers, flow, observed

MESSAGES = OUTLETS["dimessages"]
FORMS = {
    "dataset": FILLED,
    "batchid": or_empty(WHOLE),
    "date": or_empty(DAY),
    "attribute": FILLED,
    "value": or_empty(WHOLE),
    "dvalue": or_empty(decimal(15, 5)),
}
"""Of the generator's answers."""


def say(tx: Transaction, phase: Phase, kind: str, source: str, text: str, *datas: object) -> None:
    """Write messages of one kind, one for each of `datas`; their time is the phase's day."""
    at = f"{date(phase.day)} 00:00:00"
    tx.emit(
        MESSAGES,
        [
            {
                "messagedateandtime": at,
                "batchid": phase.batch,
                "messagesource": source,
                "messagetext": text,
                "messagetype": kind,
                "messagedata": str(data),
            }
            for data in datas
        ],
    )


def alert(tx: Transaction, phase: Phase, source: str, text: str, *datas: object) -> None:
    """Write alerts."""
    say(tx, phase, "Alert", source, text, *datas)


@flow.procedure(takes=observed, gives=[MESSAGES])
def note(tx: Transaction, batch: Batch) -> None:
    """Write down what the loader has seen."""
    tx.emit(
        MESSAGES,
        [
            {
                "messagedateandtime": row["at"],
                "batchid": row["batch"],
                "messagesource": row["source"],
                "messagetext": row["text"],
                "messagetype": row["type"],
                "messagedata": row["data"],
            }
            for row in batch.rows()
        ],
    )


@flow.procedure(takes=answers, gives=[OUTLETS["audit"]])
def file(tx: Transaction, batch: Batch) -> None:
    """Keep the answers that the generator gives to the audit."""
    tx.emit(
        OUTLETS["audit"],
        [
            {
                "dataset": row["dataset"],
                "batchid": row["batchid"] and int(row["batchid"]),
                "date": row["date"],
                "attribute": row["attribute"],
                "value": row["value"] and int(row["value"]),
                "dvalue": row["dvalue"] and Decimal(row["dvalue"]),
            }
            for row in _stripped(tx, batch)
        ],
    )


def _stripped(tx: Transaction, batch: Batch) -> list[dict[str, str | None]]:
    """Take away the blanks around values; of a blank one, nothing is left."""
    columns = {name: pc.utf8_trim_whitespace(batch.table[name]) for name in FORMS}
    reasons = wrong(columns, FORMS)
    without(tx, batch, reasons)
    return [
        {name: value or None for name, value in row.items()}
        for index, row in enumerate(pa.table(columns).to_pylist())
        if index not in reasons
    ]
