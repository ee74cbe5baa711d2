"""Recent: the queries of late, whose they are, what was expected of them and what they took."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from api.errors import QueryCancelled
from api.grant import Grant, Scope
from api.messages import Begun, Done
from api.metrics import Metric, counter, histogram
from api.plans import Moving
from etl_procs.metrics import Histogram
from headrace.clock import Clock

RECENT_MAX = 100
SQL_MAX = 500
"""So many characters of it are kept: the beginning tells which query it is."""

NO_PLAN = "none"
"""The plan of a query that has come to none, in the metrics."""
PREFIX = "headrace_api_"


class State(StrEnum):
    """How far a query is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Proposal:
    """That a migration pays: a query that was asked again and again had to do with staged rows."""

    tables: tuple[str, ...]
    """A push of these is proposed."""
    times: int
    """So often it was asked since nothing of them was staged."""
    spent_ms: float
    """What their staged rows have cost in all these, by the model of costs."""
    once_ms: float
    """What moving those that are staged now would cost, once."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query, as far as it has come."""

    id: str
    sql: str
    key: str
    """The name of the key that asked it."""
    started_at: datetime
    state: State = State.RUNNING
    plan: str | None = None
    cost_ms: float | None = None
    """What its plan was expected to take; None where nothing was to be weighed."""
    ms: float | None = None
    """What it took, in the process that answered it; None if it was not answered."""
    rows: int | None = None
    code: str = ""
    """Why it failed."""
    moving: Moving | None = None
    """What staged rows were expected to cost it; None if there were none that could be moved."""
    proposal: Proposal | None = None


class Recent:
    """The last queries of all keys, and what is counted of all queries. For one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[Following] = deque(maxlen=RECENT_MAX)
        self._ended: Counter[tuple[str, State]] = Counter()
        self._took: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._errors: defaultdict[str, Histogram] = defaultdict(Histogram)

    @contextmanager
    def follow(self, id: str, sql: str, asker: Grant) -> Iterator["Following"]:
        """Keep a query in mind from now on; it is over when what is given here is left."""
        query = Query(id, sql[:SQL_MAX], asker.name, self._clock.now())
        following = Following(query, asker.id, self._count)
        self._kept.append(following)
        try:
            yield following
        except BaseException as error:
            following.failed(error)
            raise
        # Without a word it ends only where whoever asked has gone.
        following.end(State.CANCELLED)

    def seen_by(self, asker: Grant) -> list[Query]:
        """Give those that a caller may see, the newest first: who operates sees all of them. The
        last one of each text has the proposal, if there is one.
        """
        seen: dict[str, Query] = {}
        found = self._seen_by(asker)
        for query in found:
            seen.setdefault(query.sql, query)
        return [
            replace(query, proposal=_proposal(query.sql, found))
            if seen[query.sql] is query
            else query
            for query in found
        ]

    def proposal(self, sql: str, asker: Grant) -> Proposal | None:
        """Propose a migration, if a query was asked so often that it would have paid."""
        return _proposal(sql, self._seen_by(asker))

    def _seen_by(self, asker: Grant) -> list[Query]:
        sees_all = Scope.OPERATE in asker.scopes
        return [of.query for of in reversed(self._kept) if sees_all or of.owner == asker.id]

    def metrics(self) -> Iterator[Metric]:
        """Tell what was counted."""
        ended = [({"plan": p, "state": s.value}, n) for (p, s), n in self._ended.items()]
        took = [({"plan": plan}, found.as_dict()) for plan, found in self._took.items()]
        errors = [({"plan": plan}, found.as_dict()) for plan, found in self._errors.items()]
        for made in (
            counter("queries_total", "Queries that have ended.", ended),
            histogram("query_seconds", "How long the answered ones took.", took),
            histogram("plan_error", "How often what was expected that took.", errors),
        ):
            yield replace(made, prefix=PREFIX)

    def _count(self, query: Query) -> None:
        plan = query.plan or NO_PLAN
        self._ended[plan, query.state] += 1
        if query.ms is not None:
            self._took[plan].add([query.ms / 1000])
            if query.cost_ms:
                self._errors[plan].add([query.ms / query.cost_ms])


def _proposal(sql: str, found: Iterable[Query]) -> Proposal | None:
    """Add up what staged rows have cost, from the newest query back to one that had none."""
    spent: list[Moving] = []
    for query in found:
        if query.sql == sql and query.state is State.DONE:
            if query.moving is None:
                break
            spent.append(query.moving)
    spent_ms = sum(moving.spent_ms for moving in spent)
    is_cut = len(sql) >= SQL_MAX  # others may begin so
    if len(spent) < 2 or is_cut or spent_ms <= spent[0].once_ms:
        return None
    return Proposal(spent[0].tables, len(spent), spent_ms, spent[0].once_ms)


class Following:
    """One query that is followed, until it is over."""

    def __init__(self, query: Query, owner: str, over: Callable[[Query], None]) -> None:
        self.query = query
        self.owner = owner
        self._over = over

    def begun(self, begun: Begun) -> None:
        """Note that there is an answer, and what it was expected to take."""
        self.query = replace(
            self.query, plan=begun.plan, cost_ms=begun.cost_ms or None, moving=begun.moving
        )

    def done(self, done: Done) -> None:
        """Note that all of it was said."""
        self.end(State.DONE, ms=done.seconds * 1000, rows=done.rows)

    def failed(self, error: BaseException) -> None:
        """Note why it was not answered, or not to its end."""
        is_ours = isinstance(error, Exception) and not isinstance(error, QueryCancelled)
        code = type(error).__name__
        self.end(State.FAILED if is_ours else State.CANCELLED, code=code)

    def end(self, state: State, **more: Any) -> None:
        """Note how it has ended, unless it has before."""
        if self.query.state is State.RUNNING:
            self.query = replace(self.query, state=state, **more)
            self._over(self.query)
