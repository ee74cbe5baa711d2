"""Planning: what a push would move into a warehouse just now, and how. Nothing is moved."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from etl_procs.dataflow import Dataflow
from etl_procs.reader import Reader
from migrations import layout, ledger, push
from migrations.errors import translated
from migrations.plan import Plan
from migrations.warehouse import Warehouse


@dataclass(frozen=True, slots=True)
class Planned:
    """What a push of one partition of a dataflow would do."""

    name: str
    plan: Plan | None
    """None: the warehouse has no tables of it yet."""


def planned(
    place: Warehouse, dataflows: Iterable[Dataflow], cores: Sequence[Path]
) -> Iterator[Planned]:
    """Plan a push of each partition of those dataflows that feed a warehouse."""
    flows = [flow for flow in dataflows if place.outlets(flow)]
    with translated("planning"), place.connect(application="headrace plan") as connection:
        layout.require_version(connection, place)
        is_there = layout.version(connection) is not None
        arrived = ledger.read(connection, [flow.name for flow in flows]) if is_there else {}
    for flow in flows:
        for partition, path in enumerate(cores[: flow.partitions]):
            at = arrived.get((flow.name, partition))
            plan = None
            if at is not None:
                with Reader(path).snapshot() as snapshot:
                    through = snapshot.batch(flow.name)
                    plan = push.decide(place, flow, partition, at, snapshot, through)
            yield Planned(flow.place(partition), plan)
