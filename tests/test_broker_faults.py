"""What a broker and its topics may do to a running engine: it is exactly once, or stops loudly.

The broker is this file's own, for it is killed, frozen and emptied.
"""

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from alone import Alone, a_broker, data_folder
from kafka import TopicPartition
from kafka.admin import NewPartitions
from live import START_S, Board, Parts
from waiting import until

from headrace.config import Config
from headrace.errors import Exit
from headrace.local.home import Home
from ingest import topics

FROZEN_S = 12.0
"""Longer than a request of the engine to the broker may take."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Config:
    return data_folder(tmp_path_factory.mktemp("faults") / "home")


@pytest.fixture(scope="module")
def broker(settings: Config) -> Iterator[Alone]:
    with a_broker(settings) as running:
        yield running


@pytest.fixture
def board(
    broker: Alone, postgres_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Board:
    name = f"f{abs(hash(request.node.name)) % 10**8}"
    return Board(Parts(broker.address, postgres_url), tmp_path, name)


def phones(first: int, last: int) -> list[tuple[str, int]]:
    """One vote of each phone, for a contestant that there is."""
    return [(f"{n:05}", 1) for n in range(first, last)]


def arrived(board: Board) -> list[object]:
    return [phone for phone, *_ in board.arrived()]


def expected(count: int) -> list[str]:
    return [phone for phone, _ in phones(0, count)]


def deleted_through(board: Board, fraction: float = 1.0) -> None:
    """Delete records, as retention would."""
    held = topics.held(board.parts.broker, board.topic)
    with topics.admin(board.parts.broker) as client:
        client.delete_records(
            {TopicPartition(board.topic, p): int(o.stop * fraction) for p, o in held.items()}
        )


def test_a_broker_that_is_restarted_or_killed_costs_no_vote(board: Board, broker: Alone) -> None:
    board.vote(phones(0, 10))
    with board.engine() as engine:
        board.until_consumed(engine)
        broker.stop()
        broker.start()
        board.vote(phones(0, 20))
        board.until_consumed(engine)
        broker.kill()
        broker.start()
        board.vote(phones(20, 30))
        board.until_consumed(engine)
    assert arrived(board) == expected(30)
    assert len(board.dead_letters()) == 10


@pytest.mark.slow
def test_a_broker_that_is_frozen_costs_no_vote(board: Board, broker: Alone) -> None:
    board.vote(phones(0, 10))
    with board.engine() as engine:
        board.until_consumed(engine)
        broker.freeze()
        time.sleep(FROZEN_S)
        broker.thaw()
        board.vote(phones(10, 20))
        board.until_consumed(engine)
    assert arrived(board) == expected(20)
    assert board.dead_letters() == []


def test_what_is_read_of_a_topic_that_was_made_again_is_never_taken(board: Board) -> None:
    board.vote(phones(0, 10))
    # Spark looks at the topic so seldom that it does not see it gone.
    with board.engine(engine__trigger_ms="6000") as engine:
        board.until_consumed(engine)
        board.topic_is_lost()
        until(lambda: not _exists(board), START_S, board.log)
        board.vote(phones(10, 60))
        assert board.until_dead(engine) == Exit.FAILED
    assert "was deleted and made again while it was read" in board.log()
    assert arrived(board) == expected(10)


def _exists(board: Board) -> bool:
    with topics.admin(board.parts.broker) as client:
        return board.topic in client.list_topics()


@pytest.mark.slow
def test_a_topic_that_was_made_again_is_noticed_while_nothing_comes(board: Board) -> None:
    board.vote(phones(0, 10))
    with board.engine(engine__trigger_ms="60000") as engine:
        board.until_consumed(engine)
        board.topic_is_lost()
        until(lambda: not _exists(board), START_S, board.log)
        topics.ensure(board.parts.broker, board.stream)
        assert board.until_dead(engine) == Exit.FAILED
    assert "was deleted and made again while it was read" in board.log()


def test_a_topic_that_is_deleted_ends_the_engine_with_its_name(board: Board) -> None:
    board.vote(phones(0, 10))
    with board.engine() as engine:
        board.until_consumed(engine)
        board.topic_is_lost()
        assert board.until_dead(engine) != 0
    assert f"the broker has no topic {board.topic} any more" in board.log()


def test_records_that_are_deleted_before_they_were_read_end_the_engine(board: Board) -> None:
    board.vote(phones(0, 10))
    with board.engine(engine__trigger_ms="6000") as engine:
        board.until_consumed(engine)
        deleted_through(board)
        board.vote(phones(10, 60))
        deleted_through(board)
        board.vote(phones(60, 70))
        assert board.until_dead(engine) != 0
    assert arrived(board) == expected(10)
    with board.engine() as engine:
        assert board.until_dead(engine) == Exit.FAILED
    assert "were deleted before they were read" in board.log()


def test_records_that_are_deleted_after_they_were_read_and_a_new_partition_cost_nothing(
    board: Board,
) -> None:
    board.vote(phones(0, 10))
    with board.engine(engine__read_mb_max="1") as engine:
        board.until_consumed(engine)
        deleted_through(board)
        board.vote(phones(10, 20))
        board.until_consumed(engine)
        with topics.admin(board.parts.broker) as client:
            client.create_partitions({board.topic: NewPartitions(3)})
        large = {"contestant": 1, "more": 10_000 * "x"}
        board.send(json.dumps({"phone": p, **large}).encode() for p, _ in phones(20, 1_000))
        board.until_consumed(engine)
    # It has begun again at another pace.
    assert re.search(r"reading .* from \{'0': \d+, '1': -?\d+, '2': -?\d+\}", board.log())
    deleted_through(board)
    with board.engine() as engine:
        board.vote(phones(1_000, 1_010))
        board.until_consumed(engine)
    assert arrived(board) == expected(1_010)


@pytest.mark.slow
def test_a_broker_that_lost_its_data_ends_the_engine(
    board: Board, broker: Alone, settings: Config
) -> None:
    board.vote(phones(0, 10))
    with board.engine() as engine:
        board.until_consumed(engine)
        broker.kill()
        shutil.rmtree(Home(settings.home).broker / "log")
        broker.start()
        assert board.until_dead(engine) != 0
    assert f"the broker has no topic {board.topic} any more" in board.log()
    with board.engine() as engine:
        assert board.until_dead(engine) == Exit.FAILED
    assert "is not the one that was read before" in board.log()
    assert arrived(board) == expected(10)
