"""`headrace airflow`: what it says where it cannot start; that it starts: test_airflow_runs.py."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace import cli, config
from headrace.cli import airflow
from headrace.errors import Exit
from headrace.local import lock
from headrace.local.home import Home
from headrace.local.part import Part


@pytest.fixture
def port() -> Iterator[str]:
    """A port where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


def run(home: Home, *arguments: str, **settings: str) -> tuple[int, str]:
    keys = {"home": str(home.root), **{name.replace("_", "."): v for name, v in settings.items()}}
    done = subprocess.run(
        [sys.executable, "-m", "headrace.cli", *arguments],
        env=config.child_environment(keys),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def test_without_a_stack_it_says_how_to_start_one(home: Home) -> None:
    code, told = run(home, "airflow")
    assert code == Exit.NOT_RUNNING
    assert "no stack runs in" in told
    assert "Run `headrace up`" in told


def test_without_an_answer_of_the_api_it_does_not_start(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        free = str(listener.getsockname()[1])
    code, told = run(home, "airflow", api_port=free, api_key="key")
    assert code == Exit.NOT_RUNNING
    assert f"the API at 127.0.0.1:{free} does not answer" in told


def test_without_its_environment_it_says_make_setup(
    home: Home, port: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(airflow, "PROGRAM", home.root / "nothing")
    flags = ["--home", str(home.root), "--set", f"api.port={port}", "--set", "api.key=key"]
    assert cli.main(["airflow", *flags]) == Exit.MISSING
    assert "Run `make setup`" in capsys.readouterr().err


def test_its_dags_know_the_configured_warehouses(
    home: Home, port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned: list[Part] = []
    monkeypatch.setattr(airflow, "PROGRAM", Path(sys.executable))
    monkeypatch.setattr("headrace.local.child.spawn", lambda part, *_: spawned.append(part))
    flags = ["--home", str(home.root), "--set", f"api.port={port}", "--set", "api.key=key"]
    flags += ["--set", "warehouses.reports.url=postgresql://h/d"]
    assert cli.main(["airflow", *flags]) == Exit.REFUSED
    (part,) = spawned
    told = json.loads(part.environment["AIRFLOW_VAR_HEADRACE_WAREHOUSES"])
    assert told == ["default", "reports"]


@pytest.fixture
def held(home: Home) -> Iterator[None]:
    """Another `headrace airflow` on this data folder."""
    descriptor = lock.take(home.part_lock(airflow.NAME))
    assert descriptor is not None
    yield
    os.close(descriptor)


@pytest.mark.usefixtures("held")
def test_a_second_one_on_the_same_data_folder_is_refused(home: Home, port: str) -> None:
    code, told = run(home, "airflow", api_port=port, api_key="key")
    assert code == Exit.REFUSED
    assert "Airflow runs already" in told


@pytest.mark.usefixtures("held")
def test_a_data_folder_that_airflow_uses_is_not_deleted(home: Home) -> None:
    code, told = run(home, "reset", "--yes")
    assert code == Exit.REFUSED
    assert "Airflow keeps its data in" in told
    assert home.is_ours
