"""Airflow in its own environment: its programs, a home with a database, and what came of a run."""

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BIN = ROOT / ".venv-airflow" / "bin"
DAGS = ROOT / "dags"
TESTS = Path(__file__).parent
RUN_S = 180


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

    def test(self, dag_id: str, **conf: Any) -> str:
        """Run a DAG once, in one process, and give the state in which the run ended."""
        done = self.run("dags", "test", dag_id, "--conf", json.dumps(conf))
        states: dict[str, str] = dict(self.rows("SELECT run_id, state FROM dag_run ORDER BY id"))
        assert states, done.stdout + done.stderr
        return list(states.values())[-1]

    def tasks(self, dag_id: str) -> dict[str, str]:
        """Tell how each task of the last run of a DAG is."""
        return dict(
            self.rows(
                "SELECT task_id, state FROM task_instance WHERE run_id = "
                "(SELECT run_id FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1)",
                dag_id,
            )
        )

    def events(self) -> list[dict[str, Any]]:
        """List what the asset events hold."""
        rows = self.rows(
            "SELECT a.name, e.extra FROM asset_event e JOIN asset a ON a.id = e.asset_id"
        )
        return [{"asset": name, **json.loads(extra)} for name, extra in rows]

    def rows(self, query: str, *values: str) -> list[Any]:
        """Ask Airflow's database."""
        with sqlite3.connect(self.database, timeout=30) as opened:
            return opened.execute(query, values).fetchall()

    def copy(self, home: Path, **variables: str) -> "Airflow":
        """Make another one, as this is now."""
        shutil.copytree(self.home, home)
        return Airflow(home, {**self.variables, **variables})

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


def migrated(home: Path) -> Airflow:
    """Make a home with an empty database."""
    home.mkdir(parents=True)
    made = Airflow(home, {})
    done = made.run("db", "migrate")
    assert done.returncode == 0, done.stderr
    return made
