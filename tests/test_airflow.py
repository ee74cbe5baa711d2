"""Airflow's environment: its own, and enough for the DAGs."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_airflow_and_the_dags_are_imported_in_airflows_environment(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / ".venv-airflow" / "bin" / "python", "-c", "import airflow.sdk, dags"],
        cwd=ROOT,
        env={"AIRFLOW_HOME": str(tmp_path), "HOME": str(tmp_path), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
