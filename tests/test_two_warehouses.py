"""Tables in two warehouses that are pushed to and merged meanwhile: each row is told once."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from time import sleep
from typing import Any

import paying
import pytest
from cuts import Cuts
from paying import ACCOUNTS, EACH, Paying, committed
from shop import Answering, Warehoused
from waiting import until

from api.catalogue import Catalogue
from api.cut import Freshness
from api.errors import Overtaken
from api.island import Setting
from api.plans import Plan
from etl_procs import reader
from etl_procs.core import core_path
from etl_procs.reader import Lasting, Snapshot
from migrations import layout, warehouse
from migrations.warehouse import Warehouse

ROUNDS, ASKED = 12, 4
"""So many rounds in each of which another part is dead, and so often all is asked in each."""
PATIENCE_S = 60.0
OVERTAKEN, WITHIN_S = 0.3, 0.1
"""So often so much time is between the core's snapshot and those of the warehouses, at most: of
itself it is too little for a batch to be committed and pushed in.
"""

CARDS = "SELECT count(*), sum(b.cents) FROM balances AS b JOIN cards AS c ON b.name = c.name"
STATEMENTS = """\
SELECT b.name, b.cents, sum(s.cents) FROM balances AS b JOIN statements AS s ON b.name = s.name
GROUP BY b.name, b.cents"""
LACKING = """\
SELECT count(*) FROM balances AS b LEFT JOIN cards AS c ON b.name = c.name WHERE c.number IS NULL"""


class Bank:
    """A core that takes payments, two warehouses, and what moves rows to each of them."""

    def __init__(self, home: Path, *places: Warehouse) -> None:
        self._home, self._places = home, {place.name: place for place in places}
        with closing(Warehoused(home, paying.flow)) as store:
            store.origin.feed(paying.flow.name, list(self._places))
        for place in places:
            with warehouse.connect(place.url, application="test") as connection:
                layout.prepare(connection, place, paying.flow)
        self.movers = [(part, name) for part in ("pusher", "merger") for name in self._places]
        self._parts = {of: self._started(*of) for of in [("core", places[0].name), *self.movers]}

    @contextmanager
    def without(self, part: str, place: str) -> Iterator[None]:
        """Have a part dead."""
        self._parts[part, place].kill()
        yield
        self._parts[part, place] = self._started(part, place)

    def end(self) -> None:
        for part in self._parts.values():
            part.kill()

    def _started(self, part: str, place: str) -> Paying:
        return Paying(part, self._home, self._places[place], 1)


class Inquiry:
    """What is asked of both, and what was told."""

    def __init__(self, island: Answering) -> None:
        self._island = island
        self._cuts = Cuts()
        self.told = Counter[tuple[Freshness, Freshness]]()
        """How often which freshness was asked for and told."""
        self.overtaken = 0
        self.batches: set[int] = set()

    def ask(self, sql: str, freshness: Freshness) -> None:
        try:
            answer = self._island.query(sql, freshness)
        except Overtaken:  # pushes have overtaken each try
            self.overtaken += 1
            return
        batch = answer.as_of[paying.flow.name]
        assert self._island.plan is Plan.GATHER
        said = (sql, freshness, answer)
        self._cuts.follow(answer.freshness, batch, said)
        self._check(sql, batch, answer.rows, said)
        self.told[freshness, answer.freshness] += 1
        self.batches.add(batch)

    def _check(self, sql: str, batch: int, rows: Any, said: object) -> None:
        if sql == CARDS:
            assert rows == (((ACCOUNTS, ACCOUNTS * EACH),) if batch else ((0, None),)), said
        elif sql == LACKING:
            assert rows == ((0,),), said
        else:  # what an account has is what it had, and what is on its statements
            assert all(cents == EACH + moved for _, cents, moved in rows), said


@pytest.fixture
def bank(tmp_path: Path, warehouse_url: str, second_url: str) -> Iterator[tuple[Bank, Inquiry]]:
    first = Warehouse("first", warehouse_url, ("paying.balances",))
    second = Warehouse("second", second_url, ("paying.cards", "paying.statements"))
    made = Bank(tmp_path, first, second)
    catalogue = Catalogue.of({paying.flow.name: paying.flow})
    with closing(Answering(Setting((first, second), (core_path(tmp_path),), catalogue))) as island:
        yield made, Inquiry(island)
    made.end()


def test_while_both_are_pushed_to_and_merged_each_row_is_told_once_and_at_one_cut(
    tmp_path: Path, bank: tuple[Bank, Inquiry], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts, inquiry = bank
    chance = Random(1)  # noqa: S311 - repeatable on purpose
    cut_of_cores = reader.cut

    @contextmanager
    def sometimes_late(paths: Sequence[Lasting]) -> Iterator[list[Snapshot]]:
        with cut_of_cores(paths) as snapshots:
            if chance.random() < OVERTAKEN:
                sleep(chance.random() * WITHIN_S)
            yield snapshots

    monkeypatch.setattr(reader, "cut", sometimes_late)
    for number in range(ROUNDS):
        with parts.without(*parts.movers[number % len(parts.movers)]):
            for _ in range(ASKED):
                for sql in chance.sample((CARDS, STATEMENTS, LACKING), 3):
                    for freshness in chance.sample(list(Freshness), 3):
                        inquiry.ask(sql, freshness)
        before = committed(tmp_path)
        until(lambda at=before: committed(tmp_path) > at, PATIENCE_S, lambda: "nothing moves")  # type: ignore[misc]
    told = inquiry.told
    assert told.total() > 10 * inquiry.overtaken, (told, inquiry.overtaken)
    assert {(freshness, freshness) for freshness in Freshness} <= told.keys(), told
    assert told[Freshness.MAIN, Freshness.DELTA], "one was never merged further than the other"
    assert len(inquiry.batches) > ROUNDS, inquiry.batches
