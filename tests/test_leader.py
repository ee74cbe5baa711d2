"""A partition that is led by another broker: reading goes on, and every tuple counts once."""

from pathlib import Path

import pytest
from live import START_S, Board, Parts
from two_brokers import elect, leads, make, two_brokers
from waiting import until


def votes(first: int, count: int) -> list[tuple[str, int]]:
    return [(f"{number:05}", number % 6 + 1) for number in range(first, first + count)]


@pytest.mark.slow
def test_a_leader_that_dies_and_comes_back_loses_nothing_and_doubles_nothing(
    running: Parts, tmp_path: Path
) -> None:
    with two_brokers(tmp_path) as (broker, second):
        board = Board(Parts(broker.bootstrap, running.warehouse_url), tmp_path, "led")
        make(broker, board.topic)
        until(lambda: leads(broker, board.topic, 2), START_S, board.log)
        sent = votes(0, 100)
        board.vote(sent)
        with board.engine() as engine:
            board.until_consumed(engine)
            second.kill()
            until(lambda: leads(broker, board.topic, 1), START_S, board.log)
            more = votes(100, 100)
            board.vote(more)
            board.until_consumed(engine)
            second.start()

            def leads_again() -> bool:
                elect(broker, board.topic)
                return leads(broker, board.topic, 2)

            until(leads_again, START_S, board.log)
            most = votes(200, 100)
            board.vote(most)
            board.until_consumed(engine)
        assert [phone for phone, *_ in board.arrived()] == [v[0] for v in sent + more + most]
        assert board.dead_letters() == []
