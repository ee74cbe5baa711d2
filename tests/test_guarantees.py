"""The page of promises: what it names is there; and what no other test breaks, one by one."""

import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from flows import arrived
from mutations import MUTATIONS
from random_flows import APPENDED, COLUMNS

from etl_procs import Batch, Dataflow, Transaction, by_count
from etl_procs.core import Core
from etl_procs.errors import Superseded
from headrace.clock import SystemClock
from headrace.config import Core as Settings
from headrace.crash import CrashPoints

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
NAMED = re.compile(r"`(test_\w+\.py)(?:::(\w+))?`")


def test_every_test_that_the_page_names_exists() -> None:
    found = NAMED.findall(PAGE.read_text())
    assert len(found) > 20
    for module, test in found:
        text = (ROOT / "tests" / module).read_text()
        assert f"def {test}" in text, f"{module} has no {test}"


def test_every_mutation_still_applies() -> None:
    for mutation in MUTATIONS:
        text = mutation.within(ROOT).read_text()
        assert text.count(mutation.old) == 1, mutation.what


ORDER = """
from etl_procs import Dataflow, by_count, graph
flow = Dataflow("flow")
source = flow.stream("source", "n INTEGER", batches=by_count(1))
given = [flow.stream(f"s{n}", "n INTEGER") for n in range(6)]
flow.procedure(takes=given)(exec("def last(tx, *batches): ...") or last)
for n, stream in enumerate(given):
    exec(f"def p{n}(tx, batch): ...")
    flow.procedure(takes=source, gives=[stream])(locals()[f"p{n}"])
print([unit.name for unit in graph.units(flow)])
"""


def test_procedures_that_may_run_in_any_order_run_in_the_same_in_every_process() -> None:
    """A set of names would be in another order in each process."""
    orders = {
        subprocess.run(
            [sys.executable, "-c", ORDER],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            cwd=ROOT,
            check=True,
            capture_output=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(orders) == 1


@pytest.mark.parametrize("promise", [f"G{n}" for n in range(1, 9)])
def test_the_page_has_every_promise(promise: str) -> None:
    (section,) = re.findall(rf"^## {promise}\b.*?(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    assert "**Mechanism.**" in section
    assert "**Tests.**" in section
    assert "**Limits.**" in section
    assert NAMED.search(section)


def test_an_engine_whose_ledger_another_has_moved_changes_nothing(tmp_path: Path) -> None:
    """Whatever the fence says: the ledger is compared in the transaction that moves it."""
    flow = Dataflow("flow")
    stream = flow.stream("tuples", COLUMNS, batches=by_count(1))
    outlet = flow.outlet(APPENDED, COLUMNS)

    @flow.procedure(takes=stream, gives=[outlet])
    def pass_on(tx: Transaction, batch: Batch) -> None:
        tx.emit(outlet, batch.table)

    path = tmp_path / "core.db"
    core = Core(path, settings=Settings(), clock=SystemClock(), crash=CrashPoints())
    core.prepare([flow])
    core.open("flow", {"tuples": [0]})
    with sqlite3.connect(path) as other:
        other.execute("UPDATE headrace_ledger SET batch = 1")
    before = list(other.iterdump())
    core.feed(arrived(stream, [(1, 2, 3)]))
    with pytest.raises(Superseded, match=r"flow\.pass_on is not at batch 0: another engine"):
        core.drain()
    assert list(other.iterdump()) == before
    other.close()
    core.close()
