"""How long streams rest between two readings, so that many do not take all cores."""

from unittest.mock import MagicMock, patch

import pyarrow as pa
import pytest
from flows import HeldClock

from etl_procs import Dataflow, by_count
from etl_procs.batch import LAST, PARTITION, PLACE, place_of
from headrace import config
from ingest.batcher import Batcher
from ingest.crowd import RECENT_S, SHORT_S, Crowd
from ingest.pace import FIRST_RECORDS


def test_one_stream_does_not_rest_and_many_rest_as_long_as_they_read() -> None:
    crowd = Crowd(lambda: 4, HeldClock())
    assert [crowd.rest_s(topic, 0.2) for topic in "aabcdef"] == pytest.approx(
        [0, 0, 0, 0.1, 0.2, 0.2, 0.2]
    )


def test_one_stream_does_not_rest_on_one_core() -> None:
    crowd = Crowd(lambda: 1, HeldClock())
    assert [crowd.rest_s(topic, 0.2) for topic in "aab"] == [0, 0, 0.2]


def test_of_a_cluster_that_grows_as_many_cores_count_as_there_are() -> None:
    cores = [2, 64]
    crowd = Crowd(lambda: cores.pop(0), HeldClock())
    assert [crowd.rest_s(topic, 0.2) for topic in "aba"] == [0, 0.2, 0]


def test_who_brings_nothing_any_more_keeps_nobody_back() -> None:
    clock = HeldClock()
    crowd = Crowd(lambda: 2, clock)
    assert crowd.rest_s("a", 0.2) == 0
    assert crowd.rest_s("b", 0.2) == 0.2
    clock.advance(RECENT_S + 0.1)
    assert crowd.rest_s("b", 0.2) == 0


def test_what_took_long_for_its_tuples_is_followed_by_no_rest() -> None:
    crowd = Crowd(lambda: 2, HeldClock())
    assert [crowd.rest_s(topic, SHORT_S) for topic in "abc"] == [0, 0, 0]


@pytest.mark.parametrize(("records", "rests_s"), [(3, [0.25]), (FIRST_RECORDS, [])])
def test_the_next_micro_batch_waits_for_the_rest_unless_there_is_more_to_read(
    records: int, rests_s: list[float]
) -> None:
    clock, frame = HeldClock(), MagicMock()
    stream = Dataflow("f").stream("s", "n INTEGER", batches=by_count(1))
    crowd = Crowd(lambda: 2, clock)
    crowd.rest_s("others", 0.1)
    batcher = Batcher(MagicMock(), stream, config.load(environment={}).config, crowd, clock)
    batcher._watched = MagicMock()

    places = [place_of(offset, LAST) for offset in range(records)]
    read = pa.table({PARTITION: [0] * records, PLACE: places})
    frame.toArrow = lambda: clock.advance(0.25)
    with (
        patch("ingest.batcher.gathered", return_value=read),
        patch.object(batcher._stopped, "wait") as rest,
    ):
        batcher._hand_over(frame)
    assert [call.args[0] for call in rest.call_args_list] == rests_s


def test_to_stop_ends_a_rest() -> None:
    clock = HeldClock()
    crowd = Crowd(lambda: 2, clock)
    stream = Dataflow("f").stream("s", "n INTEGER", batches=by_count(1))
    batcher = Batcher(MagicMock(), stream, config.load(environment={}).config, crowd, clock)
    batcher.stop()
    assert batcher._stopped.wait(0)
