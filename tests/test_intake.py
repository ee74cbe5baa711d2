"""The intake: where border streams are cut, by each rule, and that nothing is cut twice or lost."""

import logging

import pyarrow as pa
import pytest
from cutting import (
    CLOSE,
    COUNT,
    DETERMINISTIC,
    INTERVAL,
    MARKED,
    TIMED,
    Bench,
    Log,
    Record,
    at_once,
    check_whole,
    feed,
    for_any,
    log_of,
    logs,
    ways,
)
from hypothesis import strategies as st

from etl_procs.batch import ARRIVAL, Arrived, Position
from etl_procs.errors import CoreError
from etl_procs.rules import Missing, Rule, Value, by_count, by_interval, by_punctuation


def test_a_batch_by_count_has_so_many_records_in_the_order_in_which_they_are_read() -> None:
    bench = Bench(by_count(2), partitions=2).add(log_of("", "1 2")).add(log_of("3 4 5"))
    assert bench.names() == ["1:0 1:1", "0:0 0:1"]
    assert bench.of_each("waiting") == {"a": 1}


def test_a_batch_may_reach_over_several_adds_and_partitions() -> None:
    (cut,) = Bench(by_count(3), partitions=2).add("1").add(log_of("9 1", "2 3 4")).cuts()
    assert cut.text == ["0:0 0:1 1:0"]
    assert cut.positions == [{0: 2, 1: 1}]


def test_what_does_not_decode_counts_and_is_handed_on_beside_the_batch() -> None:
    assert Bench(by_count(3)).add("1 ? 2 ? ? ?").names() == ["0:0 0:2 ?0:1", "?0:3 ?0:4 ?0:5"]


def test_a_punctuation_in_a_stream_by_count_is_passed_over() -> None:
    (cut,) = Bench(by_count(2)).add("|1 1 |2 2 |3").cuts()
    assert cut.text == ["0:1 0:3"]
    assert cut.positions == [{0: 4}]
    assert Bench(by_count(1)).add("|1 |2").names() == []


def test_a_batch_is_closed_short_when_its_first_record_has_lingered() -> None:
    bench = Bench(by_count(3, linger_s=2)).add("1").wait(1).add("2", first=1)
    assert bench.intake.oldest() == 100.0
    assert bench.intake.deadline() == 102.0
    assert bench.names() == []
    assert bench.wait(1).names() == ["0:0 0:1"]
    assert (bench.intake.deadline(), bench.intake.oldest()) == (None, None)
    assert bench.add("3 4 5", first=2).names() == ["0:2 0:3 0:4"]


def test_an_idle_dataflow_never_cuts() -> None:
    bench = Bench(by_count(3, linger_s=2), by_punctuation(timeout_s=1, on_timeout=CLOSE))
    assert bench.wait(1000).names() == []
    assert bench.intake.deadline() is None
    assert (Bench().names(), sum(Bench().of_each("ready").values())) == ([], 0)


@pytest.mark.parametrize(("count", "arrow"), [(1, False), (128, False), (130, True)])
def test_a_large_batch_is_arrow_and_a_small_one_is_rows(count: int, arrow: bool) -> None:
    cut = Bench(by_count(count)).add("1 ? " * 400).intake.next()
    assert cut is not None
    batch = cut.inputs[0].batch
    assert (batch._tuples is None) == arrow
    assert batch.table.schema == batch.stream.columns.arrow
    assert len(batch) == len(batch.tuples) == batch.table.num_rows


@pytest.mark.parametrize("count", [3, 64, 200])
def test_a_tuple_knows_where_it_came_from(count: int) -> None:
    bench = Bench(by_count(count), partitions=2).add(log_of("", "1 ? 2")).add("1 ? " * 200)
    for _ in range(2):
        cut = bench.intake.next()
        assert cut is not None
        batch = cut.inputs[0].batch
        for index, (_, name) in enumerate(batch.tuples):
            partition, offset = map(int, str(name).split(":"))
            assert batch.position(index) == Position(partition, offset, str(name).encode())
        assert batch.position(len(batch)) is None


# By punctuation.


def test_a_batch_by_punctuation_ends_when_every_partition_has_ended_it() -> None:
    bench = Bench(by_punctuation(), partitions=2)
    assert bench.add(log_of("1 2 |1 3", "4")).names() == []
    (cut,) = bench.add(log_of("", "4 5 |1")).cuts()
    assert cut.text == ["0:0 0:1 1:0 1:1"]
    assert cut.positions == [{0: 3, 1: 3}]
    assert cut.epoch == 1


def test_a_punctuation_of_a_later_batch_ends_those_before_it_too() -> None:
    cuts = Bench(by_punctuation()).add("1 |3 2 |4").cuts()
    assert [cut.text for cut in cuts] == [["0:0"], [""], [""], ["0:2"]]
    # It is consumed with the batch that it names: whoever begins before that must see it again.
    assert [cut.positions for cut in cuts] == [[{0: 1}], [{}], [{0: 2}], [{0: 4}]]


def test_a_repeated_punctuation_ends_nothing() -> None:
    bench = Bench(by_punctuation()).add("1 |1 |1 2 |1 3 |2")
    assert bench.names() == ["0:0", "0:3 0:5"]
    assert bench.add("|1 |2", first=7).wait(10).names() == []
    assert bench.intake.oldest() is None


def test_a_mark_that_waits_is_no_tuple_that_is_growing_old() -> None:
    bench = Bench(by_interval("at", 10)).add("5 |3")
    assert bench.names() == ["0:0"]
    assert (bench.intake.oldest(), bench.intake.oldest(tuples=True)) == (100.0, None)
    bench.wait(7).add("35", first=2)
    assert (bench.intake.oldest(), bench.intake.oldest(tuples=True)) == (100.0, 107.0)


def test_complete_batches_that_wait_for_another_stream_are_counted() -> None:
    bench = Bench(by_count(2), by_punctuation()).add("1 |1 2 |2 3", "b")
    assert max(bench.of_each("ready").values(), default=0) == 2
    bench.add("1 2 3 4 5 6 7")
    assert max(bench.of_each("ready").values(), default=0) == 3
    assert bench.of_each("waiting") == {"a": 7, "b": 3}
    assert bench.names() == ["0:0 0:1 / 0:0", "0:2 0:3 / 0:2"]
    assert max(bench.of_each("ready").values(), default=0) == 1


# By interval.


def test_an_interval_ends_when_every_partition_has_brought_a_later_event_time() -> None:
    bench = Bench(by_interval("at", 10), partitions=2)
    assert bench.add(log_of("1 9 10", "5 9")).names() == []
    (cut,) = bench.add(log_of("", "5 9 25")).cuts()
    assert (cut.id, cut.epoch, cut.text) == (1, 0, ["0:0 0:1 1:0 1:1"])
    assert cut.positions == [{0: 2, 1: 2}]


def test_an_interval_is_as_long_as_is_declared() -> None:
    assert Bench(by_interval("at", 7)).add("0 6 7 13 14").names() == ["0:0 0:1", "0:2 0:3"]


def test_intervals_without_a_tuple_cost_nothing() -> None:
    cuts = Bench(by_interval("at", 10)).add(f"-11 -10 {10**15} {10**15 + 10}").cuts()
    assert [(cut.id, cut.epoch) for cut in cuts] == [(1, -2), (2, -1), (3, 10**14)]


def test_a_tuple_after_a_later_one_of_its_partition_joins_its_batch() -> None:
    assert Bench(by_interval("at", 10)).add("11 5 21").names() == ["0:0 0:1"]
    bench = Bench(by_interval("at", 10), partitions=2).add(log_of("11 31", "5 31"))
    assert bench.names() == ["1:0", "0:0"]


def test_a_tuple_of_an_interval_that_is_closed_is_late_after_a_restart_as_before() -> None:
    bench = Bench(by_interval("at", 10)).add("5 21")
    before = bench.cuts()
    assert [cut.epoch for cut in before] == [0]
    assert bench.add("3 31", first=2).names() == ["0:1 0:2"]
    again = Bench(by_interval("at", 10), after=before).add("5 21 3 31")
    assert [(cut.id, cut.epoch, cut.text) for cut in again.cuts()] == [(2, 2, ["0:1 0:2"])]


def test_what_does_not_decode_belongs_to_what_is_open_in_its_partition() -> None:
    assert Bench(by_punctuation()).add("? 1 |1 ? |2").names() == ["0:1 ?0:0", "?0:3"]
    assert Bench(by_interval("at", 10)).add("1 ? 11 ? 21").names() == ["0:0 ?0:1", "0:2 ?0:3"]


def test_what_does_not_decode_before_any_event_time_joins_the_first_batch() -> None:
    bench = Bench(by_interval("at", 10), partitions=2).add(log_of("?", "1 11"))
    assert bench.names() == []
    assert bench.add("? ? 55").names() == ["1:0 ?0:0 ?0:1"]


def test_several_streams_by_interval_are_cut_at_the_same_epochs() -> None:
    bench = Bench(by_interval("at", 10), by_interval("at", 10)).add("1 21 41")
    assert (bench.names(), max(bench.of_each("ready").values(), default=0)) == ([], 2)
    cuts = bench.add("11 12 31 51", "b").cuts()
    assert [" / ".join(cut.text) for cut in cuts] == ["0:0 / ", " / 0:0 0:1", "0:1 / ", " / 0:2"]
    assert [cut.epoch for cut in cuts] == [0, 1, 2, 3]


def test_the_least_and_the_greatest_event_times_are_cut_too() -> None:
    log = f"? {-(2**63)} 0 {2**63 - 1}"
    assert Bench(by_interval("at", 1)).add(log).names() == ["0:1 ?0:0", "0:2"]


@pytest.mark.parametrize("greatest", [f"{2**63 - 1}", f"|{2**63 - 2} {2**63 - 1}"])
def test_after_the_greatest_event_time_a_stream_goes_on_and_so_does_the_next_engine(
    greatest: str,
) -> None:
    rule = by_interval("at", 1, timeout_s=5, on_timeout=CLOSE)
    first = 3 + len(greatest.split())
    last = f"0:{first}"
    bench = Bench(rule).add(f"1 {greatest} . 2", first=1)
    before = bench.cuts()
    assert [cut.text for cut in before] == [["0:1"], [f"0:{first - 2}"]]
    assert bench.wait(5).names() == [last]
    again = Bench(rule, after=before).add("2", first=first)
    assert again.wait(5).names() == [last]
    assert again.add("3 .", first=9).names() == ["0:9"]


def test_what_is_cut_leaves_nothing_in_the_size_of_what_waits() -> None:
    bench = Bench(by_count(1)).add("1 ? " * 50)
    each = bench.of_each("bytes")["a"] / 100
    for left in range(99, 0, -1):
        assert bench.intake.next()
        # A byte for each batch would be 128 MB within hours, and there would be no room any more.
        assert abs(bench.of_each("bytes")["a"] - each * left) < 1
    assert bench.intake.next()
    assert bench.of_each("bytes") == {"a": 0}


def test_a_partition_that_is_far_ahead_keeps_nothing_but_its_own_in_memory() -> None:
    bench = Bench(by_interval("at", 10), partitions=2)
    stream = bench.flow.streams["a"]
    schema = pa.schema([*ARRIVAL, *(f.with_nullable(True) for f in stream.columns.arrow)])
    before = pa.total_allocated_bytes()
    for n in range(9):
        rows = [(0, n, n * 10, b"x" * 10**6), (1, n, 10**6 + n, b"y")]
        named = [
            {"_partition": p, "_place": place, "_value": value, "at": at, "name": "z"}
            for p, place, at, value in rows
        ]
        bench.intake.add(Arrived(stream, pa.Table.from_pylist(named, schema)))
        bench.cuts()
    assert bench.of_each("waiting") == {"a": 10}
    assert pa.total_allocated_bytes() - before < 2 * 10**6


# Timeouts.


def test_a_batch_that_stays_open_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(by_punctuation(timeout_s=5), partitions=3).add(log_of("1 |1", "", "2"))
    assert bench.intake.deadline() == 105.0
    assert bench.names() == []
    assert not caplog.records
    for _ in range(3):
        assert bench.wait(5).names() == []
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        "stream shop.a: after 5 s, batch 1 stays open: 2 tuples; its end lacks in partition 1, 2"
    )
    assert bench.intake.deadline() is None
    bench.add(log_of("1 |1 3", "|1", "2 |1"))
    assert bench.names() == ["0:0 2:0"]
    assert bench.intake.deadline() == 120.0
    bench.wait(5).names()
    assert len(caplog.records) == 2


def test_a_batch_is_closed_with_what_is_there(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(by_punctuation(timeout_s=5, on_timeout=CLOSE), partitions=2)
    bench.add(log_of("1 |1 2 |2 3", "4"))
    assert bench.names() == []
    assert bench.wait(5).names() == ["0:0 1:0", "0:2", "0:4"]
    assert "batch 1 is closed with what is there: 2 tuples" in caplog.messages[0]
    # What comes for a batch that was closed joins the one that is open.
    bench.add(log_of("", "4 5 |1 6 |4")).add("|4", first=5)
    assert bench.names() == ["1:1 1:3"]


def test_an_interval_is_closed_with_what_is_there() -> None:
    rule = by_interval("at", 10, timeout_s=5, on_timeout=CLOSE)
    bench = Bench(rule, partitions=2).add(log_of("1 2", "")).wait(4).add("11", first=2)
    (first,) = bench.wait(1).cuts()
    assert bench.add(log_of("", "3")).intake.deadline() == 109.0
    assert (first.epoch, bench.wait(4).names()) == (0, ["0:2 1:0"])
    again = Bench(rule, partitions=2, after=[first]).add(log_of("1 2 11 21", "3 22"))
    assert again.names() == ["0:2 1:0"]


def test_what_never_decodes_is_handed_on_when_its_time_is_over() -> None:
    rule = by_interval("at", 10, timeout_s=5, on_timeout=CLOSE)
    bench = Bench(rule).add("? ?").wait(5)
    cuts = bench.cuts()
    assert [(cut.epoch, cut.text) for cut in cuts] == [(None, ["?0:0 ?0:1"])]
    assert bench.add("-5 7 17", first=2).names() == ["0:2", "0:3"]
    assert Bench(rule, after=cuts).add("? ? -5 7 17").names() == ["0:2", "0:3"]


def test_a_function_fills_in_what_is_missing(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[Missing] = []

    def guess(missing: Missing) -> list[dict[str, Value]]:
        asked.append(missing)
        return [{"name": "made", "at": len(missing.rows)}]

    bench = Bench(by_punctuation(timeout_s=5, on_timeout=guess)).add("1 ? 2").wait(5)
    cut = bench.intake.next()
    assert cut is not None
    batch = cut.inputs[0].batch
    assert batch.tuples == [(1, "0:0"), (2, "0:2"), (2, "made")]
    assert [batch.position(i) for i in (1, 2)] == [Position(0, 2, b"0:2"), None]
    assert (asked[0].stream, asked[0].batch) == ("a", 1)
    assert asked[0].rows == [{"at": 1, "name": "0:0"}, {"at": 2, "name": "0:2"}]
    assert "batch 1 is closed with 1 more that guess gave" in caplog.text


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"at": 1}, "a row without name"),
        ({"at": 1, "name": "x", "more": 1}, "a row that does not fit"),
        ({"at": "1", "name": "x"}, "at is '1', no INTEGER"),
        ({"at": None, "name": "x"}, "without at"),
        (None, "None is no dict by column name"),
    ],
)
def test_what_is_filled_in_must_fit_the_stream(row: dict[str, Value], message: str) -> None:
    def guess(missing: Missing) -> list[dict[str, Value]]:
        return [row]

    bench = Bench(by_punctuation(timeout_s=5, on_timeout=guess)).add("1").wait(5)
    for _ in range(2):  # it is still open
        with pytest.raises(CoreError, match=rf"stream shop\.a: guess, .*batch 1.*{message}"):
            bench.intake.next()
    assert bench.of_each("waiting") == {"a": 1}


# Several streams.


def test_a_round_has_the_batch_of_every_stream() -> None:
    bench = Bench(by_count(2), by_punctuation(), by_count(1)).add("1 2 3 4").add("1 |1 2", "b")
    assert bench.names() == []
    cuts = bench.add("9 9", "c").cuts()
    assert [cut.text for cut in cuts] == [["0:0 0:1", "0:0", "0:0"]]
    assert bench.of_each("waiting") == {"a": 2, "b": 1, "c": 1}


def test_a_stream_that_lingers_is_closed_empty_while_another_goes_on() -> None:
    bench = Bench(by_count(2), by_count(2, linger_s=3)).add("1 2 3 4 5")
    assert bench.intake.deadline() == 103.0
    assert bench.names() == []
    assert bench.wait(3).names() == ["0:0 0:1 / ", "0:2 0:3 / "]
    assert bench.wait(9).names() == []
    both = Bench(by_count(9, linger_s=5), by_count(9, linger_s=1)).add("1", "b")
    assert both.intake.deadline() == 105.0
    assert both.wait(5).names() == [" / 0:0"]


def test_a_stream_without_a_time_holds_the_round() -> None:
    bench = Bench(by_count(2, linger_s=1), by_punctuation(), by_count(2)).add("1").wait(9)
    assert bench.intake.deadline() is None
    assert bench.names() == []
    assert bench.add("|1", "b").names() == []
    assert bench.add("1 2", "c").names() == ["0:0 /  / 0:0 0:1"]


def test_a_timeout_closes_its_own_stream_only(caplog: pytest.LogCaptureFixture) -> None:
    rule = by_punctuation(timeout_s=2, on_timeout=CLOSE)
    bench = Bench(rule, by_punctuation()).add("1 2").add("1", "b").wait(5)
    assert bench.names() == []
    assert not caplog.records
    assert bench.add("1 |1", "b").names() == ["0:0 0:1 / 0:0"]
    assert len(caplog.records) == 1
    assert bench.add("|2", "b", first=2).intake.deadline() == 107.0  # a punctuation is something
    assert bench.wait(2).names() == [" / "]


# Limits.


def test_a_batch_that_is_too_large_is_refused_before_it_is_complete() -> None:
    bench = Bench(by_punctuation(), rows_max=3).add("1 2 3 |1 4 5 6 7")
    assert bench.intake.next() is not None
    with pytest.raises(CoreError, match=r"shop\.a: batch 2 has 4 rows, .* may have 3") as caught:
        bench.intake.next()
    assert "core.batch_rows_max" in caught.value.hint
    timed = Bench(by_interval("at", 10), rows_max=3).add("? ? 1 2")
    rule = by_punctuation(timeout_s=1, on_timeout=lambda _: [{"at": 1, "name": "x"}] * 3)
    filled = Bench(rule, rows_max=3).add("1").wait(1)
    for bench in (timed, filled):
        with pytest.raises(CoreError, match="batch 1 has 4 rows"):
            bench.intake.next()
    with pytest.raises(CoreError, match="batch 1 has 4 rows"):
        Bench(by_count(4), rows_max=3)


def test_a_partition_that_is_new_asks_for_a_restart() -> None:
    with pytest.raises(CoreError, match=r"topic shop\.a has a new partition: 1"):
        Bench(by_punctuation()).add(log_of("1", "2"))


def test_a_record_that_is_there_twice_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="twice"):
        Bench(by_count(1)).add({0: [Record(0, 1, "7")] * 2})


# For any log, read in any way.


@DETERMINISTIC
@for_any
def test_however_a_log_is_read_it_is_cut_in_the_same_places(
    rule: Rule, partitions: int, data: st.DataObject
) -> None:
    log, way = data.draw(logs(partitions)), data.draw(ways(partitions))
    bench = Bench(rule, partitions=partitions)
    cuts = feed(bench, log, way) + bench.add(log).cuts()
    assert cuts == at_once(rule, log)
    check_whole(log, cuts)


@DETERMINISTIC
@for_any
def test_wherever_an_engine_begins_again_it_cuts_the_same(
    rule: Rule, partitions: int, data: st.DataObject
) -> None:
    log = data.draw(logs(partitions))
    cuts = at_once(rule, log)
    done = data.draw(st.integers(0, len(cuts)))
    again = Bench(rule, partitions=partitions, after=cuts[:done])
    way = data.draw(ways(partitions))
    assert feed(again, log, way) + again.add(log).cuts() == cuts[done:]


@pytest.mark.parametrize("rule", [TIMED, MARKED])
@for_any
def test_after_a_timeout_an_engine_that_begins_again_cuts_as_one_that_went_on(
    rule: Rule, data: st.DataObject
) -> None:
    log = data.draw(logs(2))
    bench = Bench(rule, partitions=2)
    cuts = feed(bench, log, data.draw(ways(2))) + bench.cuts()
    went_on = bench.add(log).cuts()
    assert at_once(rule, log, after=cuts) == went_on
    check_whole(log, cuts + went_on)
    rest = bench.wait(99).cuts()
    assert bench.of_each("waiting") == {"a": 0}
    check_whole(log, cuts + went_on + rest)


@for_any
def test_by_count_over_partitions_every_record_is_in_one_round(data: st.DataObject) -> None:
    log, way = data.draw(logs(3)), data.draw(ways(3))
    bench = Bench(COUNT, partitions=3)
    cuts = feed(bench, log, way) + bench.add(log).cuts()
    check_whole(log, cuts)
    assert all(len(cut.names) == 3 for cut in cuts)
    done = data.draw(st.integers(0, len(cuts)))
    check_whole(log, cuts[:done] + at_once(COUNT, log, after=cuts[:done]))


def expected(log: Log, length: int) -> dict[int, list[str]]:
    """Cut by interval as the rule says it, record by record, with the whole log at hand."""
    held, reached = [], dict.fromkeys(log, -99)
    for record in (record for records in log.values() for record in records):
        if record.word[0] == "|":  # a punctuation tells the time
            own = int(record.word[1:])
        else:
            own = -99 if record.word == "?" else int(record.word) // length
        reached[record.partition] = max(reached[record.partition], own)
        held.append((reached[record.partition], record.name if record.word[0] != "|" else ""))
    ended = sorted({epoch for epoch, _ in held if -99 < epoch < min(reached.values())})
    return {
        epoch: [name for at, name in held if name and before < at <= epoch]
        for before, epoch in zip([-100, *ended], ended, strict=False)
    }


@for_any
def test_intervals_are_cut_as_the_rule_says(data: st.DataObject) -> None:
    log = data.draw(logs(2))
    cuts = at_once(INTERVAL, log)
    names = {cut.epoch or 0: sorted(cut.names) for cut in cuts}
    assert names == {epoch: sorted(of) for epoch, of in expected(log, 10).items()}
