"""Collectors, broker, Spark, a worker and the engine are killed while tuples come: each once."""

from pathlib import Path

from alone import a_broker, data_folder
from storm import stormed

KILLS = {"collector": 2, "broker": 1, "jvm": 1, "worker": 1, "engine": 1}


def test_every_tuple_arrives_once_whoever_is_killed_meanwhile(
    postgres_url: str, tmp_path: Path
) -> None:
    with a_broker(data_folder(tmp_path / "kafka" / "home")) as broker:
        print(stormed(tmp_path, broker, postgres_url, kills=KILLS, seed=1))
