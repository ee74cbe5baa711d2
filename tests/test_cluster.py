"""The engine on a cluster: Spark's executors are other processes, as on other machines."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from alone import LOOPBACK
from cluster import a_cluster, ran_on
from live import Board, Parts


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("cluster")
    with a_cluster(folder, workers=2) as master:
        yield master, folder


def test_a_dataflow_runs_on_two_workers(
    cluster: tuple[str, Path], running: Parts, tmp_path: Path
) -> None:
    master, folder = cluster
    board = Board(running, tmp_path, "on_a_cluster")
    board.vote((f"{n:05}", 1) for n in range(100))
    board.send([b"not json"])
    given = {"engine__master": master, "engine__driver_host": LOOPBACK}
    with board.engine(**given, engine__executor_memory_mb="512") as engine:
        board.until_consumed(engine)
        board.vote((f"{n:05}", 1) for n in range(100, 200))
        board.until_consumed(engine)
    assert [phone for phone, *_ in board.arrived()] == [f"{n:05}" for n in range(200)]
    assert [letter.reason for letter in board.dead_letters()] == ["not JSON"]
    assert ran_on(folder) == ["work-0", "work-1"]
