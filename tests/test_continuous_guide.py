"""The alert of the guide, as it stands there: its dataflow, and its command."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from serving import KEY
from shop import HERE, Warehoused
from test_api_commands import api_process
from waiting import until

from etl_procs import loader
from headrace.cli import watch
from headrace.local.home import MARKER
from migrations import layout, warehouse

PAGE = Path(__file__).parent.parent / "docs" / "continuous.md"
SOON_S = 60.0


def piece(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.M | re.DOTALL)
    return str(found)


class Store(Warehoused):
    """The dataflow of the guide, fed by hand."""

    def sell(self, *sold: tuple[str, int]) -> None:
        self.feed(self.flows[0].streams["sold"], sold)
        self.core.drain()

    def ordered(self) -> list[tuple[str, int]]:
        return self.query("SELECT item, pieces FROM ordered")


@pytest.fixture
def store(tmp_path: Path, warehouse_url: str) -> Iterator[Store]:
    (tmp_path / MARKER).touch()
    (tmp_path / "store.py").write_text(piece("python"))
    flow = loader.load([tmp_path / "store.py"])["store"]
    with warehouse.connect(warehouse_url, application="test") as opened:
        layout.prepare(opened, HERE, flow)
    made = Store(tmp_path, flow)
    yield made
    made.close()


def test_the_alert_of_the_guide_orders_once_when_it_is_time(
    store: Store, warehouse_url: str
) -> None:
    store.sell(("tea", 70))
    with api_process(store.home, warehouse_url, store.home / "store.py") as port:

        def headrace(*words: str) -> str:
            return subprocess.run(
                [sys.executable, "-m", "headrace.cli", *words, "--home", str(store.home)],
                env={**os.environ, "HEADRACE_API_PORT": str(port), "HEADRACE_API_KEY": KEY},
                cwd=PAGE.parent.parent,
                capture_output=True,
                text=True,
                check=True,
                timeout=60,
            ).stdout

        program, *words = shlex.split(piece("sh"))
        assert program == "headrace"
        assert "low" in headrace(*words)
        assert store.ordered() == []
        store.sell(("tea", 15))
        until(lambda: bool(store.ordered()), SOON_S, lambda: headrace("watch", "--list"))
        store.sell(("tea", 1), ("tea", 1), ("tea", -80))
        until(
            lambda: "store batch 5" in headrace("watch", "--list"),
            SOON_S,
            lambda: headrace("watch", "--list"),
        )
        assert store.ordered() == [("tea", 80)]
        store.sell(("tea", 80))
        until(lambda: len(store.ordered()) > 1, SOON_S, lambda: headrace("watch", "--list"))
        assert store.ordered() == [("tea", 80)] * 2
        head, _, row = headrace("watch", "--list").splitlines()
        assert head.split() == ["name", "state", "as", "of", "results", "query"]
        assert row.startswith("low   running  store batch")
        assert "to store/order: " in row
        (told,) = headrace("watch", "--list", "--json").splitlines()
        assert (json.loads(told)["name"], json.loads(told)["state"]) == ("low", "running")
        headrace("watch", "--drop", "low")
        assert headrace("watch", "--list") == ""


def test_a_result_that_is_followed_is_laid_out() -> None:
    columns = [{"name": "item", "type": "text"}, {"name": "pieces", "type": "bigint"}]
    as_of = {"name": "low", "as_of": {"store": 42}, "position": "42"}
    assert watch._result({**as_of, "columns": columns, "rows": [["tea", 80]]}).splitlines() == [
        "item  pieces",
        "----  ------",
        "tea       80",
        "",
        "as of store batch 42; --after 42 goes on behind it",
    ]
    assert watch._result({"position": "43"}) == '{"position": "43"}'
