"""Who asks the island about TPC-DI while it is loaded: whatever is killed, at every freshness and
by every plan an answer is right for the batch that it is as of, and no cut goes backwards.

What is right is known without the files: nothing refers to what is not there, a key is there once,
rows only become more, a batch has one answer for ever, and a phase that is complete has as many
facts as the generator's answers say.
"""

import json
import os
import random
import signal
import threading
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from itertools import pairwise, product
from typing import Any, NamedTuple

from api_process import workers_of
from cuts import Cuts
from fakes import is_gone
from serving import Client
from waiting import until

from api.cut import Freshness
from api.plans import Plan
from headrace.cli.tpcdi_parts import Stack as Parts
from headrace.local import state
from headrace.local.home import Home
from tpcdi import schema
from tpcdi.flow import flow

PAUSE_S = 0.2
"""Between two questions: all the time, they would take the processor from what is asked about."""
EACH = 8
"""So many answers after a phase has begun, at most, a process of the API is killed."""
PATIENCE_S = 300.0
PHASES = (1, 2, 3)
API, WORKER = "api", "query worker"
UNIQUE = {
    **{name: of.key for name, of in schema.TABLES.items() if of.key},
    "dimdate": ("sk_dateid",),
    "dimtime": ("sk_timeid",),
}
GROWING = ("dimtrade", "dimcustomer", "dimaccount", "factholdings", "factcashbalances", "prospect")
OF_FACTS = {"factholdings": "HH_RECORDS", "factmarkethistory": "DM_RECORDS"}
"""What the answers say of the rows that a phase adds."""


class Kind(NamedTuple):
    """What kind of a question it is: by which plans it can be answered, and what is right."""

    plans: tuple[Plan | None, ...]
    is_right: Any


class Question(NamedTuple):
    """What is asked."""

    sql: str
    kind: Kind


NOTHING = Kind((None, Plan.SHIP, Plan.SPLIT), lambda rows: rows == [])
ZERO_JOINED = Kind((None, Plan.SHIP, Plan.GATHER), lambda rows: rows == [[0]])
ZERO = Kind((None, Plan.SHIP), lambda rows: rows == [[0]])
COUNT = Kind((None, Plan.SHIP, Plan.SPLIT), lambda rows: len(rows) == 1)
SAME = Kind((None, Plan.SHIP), lambda rows: all(row[1] == row[2] for row in rows))


def questions(references: Iterable[tuple[str, str, str, str]]) -> list[Question]:
    """Make all, for columns of tables that refer to columns of others."""
    found = []
    for table, column, dimension, key in references:
        joined = f"FROM {table} AS f LEFT JOIN {dimension} AS d ON f.{column} = d.{key}"
        lost = f"WHERE f.{column} IS NOT NULL AND d.{key} IS NULL"
        found.append(Question(f"SELECT count(*) {joined} {lost}", ZERO_JOINED))
    for table, unique in UNIQUE.items():
        names = ", ".join(unique)
        several = f"SELECT {names}, count(*) FROM {table} GROUP BY {names} HAVING count(*) > 1"
        found.append(Question(several, NOTHING))
    found += [Question(f"SELECT count(*), sum(batchid) FROM {table}", COUNT) for table in GROWING]
    inner = "(SELECT count(*) FROM factholdings AS f JOIN dimtrade AS t ON f.tradeid = t.tradeid)"
    found.append(Question(f"SELECT (SELECT count(*) FROM factholdings) - {inner}", ZERO))
    for table, attribute in OF_FACTS.items():
        found.append(
            Question(
                f"SELECT a.batchid, a.value, (SELECT count(*) FROM {table} AS f "
                f"WHERE f.batchid = a.batchid) FROM audit AS a WHERE a.attribute = '{attribute}' "
                "AND EXISTS (SELECT 1 FROM dimessages AS m WHERE m.messagetype = 'PCR' "
                "AND m.batchid = a.batchid) ORDER BY 1",
                SAME,
            )
        )
    return found


class Inquirer:
    """Asks, one question after the other, and kills whoever answers."""

    def __init__(self, home: Home, asked: list[Question], seed: int, *, kills_api: bool) -> None:
        self._home = home
        self._questions = asked
        self._choose = random.Random(seed)  # noqa: S311 - of a test
        self._over = threading.Event()
        self._failure: BaseException | None = None
        self._cuts = Cuts()
        self._told: dict[tuple[str, int], Any] = {}
        """What was answered, by question and batch."""
        self._counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
        victims = [(phase, WORKER) for phase in PHASES] + [(1, API)] * kills_api
        self._due = {of: self._choose.randint(1, EACH) for of in victims}
        """After how many answers in a phase which process of the API is killed."""
        self.answers = Counter[str]()
        self.phases = Counter[int]()
        self.unanswered = Counter[str]()
        self.killed = Counter[str]()

    @contextmanager
    def inquiring(self, parts: Parts) -> Iterator[None]:
        """Ask for as long as this lasts."""
        thread = threading.Thread(target=self._run, args=[parts], daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        if self._failure is not None:
            raise self._failure

    def finish(self, last: int) -> None:
        """Ask everything in every way, until all but `main` tell the last batch."""
        for question in self._questions:
            for freshness, plan in product(Freshness, question.kind.plans):
                until(lambda way=(question, freshness, plan): self._ask(*way), PATIENCE_S, str)  # type: ignore[misc]
        new = (Freshness.DELTA, Freshness.STAGED)
        assert [self._cuts.last[of] for of in new] == [last, last], self._cuts.last

    def told(self) -> str:
        """Say what was asked, and what became of it."""
        return (
            f"{self.answers.total()} answers ({dict(self.answers)}), in phases "
            f"{dict(self.phases)}; killed: {dict(self.killed)}; "
            f"unanswered: {dict(self.unanswered)}"
        )

    def _run(self, parts: Parts) -> None:
        try:
            while not self._over.wait(PAUSE_S):
                question = self._choose.choice(self._questions)
                freshness = self._choose.choice(list(Freshness))
                if self._ask(question, freshness, self._choose.choice(question.kind.plans)):
                    phase = len(parts.ended()) + 1
                    self.phases[phase] += 1
                    self._kill(phase)
        except BaseException as error:  # noqa: BLE001 - raised by whoever has this asked
            self._failure = error

    def _ask(self, question: Question, freshness: Freshness, plan: Plan | None) -> bool:
        """Ask one; tell whether it was answered."""
        asked = {"sql": question.sql, "freshness": freshness.value, "plan": plan and plan.value}
        try:
            reply = self._client().send(
                "POST", "/v1/query", json.dumps(asked), key=f"Bearer {self._key()}"
            )
        except (OSError, HTTPException) as error:
            self.unanswered[type(error).__name__] += 1
            return False
        if reply.status != 200:
            assert reply.status == 503, (asked, reply)
            self.unanswered[reply.document["code"]] += 1
            return False
        self.check(question, freshness, reply.document)
        self.answers[f"{freshness.value} by {reply.document['plan']}"] += 1
        return True

    def check(self, question: Question, freshness: Freshness, told: Any) -> None:
        """Raise if an answer cannot be right."""
        batch, rows = told["as_of"][flow.name], told["rows"]
        assert told["freshness"] == freshness.value
        self._cuts.follow(freshness, batch, (question.sql, told))
        assert question.kind.is_right(rows), (question.sql, told)
        before = self._told.setdefault((question.sql, batch), rows)
        assert before == rows, (question.sql, told, before)
        if question.kind is COUNT:
            counts = self._counts[question.sql]
            insort(counts, (batch, rows[0][0]))
            assert all(a[1] <= b[1] for a, b in pairwise(counts)), (question.sql, told, counts)

    def _client(self) -> Client:
        address = self._part("address") or ":0"
        return Client(int(str(address).rpartition(":")[2]))

    def _key(self) -> str:
        return self._home.api_key.read_text().strip()

    def _part(self, what: str) -> Any:
        stack = state.running(self._home)
        return stack and getattr(stack.parts["api"], what)

    def _kill(self, phase: int) -> None:
        """Kill the processes of the API that are due."""
        for victim in (WORKER, API):
            if self._due.get((phase, victim), self.phases[phase] + 1) > self.phases[phase]:
                continue
            del self._due[phase, victim]
            api = self._part("pid")
            assert api is not None, "the API has just answered"
            pid = api if victim == API else self._choose.choice(workers_of(api))
            os.kill(pid, signal.SIGKILL)
            until(lambda of=pid: is_gone(of), PATIENCE_S, lambda: "it is there")  # type: ignore[misc]
            self.killed[victim] += 1
            return
