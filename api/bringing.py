"""Bringing: what a continuous query finds is taken to a webhook, or a call is made for each row.

The results of a query are brought in their order, each until it is taken. So a webhook hears of
each at least once; a call, in whose commit the core notes which one it was, is made once.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread

from api import problem, webhook
from api.errors import ScopeMissing, Unauthorized
from api.grant import Grant, Scope
from api.registered import Definition, Query, Registered, Result
from api.standing import Standing, bug_of
from api.values import dump
from etl_procs.calls import Callers, Turn
from headrace.clock import SystemClock
from headrace.errors import HeadraceError, Refused

T = TypeVar("T")

CLOCK = SystemClock()

ATTEMPTS_MAX = 8
BACKOFF_S, BACKOFF_S_MAX = 1.0, 60.0
"""The first wait, and the longest: each is twice the one before. In all, two minutes."""
POSTS_AT_ONCE = 16

log = logging.getLogger(__name__)


class Bringing:
    """Brings results to whom they are for."""

    def __init__(
        self,
        registered: Registered,
        callers: Callers,
        grant: Callable[[Query], Grant],
        *,
        private: bool,
    ) -> None:
        self._registered = registered
        self._callers = callers
        self._grant = grant
        self._private = private
        self._calling = CapacityLimiter(1)
        self._posting = CapacityLimiter(POSTS_AT_ONCE)

    async def check(self, definition: Definition, asker: Grant) -> None:
        """Refuse what results cannot be brought to."""
        if definition.webhook:
            look = partial(webhook.check, definition.webhook, private=self._private)
            await to_thread.run_sync(look, limiter=self._posting)
        if definition.call:
            if Scope.CALL not in asker.scopes or asker.tables is not None:
                raise ScopeMissing(
                    f"{asker.name} may not make calls",
                    hint="It takes a key for all tables with it: `headrace keys create NAME "
                    "--scope query --scope subscribe --scope call`.",
                    scope=Scope.CALL.value,
                )
            known = [
                f"{f.name}/{call}" for f in self._callers.dataflows.values() for call in f.calls
            ]
            if definition.call not in known:
                raise Refused(
                    f"there is no call {definition.call}",
                    hint=f"The calls are: {', '.join(known) or 'none'}.",
                )

    def check_columns(self, definition: Definition, names: Sequence[str]) -> None:
        """Refuse a query that does not give its call the arguments that it takes."""
        if not definition.call:
            return
        if len(set(names)) < len(names):
            raise Refused(
                "two columns have one name, and a call has its arguments by name",
                hint="Name them with AS.",
            )
        dataflow, _, name = definition.call.partition("/")
        columns = self._callers.dataflows[dataflow].calls[name].arguments
        required = [column.name for column in columns.columns if column.required]
        if not set(required) <= set(names) <= set(columns.names):
            raise Refused(
                f"the query's columns are {', '.join(names)}, and not the arguments of "
                f"{definition.call}",
                hint=f"Name them with AS. Its arguments: {columns.sql or 'none'}.",
            )

    def is_to_bring(self, standing: Standing) -> bool:
        """Whether there may be something to bring now."""
        query = standing.query
        return (
            query.definition.acts
            and query.parked is None
            and standing.brought != query.reached
            and CLOCK.monotonic() >= standing.bring_at
        )

    async def bring_all(self, standing: Standing) -> None:
        """Bring the results of one query to whom they are for, the oldest first."""
        try:
            while True:
                query = standing.query
                result = await self._in_file(self._registered.due, query)
                if result is None:
                    standing.brought = query.reached
                    return
                await self._bring(query, result)
                await self._in_file(self._registered.delivered, query, result)
                standing.attempts, standing.unbrought = 0, None
        except HeadraceError as error:
            await self._put_off(standing, error)
        except Exception as error:
            log.exception("a bug in what %s brings", standing.query.name)
            await self._put_off(standing, bug_of(error))
        finally:
            standing.is_bringing = False

    async def _put_off(self, standing: Standing, error: HeadraceError) -> None:
        """Try again later; after so many times, when somebody says so."""
        standing.unbrought = error
        standing.attempts += 1
        wait_s = min(BACKOFF_S * 2 ** (standing.attempts - 1), BACKOFF_S_MAX)
        standing.bring_at = CLOCK.monotonic() + wait_s
        if standing.attempts >= ATTEMPTS_MAX or isinstance(error, Unauthorized):
            log.warning("%s brings nothing any more: %s", standing.query.name, error.what)
            await self.park(standing, problem.document(error))

    async def park(self, standing: Standing, why: dict[str, Any] | None) -> None:
        """Bring nothing more; None: go on again."""
        await self._in_file(self._registered.park, standing.query, why)
        standing.query = replace(standing.query, parked=why)

    async def _bring(self, query: Query, result: Result) -> None:
        self._grant(query)
        if query.definition.webhook:
            document = result.document()
            key = f"{query.name}:{result.position}"
            post = partial(
                webhook.post,
                query.definition.webhook,
                dump(document),
                key,
                private=self._private,
            )
            await to_thread.run_sync(post, limiter=self._posting, abandon_on_cancel=True)
        else:
            await to_thread.run_sync(self._call, query, result, limiter=self._calling)

    def _call(self, query: Query, result: Result) -> None:
        """Make the call of each row; one that was made before does nothing."""
        dataflow, _, name = query.definition.call.partition("/")
        names = [column["name"] for column in result.columns]
        for number, row in enumerate(result.rows):
            arguments = dict(zip(names, row, strict=True))
            turn = Turn(query.id, result.number, number)
            self._callers.call_once(dataflow, name, arguments, turn)

    async def _in_file(self, work: Callable[..., T], *given: Any) -> T:
        return await to_thread.run_sync(work, *given, limiter=self._registered.turns)
