"""A checker of histories: what transactions read and appended, against what is promised of them.

In the spirit of Elle's list-append: a transaction appends its own id to lists and reads lists
whole. So a list tells in which order its writers committed, a read tells what came before it and
what did not, and a cycle of such dependencies is a proof that no order of the transactions, one
after the other, explains what they saw. G0, G1c, G-single and G2 are Adya's names for cycles.

What a transaction reads and appends is written down before it commits, or its id is found later
in a list without a record (UNWRITTEN). A batch that was set aside is recorded as committed, with
no ops.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple

STARTS_MAX = 50  # edges from which a shortest cycle is searched: each may walk a whole component
CYCLES_MAX = 20  # one cause can have thousands, and each costs a walk through the whole graph
TOLD_MAX = 10  # anomalies of a kind that are told in full


class Kind(Enum):
    BATCH = "batch"
    CALL = "call"


class AnomalyKind(Enum):
    UNWRITTEN = "an id is seen that nobody has recorded"
    ABORTED_READ = "an aborted transaction is seen"
    INTERMEDIATE_READ = "a part of what a transaction appended to one list is seen"
    INTERNAL = "a transaction does not see its own appends"
    INCOMPATIBLE_ORDER = "a list is seen in two orders"
    LOST_UPDATE = "the final state lacks what has been read"
    LOST_APPEND = "the final state lacks a committed append"
    DUPLICATED = "an append happened more than once"
    HALF_APPLIED = "a part of what commits as one happened"
    G0 = "G0: writes form a cycle"
    G1C = "G1c: writes and what saw them form a cycle"
    G_SINGLE = "G-single: a cycle with one read that missed a write"
    G2 = "G2: a cycle with several reads that missed a write"
    REALTIME = "a call does not see one that was acknowledged before it began"
    TWICE = "a batch committed twice"
    SKIPPED = "a batch is left out"
    BATCH_ORDER = "a procedure committed a batch before an earlier one"
    DATAFLOW_ORDER = "a procedure committed a batch before its predecessor"
    NESTED_SPLIT = "somebody came between the members of a nested group"


@dataclass(frozen=True, slots=True)
class Read:
    key: str
    seen: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Append:
    key: str


@dataclass(frozen=True, slots=True)
class Done:
    """A transaction that was run: what it did, and how it ended."""

    id: str
    """Unique per attempt."""
    kind: Kind
    committed: bool | None
    """None: the process died before it told."""
    ops: tuple[Read | Append, ...]
    dataflow: str = ""
    procedure: str = ""
    batch: int = 0
    began: float | None = None
    ended: float | None = None
    nested: str | None = None
    """The nested group of procedures that it belongs to: those of one batch are one."""

    def __str__(self) -> str:
        where = f" ({self.procedure} #{self.batch})" if self.kind is Kind.BATCH else ""
        return f"{self.id}{where}"


@dataclass(frozen=True, slots=True)
class Flow:
    """A dataflow, as far as it orders transactions."""

    name: str
    after: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Each procedure, and those it comes after for the same batch."""
    nests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Each nested group, and its members."""
    batches: range | None = None
    """What every procedure must have done. None: what is seen, without a gap."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    kind: AnomalyKind
    message: str
    cycle: tuple[str, ...] = ()
    """The ids along the cycle, if it is one. It may enter a nested group by one member and leave
    it by another: both are here."""


class Why(Enum):
    """Why one transaction comes before another."""

    WW = "appended before"
    WR = "was seen by"
    RW = "did not see"
    BATCH = "is the batch before"
    FLOW = "flows to"
    REAL_TIME = "ended before"


LAYERS: dict[Why | None, AnomalyKind] = {
    Why.WW: AnomalyKind.G0,
    Why.WR: AnomalyKind.G1C,
    Why.RW: AnomalyKind.G2,
    Why.BATCH: AnomalyKind.BATCH_ORDER,
    Why.FLOW: AnomalyKind.DATAFLOW_ORDER,
    Why.REAL_TIME: AnomalyKind.REALTIME,
    None: AnomalyKind.NESTED_SPLIT,
}
"""Edges are added in this order, and the first that close a cycle name it. Last (None): as
before, with each nested group as one."""

JOINS = {
    (Why.WW, Why.WW): Why.WW,
    (Why.WW, Why.WR): Why.WR,
    (Why.RW, Why.WW): Why.RW,
    (Why.BATCH, Why.BATCH): Why.BATCH,
    (Why.REAL_TIME, Why.REAL_TIME): Why.REAL_TIME,
}
"""Two steps over one thing that are told as one: only neighbours in a list have edges."""


class Edge(NamedTuple):
    source: str
    target: str
    why: Why
    over: str
    """The key, procedure or dataflow."""


Graph = dict[str, dict[str, Edge]]
Batches = dict[str, dict[int, str | None]]
"""By procedure and batch, who did it; None: somebody without appends, of unknown outcome."""


def check(
    history: Iterable[Done], final: Mapping[str, Sequence[str]], flows: Iterable[Flow] = ()
) -> list[Anomaly]:
    """Find what a history and the lists at its end break; nothing, if all promises hold."""
    checker = _Checker(history, final)
    checker.check_appends()
    edges = [*checker.order_of_lists(), *checker.order_of_batches({f.name: f for f in flows})]
    edges += _real_time(done for done in checker.applied.values() if done.kind is Kind.CALL)
    checker.check_cycles(edges)
    return list(checker.found.values())


def explain(anomalies: Sequence[Anomaly]) -> str:
    """Tell anomalies, kind by kind."""
    lines = []
    for kind in AnomalyKind:
        messages = [anomaly.message for anomaly in anomalies if anomaly.kind is kind]
        if messages:
            lines.append(f"{kind.name} - {kind.value} ({len(messages)})")
            lines += [f"  {message}" for message in messages[:TOLD_MAX]]
            lines += [f"  and {len(messages) - TOLD_MAX} more"] * (len(messages) > TOLD_MAX)
    return "\n".join(lines) or "no anomaly"


class _Checker:
    def __init__(self, history: Iterable[Done], final: Mapping[str, Sequence[str]]) -> None:
        self.found: dict[tuple[AnomalyKind, str], Anomaly] = {}
        self.done: dict[str, Done] = {}
        self.appends: Counter[tuple[str, str]] = Counter()
        for done in history:
            assert self.done.setdefault(done.id, done) is done, f"{done.id} is two attempts"
            self.appends.update((op.key, done.id) for op in done.ops if isinstance(op, Append))
        self.final = {key: self._clean(key, ids, "the final state") for key, ids in final.items()}
        self.present = Counter((key, id_) for key, ids in self.final.items() for id_ in ids)
        seen = {id_ for _, id_ in self.present}
        self.applied = {i: d for i, d in self.done.items() if d.committed or i in seen}
        """Those that are known to have happened: committed, or seen of unknown outcome."""
        self.groups: dict[str, str] = {}

    def tell(self, kind: AnomalyKind, about: str, message: str) -> None:
        """Keep an anomaly, the first time that it is about this."""
        self.found.setdefault((kind, about), Anomaly(kind, message))

    def check_appends(self) -> None:
        """A committed append is there; those of an unknown outcome are all there or none is."""
        for (key, id_), times in self.appends.items():
            if id_ in self.applied and self.present[key, id_] < times:
                sure = self.done[id_].committed
                kind = AnomalyKind.LOST_APPEND if sure else AnomalyKind.HALF_APPLIED
                message = f"{self.done[id_]} was applied, and its append to {key} is not there"
                self.tell(kind, f"{id_} {key}", message)

    def order_of_lists(self) -> Iterator[Edge]:
        """Derive what each list and each read say about order, and compare them."""
        for key, ids in self.final.items():
            yield from (Edge(a, b, Why.WW, key) for a, b in pairwise(ids) if a != b)
        for done in self.applied.values():
            own: Counter[str] = Counter()
            for op in done.ops:
                if isinstance(op, Append):
                    own[op.key] += 1
                else:
                    yield from self._order_of_read(done, op, own[op.key])

    def _order_of_read(self, done: Done, read: Read, own: int) -> Iterator[Edge]:
        key, seen, order = read.key, read.seen, self.final.get(read.key, ())
        if (mine := seen.count(done.id)) != own:
            message = f"{done} saw {mine} of the {own} that it had appended to {key}"
            self.tell(AnomalyKind.INTERNAL, f"{done.id} {key}", message)
        if order[: len(seen)] != seen:
            seen = self._clean(key, seen, str(done))
        if order[: len(seen)] != seen:
            self._tell_disorder(done, key, seen, order)
            return
        last = seen[-1] if seen else done.id
        if last != done.id:
            yield Edge(last, done.id, Why.WR, key)
            if (times := self.appends[key, last]) > 1 and (part := seen.count(last)) < times:
                message = f"{done} saw {part} of the {times} that {last} appended to {key}"
                self.tell(AnomalyKind.INTERMEDIATE_READ, f"{done.id} {key}", message)
        if len(seen) < len(order) and order[len(seen)] not in (done.id, last):
            yield Edge(done.id, order[len(seen)], Why.RW, key)

    def _tell_disorder(
        self, done: Done, key: str, seen: tuple[str, ...], order: tuple[str, ...]
    ) -> None:
        for id_ in seen:
            if not self.present[key, id_]:
                message = f"{done} read {id_} in {key}, and the final state lacks it"
                self.tell(AnomalyKind.LOST_UPDATE, f"{id_} {key}", message)
        pairs = enumerate(zip(seen, order, strict=False))
        if other := next(((at, a, b) for at, (a, b) in pairs if a != b), None):
            at, its, final = other
            message = f"{done} read {its} at {at} in {key}, where the final state has {final}"
            self.tell(AnomalyKind.INCOMPATIBLE_ORDER, f"{done.id} {key}", message)

    def _clean(self, key: str, ids: Sequence[str], where: str) -> tuple[str, ...]:
        """Tell what should not be in a list at all, and leave it out of the further search."""
        times: Counter[str] = Counter()
        kept = []
        for id_ in ids:
            times[id_] += 1
            if (key, id_) not in self.appends:
                kind = AnomalyKind.UNWRITTEN
            elif self.done[id_].committed is False:
                kind = AnomalyKind.ABORTED_READ
            elif times[id_] > self.appends[key, id_]:
                kind = AnomalyKind.DUPLICATED
            else:
                kept.append(id_)
                continue
            message = f"{self.done.get(id_, id_)} is in {key}, as {where} has it"
            self.tell(kind, f"{id_} {key}", message)
        return tuple(kept)

    def order_of_batches(self, flows: Mapping[str, Flow]) -> Iterator[Edge]:
        """Each batch once, none left out, groups whole; and the order that this asks for."""
        for name, batches in self._batches(flows).items():
            flow = flows.get(name, Flow(name))
            self._check_whole(flow, batches)
            for procedure, ids in list(batches.items()):
                sure = {batch: id_ for batch, id_ in sorted(ids.items()) if id_ is not None}
                for one, other in pairwise(sure.values()):
                    yield Edge(one, other, Why.BATCH, f"{name}.{procedure}")
                for giver in flow.after.get(procedure, ()):
                    for batch, id_ in sure.items():
                        if (given := batches[giver].get(batch)) is not None:
                            yield Edge(given, id_, Why.FLOW, name)

    def _batches(self, flows: Mapping[str, Flow]) -> dict[str, Batches]:
        found: dict[str, Batches] = {name: defaultdict(dict) for name in flows}
        for done in self.done.values():
            if done.kind is not Kind.BATCH or done.committed is False:
                continue
            ids = found.setdefault(done.dataflow, defaultdict(dict))[done.procedure]
            first = ids.get(done.batch)
            if done.id not in self.applied:
                if all(isinstance(op, Read) for op in done.ops):
                    ids.setdefault(done.batch, None)
            elif first is not None:
                self.tell(AnomalyKind.TWICE, done.id, f"{self.done[first]} and {done} committed")
            else:
                ids[done.batch] = done.id
                if done.nested is not None:
                    self.groups[done.id] = f"{done.dataflow}.{done.nested} #{done.batch}"
        return found

    def _check_whole(self, flow: Flow, batches: Batches) -> None:
        begin = min((batch for ids in batches.values() for batch in ids), default=0)
        for procedure in {**batches, **flow.after}:
            those = [procedure, *(p for p, givers in flow.after.items() if procedure in givers)]
            end = max((batch for p in those for batch in batches[p]), default=begin - 1)
            wanted = range(begin, end + 1) if flow.batches is None else flow.batches
            if gone := [str(batch) for batch in wanted if batch not in batches[procedure]]:
                some = ", ".join(gone[:TOLD_MAX])
                message = f"{flow.name}.{procedure} did not do {len(gone)} batches: {some}"
                self.tell(AnomalyKind.SKIPPED, f"{flow.name}.{procedure}", message)
        for group, members in flow.nests.items():
            for batch in {batch for member in members for batch in batches[member]}:
                if gone := [member for member in members if batch not in batches[member]]:
                    message = f"{flow.name}.{group} did batch {batch} without {', '.join(gone)}"
                    self.tell(AnomalyKind.HALF_APPLIED, f"{flow.name}.{group} {batch}", message)

    def check_cycles(self, edges: Sequence[Edge]) -> None:
        """Find cycles, layer by layer; what lies on those of a layer is left out of the next."""
        rank = {why: place for place, why in enumerate(LAYERS)}
        edges = sorted(edges, key=lambda edge: rank[edge.why])  # of two, the plainer is kept
        known: set[Why] = set()
        told: set[str] = set()
        cycles = 0
        for why, kind in LAYERS.items():
            known.update([why] if why else [])
            names = {} if why else self.groups
            left = (e for e in edges if e.why in known and not told & {e.source, e.target})
            graph = _graph(left, names)
            while (component := _component(graph)) and cycles < CYCLES_MAX:
                self._tell_cycle(kind, _shortened(_shortest(_within(graph, component), why)))
                told |= component
                cycles += 1
                graph = _within(graph, graph.keys() - component)

    def _tell_cycle(self, kind: AnomalyKind, cycle: list[Edge]) -> None:
        if kind is AnomalyKind.G2 and sum(edge.why is Why.RW for edge in cycle) == 1:
            kind = AnomalyKind.G_SINGLE
        ids = [cycle[0].source]
        for edge in cycle:
            # Where a nested group is one, a cycle may leave it from another member.
            ids += [edge.source, edge.target] if edge.source != ids[-1] else [edge.target]
        message = "; ".join(
            f"{self.done[edge.source]} {edge.why.value} {self.done[edge.target]} [{edge.over}]"
            for edge in cycle
        )
        self.found[kind, " ".join(ids)] = Anomaly(kind, message, tuple(ids))


def _real_time(calls: Iterable[Done]) -> Iterator[Edge]:
    """Lead from calls that have ended to one that begins, unless through another of them."""
    moments: list[tuple[float, bool, Done]] = []
    for call in calls:
        if call.began is not None:
            moments.append((call.began, False, call))
            if call.committed and call.ended is not None:
                moments.append((call.ended, True, call))
    ended: list[tuple[float, Done]] = []
    for moment, is_end, call in sorted(moments, key=lambda moment: moment[:2]):
        if is_end:
            ended = [(end, other) for end, other in ended if end >= (call.began or 0.0)]
            ended.append((moment, call))
        else:
            yield from (Edge(other.id, call.id, Why.REAL_TIME, "clock") for _, other in ended)


def _graph(edges: Iterable[Edge], names: Mapping[str, str]) -> Graph:
    """Make a graph in which those with one name are one."""
    graph: Graph = {}
    for edge in edges:
        source, target = (names.get(id_, id_) for id_ in edge[:2])
        graph.setdefault(target, {})
        if source != target:
            graph.setdefault(source, {}).setdefault(target, edge)
    return graph


def _within(graph: Graph, nodes: AbstractSet[str]) -> Graph:
    return {
        source: {target: edge for target, edge in targets.items() if target in nodes}
        for source, targets in graph.items()
        if source in nodes
    }


def _component(graph: Graph) -> set[str]:
    """Find a strongly connected component; nothing, if there is no cycle."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        start: str = error.args[1][0]
    else:
        return set()
    back = _graph((Edge(target, source, *edge[2:]) for source, target, edge in _steps(graph)), {})
    return {start, *_came(graph, start)} & {start, *_came(back, start)}


def _steps(graph: Graph) -> Iterator[tuple[str, str, Edge]]:
    return ((s, t, edge) for s, targets in graph.items() for t, edge in targets.items())


def _shortest(component: Graph, why: Why | None) -> list[Edge]:
    """Find a cycle with one edge of a layer, if there is one, or with several: the shortest."""
    starts = [step for step in _steps(component) if why in (step[2].why, None)][:STARTS_MAX]
    for avoided in (why, None):
        ways = [
            [edge, *way]
            for source, target, edge in starts
            if (way := _way(component, target, source, avoided))
        ]
        if ways:
            return min(ways, key=len)
    raise AssertionError("every edge of a component lies on a cycle")


def _way(graph: Graph, start: str, goal: str, avoided: Why | None) -> list[Edge]:
    came = _came(graph, start, avoided)
    way = []
    while goal != start and goal in came:
        goal, edge = came[goal]
        way.append(edge)
    return way[::-1]


def _came(graph: Graph, start: str, avoided: Why | None = None) -> dict[str, tuple[str, Edge]]:
    """Tell for each node that can be reached from where, and by which edge, it is nearest."""
    came: dict[str, tuple[str, Edge]] = {}
    waiting = deque([start])
    while waiting:
        node = waiting.popleft()
        for target, edge in graph[node].items():
            if target not in came and target != start and edge.why is not avoided:
                came[target] = node, edge
                waiting.append(target)
    return came


def _shortened(cycle: list[Edge]) -> list[Edge]:
    """Join steps over the same thing."""
    joined = cycle[:1]
    for edge in cycle[1:]:
        last = joined[-1]
        why = JOINS.get((last.why, edge.why)) if last.over == edge.over else None
        if why and last.target == edge.source and last.source != edge.target:
            joined[-1] = Edge(last.source, edge.target, why, edge.over)
        else:
            joined.append(edge)
    return joined
