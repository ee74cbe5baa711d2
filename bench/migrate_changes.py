"""The changes that ours and every peer move: upserts and deletions by key, in batches.

Each batch is a transfer between two accounts, rows whose `quantity` is a balance: it begins with
the one and ends with the other. What all accounts have together is always the same, so a reader who
finds another sum has seen a part of a batch. A change has its number in the column `customer`.
"""

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from bench import ingest_data, ingest_load
from bench.ingest_data import NAMES, SEED, Trade
from etl_procs.model import Stream
from headrace.config import Broker
from ingest import topics

BATCH = 60
"""Changes in a batch of ours. The peers know of none: two polls of three, of 500, end amid one."""
PARTITIONS = 1
"""Of a topic: all changes are in one order, for the peers as for ours. With more, a consumer that
is behind reads one after the other, and the table is hardly ever as it was after any batch.
"""
ACCOUNTS = 10
BALANCE = 100_000
LIVES, REPLACED = 0.4, 0.8
"""Of what is no transfer, so much is new, so much (less that) replaces a row, the rest deletes."""
QUANTITY = NAMES.index("quantity")


class Change(NamedTuple):
    """A row that replaces the one of its key, or the end of that."""

    number: int
    key: int
    row: Trade | None


Batch = list[Change]


def batches(count: int, size: int) -> Iterator[Batch]:
    """Make so many batches of so many changes, always the same; a key is once in each."""
    assert size >= ACCOUNTS, size
    making = _Making(count * size)
    for number in range(count):
        yield making.batch(size, is_first=number == 0)


class _Making:
    """What was made until now."""

    def __init__(self, most: int) -> None:
        self.random = Random(SEED)  # noqa: S311 - no secret
        self.trades = ingest_data.trades(most + ACCOUNTS)
        self.balances = [BALANCE] * ACCOUNTS
        self.live: list[int] = []
        self.made = 0

    def batch(self, size: int, *, is_first: bool) -> Batch:
        accounts = list(range(ACCOUNTS)) if is_first else self._transfer()
        used: set[int] = set()
        first = [self._change(n + 1, self._account(n)) for n in accounts[:1]]
        others = [self._other(used) for _ in range(size - len(accounts))]
        return first + others + [self._change(n + 1, self._account(n)) for n in accounts[1:]]

    def _transfer(self) -> list[int]:
        giver, taker = self.random.sample(range(ACCOUNTS), 2)
        amount = self.random.randrange(1, 100)
        self.balances[giver] -= amount
        self.balances[taker] += amount
        return [giver, taker]

    def _account(self, number: int) -> Trade:
        row = next(self.trades)
        return (*row[:QUANTITY], self.balances[number], *row[QUANTITY + 1 :])  # type: ignore[return-value]

    def _other(self, used: set[int]) -> Change:
        dice, row = self.random.random(), next(self.trades)
        at = self.random.randrange(len(self.live)) if self.live else -1
        if dice < LIVES or at < 0 or self.live[at] in used:
            key = row[0]
            self.live.append(key)
        else:
            key = self.live[at]
        used.add(key)
        if dice < REPLACED or key == row[0]:
            return self._change(key, row)
        self.live[at] = self.live[-1]
        self.live.pop()
        return self._change(key, None)

    def _change(self, key: int, row: Trade | None) -> Change:
        self.made += 1
        changed = None if row is None else (key, self.made, *row[2:])
        return Change(self.made, key, changed)


def outcome(changes: Sequence[Change]) -> dict[int, int]:
    """Tell which keys are there in the end, and by which change."""
    there: dict[int, int] = {}
    for change in changes:
        if change.row is None:
            there.pop(change.key, None)
        else:
            there[change.key] = change.number
    return there


def fill(bootstrap: str, stream: Stream, changes: Sequence[Change]) -> None:
    """Send changes to a topic by their keys, as whoever captures changes does: null deletes."""
    topics.ensure(Broker(bootstrap=bootstrap, topic_partitions=PARTITIONS), stream)
    sent = []
    with ingest_load.producer(bootstrap) as opened:
        for change in changes:
            key = json.dumps({"id": change.key}).encode()
            sent.append(opened.send(stream.topic, _value(change), key=key))
    for each in sent:
        each.get(0)  # raises what went wrong


def _value(change: Change) -> bytes | None:
    if change.row is None:
        return None
    return json.dumps(dict(zip(NAMES, change.row, strict=True))).encode()
