"""Recent: the queries of late, whose they are, what was expected of them and what they took."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from api.errors import QueryCancelled
from api.grant import Grant, Scope
from api.messages import Begun, Done
from api.metrics import Labels, Metric, counter, histogram
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


class Recent:
    """The last queries of all keys, and what is counted of all queries. For one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: deque[Following] = deque(maxlen=RECENT_MAX)
        self._ended: Counter[tuple[str, State]] = Counter()
        self._took: defaultdict[str, Histogram] = defaultdict(Histogram)
        self._errors = Histogram()

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
        """Give those that a caller may see, the newest first: who operates sees all of them."""
        sees_all = Scope.OPERATE in asker.scopes
        return [of.query for of in reversed(self._kept) if sees_all or of.owner == asker.id]

    def metrics(self) -> Iterator[Metric]:
        """Tell what was counted."""
        ended = [({"plan": p, "state": s.value}, n) for (p, s), n in self._ended.items()]
        took = [({"plan": plan}, found.as_dict()) for plan, found in self._took.items()]
        errors: list[tuple[Labels, dict[str, Any]]] = [({}, self._errors.as_dict())]
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
                self._errors.add([query.ms / query.cost_ms])


class Following:
    """One query that is followed, until it is over."""

    def __init__(self, query: Query, owner: str, over: Callable[[Query], None]) -> None:
        self.query = query
        self.owner = owner
        self._over = over

    def begun(self, begun: Begun) -> None:
        """Note that there is an answer, and what it was expected to take."""
        self.query = replace(self.query, plan=begun.plan, cost_ms=begun.cost_ms or None)

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
