"""How far each part is behind, measured at the source of each truth: the log and the ledger."""

from collections.abc import Callable

from etl_procs import loader
from etl_procs.core import core_path
from etl_procs.model import Dataflow
from etl_procs.reader import Reader, Snapshot
from headrace.config import Config
from headrace.errors import HeadraceError
from ingest import topics


def tuples_waiting(snapshot: Snapshot, flow: Dataflow, bootstrap: str) -> int:
    """Count the tuples in Kafka that the core has not taken yet."""
    return sum(
        end - done.get(partition, 0)
        for stream in flow.streams.values()
        for done in [snapshot.positions(flow.name, stream.topic)]
        for partition, end in topics.end_offsets(bootstrap, stream.topic).items()
    )


def engine(config: Config, bootstrap: str) -> str:
    """Say how many tuples wait for the engine."""
    return _measured(
        config, "tuples", lambda snapshot, flow: tuples_waiting(snapshot, flow, bootstrap)
    )


def warehouse(config: Config) -> str:
    """Say how many rows wait for the warehouse."""
    return _measured(config, "rows", lambda snapshot, flow: snapshot.waiting(flow.name)[1])


def _measured(config: Config, unit: str, waiting: Callable[[Snapshot, Dataflow], int]) -> str:
    try:
        flows = loader.load(config.flows).values()
        with Reader(core_path(config.home)).snapshot() as snapshot:
            return f"{sum(waiting(snapshot, flow) for flow in flows):,} {unit}"
    except HeadraceError as error:
        return f"unknown: {error.what}"
