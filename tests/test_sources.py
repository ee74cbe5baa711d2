"""What a producer sends again changes nothing; partitions that finish; late tuples; order."""

import logging
from array import array
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from cutting import CORRECTED, Bench, Cut, Log, feed, for_any, log_of, moved, ways
from flows import arrived, offsets
from hypothesis import given
from hypothesis import strategies as st
from trial import Trial, nothing

from etl_procs import Batch, Dataflow, Late, Transaction, by_count, by_interval, by_punctuation
from etl_procs import Trial as AuthorsTrial
from etl_procs.batch import FINISHED, LAST, index_of, offset_of, place_of
from etl_procs.rules import Rule
from etl_procs.sources import RANGES_MAX, Seen
from headrace.errors import DefinitionError


def test_the_place_after_the_last_tuple_of_a_record_is_the_next_record() -> None:
    assert place_of(7) + 1 == place_of(8, 0)
    assert (offset_of(place_of(7, 3)), index_of(place_of(7, 3))) == (7, 3)
    assert place_of(7, 0) < place_of(7, 1) < place_of(7, LAST)


def without_the_lowest_gap(numbers: set[int], ranges_max: int) -> int:
    """Close the lowest gap among numbers if there are too many; tell where it ended, or 0."""
    gaps = [(a + 1, b) for a, b in pairwise(sorted(numbers)) if b > a + 1]
    if len(gaps) < ranges_max:
        return 0
    numbers.update(range(*gaps[0]))
    return gaps[0][1]


RUNS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), max_size=40)


@pytest.mark.parametrize("ranges_max", [3, RANGES_MAX])
@given(runs=RUNS)
def test_ranges_hold_what_a_set_does_and_of_too_many_gaps_not_the_lowest(
    ranges_max: int, runs: list[tuple[int, int]]
) -> None:
    seen, model, told_from = Seen(), set[int](), 0
    with patch("etl_procs.sources.RANGES_MAX", ranges_max):
        for first, count in runs:
            numbers = range(first, first + count)
            among = seen.among(numbers[0], numbers[-1])
            assert [n for a, b in among for n in range(a, b + 1)] == [
                n for n in numbers if n in model
            ]
            seen.add(numbers[0], numbers[-1])
            model.update(numbers)
            told_from = max(told_from, without_the_lowest_gap(model, ranges_max))
            assert seen.told_from == told_from
            assert len(seen.bounds) <= 2 * ranges_max
    assert all(a < b for a, b in pairwise(seen.bounds)), "disjoint, and never side by side"


def test_a_source_without_gaps_is_one_range_up_to_the_greatest_number() -> None:
    seen = Seen()
    for first in range(0, 10_000, 10):
        seen.add(first, first + 9)
    seen.add(10_000, 2**63 - 1)
    assert seen == Seen(array("Q", [0, 2**63]))
    assert seen.among(2**63 - 1, 2**63 - 1) == [(2**63 - 1, 2**63 - 1)]


def numbered(*sends: tuple[str, int, int]) -> str:
    """Write (source, first, count) as words."""
    return " ".join(
        f"{n}@{source}{n}" for source, first, count in sends for n in range(first, first + count)
    )


def test_what_is_sent_again_is_in_no_batch_and_its_position_is_passed() -> None:
    bench = Bench(by_count(2)).add(numbered(("a", 1, 4)))
    assert bench.names() == ["0:0 0:1", "0:2 0:3"]
    assert bench.add(numbered(("a", 1, 4)), first=4).names() == []
    assert bench.intake.passed() == {"a": {0: 8}}
    assert bench.add(numbered(("a", 4, 3)), first=8).names() == ["0:9 0:10"]


def test_another_source_and_another_partition_have_numbers_of_their_own() -> None:
    log = log_of(numbered(("a", 1, 2), ("b", 1, 2)), numbered(("a", 1, 2)))
    assert Bench(by_count(6), partitions=2).add(log).names() == ["0:0 0:1 0:2 0:3 1:0 1:1"]


def test_a_repeat_of_what_did_not_decode_is_no_second_dead_letter() -> None:
    assert Bench(by_count(2)).add("?@a1 ?@a1 2@a2").names() == ["0:2 ?0:0"]


def test_numbers_of_one_source_may_come_out_of_order_and_have_holes() -> None:
    assert Bench(by_count(4)).add("9@a9 3@a3 9@a9 5@a5 3@a3 4@a4").names() == ["0:0 0:1 0:3 0:5"]


def test_an_empty_entry_of_a_frame_is_no_tuple_and_ends_nothing() -> None:
    bench = Bench(by_count(2)).add("1@a1 -@a2 3@a3 -@a4")
    assert bench.names() == ["0:0 0:2"]
    assert bench.intake.passed() == {"a": {0: 4}}


def test_the_number_of_an_empty_entry_between_tuples_is_seen_and_goes_with_the_next() -> None:
    bench = Bench(by_count(2)).add("1@a1 -@a2 3@a3 -@a4 -@a5 6@a6 7@a7 8@a9 9@a10")
    cuts = bench.cuts()
    assert [[run[2:] for run in cut.numbers] for cut in cuts] == [[(1, 3)], [(4, 7)], [(9, 10)]]
    assert bench.add("2@a2 8@a8 4@a4 5@a5 11@a11", first=9).names() == ["0:10 0:13"]


def test_repeats_are_counted_and_said_once_of_each_source(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(by_count(1)).add(numbered(("a", 1, 4), ("b", 1, 2)))
    assert bench.intake.backlogs["a"].sources.repeats == 0
    bench.add("2@a2 -@a3 3@a3 9@a9", first=6).add("1@a1 2@b2 ?@b1", first=10)
    assert bench.intake.backlogs["a"].sources.repeats == 2 + 3
    assert bench.names()[-1] == "0:9"
    said = [record.getMessage() for record in caplog.records]
    again = "sends numbers {} again in partition 0: 2 tuples are passed over"
    assert said == [
        f"stream shop.a: source {source} {again.format(numbers)}"
        for source, numbers in (("a", "2 to 3"), ("b", "1 to 2"))
    ]
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_what_lies_in_a_gap_that_was_closed_is_told_from_a_repeat(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gaps = " ".join(f"{n}@a{n}" for n in range(0, 2 * RANGES_MAX + 1, 2))
    bench = Bench(by_count(1)).add(gaps)
    assert not caplog.records
    bench.add(f"1@a1 3@a3 {2 * RANGES_MAX}@a{2 * RANGES_MAX}", first=2_000)
    assert bench.names()[-1] == "0:2001", "only the lowest gap is closed"
    (warning,) = caplog.records
    assert "source a sends numbers 1 to 1 in partition 0: 1 tuples" in warning.getMessage()
    assert "whether they came cannot be told" in warning.getMessage()
    assert bench.intake.backlogs["a"].sources.repeats == 2


def test_a_gap_that_was_closed_is_still_told_from_a_repeat_when_a_lower_one_is() -> None:
    seen = Seen()
    for number in (*range(10, 2 * RANGES_MAX + 11, 2), 5):
        seen.add(number, number)
    assert (seen.among(6, 12), seen.told_from) == ([(6, 12)], 12)


def sends() -> st.SearchStrategy[Log]:
    each = st.tuples(st.sampled_from("ab"), st.integers(1, 30), st.integers(1, 9))
    return st.lists(each, max_size=12).map(lambda some: log_of(numbered(*some)))


@for_any
def test_however_it_is_sent_and_read_and_restarted_each_number_is_in_one_batch(
    data: st.DataObject,
) -> None:
    log = data.draw(sends())
    first: dict[str, str] = {}
    for record in log[0]:
        first.setdefault(record.text.partition("@")[2], record.name)
    cuts: list[Cut] = []
    for way in data.draw(st.lists(ways(1), max_size=3)):
        bench = Bench(by_count(3), after=cuts)
        cuts += feed(bench, log, way)
    cuts += Bench(by_count(3), after=cuts).add(log).cuts()
    whole = len(first) // 3 * 3
    assert [name for cut in cuts for name in cut.names] == list(first.values())[:whole]
    assert all(len(cut.names) == 3 for cut in cuts)


def test_a_partition_that_is_finished_closes_a_short_batch() -> None:
    bench = Bench(by_count(5)).add("1 2 .")
    assert bench.names() == ["0:0 0:1"]
    assert bench.intake.passed() == {"a": {0: 3}}
    assert bench.add(". 3 4 .", first=3).names() == ["0:4 0:5"]


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        (by_interval("at", 10), "5 .", "11 12 31"),
        (by_punctuation(), "5 .", "11 |1 12 |2"),
    ],
)
def test_nobody_waits_for_a_partition_that_is_finished(
    rule: object, first: str, second: str
) -> None:
    bench = Bench(rule, partitions=2).add(log_of(first, second))  # type: ignore[arg-type]
    cuts = bench.cuts()
    assert [name for cut in cuts for name in cut.names] == [
        "0:0",
        "1:0",
        "1:1" if first != second and "31" in second else "1:2",
    ]
    assert (bench.intake.passed()["a"][0], bench.intake.finished()) == (2, {"a": {0}})
    again = Bench(rule, partitions=2, after=cuts, finished={0})  # type: ignore[arg-type]
    again.add(log_of("", second))
    again.add(log_of("", "_ _ _ _ 55 66 |3"))
    assert again.names(), "it is not waited for after a restart either"


def test_that_a_partition_is_finished_is_in_the_ledger_until_it_brings_something(
    tmp_path: Path,
) -> None:
    flow = Dataflow("f")
    stream = flow.stream("s", "n INTEGER NOT NULL", batches=by_punctuation())
    flow.procedure(takes=stream)(nothing)
    trial = Trial(tmp_path / "core.db", flow)
    trial.partitions[stream.topic] = [0, 1]
    trial.reopen()

    def rounds(*partitions: int) -> int:
        trial.log.clear()  # as if retention had deleted what was consumed
        for partition in partitions:
            trial.feed(stream, [(1,)], partition=partition)
            marks[partition] += 1
            trial.mark(stream, marks[partition], partition=partition)
        done = len(trial.core.drain())
        trial.core.move_on()
        return done

    marks = [0, 0]
    assert rounds(0, 1) == 1
    trial.mark(stream, FINISHED, partition=1)
    assert rounds(0) == 1
    assert offsets(trial.core.positions(stream)) == {0: 4, 1: 3}
    trial.reopen()
    assert rounds(0) == 1, "nobody waits for the other"
    marks[1] = marks[0]
    assert rounds(1, 0) == 1
    trial.reopen()
    assert rounds(0) == 0, "it is waited for again"
    trial.close()


def test_when_all_are_finished_no_empty_rounds_are_cut() -> None:
    bench = Bench(by_punctuation(), partitions=2).add(log_of("1 .", "2 ."))
    assert bench.names() == ["0:0 1:0"]
    assert bench.names() == []


def test_a_finished_partition_that_brings_more_is_waited_for_again() -> None:
    bench = Bench(by_punctuation(), partitions=2).add(log_of("1 |1 .", "1 |1 2 |2"))
    assert bench.names() == ["0:0 1:0", "1:2"]
    assert bench.intake.finished() == {"a": {0}}
    bench.add(log_of("_ _ _ 3", "_ _ _ _ 4 |3"))
    assert bench.names() == []
    assert bench.intake.finished() == {"a": set()}
    assert bench.add(log_of("_ _ _ _ |3", "")).names() == ["0:3 1:4"]


def test_what_is_undecodable_is_let_go_when_all_is_finished() -> None:
    assert Bench(by_interval("at", 10)).add("? .").names() == ["?0:0"]


LATE_LOG = "5 11 7 25 12 3 41"


def test_what_is_late_joins_the_open_batch() -> None:
    assert Bench(by_interval("at", 10)).add(LATE_LOG).names() == ["0:0", "0:1 0:2", "0:3 0:4 0:5"]


def test_what_is_late_may_be_a_dead_letter() -> None:
    bench = Bench(by_interval("at", 10, late=Late.DEAD)).add(LATE_LOG)
    assert bench.names() == ["0:0", "0:1 ?0:2", "0:3 ?0:4 ?0:5"]


def test_what_is_late_may_go_to_a_stream_of_its_own() -> None:
    cuts = Bench(by_interval("at", 10, late=CORRECTED)).add(LATE_LOG).cuts()
    assert [(cut.names, cut.late) for cut in cuts] == [
        (["0:0"], []),
        (["0:1"], ["0:2"]),
        (["0:3"], ["0:4", "0:5"]),
    ]


def test_a_batch_has_its_tuples_in_the_order_of_the_column() -> None:
    bench = Bench(by_count(5), order="at").add("9 3 7 3 1")
    assert bench.names() == ["0:4 0:1 0:3 0:2 0:0"]


def test_a_tuple_in_another_order_still_knows_where_it_came_from(tmp_path: Path) -> None:
    flow = Dataflow("f")
    numbers = flow.stream("numbers", "n INTEGER NOT NULL", batches=by_count(3), order="n")

    @flow.procedure(takes=numbers)
    def reject(tx: Transaction, batch: Batch) -> None:
        tx.reject(batch.rows()[0], "the least")

    trial = Trial(tmp_path / "core.db", flow)
    trial.feed(numbers, [(5,), (2,), (9,)])
    trial.core.drain()
    assert [(x.offset, x.value) for x in trial.letters()] == [(1, b"(2,)")]
    trial.close()


def corrected() -> Dataflow:
    flow = Dataflow("meters")
    late = flow.stream("late", "at INTEGER NOT NULL")
    read = flow.stream("read", "at INTEGER NOT NULL", batches=by_interval("at", 10, late=late))
    table = flow.table("seen", "at INTEGER NOT NULL, late INTEGER NOT NULL, batch INTEGER NOT NULL")

    @flow.procedure(takes=[read, late], writes=[table])
    def keep(tx: Transaction, read: Batch, late: Batch) -> None:
        for batch, is_late in ((read, 0), (late, 1)):
            rows = [(at, is_late, tx.batch) for (at,) in batch.tuples]
            tx.executemany("INSERT INTO seen VALUES (?, ?, ?)", rows)

    return flow


def test_a_procedure_takes_corrections_with_the_batch_in_which_they_came(tmp_path: Path) -> None:
    flow = corrected()
    trial = Trial(tmp_path / "core.db", flow)
    trial.feed(flow.streams["read"], [(n,) for n in (1, 12, 3, 25)])
    trial.core.drain()
    assert trial.query("SELECT * FROM seen") == [(1, 0, 1), (12, 0, 2), (3, 1, 2)]
    trial.close()
    with AuthorsTrial(corrected()) as authors:
        authors.batch(read=[{"at": 5}], late=[{"at": 1}])
        assert [row["late"] for row in authors.query("SELECT * FROM seen")] == [0, 1]


def test_numbers_are_committed_with_their_tuples_and_read_by_the_next_engine(
    tmp_path: Path,
) -> None:
    flow = Dataflow("f")
    stream = flow.stream("s", "n INTEGER NOT NULL", batches=by_count(2))
    flow.procedure(takes=stream)(nothing)
    trial = Trial(tmp_path / "core.db", flow)

    def give(numbers: Iterable[int], first: int) -> None:
        part = arrived(stream, [(n,) for n in numbers], first=first)
        at = part.tuples.schema.get_field_index("_source")
        field = part.tuples.schema.field(at)
        sources = pa.array(["file"] * len(part.tuples), field.type)
        table = part.tuples.set_column(at, field, sources)
        table = table.set_column(at + 1, table.schema.field(at + 1), [list(numbers)])
        trial.give(type(part)(stream, table))

    give([1, 2, 3], 0)
    assert sum(c.tuples for c in trial.core.drain()) == 2
    seen = "SELECT source, bounds, told_from FROM headrace_sources"
    assert trial.query(seen) == [("file", array("Q", [1, 3]).tobytes(), 0)]
    trial.reopen()
    give([1, 2, 3, 4], 3)
    assert sum(c.tuples for c in trial.core.drain()) == 2
    assert trial.query(seen) == [("file", array("Q", [1, 5]).tobytes(), 0)]
    assert trial.core.queues() == {"f.s": {"tuples": 0, "oldest_s": 0.0, "repeats": 3}}
    trial.close()


def declared_with(mistake: str) -> Dataflow:
    flow, at = Dataflow("f"), "at INTEGER NOT NULL"
    columns, rule = at + ", n TEXT" * (mistake == "columns"), by_count(1)
    late = flow.stream("late", columns, batches=rule if mistake == "rule" else None)
    given: Any = "late" if mistake == "name" else late
    read = flow.stream("read", at, batches=by_interval("at", 10, late=given))
    if mistake == "twice":
        flow.stream("other", at, batches=by_interval("at", 10, late=given))

    @flow.procedure(takes=read, gives=late)
    def give(tx: Transaction, batch: Batch) -> None: ...

    @flow.procedure(takes=late)
    def take(tx: Transaction, batch: Batch) -> None: ...

    return flow


@pytest.mark.parametrize("mistake", ["columns", "rule", "twice", "name", "given"])
def test_a_stream_that_cannot_take_what_is_late_is_refused(mistake: str) -> None:
    with pytest.raises(DefinitionError, match="late"):
        declared_with(mistake).check()


def test_the_mark_of_a_finished_partition_is_no_event_time() -> None:
    assert moved(Bench(by_interval("at", 1)).add(f"{FINISHED - 1} .").cuts()) == [{0: 1}]


@pytest.mark.parametrize("rule", [by_interval("at", 10), by_punctuation()])
@for_any
def test_who_begins_after_a_mark_that_was_passed_cuts_as_who_goes_on(
    rule: Rule, data: st.DataObject
) -> None:
    words = st.sampled_from(["5", "13", "27", "39", "|1", "|2", "|4", *"....?"])
    lines = [" ".join(data.draw(st.lists(words, max_size=12))) for _ in range(2)]
    log, bench = log_of(*lines), Bench(rule, partitions=2)
    cuts = feed(bench, log, data.draw(ways(2))) + bench.cuts()
    passed = bench.intake.passed().get("a", {})
    finished = bench.intake.finished()["a"] & passed.keys()
    if cuts:
        last = replace(cuts[-1], positions=[cuts[-1].positions[0] | passed])
        again = Bench(rule, partitions=2, after=[*cuts[:-1], last], finished=finished)
        assert again.add(log).cuts() == bench.add(log).cuts()
