"""Messages: what the rules want to be said, and what the loader has seen in the warehouse."""

from collections.abc import Mapping
from decimal import Decimal

from etl_procs import Batch, Transaction
from tpcdi.dataflow.outlets import OUTLETS, date
from tpcdi.dataflow.phases import Phase
from tpcdi.dataflow.sources import answers, flow, observed

MESSAGES = OUTLETS["dimessages"]


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
            for row in map(_stripped, batch.rows())
        ],
    )


def _stripped(row: Mapping[str, object]) -> dict[str, str | None]:
    """Take away the blanks around values; of a blank one, nothing is left."""
    return {name: str(value or "").strip() or None for name, value in row.items()}
