"""The worked examples of docs/querying.md answer what they show, word for word."""

import doctest
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stdout
from datetime import date
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from serving import KEY, Client, serving
from shop import Answering, Warehoused

from api.catalogue import Catalogue
from api.island import Setting
from etl_procs import Batch, Dataflow, Transaction, by_punctuation
from headrace.cli import main
from headrace.crash import CrashPoints
from headrace.errors import Exit
from migrations import layout, warehouse
from migrations.merge import Merging
from migrations.push import Push
from migrations.warehouse import Warehouse

PAGE = Path(__file__).parent.parent / "docs" / "querying.md"
LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

flow = Dataflow("market")
days = flow.stream("days", "day INTEGER NOT NULL", batches=by_punctuation())
orders = flow.outlet("orders", "id INTEGER, customer TEXT, day DATE, amount NUMERIC(8,2)")
customers = flow.outlet("customers", "customer TEXT NOT NULL, city TEXT", key=["customer"])
payments = flow.outlet("payments", "order_id INTEGER, amount NUMERIC(8,2)")

# What the page says of each batch.
ORDERS = [
    [(1, "ann", "20.00"), (2, "bob", "35.50")],
    [(3, "ann", "12.25"), (4, "cid", "80.00")],
    [(5, "bob", "5.00")],
]
CITIES = [[("ann", "Oslo"), ("bob", "Bergen"), ("cid", "Oslo")], [], [("ann", "Bergen")]]
PAYMENTS = [[(1, "20.00")], [(2, "30.00")], [(4, "80.00")]]


@flow.procedure(takes=days, gives=[orders, customers, payments])
def trade(tx: Transaction, batch: Batch) -> None:
    for row in batch.rows():
        nth = int(row["day"] or 0)
        tx.emit(orders, [_order(nth, *order) for order in ORDERS[nth]])
        tx.emit(customers, [{"customer": who, "city": city} for who, city in CITIES[nth]])
        tx.emit(payments, [{"order_id": n, "amount": Decimal(x)} for n, x in PAYMENTS[nth]])
        if nth == 2:
            tx.delete(customers, [{"customer": "cid"}])


def _order(nth: int, id: int, customer: str, amount: str) -> dict[str, Any]:
    day = date(2026, 5, 4 + nth)
    return {"id": id, "customer": customer, "day": day, "amount": Decimal(amount)}


@pytest.fixture
def market(warehouse_url: str, second_url: str, tmp_path: Path) -> Iterator[Client]:
    """Serve three batches: merged, arrived, staged; payments in a warehouse of their own."""
    first = Warehouse("default", warehouse_url, ("market.orders", "market.customers"))
    finance = Warehouse("finance", second_url, ("market.payments",))
    store = Warehoused(tmp_path, flow)
    store.origin.feed(flow.name, [first.name, finance.name])
    with ExitStack() as opened:
        for nth in range(3):
            store.run(days, [(nth,)])
            for place in (first, finance) if nth < 2 else ():
                with warehouse.connect(place.url, application="test") as connection:
                    layout.prepare(connection, place, flow)
                    Push(0, place, store.origin, CrashPoints(), 10).run(connection, flow)
                    if nth == 0:
                        Merging(place, CrashPoints()).run(connection, flow)
        catalogue = Catalogue.of({"market": flow})
        island = Answering(Setting((first, finance), (store.reader.path,), catalogue))
        opened.callback(store.close)
        opened.callback(island.close)
        yield opened.enter_context(serving(island))


def test_ten_worked_examples_are_answered_as_the_page_shows(
    market: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Ten questions\n")[2]
    section = section.partition("\n## ")[0]
    examples = re.split(r"^### ", section, flags=re.MULTILINE)[1:]
    assert len(examples) == 10
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_API_PORT", str(market.port))
    monkeypatch.setenv("HEADRACE_API_KEY", KEY)
    places = {"PATH": "/usr/bin:/bin", "API": f"http://127.0.0.1:{market.port}", "KEY": KEY}
    for example in examples:
        shown = re.findall(r"^```(console|pycon)\n(.*?)^```", example, re.MULTILINE | re.DOTALL)
        assert shown, example
        for kind, text in shown:
            run = _shell if kind == "console" else _python
            run(text, places)


def _shell(text: str, environment: dict[str, str]) -> None:
    for block in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        # A command goes on where its lines begin with `> `, as a terminal shows it.
        command, *lines = block.splitlines()
        while lines and lines[0].startswith("> "):
            command += "\n" + lines.pop(0)[2:]
        shown, found = "\n".join(lines) + "\n", _said(command, environment)
        is_like = doctest.OutputChecker().check_output(shown, found, LIKE)
        assert is_like, f"{command}\nanswers\n{found}\nand the page shows\n{shown}"


def _said(command: str, environment: dict[str, str]) -> str:
    program, *words = shlex.split(command)
    if program == "headrace":  # here, because a process would take a second to begin
        with redirect_stdout(StringIO()) as said:
            assert main(words) == Exit.OK
        return said.getvalue()
    bash = shutil.which("bash")
    assert bash
    run = [bash, "-euc", command]
    return subprocess.run(
        run, env=environment, capture_output=True, check=True, text=True, timeout=60
    ).stdout


def _python(text: str, _: dict[str, str]) -> None:
    example = doctest.DocTestParser().get_doctest(text, {}, PAGE.name, None, None)
    assert not doctest.DocTestRunner(optionflags=LIKE).run(example).failed
