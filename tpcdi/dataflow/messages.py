"""Messages: what the rules want to be said, and what the loader has seen in the warehouse."""

import pyarrow as pa
import pyarrow.compute as pc

from etl_procs import Batch, Transaction
from tpcdi.dataflow.forms import DAY, FILLED, WHOLE, decimal, or_empty, without, wrong
from tpcdi.dataflow.outlets import OUTLETS, date, table
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
    columns = zip(MESSAGES.columns.names, batch.table.columns, strict=True)
    tx.emit(MESSAGES, table("dimessages", **dict(columns)))


@flow.procedure(takes=answers, gives=[OUTLETS["audit"]])
def file(tx: Transaction, batch: Batch) -> None:
    """Keep the answers that the generator gives to the audit, without the blanks around them."""
    stripped = {name: pc.utf8_trim_whitespace(batch.table[name]) for name in FORMS}
    rows = without(tx, batch, wrong(stripped, FORMS))
    tx.emit(OUTLETS["audit"], table("audit", **{name: _value(rows[name]) for name in FORMS}))


def _value(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Give what is between blanks; of a blank text, nothing is left."""
    stripped = pc.utf8_trim_whitespace(texts)
    return pc.if_else(pc.equal(stripped, ""), pa.scalar(None, pa.string()), stripped)
