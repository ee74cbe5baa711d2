"""The places: how far each warehouse has come, looked up in its ledger and in the cores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from etl_procs.dataflow import Dataflow
from etl_procs.reader import Reader
from headrace.errors import HeadraceError, NotRunning
from migrations import layout, ledger
from migrations.errors import translated
from migrations.planning import Planned, planned
from migrations.pushing import Pushing
from migrations.warehouse import Warehouse, named

OK, NONE_YET = "ok", "has no tables yet"


@dataclass(frozen=True, slots=True)
class Standing:
    """How far one partition of a dataflow has come."""

    name: str
    committed: int | None
    arrived: int | None
    merged: int | None
    waiting_rows: int | None
    moved_at: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """A warehouse, as it was found."""

    name: str
    state: str
    pusher: Pushing | None
    """None: no engine runs."""
    dataflows: tuple[Standing, ...]

    @property
    def is_trouble(self) -> bool:
        """Whether something keeps rows from it; that nothing has been moved yet does not."""
        is_ill = self.state not in (OK, NONE_YET)
        return is_ill or (self.pusher is not None and self.pusher.is_trouble)


@dataclass(frozen=True, slots=True)
class Places:
    """All warehouses, and the cores that feed them."""

    warehouses: Sequence[Warehouse]
    dataflows: Mapping[str, Dataflow]
    cores: Sequence[Path]
    pushers: Callable[[], Mapping[str, Pushing]] = dict
    """Tells what the engine's do, if one runs."""

    def look(self) -> list[Found]:
        """Look at each warehouse; one that is away is told with the others."""
        pushers = self.pushers()
        return [self._found(place, pushers.get(place.name)) for place in self.warehouses]

    def find(self, name: str) -> Found:
        """Look at one of them."""
        return self._found(named(self.warehouses, name), self.pushers().get(name))

    def plan(self, name: str) -> list[Planned]:
        """Plan what would be pushed to one of them just now."""
        flows = self.dataflows.values()
        return list(planned(named(self.warehouses, name), flows, self.cores))

    def _found(self, place: Warehouse, pusher: Pushing | None) -> Found:
        flows = [flow for flow in self.dataflows.values() if place.outlets(flow)]
        names = [flow.name for flow in flows]
        state = OK
        arrived: dict[ledger.Place, ledger.Migrated] = {}
        merged: dict[ledger.Place, int] = {}
        try:
            with (
                translated(f"looking at {place.name}"),
                place.connect(application="headrace status") as connection,
            ):
                found = layout.version(connection)
                if found == layout.VERSION:
                    arrived = ledger.read(connection, names)
                    merged = ledger.merged(connection, names)
                elif found is None:
                    state = NONE_YET
                else:
                    state = f"has a layout of version {found}: run `headrace warehouse upgrade`"
        except HeadraceError as error:
            state = error.what
        standings = tuple(s for flow in flows for s in self._standings(flow, arrived, merged))
        return Found(place.name, state, pusher, standings)

    def _standings(
        self,
        flow: Dataflow,
        arrived: Mapping[ledger.Place, ledger.Migrated],
        merged: Mapping[ledger.Place, int],
    ) -> Iterator[Standing]:
        for partition, path in enumerate(self.cores[: flow.partitions]):
            committed = waiting = None
            try:
                with Reader(path).snapshot() as snapshot:
                    committed, waiting = snapshot.batch(flow.name), snapshot.waiting(flow.name)
            except NotRunning:
                pass  # there is no core yet: nothing has been committed
            row = arrived.get((flow.name, partition))
            yield Standing(
                flow.place(partition),
                committed,
                row.batch if row else None,
                merged.get((flow.name, partition)),
                waiting,
                row.moved_at.astimezone(UTC).isoformat() if row and row.batch else None,
            )
