"""Accounts of a bank that pay each other: in every state of it they have the same in all."""

import random

from book import Entry
from library import Library

ACCOUNTS = [f"account {number}" for number in range(10)]
EACH = 100.0
IN_ALL = len(ACCOUNTS), len(ACCOUNTS) * EACH
TOTALS = "SELECT count(*), sum(amount) FROM book.balances"
"""What is the same as soon as the first batch is there."""


class Bank:
    """Commits payments to a book, each a batch that changes two accounts."""

    def __init__(self, library: Library, seed: int = 7) -> None:
        self._library = library
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._has = dict.fromkeys(ACCOUNTS, EACH)
        library.commit([Entry(name, 0, has) for name, has in self._has.items()])

    def pay(self, times: int = 1) -> None:
        """Let one account pay another, some times; sometimes one of them is closed amid it."""
        self._library.commit(*[self._payment() for _ in range(times)])

    def _payment(self) -> list[Entry]:
        payer, payee = self._chance.sample(ACCOUNTS, 2)
        amount = float(self._chance.randrange(50))
        self._has[payer] -= amount
        self._has[payee] += amount
        closed = [Entry(payer, 0, 0.0, gone=True)] if self._chance.random() < 0.3 else []
        return [*closed, *(Entry(name, 0, self._has[name]) for name in (payer, payee))]
