"""Answering: a continuous query's results, as of the batches that its dataflow commits.

Each batch is answered by itself while the query keeps up and the batch is not merged away; then
several are put together, and the result is that of the last of them.
"""

import json
import logging
from dataclasses import replace
from functools import partial

from anyio import CapacityLimiter, to_thread

from api.cut import Moment, There
from api.errors import NoLonger, TooLarge, Unauthorized
from api.formats import Format
from api.grant import OWNER, Grant
from api.island import Asked, Setting
from api.keyring import Keyring
from api.messages import Ask, Begun, Done, Explain, Explained
from api.registered import Definition, Query, Registered, Result, When
from api.standing import Standing, bug_of
from api.workers import Workers
from etl_procs.watch import Watch
from headrace.clock import SystemClock
from headrace.config import Api
from headrace.errors import HeadraceError, Refused

CLOCK = SystemClock()

ROWS_MAX = 1_000
RESULT_BYTES_MAX = 256 * 1024
STEPS_MAX = 32
"""Up to so many batches behind, each is answered by itself; beyond, the last of them."""
RETRY_S = 5.0
"""A query that fails is tried again so soon, if no batch comes before."""

log = logging.getLogger(__name__)


class Answering:
    """Has the continuous queries answered, in worker processes of their own."""

    def __init__(
        self, setting: Setting, limits: Api, registered: Registered, keyring: Keyring
    ) -> None:
        self._limits = limits
        self._registered = registered
        self._keyring = keyring
        self.places = {
            place: (flow.name, number)
            for flow in setting.catalogue.flows.values()
            for number, place in enumerate(flow.places)
        }
        """The dataflow and the number of each partition, by the name that answers have for it."""
        self._keyed = {o.full_name for o in setting.catalogue.outlets if o.key}
        self._watch = Watch(setting.cores)
        self._watching = CapacityLimiter(1)
        self._workers = Workers(
            setting,
            size=limits.continuous_workers,
            waiting_max=2 * limits.continuous_max + 1,  # as many are registered anew at once
            memory_mb_max=limits.query_memory_mb_max,
        )

    def close(self) -> None:
        """End the processes that answer."""
        self._workers.close()

    async def look(self) -> None:
        """Look at what is committed."""
        await to_thread.run_sync(self._watch.look, limiter=self._watching)

    def is_due(self, standing: Standing) -> bool:
        """Whether there are batches that it has still to be answered at."""
        newest = self._newest(standing)
        if standing.error is None:
            return newest != standing.reached
        if isinstance(standing.error, Unauthorized):
            return False
        return newest != standing.failed_at or CLOCK.monotonic() >= standing.retry_at

    def _newest(self, standing: Standing) -> tuple[int, ...]:
        """Tell the batches that are committed, of the partitions at which it is answered."""
        on, newest = standing.query.definition.on, []
        for place, reached in zip(standing.query.places, standing.reached, strict=True):
            name, number = self.places.get(place, ("", 0))
            last = self._watch.batches(name, number + 1)[number] if name else reached
            newest.append(max(last, reached) if on in ("", name) else reached)
        return tuple(newest)

    async def go_on(self, standing: Standing) -> bool:
        """Answer a query at its next batch; tell whether there is a new result. What goes wrong is
        its own, and stops no other.
        """
        newest = self._newest(standing)
        try:
            is_new = await self._answer(standing, newest)
        except HeadraceError as error:
            self._fail(standing, newest, error)
        except Exception as error:
            log.exception("a bug in the continuous query %s", standing.query.name)
            self._fail(standing, newest, bug_of(error))
        else:
            standing.error = None
            return is_new
        finally:
            standing.is_answering = False
        return False

    def _fail(self, standing: Standing, newest: tuple[int, ...], error: HeadraceError) -> None:
        if standing.error is None or standing.error.what != error.what:
            log.warning("the continuous query %s fails: %s", standing.query.name, error.what)
        standing.error, standing.failed_at = error, newest
        standing.retry_at = CLOCK.monotonic() + RETRY_S

    async def _answer(self, standing: Standing, newest: tuple[int, ...]) -> bool:
        query = standing.query
        grant = self.grant(query)
        of = (query.name, query.definition, grant)
        moment = _next(standing, newest)
        try:
            result = await self.answered(*of, moment)
            await self._check_kept(query.definition, grant, moment)
        except NoLonger:
            result = await self.answered(*of, Moment())
        if tuple(result.as_of) != query.places:
            raise Refused(
                f"{query.name} was registered over {', '.join(query.places)}, and is now over "
                f"{', '.join(result.as_of)}",
                hint="Register it again, with ?replace=true or --replace: the dataflow has other "
                "partitions.",
            )
        reached = tuple(result.as_of.values())
        is_new = sum(reached) > sum(standing.reached) and not await self._is_as_before(
            query, result
        )
        if is_new:
            add = partial(self._registered.add, query, result)
            if not await to_thread.run_sync(add, limiter=self._registered.turns):
                return False  # it was dropped meanwhile
            standing.query = replace(standing.query, reached=reached)
        standing.reached = reached
        return is_new

    async def _check_kept(self, definition: Definition, grant: Grant, moment: Moment) -> None:
        """Refuse what was answered as of a batch that a warehouse has only together with later
        ones: of a key's operations, a push carries the last.

        What has arrived never goes back, so what is not there now was not there before.
        """
        if not moment.as_of:
            return
        async with self._workers.turn() as worker:
            told = await worker.ask(Explain(self._asked(definition, grant, moment)))
        assert isinstance(told, Explained), told
        for table in told.document["tables"]:
            if table["table"] in self._keyed and table["there"] == There.BOUNDED.value:
                raise NoLonger(
                    f"{table['table']} is pushed together with later batches", hint="Go on."
                )

    async def _is_as_before(self, query: Query, result: Result) -> bool:
        if query.definition.when is When.EACH:
            return False
        last = partial(self._registered.last, query)
        before = await to_thread.run_sync(last, limiter=self._registered.turns)
        return _rows_of(before) == _rows_of(result)

    async def answered(
        self, name: str, definition: Definition, grant: Grant, moment: Moment
    ) -> Result:
        """Have a worker answer at a moment, as far as whoever registered the query may see."""
        asked = self._asked(definition, grant, moment)
        rows_max = min(ROWS_MAX, self._limits.query_rows_max)
        pieces, size = [], 0
        async with self._workers.turn() as worker:
            said = await worker.ask(Ask("", asked, Format.JSON, rows_max))
            assert isinstance(said, Begun), said
            while isinstance(piece := await worker.hear(), bytes):
                pieces.append(piece)
                size += len(piece)
            assert isinstance(piece, Done), piece
        if size > RESULT_BYTES_MAX:
            raise TooLarge(
                f"the result of {name} has {size} bytes, and {RESULT_BYTES_MAX} are kept",
                hint="Ask for less: a continuous query is for what is looked at whole.",
            )
        document = json.loads(b"".join(pieces))
        as_of = dict(sorted(document["as_of"].items(), key=lambda of: self.places[of[0]]))
        return Result(name, as_of, document["columns"], document["rows"])

    def _asked(self, definition: Definition, grant: Grant, moment: Moment) -> Asked:
        tables = None if grant.tables is None else tuple(sorted(grant.tables.items()))
        timeout_ms = self._limits.query_timeout_ms
        return Asked(definition.sql, definition.parameters, moment, timeout_ms, None, tables)

    def grant(self, query: Query) -> Grant:
        """Tell what whoever registered a query may do now; refuse a key that is over."""
        if query.registrant == OWNER.id:
            return OWNER
        return self._keyring.held(query.registrant)


def _next(standing: Standing, newest: tuple[int, ...]) -> Moment:
    """Choose as of what a query is answered: the next batch, if that is one and not long ago.

    Of several partitions, which batches go together is known only when all are looked at at once.
    """
    (place, *others), (reached, *_) = standing.query.places, standing.reached
    is_near = 0 < newest[0] - reached <= STEPS_MAX
    if others or not is_near or standing.error is not None:
        return Moment()
    return Moment(as_of={place: reached + 1})


def _rows_of(result: Result) -> list[str]:
    """Give what a result says, in whichever order it says it."""
    return sorted(json.dumps(row) for row in result.rows)
