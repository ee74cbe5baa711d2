"""The checker of histories: it finds each known anomaly, and none where there is none."""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, permutations

import history
import pytest
from history import Anomaly, AnomalyKind, Append, Done, Flow, Kind, Read, check, explain
from hypothesis import assume, event, given
from hypothesis import strategies as st

FLOW = Flow("f", {"p": (), "q": ("p",), "m": (), "n": ("m",)}, {"nest": ("m", "n")})
Op = Read | Append
Final = dict[str, tuple[str, ...]]
HEAD = re.compile(r"(\w)([!?]?)(?:/(?:(\w)\.)?(\w)(\d))?(?:@(\d)-(\d?))?")
OUTCOMES = {"": True, "!": False, "?": None}


def batch(id_: str, procedure: str, number: int, dataflow: str = "f") -> Done:
    nested = "nest" if procedure in "mn" else None
    return Done(id_, Kind.BATCH, True, (), dataflow, procedure, number, nested=nested)


def call(id_: str, began: float | None = None, ended: float | None = None) -> Done:
    return Done(id_, Kind.CALL, True, (), began=began, ended=ended)


def parse(text: str) -> tuple[list[Done], Final]:
    """Read a history and its final state: "a/p1 +x; b! x:a +y => x=a y=".

    a/p1: id a, batch 1 of procedure p; b: a call, b@0-1: a call from 0 to 1; !: aborted, ?: of
    unknown outcome. +x: append to x; x:ab: read a and b in x.
    """
    done, _, final = text.partition("=>")
    found = [transaction(*words.split()) for words in done.split(";") if words.strip()]
    lists = [word.split("=") for word in final.split()]
    return found, {key: tuple(ids) for key, ids in lists}


def transaction(head: str, *words: str) -> Done:
    parsed = HEAD.fullmatch(head)
    assert parsed, head
    id_, outcome, dataflow, procedure, number, began, ended = parsed.groups()
    made = batch(id_, procedure, int(number), dataflow or "f") if procedure else call(id_)
    ops = tuple(Append(w[1:]) if w[0] == "+" else Read(w[0], tuple(w[2:])) for w in words)
    if began:
        made = replace(made, began=float(began), ended=float(ended) if ended else None)
    return replace(made, committed=OUTCOMES[outcome], ops=ops)


def kinds(anomalies: Sequence[Anomaly]) -> set[AnomalyKind]:
    return {anomaly.kind for anomaly in anomalies}


def found(text: str, flow: Flow = FLOW) -> list[Anomaly]:
    return check(*parse(text), [flow])


CASES = [
    ("ABORTED_READ", "an aborted transaction is read", "a! +x; b x:a =>"),
    ("ABORTED_READ", "an aborted transaction is in the final state", "a! +x; b +x => x=ab"),
    ("UNWRITTEN", "an id is read that nobody recorded", "b x:z => x=z"),
    ("UNWRITTEN", "an id is in a list that its transaction did not append to", "a +x => x=a y=a"),
    ("INTERMEDIATE_READ", "the first of two appends to a list is read", "a +x +x; b x:a => x=aa"),
    ("INTERNAL", "a transaction does not see what it appended", "a +x x: => x=a"),
    ("INTERNAL", "a transaction sees what it is going to append", "a x:a +x => x=a"),
    ("INCOMPATIBLE_ORDER", "two reads in two orders", "a +x; b +x; c x:ab; d x:ba => x=ab"),
    ("INCOMPATIBLE_ORDER", "a read that leaves out the middle", "a +x; b +x; c +x x:ac => x=abc"),
    (
        "INCOMPATIBLE_ORDER LOST_UPDATE LOST_APPEND",
        "a lost update: it was read, then written over",
        "a +x; c x:a; b x: +x => x=b",
    ),
    ("LOST_UPDATE", "a lost update: what was read of unknown outcome is gone", "a? +x; b x:a =>"),
    ("G_SINGLE", "a lost update: two read the same and append", "a x: +x; b x: +x => x=ab"),
    ("LOST_APPEND", "a lost append", "a +x; b +x => x=a"),
    ("LOST_APPEND", "the second append to a list is lost", "a +x +x => x=a"),
    ("DUPLICATED", "an append happened twice", "a +x; b +x => x=aba"),
    ("DUPLICATED", "an append is read twice", "a +x; b x:aa => x=a"),
    ("HALF_APPLIED", "half of a transaction of unknown outcome", "a? +x +y => x=a"),
    ("HALF_APPLIED", "one of two appends to a list, of unknown outcome", "a? +x +x => x=a"),
    ("G0", "G0: two write over each other", "a +x +y; b +x +y => x=ab y=ba"),
    ("G0", "G0: one comes between the appends of another", "a +x +x; b +x => x=aba"),
    ("G1C", "G1c: two see each other", "a +x y:b; b +y x:a => x=a y=b"),
    ("G_SINGLE", "read skew", "a +x +y; b x:a y: => x=a y=a"),
    ("G_SINGLE", "read skew of who wrote too", "a x: +y +w; b +x y:a w: => x=b y=a w=a"),
    ("G_SINGLE", "a read that is not repeatable", "a +x; b x: x:a => x=a"),
    ("G2", "write skew", "a y: +x; b x: +y => x=a y=b"),
    ("G2", "long fork", "a +x; b +y; c x:a y:; d x: y:b => x=a y=b"),
    (
        "REALTIME",
        "a call does not see one that was acknowledged before it began",
        "a@0-1 +x; b@2-3 x: => x=a",
    ),
    ("REALTIME", "of two at the same time, one is not seen", "a@0-2 +x; b@1-3; c@4-5 x: => x=a"),
    (
        "REALTIME",
        "an old state is read, by a call over two others",
        "a@0-1 +x; b@2-3 +x; c@4-5; d@6-7 x:a => x=ab",
    ),
    ("BATCH_ORDER", "a batch before an earlier one", "a/p1 +x; b/p2 +x => x=ba"),
    (
        "BATCH_ORDER",
        "a batch before an earlier one, as only others tell",
        "a/p1 +y; c x:b y:; b/p2 +x => x=b y=a",
    ),
    (
        "BATCH_ORDER",
        "a batch before one that is two earlier",
        "a/p1 +x; b/p2 +y; c/p3 +x => x=ca y=b",
    ),
    ("DATAFLOW_ORDER", "a procedure before its predecessor", "a/p1 +x; b/q1 +x => x=ba"),
    (
        "DATAFLOW_ORDER",
        "a procedure before its predecessor, as only a call tells",
        "a/p1 +y; c x:b y:; b/q1 +x => x=b y=a",
    ),
    (
        "NESTED_SPLIT",
        "a call comes between the members of a nested group",
        "a/m1 +x; c +x; b/n1 +x => x=acb",
    ),
    (
        "NESTED_SPLIT",
        "a call sees the first of a nested group only",
        "a/m1 +x; b/n1 +y; c x:a y: => x=a y=b",
    ),
    (
        "NESTED_SPLIT",
        "one group comes between the members of another",
        "a/m1 +x; b/n1 +y; c/g.m1 +x; d/g.n1 +y => x=ac y=db",
    ),
    (
        "HALF_APPLIED",
        "one of a nested group is there without the other",
        "a/m1 +x; b!/n1 +x => x=a",
    ),
    ("TWICE", "a batch committed twice", "a/p1 +x; b/p2 +x; c/p1 +x => x=abc"),
    (
        "TWICE",
        "a batch of unknown outcome was applied, and done again",
        "a?/p1 +x; b/p1 +x => x=ab",
    ),
    ("SKIPPED", "a batch is left out", "a/p1 +x; b!/p2 +x; c/p3 +x => x=ac"),
    ("SKIPPED", "a batch that appends nothing is left out", "a/p1 +x; b!/p2; c/p3 +x => x=ac"),
    ("SKIPPED", "a batch of unknown outcome is left out", "a/p1 +x; b?/p2 +x; c/p3 +x => x=ac"),
    ("SKIPPED", "a predecessor left a batch out", "a/p1 +x; b/q1 +x; c/q2 +x => x=abc"),
    (
        "G0 G2",
        "several anomalies that have nothing to do with each other",
        "a +x +y; b +x +y; c w: +v; d v: +w => x=ab y=ba v=c w=d",
    ),
]

RIGHT = {
    "nothing at all": "=>",
    "calls at the same time may come in any order": "b@0-2 +x; a@1-3 +x; c@2-4 x: => x=ab",
    "the order of acknowledgement binds calls only": "a/p1@0-1 +x; b@2-3 x: => x=a",
    "what was never acknowledged binds nobody": "a?@0-1 +x; b@2-3 x: => x=a",
    "unknown: nothing of it": "a? +x +y =>",
    "unknown: all of it": "a? +x +y => x=a y=a",
    "an attempt aborts, and the next one commits": "a!/p1 +x; b/p1 +x => x=b",
    "unknown: a batch that appends nothing was perhaps done": "a/p1 +x; b?/p2; c/p3 +x => x=ac",
    "what aborted transactions read binds nobody": "a +x; b! x: x:a x: => x=a",
    "a transaction sees its own appends": "a +x; b x:a +x x:ab => x=ab",
    "members of a nested group follow each other": "a/m1 +x; b/n1 x:a +x; c +x x:abc => x=abc",
    "an old state is read by a call that nothing obliges": "a +x; b +y; c x: y:b => x=a y=b",
    "another dataflow has batches of its own": "a/p1 +x; b/g.p2 +x => x=ba",
    "one procedure is ahead of the next": "a/p1 +x; b/p2 +x; c/q1 +x => x=abc",
}


@pytest.mark.parametrize(("names", "what", "text"), CASES, ids=lambda value: value)
def test_a_known_anomaly_is_found_by_its_name(names: str, what: str, text: str) -> None:
    anomalies = found(text)
    assert kinds(anomalies) == {AnomalyKind[name] for name in names.split()}, explain(anomalies)


def test_every_kind_of_anomaly_has_a_history() -> None:
    assert {name for names, _, _ in CASES for name in names.split()} == set(AnomalyKind.__members__)


@pytest.mark.parametrize("what", RIGHT)
def test_what_is_right_is_no_anomaly(what: str) -> None:
    assert explain(found(RIGHT[what])) == "no anomaly"


def test_what_every_procedure_must_have_done_can_be_said() -> None:
    text = "a/p1 +x; b/p2 +x; c/q1 +x; d/q2 +x => x=abcd"
    flow = replace(FLOW, after={"p": (), "q": ("p",)}, batches=range(1, 3))
    assert explain(found(text, flow)) == "no anomaly"
    late = found(text, replace(flow, batches=range(1, 4)))
    assert [anomaly.message for anomaly in late] == [
        "f.p did not do 1 batches: 3",
        "f.q did not do 1 batches: 3",
    ]
    assert kinds(found("", flow)) == {AnomalyKind.SKIPPED}


def test_two_attempts_have_two_ids() -> None:
    with pytest.raises(AssertionError, match="a is two attempts"):
        found("a +x; a +y")


def test_a_cycle_is_told_by_its_shortest_way() -> None:
    (anomaly,) = found("a/p1 +x; b/p2 +x; c/p3 +x; d/p4 +x; e/p5 +x => x=edcba")
    assert anomaly.kind is AnomalyKind.BATCH_ORDER
    assert len(anomaly.cycle) == 3
    assert anomaly.cycle[0] == anomaly.cycle[-1]


def test_of_the_cycles_in_a_component_the_shortest_is_told() -> None:
    (anomaly,) = found("a +x +y +w; b +x +y +z; c +z +w => x=ab y=ba z=bc w=ca")
    assert set(anomaly.cycle) == {"a", "b"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "a/p2 +x; b +x; c +x; d +x; e/p1 +x => x=abcde",
            [
                "e (p #1) is the batch before a (p #2) [f.p]",
                "a (p #2) appended before e (p #1) [x]",
            ],
        ),
        (
            "a +x; b +x +y; c x: y:b => x=ab y=b",
            ["c did not see b [x]", "b was seen by c [y]"],
        ),
        (
            "a +x +z; b +x +y; c +y +z => x=ab y=bc z=ca",
            ["a appended before b [x]", "b appended before c [y]", "c appended before a [z]"],
        ),
        ("a +x +x; b +x => x=aba", ["a appended before b [x]", "b appended before a [x]"]),
    ],
)
def test_steps_through_one_list_are_told_as_one_and_others_are_not(
    text: str, told: list[str]
) -> None:
    (anomaly,) = found(text)
    assert sorted(anomaly.message.split("; ")) == sorted(told)


def test_a_split_group_names_its_members_and_who_came_between() -> None:
    (anomaly,) = found("a/m1 +x; c +x; b/n1 +x => x=acb")
    assert set(anomaly.cycle) == {"a", "b", "c"}


def test_a_cycle_with_one_missed_write_is_preferred_to_one_with_several() -> None:
    skew = "a y: +x; b x: +y +z; c x:a z:; d y:b"
    final = "x=a y=b z=b"
    assert kinds(found(f"{skew} => {final}")) == {AnomalyKind.G2}
    assert kinds(found(f"{skew}; e y:b z: => {final}")) == {AnomalyKind.G_SINGLE}


def lost(count: int) -> list[Anomaly]:
    return check([replace(call(f"t{n}"), ops=(Append("x"),)) for n in range(count)], {})


def test_an_explanation_groups_by_kind_and_is_bounded() -> None:
    lines = explain(lost(history.TOLD_MAX + 5)).splitlines()
    assert lines[0] == "LOST_APPEND - the final state lacks a committed append (15)"
    assert len(lines) == 2 + history.TOLD_MAX
    assert lines[-1] == "  and 5 more"


def test_what_has_thousands_of_cycles_is_told_by_some() -> None:
    done = [
        replace(call(f"{one}{n}"), ops=(Read(f"{other}{n}", ()), Append(f"{one}{n}")))
        for n in range(history.CYCLES_MAX + 5)
        for one, other in ("xy", "yx")
    ]
    anomalies = check(done, {d.id: (d.id,) for d in done})
    assert [anomaly.kind for anomaly in anomalies] == [AnomalyKind.G2] * history.CYCLES_MAX


class Serial:
    """Runs transactions one after the other, and records what they did."""

    def __init__(self, choose: random.Random) -> None:
        self.done: list[Done] = []
        self.lists: dict[str, list[str]] = {key: [] for key in "xyz"}
        self._choose = choose

    @property
    def final(self) -> Final:
        return {key: tuple(ids) for key, ids in self.lists.items()}

    def rounds(self, count: int) -> None:
        """Run batches through FLOW, one round after the other or a few at the same time."""
        did = dict.fromkeys(FLOW.after, 0)
        while any(number < count for number in did.values()):
            self.calls()
            ready = [
                p for p in ("p", "q", "m") if did[p] < count and (p != "q" or did["p"] > did["q"])
            ]
            chosen = self._choose.choice(ready)
            for procedure in FLOW.nests["nest"] if chosen == "m" else (chosen,):
                did[procedure] += 1
                self.run(batch("?", procedure, did[procedure]))
        self.calls()

    def calls(self) -> None:
        for _ in range(self._choose.randrange(3)):
            began = len(self.done) - self._choose.random() * 3
            self.run(call("?", began, len(self.done) + self._choose.random() * 3))

    def run(self, kind: Done) -> None:
        """Run one of a kind: after attempts that fail, it commits, and is perhaps not told."""
        while self._choose.random() > 0.9:
            self._attempt(
                replace(kind, committed=self._choose.choice([False, None])), applied=False
            )
        self._attempt(replace(kind, committed=None if self._choose.random() > 0.9 else True))

    def _attempt(self, kind: Done, applied: bool = True) -> None:
        id_, before = f"t{len(self.done)}", self.final
        ops: list[Op] = []
        for _ in range(self._choose.randrange(5)):
            key = self._choose.choice("xyz")
            if self._choose.random() < 0.5:
                ops.append(Read(key, tuple(self.lists[key])))
            else:
                ops.append(Append(key))
                self.lists[key].append(id_)
        if not applied:
            self.lists = {key: list(ids) for key, ids in before.items()}
        self.done.append(replace(kind, id=id_, ops=tuple(ops)))


def serial(choose: random.Random) -> Serial:
    run = Serial(choose)
    run.rounds(choose.randint(1, 6))
    return run


seeds = st.randoms(use_true_random=False)


@given(choose=seeds)
def test_a_serial_history_has_no_anomaly(choose: random.Random) -> None:
    run = serial(choose)
    assert explain(check(run.done, run.final, [FLOW])) == "no anomaly"


@given(choose=seeds)
def test_the_order_in_which_transactions_are_recorded_tells_nothing(
    choose: random.Random,
) -> None:
    run = serial(choose)
    choose.shuffle(run.done)
    assert explain(check(run.done, run.final, [FLOW])) == "no anomaly"


def reads(run: Serial) -> Iterator[tuple[int, int, Read]]:
    for at, done in enumerate(run.done):
        for place, op in enumerate(done.ops):
            if done.committed and isinstance(op, Read):
                yield at, place, op


def reread(run: Serial, at: int, place: int, seen: Sequence[str]) -> None:
    """Let one read have seen something else."""
    done = run.done[at]
    again = Read(done.ops[place].key, tuple(seen))
    run.done[at] = replace(done, ops=(*done.ops[:place], again, *done.ops[place + 1 :]))


def a_pair(run: Serial, choose: random.Random) -> tuple[int, int, Read, int]:
    """Choose two neighbours in a read."""
    found = [
        (at, place, read, first)
        for at, place, read in reads(run)
        for first, (one, other) in enumerate(pairwise(read.seen))
        if one != other
    ]
    assume(found)
    return choose.choice(found)


def swap_in_a_read(run: Serial, choose: random.Random) -> set[AnomalyKind]:
    at, place, read, first = a_pair(run, choose)
    seen = [*read.seen]
    seen[first], seen[first + 1] = seen[first + 1], seen[first]
    reread(run, at, place, seen)
    return {AnomalyKind.INCOMPATIBLE_ORDER}


def leave_out_in_a_read(run: Serial, choose: random.Random) -> set[AnomalyKind]:
    at, place, read, first = a_pair(run, choose)
    reread(run, at, place, [*read.seen[:first], *read.seen[first + 1 :]])
    return {AnomalyKind.INCOMPATIBLE_ORDER}


def written(run: Serial) -> list[tuple[str, int]]:
    sure = {done.id for done in run.done if done.committed}
    found = [(k, at) for k, ids in run.lists.items() for at, i in enumerate(ids) if i in sure]
    assume(found)
    return found


def drop_an_append(run: Serial, choose: random.Random) -> set[AnomalyKind]:
    key, at = choose.choice(written(run))
    del run.lists[key][at]
    return {AnomalyKind.LOST_APPEND}


def repeat_an_append(run: Serial, choose: random.Random) -> set[AnomalyKind]:
    key, at = choose.choice(written(run))
    run.lists[key].insert(choose.randint(at, len(run.lists[key])), run.lists[key][at])
    return {AnomalyKind.DUPLICATED}


def abort_what_is_there(run: Serial, choose: random.Random) -> set[AnomalyKind]:
    key, at = choose.choice(written(run))
    run.done = [
        replace(done, committed=False) if done.id == run.lists[key][at] else done
        for done in run.done
    ]
    return {AnomalyKind.ABORTED_READ}


def forget_a_record(run: Serial, choose: random.Random) -> set[AnomalyKind]:
    key, at = choose.choice(written(run))
    run.done = [done for done in run.done if done.id != run.lists[key][at]]
    return {AnomalyKind.UNWRITTEN}


def repeat_a_batch(run: Serial, choose: random.Random) -> set[AnomalyKind]:
    found = [done for done in run.done if done.kind is Kind.BATCH and done.committed]
    assume(found)
    run.done.append(replace(choose.choice(found), id="again", ops=()))
    return {AnomalyKind.TWICE}


MUTATIONS = [
    swap_in_a_read,
    leave_out_in_a_read,
    drop_an_append,
    repeat_an_append,
    abort_what_is_there,
    forget_a_record,
    repeat_a_batch,
]


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda mutate: mutate.__name__)
@given(choose=seeds)
def test_one_wrong_thing_in_a_serial_history_is_found(
    mutate: Callable[[Serial, random.Random], set[AnomalyKind]], choose: random.Random
) -> None:
    run = serial(choose)
    wanted = mutate(run, choose)
    anomalies = check(run.done, run.final, [FLOW])
    assert wanted <= kinds(anomalies), explain(anomalies)


def in_order(run: Sequence[Done], final: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether an order of transactions is one that FLOW and the clock allow, and says it all.

    This is what the promises mean, said as directly as can be: the checker must agree.
    """
    lists: dict[str, tuple[str, ...]] = dict.fromkeys(final, ())
    for done in run:
        for op in done.ops:
            if isinstance(op, Append):
                lists[op.key] = (*lists[op.key], done.id)
            elif lists[op.key] != op.seen:
                return False
    if lists != dict(final):
        return False
    place = {done.id: at for at, done in enumerate(run)}
    members = {done.procedure: place[done.id] for done in run if done.nested}
    return (
        all(place[one.id] < place[two.id] for one in run for two in run if must_precede(one, two))
        and members.get("n", 1) - members.get("m", 0) == 1
    )


def must_precede(one: Done, other: Done) -> bool:
    if one.kind is Kind.BATCH and other.kind is Kind.BATCH:
        if one.procedure == other.procedure:
            return one.batch < other.batch
        return one.batch == other.batch and one.procedure in FLOW.after[other.procedure]
    if one.kind is Kind.CALL and other.kind is Kind.CALL:
        assert one.ended is not None
        assert other.began is not None
        return one.ended < other.began
    return False


def any_history(choose: random.Random) -> tuple[list[Done], Final]:
    """Make a few transactions whose lists have any order, and whose reads saw any prefix."""
    some = choose.choice([
        [batch("a", "p", 1), batch("b", "p", 2), batch("c", "q", 1), batch("d", "q", 2)],
        [batch("a", "m", 1), batch("b", "n", 1), batch("c", "p", 1)],
        [batch("a", "p", 1), batch("b", "q", 1)],
        [],
    ])  # fmt: skip
    for id_ in "efgh"[: 5 - len(some)]:
        began = choose.randrange(6)
        some.append(call(id_, began, began + choose.randrange(6)))
    order = choose.sample(some, len(some))
    lists: dict[str, list[str]] = {key: [] for key in "xy"}
    ops: dict[str, list[Op]] = {done.id: [] for done in some}
    for done in order:
        for key in choose.sample("xy", choose.randint(0, 2)):
            if choose.random() < 0.6:
                ops[done.id].append(Read(key, tuple(lists[key])))
            else:
                ops[done.id].append(Append(key))
                lists[key].append(done.id)
    if choose.random() < 0.5:
        for id_, these in ops.items():
            own = {op.key for op in these if isinstance(op, Append)}
            ops[id_] = [any_prefix(op, lists, own, choose) for op in these]
    if choose.random() < 0.3:
        choose.shuffle(lists["x"])
    done_ = [replace(done, ops=tuple(ops[done.id])) for done in some]
    return done_, {key: tuple(ids) for key, ids in lists.items()}


def any_prefix(
    op: Op, lists: Mapping[str, Sequence[str]], own: set[str], choose: random.Random
) -> Op:
    if isinstance(op, Append) or op.key in own:
        return op
    return Read(op.key, tuple(lists[op.key][: choose.randint(0, len(lists[op.key]))]))


@given(choose=seeds)
def test_a_history_has_an_anomaly_exactly_if_no_order_of_its_transactions_explains_it(
    choose: random.Random,
) -> None:
    done, final = any_history(choose)
    explained = any(in_order(order, final) for order in permutations(done))
    event(f"explained: {explained}")
    anomalies = check(done, final, [FLOW])
    assert explained == (not anomalies), explain(anomalies)
