"""Partitions: each tuple is one's, and all see how far a stream has come."""

import zlib
from collections.abc import Sequence
from dataclasses import replace

import pytest
from cutting import (
    CLOSE,
    COUNT,
    INTERVAL,
    PUNCTUATION,
    Bench,
    Cut,
    Log,
    Record,
    at_once,
    feed,
    for_any,
    log_of,
    logs,
    tuples_of,
    ways,
)
from hypothesis import strategies as st

from etl_procs import by_count, by_interval, by_punctuation
from etl_procs.routing import partition_of
from etl_procs.rules import Missing, Rule, Value

OF = 3
RULES = pytest.mark.parametrize(
    ("rule", "lanes"), [(COUNT, 1), (INTERVAL, 1), (INTERVAL, 3), (PUNCTUATION, 3)]
)


def divided(rule: Rule, log: Log, after: Sequence[Sequence[Cut]] = ((), (), ())) -> list[list[Cut]]:
    """Cut all that can be cut, on each partition."""
    return [
        Bench(rule, partitions=len(log), me=me, of=OF, after=after[me]).add(log).cuts()
        for me in range(OF)
    ]


def owner(record: Record) -> int:
    return 0 if record.word == "?" else partition_of(record.name, OF)


def test_the_partition_of_a_key_is_a_checksum_of_its_text() -> None:
    assert partition_of("Ann", 7) == zlib.crc32(b"Ann") % 7
    assert partition_of(42, 7) == partition_of("42", 7)


@RULES
@for_any
def test_each_record_is_in_a_round_of_its_own_partition_and_of_no_other(
    rule: Rule, lanes: int, data: st.DataObject
) -> None:
    log = data.draw(logs(lanes))
    for me, cuts in enumerate(divided(rule, log)):
        found = [name for cut in cuts for name in cut.names]
        mine = {record.name for record in tuples_of(log) if owner(record) == me}
        assert len(found) == len(set(found))
        assert mine.issuperset(found)


@pytest.mark.parametrize(("rule", "lanes"), [(INTERVAL, 1), (INTERVAL, 3), (PUNCTUATION, 3)])
@for_any
def test_by_time_and_by_punctuation_all_cut_the_same_rounds(
    rule: Rule, lanes: int, data: st.DataObject
) -> None:
    """Batch r of all partitions together is batch r of the undivided stream."""
    log = data.draw(logs(lanes))
    parts = divided(rule, log)
    whole = at_once(rule, log)
    for cuts in parts:
        assert [(cut.id, cut.epoch) for cut in cuts] == [(cut.id, cut.epoch) for cut in whole]
    for nth, cut in enumerate(whole):
        together = [name for cuts in parts for name in cuts[nth].names]
        assert sorted(together) == sorted(cut.names)


@RULES
@for_any
def test_however_a_log_is_read_and_wherever_it_begins_again_the_rounds_are_the_same(
    rule: Rule, lanes: int, data: st.DataObject
) -> None:
    log = data.draw(logs(lanes))
    for me, cuts in enumerate(divided(rule, log)):
        done = data.draw(st.integers(0, len(cuts)))
        again = Bench(rule, partitions=lanes, me=me, of=OF, after=cuts[:done])
        found = feed(again, log, data.draw(ways(lanes))) + again.add(log).cuts()
        assert said(found) == said(cuts[done:])


def said(cuts: Sequence[Cut]) -> list[tuple[object, ...]]:
    """Give what is in rounds; how far they move the positions depends on the reading."""
    return [(cut.id, cut.epoch, cut.text) for cut in cuts]


@pytest.mark.parametrize("rule", [COUNT, PUNCTUATION])
@for_any
def test_what_is_passed_holds_nothing_of_ours_that_was_not_cut(
    rule: Rule, data: st.DataObject
) -> None:
    log, me = data.draw(logs(2)), data.draw(st.integers(0, OF - 1))
    bench = Bench(rule, partitions=2, me=me, of=OF)
    cuts = feed(bench, log, data.draw(ways(2))) + bench.cuts()
    found = {name for cut in cuts for name in cut.names}
    for lane, through in bench.intake.passed().get("a", {}).items():
        before = [r for r in tuples_of(log) if r.partition == lane and r.offset < through]
        assert {r.name for r in before if owner(r) == me} <= found


@for_any
def test_after_what_was_passed_the_same_rounds_are_cut(data: st.DataObject) -> None:
    log, me = data.draw(logs(2)), data.draw(st.integers(0, OF - 1))
    bench = Bench(PUNCTUATION, partitions=2, me=me, of=OF)
    cuts = feed(bench, log, data.draw(ways(2)))
    if cuts:
        positions = cuts[-1].positions[0] | bench.intake.passed().get("a", {})
        passed = [*cuts[:-1], replace(cuts[-1], positions=[positions])]
        rest, again = (
            Bench(PUNCTUATION, partitions=2, after=after, me=me, of=OF).add(log).cuts()
            for after in (cuts, passed)
        )
        assert said(again) == said(rest)


def test_where_no_punctuation_comes_what_is_others_is_passed() -> None:
    log = log_of(of_others(9))
    bench = Bench(by_punctuation(timeout_s=5, on_timeout=CLOSE), me=1, of=OF).add(log).wait(9)
    assert bench.names() == [], "the others close theirs when they have waited long enough"
    assert bench.intake.passed() == {"a": {0: log[0][-1].offset + 1}}


def test_a_punctuation_that_cannot_be_taken_is_a_dead_letter_of_one_partition() -> None:
    dead = []
    for me in range(OF):
        bench = Bench(PUNCTUATION, me=me, of=OF).add("1 |20000 1 |1")
        dead += [name for cut in bench.cuts() for name in cut.text[0].split() if name[0] == "?"]
    assert dead == ["?0:1"]


def of_others(count: int, me: int = 1) -> str:
    """Write so many tuples of partition 0 of the topic that belong to others than `me`."""
    words: list[str] = []
    while len([word for word in words if word != "_"]) < count:
        name = f"0:{len(words)}"
        words.append("1" if partition_of(name, OF) != me else "_")
    return " ".join(words)


def test_a_partition_with_nothing_of_its_own_passes_what_is_others() -> None:
    log = log_of(of_others(9))
    bench = Bench(by_count(2), me=1, of=OF).add(log)
    assert bench.names() == []
    assert bench.of_each("waiting") == {"a": 0}
    assert bench.intake.oldest() is None
    last = log[0][-1].offset
    assert bench.intake.passed() == {"a": {0: last + 1}}
    bench.intake.move({"a": {0: last + 1}})
    assert bench.intake.passed() == {}
    assert bench.add(log).intake.passed() == {}, "it was passed already"


@pytest.mark.parametrize(
    ("rule", "words", "is_cut"),
    [
        *((by_count(2), "1 2", True), (by_count(3), "1 2", False)),
        *((INTERVAL, "5 .", True), (INTERVAL, "5 15", False)),
        *((PUNCTUATION, "1 |1", True), (PUNCTUATION, "1 |1 2", False)),
    ],
)
def test_where_the_log_goes_on_without_a_record_its_end_is_passed_when_nothing_waits_before_it(
    rule: Rule, words: str, is_cut: bool
) -> None:
    bench = Bench(rule).add(words).add("", through={0: 7})
    bench.cuts()
    assert bench.intake.passed() == ({"a": {0: 7}} if is_cut else {})
    assert Bench(rule, me=1, of=OF).add("", through={0: 7}).intake.passed() == {"a": {0: 7}}


def test_nothing_is_passed_while_something_of_ours_waits() -> None:
    whole = log_of("1 " * 30)
    bench = Bench(by_count(99), me=1, of=OF).add(whole)
    assert bench.of_each("waiting")["a"] > 0
    assert bench.intake.passed() == {}


def test_what_is_filled_in_is_in_the_partition_of_its_key_alone() -> None:
    names = [f"filled{n}" for n in range(9)]

    def fill(_missing: Missing) -> list[dict[str, Value]]:
        return [{"at": 5, "name": name} for name in names]

    rule = by_interval("at", 10, timeout_s=5, on_timeout=fill)
    found = []
    for me in range(OF):
        cuts = Bench(rule, me=me, of=OF).add("5 6 7").wait(5).cuts()
        mine = [name for cut in cuts for name in cut.names if name in names]
        assert {partition_of(name, OF) for name in mine} <= {me}
        found += mine
    assert sorted(found) == names
