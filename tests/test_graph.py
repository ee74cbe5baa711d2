"""The graph: which units there are, in which order they run, and what is refused, with the fix."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trial import Trial, named, nothing, pass_on

from etl_procs import (
    Batch,
    Dataflow,
    Stream,
    Transaction,
    by_count,
    by_interval,
    by_punctuation,
    graph,
    last_tuples,
)
from etl_procs.core import core_path
from headrace.errors import DefinitionError

N = "n INTEGER NOT NULL"


class Drawn:
    """A dataflow drawn as arrows: each procedure with the streams that it takes and gives."""

    def __init__(self, *arrows: str, nests: Sequence[str] = ()) -> None:
        self.flow = Dataflow("drawn")
        self.ran: list[tuple[str, int, list[Any]]] = []
        """(procedure, batch, the numbers that it was given)"""
        parts = [[side.split() for side in arrow.split(":")] for arrow in arrows]
        given_streams = {name for _, _, gives in parts for name in gives}
        for name in dict.fromkeys(n for _, takes, gives in parts for n in takes + gives):
            rule = None if name in given_streams else by_punctuation()
            self.flow.stream(name, N, batches=rule)
        bodies = {}
        for (name,), takes, gives in parts:
            bodies[name] = self._body(name, [self.flow.streams[g] for g in gives])
            self.flow.procedure(
                takes=[self.flow.streams[t] for t in takes],
                gives=[self.flow.streams[g] for g in gives],
            )(bodies[name])
        for nest in nests:
            self.flow.nest(*(bodies[name] for name in nest.split()))

    def _body(self, name: str, gives: list[Stream]) -> Callable[..., None]:
        def body(tx: Transaction, *batches: Batch) -> None:
            numbers = [n for batch in batches for (n,) in batch.tuples]
            self.ran.append((name, tx.batch, numbers))
            for stream in gives:
                tx.emit(stream, [{"n": n} for n in numbers])

        return named(name, body)

    @property
    def units(self) -> list[str]:
        self.flow.check()
        return [unit.name for unit in graph.units(self.flow)]

    def order(self) -> list[str]:
        return [name for name, _, _ in self.ran]


DIAMOND = ("top: s: a b", "left: a: c", "right: b: d", "bottom: c d:")


def test_a_unit_comes_after_all_that_give_to_it() -> None:
    units = Drawn(*reversed(DIAMOND)).units
    assert units[0] == "top"
    assert units[-1] == "bottom"
    assert sorted(units[1:3]) == ["left", "right"]


def test_a_nested_group_is_one_unit_in_the_order_of_its_streams() -> None:
    drawn = Drawn(
        "third: b:", "second: a: b", "first: s: a", "aside: s:", nests=["third first second"]
    )
    assert sorted(drawn.units) == ["aside", "first+second+third"]
    (nest,) = [unit for unit in graph.units(drawn.flow) if len(unit.procedures) > 1]
    assert [stream.name for stream in nest.takes] == ["s"]


def test_procedures_of_a_nested_group_need_no_stream_between_them() -> None:
    assert Drawn("one: s:", "two: s:", nests=["one two"]).units in (["one+two"], ["two+one"])


@pytest.mark.parametrize(
    ("arrows", "nests", "circle"),
    [
        (["p: s b: a", "q: a: b"], [], "p -> q -> p|q -> p -> q"),
        (["p: s a: a"], [], "p -> p"),
        (["p: s: a", "q: a: b", "r: b:"], ["p r"], r"p\+r -> q -> p\+r|q -> p\+r -> q"),
    ],
)
def test_a_circle_is_refused_and_drawn(arrows: list[str], nests: list[str], circle: str) -> None:
    with pytest.raises(DefinitionError, match=f"drawn goes in a circle: ({circle})"):
        Drawn(*arrows, nests=nests).flow.check()


def flow() -> Dataflow:
    return Dataflow("f")


def _no_procedure(f: Dataflow) -> None:
    f.stream("s", N, batches=by_count(1))


def _no_source(f: Dataflow) -> None:
    f.procedure(takes=f.stream("s", N))(named("p", nothing))


def _two_sources(f: Dataflow) -> None:
    outside, both = f.stream("o", N, batches=by_count(1)), f.stream("s", N, batches=by_count(1))
    f.procedure(takes=outside, gives=[both])(named("p", nothing))
    f.procedure(takes=both)(named("q", nothing))


def _two_producers(f: Dataflow) -> None:
    outside, inner = f.stream("o", N, batches=by_count(1)), f.stream("s", N)
    f.procedure(takes=outside, gives=[inner])(named("p", nothing))
    f.procedure(takes=outside, gives=[inner])(named("q", nothing))
    f.procedure(takes=inner)(named("r", nothing))


def _two_producers_by_a_trigger(f: Dataflow) -> None:
    outside, one, other = f.stream("o", N, batches=by_count(1)), f.stream("a", N), f.stream("b", N)
    f.procedure(takes=outside, gives=[one])(named("p", nothing))
    f.procedure(takes=outside, gives=[other])(named("q", nothing))
    f.trigger(on=one, gives=[other])(named("t", nothing))
    f.procedure(takes=[one, other])(named("r", nothing))


def _nobody_takes(f: Dataflow) -> None:
    f.procedure(takes=f.stream("o", N, batches=by_count(1)), gives=[f.stream("s", N)])(
        named("p", nothing)
    )


def _a_window_of_two(f: Dataflow) -> None:
    outside, window = f.stream("o", N, batches=by_count(1)), f.window("w", N, last_tuples(3))
    f.procedure(takes=outside, gives=[window])(named("p", nothing))
    f.procedure(takes=outside, gives=[window])(named("q", nothing))


def _a_window_of_nobody(f: Dataflow) -> None:
    f.window("w", N, last_tuples(3))
    f.procedure(takes=f.stream("o", N, batches=by_count(1)))(named("p", nothing))


def _triggers_in_a_circle(f: Dataflow) -> None:
    one, other = f.window("a", N, last_tuples(1)), f.window("b", N, last_tuples(1))
    f.procedure(takes=f.stream("o", N, batches=by_count(1)), gives=[])(named("p", nothing))
    f.trigger(on=one, gives=[other])(named("t", nothing))
    f.trigger(on=other, gives=[one])(named("u", nothing))


def _event_time_and_count(f: Dataflow) -> None:
    streams = [
        f.stream("a", N, batches=by_interval("n", 10)),
        f.stream("b", N, batches=by_count(10)),
    ]
    f.procedure(takes=streams)(named("p", nothing))


def _two_intervals(f: Dataflow) -> None:
    streams = [f.stream(name, N, batches=by_interval("n", len(name))) for name in ("a", "bb")]
    f.procedure(takes=streams)(named("p", nothing))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (_no_procedure, r"f has no procedure.*\n.*@f\.procedure\(takes="),
        (_no_source, r"f\.s is given by no procedure, and has no batch rule.*\n.*batches=by_count"),
        (_two_sources, r"f\.s has a batch rule, and is given by p.*\n.*Leave the rule away"),
        (_two_producers, r"f\.s is given by p and by q\n.*declare a second stream"),
        (_two_producers_by_a_trigger, r"f\.b is given by [pq] and by [pq]\n"),
        (_nobody_takes, r"f\.s is taken by no procedure\n.*takes"),
        (_a_window_of_two, r"window f\.w is given by p, q, and belongs to exactly one\n.*gives"),
        (_a_window_of_nobody, r"window f\.w is given by no procedure"),
        (_triggers_in_a_circle, "goes in a circle: (t -> u -> t|u -> t -> u)"),
        (_event_time_and_count, r"by event time and otherwise.*\n.*by_interval of one length"),
        (_two_intervals, "by different intervals"),
    ],
)
def test_what_could_not_run_is_refused_with_the_fix(
    declare: Callable[[Dataflow], None], message: str
) -> None:
    f = flow()
    declare(f)
    with pytest.raises(DefinitionError, match=message):
        f.check()


def test_a_procedure_is_nested_once_and_only_with_its_own() -> None:
    f = flow()
    p, q = named("p", nothing), named("q", nothing)
    f.procedure(takes=f.stream("s", N, batches=by_count(1)))(p)
    with pytest.raises(DefinitionError, match="nests q, which is none of its procedures"):
        f.nest(p, q)
    with pytest.raises(DefinitionError, match=r"f\.p is nested twice"):
        f.nest(p, p)
    f.nest(p)
    with pytest.raises(DefinitionError, match=r"f\.p is nested twice"):
        f.nest(p)


def test_a_diamond_runs_each_batch_through_all_of_it_in_order(tmp_path: Path) -> None:
    drawn = Drawn(*DIAMOND)
    trial = Trial(core_path(tmp_path), drawn.flow)
    trial.run(drawn.flow.streams["s"], [(1,)], [], [(2,), (3,)])
    assert [(name, batch) for name, batch, _ in drawn.ran] == [
        (name, batch) for batch in (1, 2, 3) for name in drawn.units
    ]
    assert [numbers for name, _, numbers in drawn.ran if name == "bottom"] == [
        [1, 1],
        [],
        [2, 3, 2, 3],
    ]
    assert set(trial.ledger().values()) == {3}
    assert trial.pending() == []
    trial.close()


def test_several_border_streams_make_one_round(tmp_path: Path) -> None:
    drawn = Drawn("join: s t:", "alone: t:")
    trial = Trial(core_path(tmp_path), drawn.flow)
    s, t = drawn.flow.streams["s"], drawn.flow.streams["t"]
    trial.run(s, [(1,)], [(2,)])
    assert drawn.ran == []
    trial.run(t, [(10,)])
    assert [r for r in drawn.ran if r[0] == "join"] == [("join", 1, [1, 10])]
    trial.run(t, [])
    assert drawn.ran[-2:] == [("join", 2, [2]), ("alone", 2, [])] or drawn.ran[-2:] == [
        ("alone", 2, []),
        ("join", 2, [2]),
    ]
    trial.close()


@st.composite
def dags(draw: st.DrawFn) -> list[str]:
    """Draw procedures that take what is given by earlier ones, or what comes from outside."""
    arrows, streams = [], ["border"]
    for number in range(draw(st.integers(1, 6))):
        takes = draw(st.lists(st.sampled_from(streams), min_size=1, max_size=3, unique=True))
        arrows.append((f"p{number}", takes, f"s{number}"))
        streams.append(f"s{number}")
    taken = {name for _, takes, _ in arrows for name in takes}
    lines = [
        f"{name}: {' '.join(takes)}: {given if given in taken else ''}"
        for name, takes, given in arrows
    ]
    return draw(st.permutations(lines))


@given(dags())
def test_any_dag_is_ordered_so_that_givers_come_first(arrows: list[str]) -> None:
    drawn = Drawn(*arrows)
    place = {name: index for index, name in enumerate(drawn.units)}
    givers = {s.name: p.name for p in drawn.flow.procedures.values() for s in p.gives}
    for procedure in drawn.flow.procedures.values():
        for stream in procedure.takes:
            if stream.name in givers:
                assert place[givers[stream.name]] < place[procedure.name]


def test_two_dataflows_take_turns_and_each_has_its_own_ledger(tmp_path: Path) -> None:
    flows, ran = [], []
    for name in ("one", "two"):
        f = Dataflow(name)

        def body(tx: Transaction, batch: Batch, name: str = name) -> None:
            ran.append((name, tx.batch))

        f.procedure(takes=f.stream("s", N, batches=by_punctuation()))(named("p", body))
        flows.append(f)
    trial = Trial(core_path(tmp_path), *flows, group_batches_max=1)
    for f in flows:
        for _ in range(2):
            trial.end(f.streams["s"], [(1,)])
    committed = trial.core.drain()
    assert [c.dataflow for c in committed] == ["one", "two", "one", "two"]
    assert ran == [("one", 1), ("two", 1), ("one", 2), ("two", 2)]
    assert [trial.batch(f) for f in flows] == [2, 2]
    trial.close()


def test_one_dataflow_reads_what_another_has_written(tmp_path: Path) -> None:
    writing, reading = Dataflow("writing"), Dataflow("reading")
    shared = writing.table("shared", "n INTEGER PRIMARY KEY")
    seen: list[Any] = []

    @writing.procedure(takes=writing.stream("s", N, batches=by_punctuation()), writes=[shared])
    def write(tx: Transaction, batch: Batch) -> None:
        tx.executemany("INSERT INTO shared VALUES (?)", batch.tuples)

    @reading.procedure(takes=reading.stream("s", N, batches=by_punctuation()), reads=[shared])
    def read(tx: Transaction, batch: Batch) -> None:
        seen.extend(tx.query("SELECT sum(n) AS s FROM shared"))

    trial = Trial(core_path(tmp_path), writing, reading)
    trial.run(writing.streams["s"], [(1,), (2,)])
    trial.run(reading.streams["s"], [])
    assert seen == [{"s": 3}]
    trial.close()


def test_a_stream_may_be_given_on_as_arrow(tmp_path: Path) -> None:
    f = flow()
    s, a = f.stream("s", N, batches=by_punctuation()), f.stream("a", N)
    out = f.outlet("out", N)
    f.procedure(takes=s, gives=[a])(named("p", pass_on(a)))
    f.procedure(takes=a, gives=[out])(named("q", pass_on(out)))
    trial = Trial(core_path(tmp_path), f)
    trial.run(s, [(1,), (2,)])
    assert trial.staged(out) == [(1, 1), (1, 2)]
    trial.close()
