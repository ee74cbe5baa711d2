"""The cut: one consistent point over cores and warehouses, and where the rows of each table are.

The cores' snapshots are opened first, then the warehouses', and of what is staged in a core only
the batches after a warehouse's ledger are taken. A push in between is seen by the later one:
what it moved comes from the warehouse, whose ledger says so, and whatever the core has forgotten
had arrived there before. So each row, or each key's last operation, is there exactly once.

Where several warehouses are asked, the cut is at the batch that the furthest of them has, and what
the others lack is taken from the cores.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from api.catalogue import Flow
from api.errors import NoLonger, NotYet, Overtaken, Unpublished
from etl_procs import reader
from etl_procs.model import Kept, Outlet
from etl_procs.reader import Lasting, Snapshot
from etl_procs.store import make_durable
from headrace.clock import Clock
from headrace.errors import Refused
from migrations.errors import Gap, LedgerMismatch
from migrations.ledger import Place, Standing
from migrations.staged import Range

TRIES = 10
"""So often a cut is tried that pushes overtake."""


class Freshness(Enum):
    """How new the rows of an answer are."""

    MAIN = "main"
    """What is merged in the warehouse."""
    DELTA = "delta"
    """All that has arrived there."""
    STAGED = "staged"
    """That, and what the core has committed and not yet moved."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Which cut is asked for."""

    freshness: Freshness = Freshness.STAGED
    as_of: Mapping[str, int] = field(default_factory=dict)
    """Batches by the names of partitions, in place of a freshness."""
    max_lag_s: float | None = None
    """In place of a freshness: whichever costs least, if nothing that it lacks is older."""

    @property
    def asks_cores(self) -> bool:
        """Whether the cores have to be looked at, however many warehouses there are."""
        return bool(self.as_of or self.freshness is Freshness.STAGED or self.max_lag_s is not None)


class There(Enum):
    """What counts of the rows that a warehouse has of a table."""

    MAIN = "main"
    LIVE = "live"
    BOUNDED = "bounded"
    """Main, and delta up to a batch of each partition."""
    WHOLE = "whole"
    """All of them: no dataflow adds to it."""
    NONE = "none"
    """None: it is a stream, whose batches are kept in the core alone."""
    LENT = "lent"
    """What another engine has, and has lent for the query."""


Seen = Mapping[Place, Standing]
"""A warehouse's ledger, as its open snapshot has it."""


class Holder(Protocol):
    """Who holds tables: it can be looked at as it is at one moment."""

    def snapshot(self, flows: Sequence[Flow]) -> Seen:
        """Begin a transaction that sees one state, and tell what has arrived in it."""
        ...

    def end(self) -> None:
        """End it."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """Where the rows of a table are at a cut."""

    there: There
    bounds: tuple[int, ...] = ()
    """The last batch of delta that counts, of each partition."""
    staged: tuple[Range, ...] = ()
    rows: int = 0
    """How many of them are staged, about."""
    size: int = 0
    lent: str = ""
    """The temporary table of what is lent."""


@dataclass(frozen=True, slots=True)
class Cut:
    """One point: each partition's batch, and where the rows of each table are."""

    as_of: Mapping[str, int]
    parts: Mapping[Outlet, Part]
    freshness: Freshness


@contextmanager
def opened(
    moment: Moment,
    holders: Mapping[Outlet, Holder],
    flows: Mapping[str, Flow],
    cores: Sequence[Lasting],
    clock: Clock,
) -> Iterator[Cut]:
    """Open a cut over some tables, each with who holds it, until the block ends.

    The cores are not looked at where the warehouses can answer alone.
    """
    tables: dict[Holder, list[Outlet]] = defaultdict(list)
    for outlet, holder in holders.items():
        tables[holder].append(outlet)
    fed = {holder: _fed(held, flows) for holder, held in tables.items()}
    wanted = {flow.name: flow for of in fed.values() for flow in of}
    _check_names(moment.as_of, wanted)
    most = 0
    are_kept = any(isinstance(outlet, Kept) for outlet in holders)
    if wanted and (moment.asks_cores or are_kept or sum(map(bool, fed.values())) > 1):
        most = max(len(flow.places) for flow in wanted.values())
    with ExitStack() as stack:
        for _ in range(TRIES):
            snapshots: list[Snapshot] = []
            if most:
                snapshots = stack.enter_context(reader.cut(cores[:most]))
            seen = {
                holder: holder.snapshot([flow for flow in of if flow.is_moved])
                for holder, of in fed.items()
            }
            if not _overtaken(snapshots, list(seen.values()), are_kept=are_kept):
                break
            for holder in seen:
                holder.end()
            stack.close()
        else:
            with reader.cut(cores[:most]) as now:
                if not _overtaken(now, list(seen.values()), are_kept=are_kept):
                    raise Overtaken(
                        "batches come each time before the core and all warehouses are looked at",
                        hint="Ask again; or with freshness main.",
                    )
            raise LedgerMismatch(
                "a warehouse has batches that its core does not have",
                hint="Ask with freshness main. A core that was restored lacks what came after its "
                "copy was made.",
            )
        standings = {
            place: _standing(place, list(seen.values()), snapshots)
            for flow in wanted.values()
            for place in _places(flow)
        }
        freshness = moment.freshness
        if moment.max_lag_s is not None:
            oldest = clock.now() - timedelta(seconds=moment.max_lag_s)
            freshness = _fresh_enough(standings, snapshots, oldest)
        if freshness is Freshness.MAIN and _is_between(standings, seen.values()):
            freshness = Freshness.DELTA
        at = {
            place: _asked(moment.as_of, wanted[place[0]].places[place[1]], standing)
            if moment.as_of
            else standing[freshness]
            for place, standing in standings.items()
        }
        parts = {}
        for outlet, holder in holders.items():
            if outlet.dataflow not in wanted:
                parts[outlet] = Part(There.WHOLE)
            elif isinstance(outlet, Kept):
                parts[outlet] = _kept(outlet, wanted[outlet.dataflow], at, snapshots)
            else:
                parts[outlet] = _part(outlet, wanted[outlet.dataflow], at, seen[holder], snapshots)
        # No core must lose a batch that an answer tells, even one without rows. What has arrived
        # in a warehouse was on the disk before.
        for place, batch in at.items():
            arrived = [one[place].batch for one in seen.values() if place in one]
            if batch > max(arrived, default=0):
                make_durable(cores[place[1]].path)
        as_of = {wanted[name].places[p]: batch for (name, p), batch in at.items()}
        yield Cut(as_of, parts, freshness)


def _overtaken(snapshots: Sequence[Snapshot], seen: Sequence[Seen], *, are_kept: bool) -> bool:
    """Tell whether batches that came after the cores' snapshots have arrived somewhere, while there
    are places where they have not: the rest of them could not be told. What is kept of a stream
    arrives nowhere.
    """
    if not snapshots or (len(snapshots) == 1 and len(seen) == 1 and not are_kept):
        return False
    return any(
        row.batch > snapshots[partition].batch(name)
        for one in seen
        for (name, partition), row in one.items()
    )


def _fed(outlets: Iterable[Outlet], flows: Mapping[str, Flow]) -> list[Flow]:
    """Name the dataflows that give rows to some tables; files are given none."""
    return [flows[name] for name in dict.fromkeys(o.dataflow for o in outlets) if name in flows]


def _places(flow: Flow) -> list[Place]:
    return [(flow.name, partition) for partition in range(len(flow.places))]


def _check_names(as_of: Mapping[str, int], flows: Mapping[str, Flow]) -> None:
    known = {place for flow in flows.values() for place in flow.places}
    if as_of and known != set(as_of):
        raise Refused(
            f"as_of names {', '.join(sorted(as_of))}, and the query reads "
            f"{', '.join(sorted(known)) or 'no table'}",
            hint="Give the batch of each, as an answer tells it.",
        )


def _standing(
    place: Place, seen: Sequence[Seen], snapshots: Sequence[Snapshot]
) -> dict[Freshness, int]:
    """Tell the batch of a partition that each freshness means."""
    holding = [one[place] for one in seen if place in one]
    if not holding:  # it gives nothing to any warehouse
        return dict.fromkeys(Freshness, snapshots[place[1]].batch(place[0]))
    arrived = max(row.batch for row in holding)
    committed = snapshots[place[1]].batch(place[0]) if snapshots else arrived
    return {
        Freshness.MAIN: max(row.merged for row in holding),
        Freshness.DELTA: arrived,
        Freshness.STAGED: max(committed, arrived),
    }


def _fresh_enough(
    standings: Mapping[Place, Mapping[Freshness, int]],
    snapshots: Sequence[Snapshot],
    oldest: datetime,
) -> Freshness:
    """Find the freshness that costs least and lacks nothing that was committed before a moment."""
    for freshness in (Freshness.MAIN, Freshness.DELTA):
        for (name, partition), standing in standings.items():
            batch = standing[freshness]
            if batch < standing[Freshness.STAGED]:
                at = snapshots[partition].committed_at(name, batch + 1)
                if at is None or at < oldest:
                    break
        else:
            return freshness
    return Freshness.STAGED


def _is_between(standings: Mapping[Place, Mapping[Freshness, int]], seen: Iterable[Seen]) -> bool:
    """Tell whether some warehouse has merged less than the furthest one, and has more in delta: of
    a key, that may be only a later state.
    """
    for one in seen:
        mains = {place: standings[place][Freshness.MAIN] for place in one}
        lacks = any(one[place].merged < main for place, main in mains.items())
        if lacks and any(main < one[place].batch for place, main in mains.items()):
            return True
    return False


def _asked(as_of: Mapping[str, int], name: str, standing: Mapping[Freshness, int]) -> int:
    """Give the batch that is asked for, if it is there."""
    batch, last = as_of[name], standing[Freshness.STAGED]
    if batch > last:
        raise NotYet(
            f"batch {batch} of {name} is not there yet: the last one is {last}",
            hint="Ask again when it is.",
        )
    return batch


def _part(
    outlet: Outlet,
    flow: Flow,
    at: Mapping[Place, int],
    seen: Seen,
    snapshots: Sequence[Snapshot],
) -> Part:
    places = _places(flow)
    staged = []
    for place in places:
        row, through = seen[place], at[place]
        if through < row.merged:
            raise NoLonger(
                f"batch {through} of {flow.places[place[1]]} is merged into the batches through "
                f"{row.merged}",
                hint=f"Ask as of {row.merged} or later; merges run when merge.* says so.",
            )
        if snapshots:
            _check_core(place, flow.places[place[1]], row, snapshots[place[1]])
        if through > row.batch:
            staged.append(Range(snapshots[place[1]], place[1], row.batch, through))
    there = There.BOUNDED
    if all(min(at[p], seen[p].batch) == seen[p].merged for p in places):
        there = There.MAIN  # whatever has arrived beyond it is not asked for, or there is nothing
    elif all(at[place] >= seen[place].batch for place in places):
        there = There.LIVE
    if there is There.BOUNDED and outlet.key:
        arrived = {flow.places[p]: seen[name, p].batch for name, p in places}
        raise NoLonger(
            f"of {outlet.full_name}, which has a key, what its rows were before batch "
            f"{max(arrived.values())} is not kept in the warehouse: a push brings only the last "
            "state of each",
            hint=f"Ask as of {arrived} or later.",
        )
    bounds = tuple(at[place] for place in places) if there is There.BOUNDED else ()
    return _measured(outlet, there, bounds, staged)


def _kept(stream: Kept, flow: Flow, at: Mapping[Place, int], snapshots: Sequence[Snapshot]) -> Part:
    """Find what is kept of a stream, through the batch of the cut."""
    found = []
    for place in _places(flow):
        snapshot, through = snapshots[place[1]], at[place]
        after = snapshot.kept_after(stream)
        if after is None:
            raise Unpublished(
                f"nothing is kept of the stream {stream.full_name}: it is not published",
                hint=f"Publish it: PUT /v1/streams/{stream.dataflow}/{stream.name}/published; its "
                "batches are kept from then on.",
            )
        if through < after:
            raise NoLonger(
                f"of {stream.full_name}, the batches through {after} are not kept, and the answer "
                f"would be as of batch {through}",
                hint="Ask for a later one, or with freshness staged.",
            )
        found.append(Range(snapshot, place[1], after, through))
    return _measured(stream, There.NONE, (), found)


def _measured(
    outlet: Outlet, there: There, bounds: tuple[int, ...], staged: Sequence[Range]
) -> Part:
    measured = [r.snapshot.measure(outlet, r.after, r.through) for r in staged]
    held = tuple(r for r, (rows, _) in zip(staged, measured, strict=True) if rows)
    rows, size = (sum(of) for of in zip((0, 0), *measured, strict=True))
    return Part(there, bounds, held, rows, size)


def _check_core(place: Place, name: str, row: Standing, snapshot: Snapshot) -> None:
    if not row.fed_by(snapshot.core_id):
        raise LedgerMismatch(
            f"the warehouse's {name} is fed by the core {row.core}, and the core here is "
            f"{snapshot.core_id}: their batches do not continue each other",
            hint="Ask with freshness main; or point warehouse.url and home at a warehouse and a "
            "data folder that belong together.",
        )
    forgotten = snapshot.forgotten(place[0])
    if row.batch < forgotten:
        raise Gap(
            f"the warehouse has {name} through batch {row.batch}, and the core has forgotten what "
            f"it staged through batch {forgotten}: the rows in between are in neither",
            hint="Ask with freshness main or delta; `headrace warehouse status` tells more.",
        )
