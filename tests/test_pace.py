"""How many records are read at once, for records of few tuples and of many."""

import pyarrow as pa
import pytest

from etl_procs.batch import LAST, place_of
from ingest.pace import DECODED, FIRST_RECORDS, FULL_TIMES, Pace


def read(records: int, tuples: int, size: int = 8) -> pa.Table:
    """Make what was read of so many records, each a frame of so many tuples."""
    places = [
        place_of(offset, index if index < tuples - 1 else LAST)
        for offset in range(records)
        for index in range(tuples)
    ]
    return pa.table({"_place": places, "of": [b"x" * size] * len(places)})


def test_single_records_are_read_as_many_as_tuples_may_be() -> None:
    pace = Pace(50_000, 64)
    assert pace.records == FIRST_RECORDS
    for _ in range(FULL_TIMES - 1):
        assert not pace.changes(read(FIRST_RECORDS, 1))
    assert pace.changes(read(FIRST_RECORDS, 1))
    assert pace.records == 50_000


def test_a_share_of_each_partition_that_is_rounded_down_is_full_too() -> None:
    pace = Pace(50_000, 64)
    changes = [pace.changes(read(FIRST_RECORDS - 2, 1)) for _ in range(FULL_TIMES)]
    assert changes[-1]


def test_a_stream_that_catches_up_does_not_begin_again() -> None:
    pace = Pace(50_000, 64)
    full, less = read(FIRST_RECORDS, 1), read(FIRST_RECORDS // 2, 1)
    assert not any(pace.changes(some) for _ in range(FULL_TIMES) for some in (full, full, less))


def test_frames_are_read_as_many_as_hold_about_so_many_tuples() -> None:
    pace = Pace(10_000, 64)
    assert pace.changes(read(FIRST_RECORDS, 100))
    assert pace.records == 100
    assert not pace.changes(read(100, 100)), "it is as it should be"


def test_records_that_are_large_are_read_one_by_one() -> None:
    pace = Pace(10_000, 1)
    assert pace.changes(read(8, 1, size=2**20))
    assert pace.records == 1


@pytest.mark.parametrize("records", [1, FIRST_RECORDS // 2])
def test_few_records_say_nothing_of_the_next(records: int) -> None:
    pace = Pace(50_000, 64)
    assert not any(pace.changes(read(records, 1)) for _ in range(FULL_TIMES))
    assert pace.records == FIRST_RECORDS


def test_a_small_part_of_one_frame_changes_nothing() -> None:
    assert not Pace(50_000, 64).changes(read(1, 5).slice(0, 2))


def test_reading_begins_with_as_many_records_as_those_that_wait_allow() -> None:
    def begun(records: int, tuples: int, size: int) -> int:
        pace = Pace(200_000, 64)
        pace.begin(records, tuples, size)
        return pace.records

    assert begun(1_000, 1_000, 100_000) == 200_000
    assert begun(10, 10_000, 300_000) == 200
    assert begun(2, 2, 2 * 2**20) == 64 // DECODED
    assert begun(1, 1, 2**30) == 1
    assert begun(3, 3, 0) == 200_000
    assert begun(0, 0, 0) == FIRST_RECORDS
