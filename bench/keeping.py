"""Dataflows that stage every batch as it came: what a batch costs that nobody works on."""

from etl_procs import Batch, Dataflow, Outlet, Stream, Transaction
from etl_procs.dataflow import DEFAULT_WIRE
from etl_procs.rules import Rule
from etl_procs.wire import Format, Wire


def keeping(
    name: str,
    columns: str,
    batches: Rule,
    *,
    stream: str = "trades",
    wire: Wire | Format = DEFAULT_WIRE,
    key: str = "",
    indexes: tuple[str, ...] = (),
) -> tuple[Dataflow, Stream, Outlet]:
    """Declare one, of a stream and the outlet `kept`, which has its columns."""
    flow = Dataflow(name)
    taken = flow.stream(stream, columns, batches=batches, wire=wire)
    kept = flow.outlet("kept", columns, key=key, indexes=indexes)

    @flow.procedure(takes=taken, gives=kept)
    def keep(tx: Transaction, batch: Batch) -> None:
        tx.emit(kept, batch.table)

    return flow, taken, kept
