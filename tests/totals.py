"""Who asks for totals that never change, at each freshness and by each plan, while the parts of a
bank are killed, by a seed; and who kills them.
"""

import json
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.client import HTTPException
from itertools import product
from pathlib import Path
from typing import Any

import paying
from api_process import ApiProcess, workers_of
from cuts import Cuts
from fakes import is_gone
from paying import ACCOUNTS, EACH, POINTS, Paying, committed, paid
from serving import Reply
from shop import HERE, Warehoused
from waiting import until

from api.cut import Freshness
from api.plans import Plan
from migrations import layout, warehouse

PATIENCE_S = 120.0
SESSIONS = 2
"""So many who ask, and as many workers of the API."""
VICTIMS = (*POINTS, "api", "worker")
LATER = 20
"""So often a part passes the point that it dies at, at most."""

Way = tuple[Freshness, Plan | None]
WAYS: tuple[Way, ...] = tuple(product(Freshness, (None, Plan.SHIP, Plan.SPLIT, Plan.GATHER)))

ALONE = "SELECT count(*), sum(cents) FROM balances"
STATEMENTS = "SELECT count(*), sum(cents) FROM statements"
JOINED = "SELECT count(*), sum(cents) FROM balances AS b JOIN cards AS c ON b.name = c.name"
BOTH = """\
SELECT b.accounts, b.cents, s.entries, s.cents FROM
(SELECT count(*) AS accounts, sum(cents) AS cents FROM balances) AS b,
(SELECT count(*) AS entries, sum(cents) AS cents FROM statements) AS s"""
BY_PLAN: Mapping[Plan | None, tuple[str, ...]] = {
    None: (ALONE, STATEMENTS, JOINED, BOTH),
    Plan.SHIP: (ALONE, STATEMENTS, JOINED, BOTH),
    Plan.SPLIT: (ALONE, STATEMENTS),
    Plan.GATHER: (JOINED,),
}
"""What each plan can answer: a query of one table, or of several."""


class Totals:
    """What each query must answer, as of a batch."""

    def __init__(self, seed: int) -> None:
        self._paid = paid(seed)
        self._entries = [0]
        """So many there are on the statements after each batch."""
        self._lock = threading.Lock()

    def of(self, sql: str, batch: int) -> list[Any]:
        """Give the only row."""
        of_accounts = [ACCOUNTS, str(ACCOUNTS * EACH)] if batch else [0, None]
        of_statements = [self._through(batch), "0" if batch else None]
        return {
            ALONE: of_accounts,
            JOINED: of_accounts,
            STATEMENTS: of_statements,
            BOTH: of_accounts + of_statements,
        }[sql]

    def _through(self, batch: int) -> int:
        with self._lock:
            while len(self._entries) <= batch:
                self._entries.append(self._entries[-1] + 2 * len(next(self._paid)))
            return self._entries[batch]


class Outages:
    """When there was nobody to answer, or no longer the one who had begun to."""

    def __init__(self) -> None:
        self.begun = self.over = 0
        self.is_calm = threading.Event()
        self.is_calm.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Note that there is one until the block ends."""
        self.is_calm.clear()
        self.begun += 1
        try:
            yield
        finally:
            self.over += 1
            self.is_calm.set()


class Session(threading.Thread):
    """Asks in every way, over and over; whatever it hears is right, and never older than before."""

    def __init__(self, bank: "Bank", seed: int) -> None:
        super().__init__(daemon=True)
        self._bank = bank
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._is_over = threading.Event()
        self._failure: BaseException | None = None
        self._cuts = Cuts()
        self.last = self._cuts.last
        self.answered: dict[Way, int] = dict.fromkeys(WAYS, -1)
        """After how many deaths and starts the last answer was asked for."""
        self.plans = Counter[str]()
        self.excused = Counter[str]()

    def run(self) -> None:
        try:
            while not self._is_over.is_set():
                ways = list(WAYS)
                self._chance.shuffle(ways)
                for way in ways:
                    self._ask(*way)
        except BaseException as error:  # noqa: BLE001 - raised by whoever looks
            self._failure = error

    def check(self) -> None:
        """Raise what went wrong."""
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        self._is_over.set()
        self.join()

    def _ask(self, freshness: Freshness, plan: Plan | None) -> None:
        sql = self._chance.choice(BY_PLAN[plan])
        outages, events = self._bank.outages.over, self._bank.events
        asked = {"sql": sql, "freshness": freshness.value, "plan": plan and plan.value}
        try:
            reply = self._bank.ask(asked)
        except (OSError, HTTPException) as error:
            self._excuse(outages, type(error).__name__)
            return
        if reply.status != 200:
            assert reply.status == 503, reply
            self._excuse(outages, f"{reply.status} {reply.document['code']}")
            return
        self._check(sql, freshness, reply.document)
        self.answered[freshness, plan] = events
        self.plans[f"{freshness.value} by {reply.document['plan']}"] += 1

    def _check(self, sql: str, freshness: Freshness, told: Any) -> None:
        batch = told["as_of"][paying.flow.name]
        assert told["rows"] == [self._bank.totals.of(sql, batch)], (sql, told)
        assert told["freshness"] == freshness.value
        self._cuts.follow(freshness, batch, (sql, told))

    def _excuse(self, outages: int, what: str) -> None:
        """Let an error pass if there was an outage since the query was asked."""
        assert self._bank.outages.begun > outages, what
        self.excused[what] += 1
        assert self._bank.outages.is_calm.wait(PATIENCE_S), "the outage has no end"


class Bank:
    """All parts, and who asks them."""

    def __init__(self, home: Path, url: str, seed: int) -> None:
        self._home, self._url, self._seed = home, url, seed
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self.totals, self.outages = Totals(seed), Outages()
        self.events = 0
        """So many deaths and starts there were."""
        self.kills = Counter[str]()
        Warehoused(home, paying.flow).close()
        with warehouse.connect(url, application="test") as connection:
            layout.prepare(connection, HERE, paying.flow)
        self._parts = {part: self._started(part) for part in POINTS}
        self._api = self._an_api()
        self.sessions = [Session(self, seed + number) for number in range(SESSIONS)]
        for session in self.sessions:
            session.start()

    def ask(self, asked: Mapping[str, Any]) -> Reply:
        """Ask the API that there is now."""
        return self._api.client.send("POST", "/v1/query", json.dumps(asked))

    def kill(self, victim: str) -> None:
        """Kill a part; see that what still can be asked is answered rightly, and all of it when the
        part is there again.
        """
        match victim:
            case "api":
                with self.outages.one():
                    self._api.end()
                    self._note(victim)
                    self._api = self._an_api()
            case "worker":
                with self.outages.one():
                    pid = self._chance.choice(self._workers())
                    os.kill(pid, signal.SIGKILL)
                    self._until(lambda: is_gone(pid), f"the worker {pid} is there")
                    self._note(victim)
            case _:
                self._kill_part(victim)
        self._until_all_goes_on()

    def _kill_part(self, part: str) -> None:
        """Kill a part wherever it is; and then, at one of its points."""
        self._parts[part].kill()
        self._note(part)
        self._until_answered()
        point = f"{self._chance.choice(POINTS[part]).value}:{self._chance.randint(1, LATER)}"
        dying = self._parts[part] = self._started(part, point)
        self._until(lambda: dying.code is not None, f"{part} does not come to {point}")
        assert dying.code == -signal.SIGKILL, f"{part} ended with {dying.code}"
        self._note(f"{part} at {point.partition(':')[0]}")
        self._until_answered()
        self._parts[part] = self._started(part)

    def finish(self) -> None:
        """Have no more payments; whatever is asked then is as of the last."""
        self._parts["core"].kill()
        last = committed(self._home)
        for session in self.sessions:
            told = session.last
            self._until(lambda of=told: set(of.values()) == {last}, f"not all tell batch {last}")  # type: ignore[misc]

    def end(self) -> None:
        """End all of it."""
        for session in self.sessions:
            session.end()
        self._api.end()
        for part in self._parts.values():
            part.kill()

    def _started(self, part: str, crash_at: str = "") -> Paying:
        return Paying(part, self._home, replace(HERE, url=self._url), self._seed, crash_at)

    def _an_api(self) -> ApiProcess:
        workers = {"HEADRACE_API_QUERY_WORKERS": str(SESSIONS)}
        made = ApiProcess(self._home, paying.FILE, self._url, **workers)
        until(lambda: _answers(made), PATIENCE_S, lambda: "the API answers nothing")
        return made

    def _workers(self) -> list[int]:
        return [pid for pid in workers_of(self._api.process.pid) if not is_gone(pid)]

    def _note(self, died: str) -> None:
        self.kills[died] += 1
        self.events += 1

    def _until_answered(self) -> None:
        """Return when everybody was answered in every way that was asked for from now on."""
        events = self.events
        self._until(
            lambda: all(min(session.answered.values()) >= events for session in self.sessions),
            "not everything is answered",
        )

    def _until_all_goes_on(self) -> None:
        """Return when that is so, and payments have come, were pushed and merged meanwhile."""
        self.events += 1
        before = committed(self._home)
        self._until_answered()
        self._until(
            lambda: all(min(session.last.values()) > before for session in self.sessions),
            f"nothing after batch {before} is told",
        )

    def _until(self, condition: Callable[[], bool], explain: str) -> None:
        def holds() -> bool:
            for session in self.sessions:
                session.check()
            return condition()

        until(holds, PATIENCE_S, lambda: f"{explain}: {[vars(s) for s in self.sessions]}")


def _answers(api: ApiProcess) -> bool:
    with suppress(OSError):  # it may take its time for a first worker
        return api.client.ask("SELECT 1").status == 200
    return False


def asked_amid_kills(home: Path, url: str, *, rounds: int, seed: int) -> str:
    """Kill each part in each round, in an order by the seed; tell what was asked meanwhile."""
    chance, bank = random.Random(seed), Bank(home, url, seed)  # noqa: S311 - no secret
    try:
        for _ in range(rounds):
            for victim in chance.sample(VICTIMS, len(VICTIMS)):
                bank.kill(victim)
        bank.finish()
    finally:
        bank.end()
    asked, excused = Counter[str](), Counter[str]()
    for session in bank.sessions:
        session.check()
        asked += session.plans
        excused += session.excused
    assert {f"staged by {plan.value}" for plan in Plan} <= asked.keys(), asked
    return (
        f"{bank.kills.total()} kills ({_told(bank.kills)}), {asked.total()} totals "
        f"({_told(asked)}), none wrong; unanswered: {_told(excused) or 'none'}"
    )


def _told(counted: Counter[str]) -> str:
    return ", ".join(f"{what} {times}" for what, times in sorted(counted.items()))
