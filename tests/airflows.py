"""Airflow in its own environment: its programs, a home with a database, and what came of a run."""

import json
import os
import sqlite3
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BIN = ROOT / ".venv-airflow" / "bin"
DAGS = ROOT / "dags"
TESTS = Path(__file__).parent
RUN_S = 60


def connection(url: str, key: str) -> str:
    """Write the connection to an API as Airflow's variables hold it."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    named = {"conn_type": "generic", "schema": "http", "host": host, "port": int(port)}
    return json.dumps(named | {"password": key})


@dataclass(frozen=True)
class Airflow:
    """One home of Airflow, with our DAGs and nothing of the environment of who runs the tests."""

    home: Path
    variables: Mapping[str, str]

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.database}",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "PATH": os.pathsep.join([str(BIN), os.defpath]),
            "PYTHONPATH": str(DAGS),
            **self.variables,
        }

    @property
    def database(self) -> Path:
        return self.home / "airflow.db"

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run `airflow` with a command."""
        return self._run(str(BIN / "airflow"), *command)

    def python(self, script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a script of the tests' own in Airflow's Python."""
        return self._run(str(BIN / "python"), str(TESTS / script), *arguments)

    def tasks(self, dag_id: str) -> dict[str, str]:
        """Tell how each task of the last run of a DAG is."""
        return dict(
            self.rows(
                "SELECT task_id, state FROM task_instance WHERE dag_id = ? AND run_id = "
                "(SELECT run_id FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1)",
                dag_id,
                dag_id,
            )
        )

    def events(self) -> list[dict[str, Any]]:
        """List what the asset events hold."""
        rows = self.rows(
            "SELECT a.name, e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id "
            "ORDER BY e.id"
        )
        return [{"asset": name, **json.loads(extra)} for name, extra in rows]

    def rows(self, query: str, *values: str) -> list[Any]:
        """Ask Airflow's database."""
        with sqlite3.connect(self.database, timeout=30) as opened:
            return opened.execute(query, values).fetchall()

    def _run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            cwd=self.home,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )


class Commands:
    """A process that runs commands of one Airflow: to start one for each takes eight seconds."""

    def __init__(self, airflow: Airflow) -> None:
        self.airflow = airflow
        self.log = airflow.home / "commands.log"
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [BIN / "python", TESTS / "commanding.py"],
                cwd=airflow.home,
                env=airflow.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def run(self, *command: str) -> bool:
        """Run `airflow` with a command, and tell whether it succeeded."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        limit = threading.Timer(RUN_S, self._process.kill)
        limit.start()
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        limit.cancel()
        assert answer, self.log.read_text()[-4000:]
        return json.loads(answer) is True

    def test(self, dag_id: str, **conf: Any) -> str:
        """Run a DAG once, and give the state in which the run ended."""
        before = self._runs(dag_id)
        self.run("dags", "test", dag_id, "--conf", json.dumps(conf))
        made = self._runs(dag_id).items() - before.items()
        assert len(made) == 1, self.log.read_text()[-4000:]
        return made.pop()[1]

    def again(self, dag_id: str, task_id: str) -> bool:
        """Run a task of a DAG's last run once more, and tell whether it succeeded."""
        return self.run("tasks", "test", dag_id, task_id, list(self._runs(dag_id))[-1])

    def _runs(self, dag_id: str) -> dict[str, str]:
        query = "SELECT run_id, state FROM dag_run WHERE dag_id = ? ORDER BY id"
        return dict(self.airflow.rows(query, dag_id))

    def end(self) -> None:
        """End the process."""
        self._process.communicate(timeout=RUN_S)
