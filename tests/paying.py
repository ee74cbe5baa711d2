"""A bank: accounts that pay each other, and its parts, each a process that goes on until it is
killed: a core that takes payments, one who pushes what it stages, and one who merges that.

After every batch all accounts have the same in all, each of them has one card, and what is on the
statements adds up to nothing. All parts are forked off the process that coordinators are, and can
be told to die at a crash point.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from coordinating import CONTEXT
from flows import ended
from waiting import until

from etl_procs import Batch, Dataflow, Transaction, by_punctuation
from etl_procs.core import Core, core_path
from etl_procs.origin import Origin
from etl_procs.reader import Reader
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints, Point
from migrations import ledger, warehouse
from migrations.merge import Merging
from migrations.push import Push
from migrations.warehouse import Warehouse

FILE = Path(__file__)
ACCOUNTS, EACH = 10, 100
NAMES = [f"account {number}" for number in range(ACCOUNTS)]

flow = Dataflow("paying")
payments = flow.stream(
    "payments",
    "payer TEXT NOT NULL, payee TEXT NOT NULL, cents INTEGER NOT NULL",
    batches=by_punctuation(),
)
accounts = flow.table(
    "accounts",
    "name TEXT PRIMARY KEY, cents INTEGER NOT NULL, card INTEGER NOT NULL",
    rows=[(name, EACH, card) for card, name in enumerate(NAMES)],
)
balances = flow.outlet("balances", "name TEXT NOT NULL, cents INTEGER NOT NULL", key="name")
cards = flow.outlet("cards", "number INTEGER NOT NULL, name TEXT NOT NULL", key="number")
statements = flow.outlet("statements", "name TEXT NOT NULL, cents INTEGER NOT NULL")

OF_ALL = "SELECT name, cents, card FROM accounts"
OF_ONE = f"{OF_ALL} WHERE name = ?"
ADD = "UPDATE accounts SET cents = cents + ? WHERE name = ?"
RENEW = f"UPDATE accounts SET card = card + {ACCOUNTS} WHERE name = ?"


@flow.procedure(takes=payments, writes=[accounts], gives=[balances, cards, statements])
def pay(tx: Transaction, batch: Batch) -> None:
    """Pay; whoever does has another card afterwards, and sometimes was no customer for a moment."""
    if tx.batch == 1:
        _tell(tx, OF_ALL)
    for payer, payee, cents in batch.tuples:
        ((_, _, card),) = (row.values() for row in tx.query(OF_ONE, [payer]))
        tx.delete(cards, [{"number": card}])
        tx.execute(RENEW, [payer])
        if int(str(cents)) % 3 == 0:
            tx.delete(balances, [{"name": payer}])
        for name, change in ((payer, -int(str(cents))), (payee, cents)):
            tx.execute(ADD, [change, name])
            tx.emit(statements, [{"name": name, "cents": change}])
            _tell(tx, OF_ONE, str(name))


def _tell(tx: Transaction, sql: str, *names: str) -> None:
    for row in tx.query(sql, names):
        tx.emit(balances, [{"name": row["name"], "cents": row["cents"]}])
        tx.emit(cards, [{"number": row["card"], "name": row["name"]}])


def paid(seed: int) -> Iterator[list[tuple[str, str, int]]]:
    """Give the payments of batch after batch, for ever."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    while True:
        pairs = [chance.sample(NAMES, 2) for _ in range(chance.randint(1, 3))]
        yield [(payer, payee, chance.randrange(50)) for payer, payee in pairs]


SETTINGS = config.Core(group_batches_max=4)
AHEAD = 150
"""So many batches the core commits before the first of them is forgotten, at most."""
AT_ONCE = 20
"""So many batches are fed, pushed or merged together, at most."""
PATIENCE_S = 300.0
"""How long a part does without the others: longer than they are dead."""

POINTS = {
    "core": (Point.CORE_COMMIT_BEFORE, Point.CORE_COMMIT_AFTER),
    "pusher": (
        *(Point.PUSH_COPY_AFTER, Point.PUSH_COMMIT_BEFORE, Point.PUSH_COMMIT_AFTER),
        *(Point.CORE_FORGET_BEFORE, Point.CORE_FORGET_AFTER, Point.PUSH_FORGET_AFTER),
    ),
    "merger": (Point.MERGE_TABLE_AFTER, Point.MERGE_COMMIT_BEFORE, Point.MERGE_COMMIT_AFTER),
}
"""The parts, and where each can be killed."""


class Paying:
    """One of the parts."""

    def __init__(
        self, part: str, home: Path, place: Warehouse, seed: int, crash_at: str = ""
    ) -> None:
        does = {"core": _pay, "pusher": _push, "merger": _merge}[part]
        arguments = (home, place, seed, CrashPoints(crash_at))
        self._process = CONTEXT.Process(target=does, args=arguments, daemon=True)
        self._process.start()

    @property
    def code(self) -> int | None:
        """Its exit code, once it has ended."""
        code: int | None = self._process.exitcode
        return code

    def kill(self) -> None:
        """End it with SIGKILL, and return when it is gone."""
        self._process.kill()
        self._process.join()


def committed(home: Path) -> int:
    """Tell the last batch that the core has."""
    with Reader(core_path(home)).snapshot() as snapshot:
        return snapshot.batch(flow.name)


def _pay(home: Path, _place: Warehouse, seed: int, crash: CrashPoints) -> None:
    """Commit payment after payment from where the core was left."""
    core = Core(core_path(home), settings=SETTINGS, clock=SystemClock(), crash=crash)
    core.prepare([flow])
    core.open(flow.name, {payments.name: [0]})
    reader, chance = Reader(core_path(home)), random.Random(seed)  # noqa: S311 - no secret
    first, last = 0, committed(home)
    for batch, rows in enumerate(paid(seed), 1):
        if batch > last:
            core.feed(ended(payments, rows, batch=batch, first=first))
            if chance.randrange(AT_ONCE) == 0:
                core.drain()
                _until(lambda through=batch: through - _forgotten(reader) < AHEAD)  # type: ignore[misc]
        first += len(rows) + 1


def _forgotten(reader: Reader) -> int:
    with reader.snapshot() as snapshot:
        return snapshot.forgotten(flow.name)


def _push(home: Path, place: Warehouse, seed: int, crash: CrashPoints) -> None:
    """Push whatever the core has, some batches at once."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    origin = Origin(core_path(home), SETTINGS, crash)
    with warehouse.connect(place.url, application="pusher") as connection:
        while True:
            most = chance.randint(1, AT_ONCE)
            pushed = Push(0, place, origin, crash, most).run(connection, flow)
            if not pushed.more:
                _until(lambda through=pushed.through: committed(home) > through)  # type: ignore[misc]


def _merge(_home: Path, place: Warehouse, _seed: int, crash: CrashPoints) -> None:
    """Merge whatever has arrived."""
    with warehouse.connect(place.url, application="merger") as connection:
        of = flow.name, 0

        def has_arrived() -> bool:
            arrived = ledger.read(connection, [flow.name])[of].batch
            return arrived > ledger.merged(connection, [flow.name])[of]

        while True:
            _until(has_arrived)
            Merging(place, crash).run(connection, flow)


def _until(condition: Callable[[], bool]) -> None:
    until(condition, PATIENCE_S, lambda: "the other parts do nothing")
