"""A standalone Spark cluster on this machine: a master and workers, from PySpark's own jars."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from alone import LOOPBACK
from waiting import until

from headrace import config
from headrace.local import java, ports

READY_S = 60
SPARK = Path(pyspark.__file__).parent
# bin/load-spark-env.sh would set them, for workers to start executors.
SPARK_VARIABLES = {"SPARK_HOME": str(SPARK), "SPARK_SCALA_VERSION": "2.13"}


@contextmanager
def a_cluster(folder: Path, workers: int) -> Iterator[str]:
    """Start it, and give the URL of its master."""
    at = ports.choose([ports.Wanted("master", LOOPBACK)], folder / "ports.json")["master"]
    url = f"spark://{LOOPBACK}:{at}"
    with ExitStack() as closing:
        closing.enter_context(
            _part(folder, "master", "master.Master", "--host", LOOPBACK, "--port", str(at))
        )
        until(lambda: "New state: ALIVE" in _log(folder, "master"), READY_S, lambda: "no master")
        for number in range(workers):
            limits = (
                "-c",
                "1",
                "-m",
                "1g",
                "--host",
                LOOPBACK,
                "-d",
                str(folder / f"work-{number}"),
            )
            closing.enter_context(_part(folder, f"worker-{number}", "worker.Worker", *limits, url))
        until(
            lambda: _log(folder, "master").count("Registering worker") == workers,
            READY_S,
            lambda: _log(folder, "master"),
        )
        yield url


def ran_on(folder: Path) -> list[str]:
    """Name the workers that have run an executor."""
    return sorted({path.parts[-4] for path in folder.glob("work-*/app-*/*/stderr")})


def _log(folder: Path, name: str) -> str:
    return (folder / f"{name}.log").read_text(errors="replace")


@contextmanager
def _part(folder: Path, name: str, main: str, *arguments: str) -> Iterator[None]:
    program = java.find(config.child_environment({})).program
    heap = ("-Xmx256m", "-Dspark.master.rest.enabled=false", "-cp", f"{SPARK / 'jars'}/*")
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [program, *heap, f"org.apache.spark.deploy.{main}", "--webui-port", "0", *arguments],
            env={**config.child_environment({}), **SPARK_VARIABLES},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)
