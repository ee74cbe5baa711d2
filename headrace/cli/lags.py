"""How far each part is behind, measured at the source of each truth: the log and the ledgers."""

from collections.abc import Callable

from etl_procs import loader
from etl_procs.core import core_path
from etl_procs.model import Dataflow
from etl_procs.reader import Reader, Snapshot
from headrace.config import Config
from headrace.errors import HeadraceError
from ingest import topics


def tuples(config: Config, bootstrap: str) -> int | None:
    """Count the tuples in Kafka that the core has not taken; None where that cannot be known."""

    def waiting(snapshot: Snapshot, flow: Dataflow) -> int:
        return sum(
            end - done.get(partition, 0)
            for stream in flow.streams.values()
            for done in [snapshot.positions(flow.name, stream.topic)]
            for partition, end in topics.end_offsets(bootstrap, stream.topic).items()
        )

    return _counted(config, waiting)


def rows(config: Config) -> int | None:
    """Count the rows that the core has staged and the warehouse not confirmed."""
    return _counted(config, lambda snapshot, flow: snapshot.waiting(flow.name))


def _counted(config: Config, waiting: Callable[[Snapshot, Dataflow], int]) -> int | None:
    try:
        flows = loader.load(config.flows).values()
        with Reader(core_path(config.home)).snapshot() as snapshot:
            return sum(waiting(snapshot, flow) for flow in flows)
    except HeadraceError:
        return None  # the states of the parts tell why
