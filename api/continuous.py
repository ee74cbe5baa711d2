"""Continuous queries: answered as of the batches that are committed, one after the other, and what
is to be done with each result.

A result is kept before anybody is told of it. What brings it to somebody - a webhook, a call - is
done in the order of the results, as often as it takes, and for each query by itself.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from anyio import Event, create_task_group, move_on_after, sleep, to_thread
from anyio.abc import TaskGroup
from fastapi import FastAPI
from starlette.exceptions import HTTPException

from api.answering import Answering
from api.bringing import Bringing
from api.cut import Moment
from api.errors import Busy, KeyMissing, NotYet, QueryRefused, ScopeMissing
from api.events import Form
from api.grant import OWNER, Grant, Scope
from api.guard import Admitted
from api.island import Setting
from api.keyring import Keyring
from api.registered import Definition, Query, Registered, Result, conflict, position, unknown
from api.standing import Standing, bug_of
from api.values import dump
from etl_procs.calls import Callers
from headrace.config import Api
from headrace.errors import HeadraceError, NotRunning, Refused

T = TypeVar("T")

LOOK_S = 0.05
FOLLOWERS_MAX = 100
HEARTBEAT_S = 15.0

log = logging.getLogger(__name__)


class Continuous:
    """The continuous queries of a data folder, while the API runs."""

    def __init__(
        self,
        setting: Setting,
        limits: Api,
        registered: Registered,
        keyring: Keyring,
        callers: Callers,
    ) -> None:
        self._most = limits.continuous_max
        self._registered = registered
        self._keyring = keyring
        self._answering = Answering(setting, limits, registered, keyring)
        self._bringing = Bringing(
            registered, callers, self._answering.grant, private=limits.webhooks_private
        )
        self._standing = {query.name: Standing(query, query.reached) for query in registered.all()}
        self._changed = Event()
        self._unseen = ""
        """Why the cores could not be looked at, if so."""
        self._registering = 0
        self._followers = 0
        self.is_ending: Callable[[], bool] = lambda: False
        """Whether the API has been told to stop: then those who follow are told."""

    @asynccontextmanager
    async def running(self, _app: FastAPI) -> AsyncIterator[None]:
        """Answer them within this block."""
        async with create_task_group() as group:
            group.start_soon(self._look_on, group)
            yield
            group.cancel_scope.cancel()
        self._answering.close()

    async def put(
        self, name: str, definition: Definition, asker: Grant, *, anew: bool
    ) -> tuple[Standing, bool]:
        """Register a query, once it has been answered; tell whether it is new."""
        before = self._standing.get(name)
        if (
            before
            and before.query.definition.text() == definition.text()
            and _may_see(asker, before.query)
        ):
            return before, False
        if before and not anew:
            raise conflict(name)
        if before:
            _check_owner(asker, before.query)
        elif len(self._standing) + self._registering >= self._most:
            raise Busy(
                f"as many continuous queries are registered as may be ({self._most})",
                hint="Drop one, or raise api.continuous_max.",
            )
        self._registering += 1
        try:
            query = await self._made(name, definition, asker, before.query.id if before else "")
        finally:
            self._registering -= 1
        self._standing[name] = made = Standing(query, query.reached)
        self._wake()
        return made, True

    async def _made(self, name: str, definition: Definition, asker: Grant, before: str) -> Query:
        """Answer a query for the first time, and enter it in the place of one of that id."""
        if asker.id != OWNER.id:
            try:
                self._keyring.held(asker.id)
            except KeyMissing as error:
                raise Refused(
                    f"{asker.name} shows a token, which ends before a continuous query does",
                    hint="Register it with a key: `headrace keys create`.",
                ) from error
        await self._bringing.check(definition, asker)
        first = await self._answering.answered(name, definition, asker, Moment())
        self._check_result(definition, first)
        put = partial(self._registered.put, asker.id, definition, first, replace=before)
        return await self._in_file(put)

    def all(self, asker: Grant) -> list[Standing]:
        """Give all that may be seen."""
        found = (self._standing[name] for name in sorted(self._standing))
        return [standing for standing in found if _may_see(asker, standing.query)]

    def find(self, name: str, asker: Grant) -> Standing:
        """Give one, or refuse a name that is none's."""
        standing = self._standing.get(name)
        if standing is None or not _may_see(asker, standing.query):
            raise unknown(name)
        return standing

    async def drop(self, name: str, asker: Grant) -> None:
        """Drop one: nothing more of it is told, or done."""
        query = self.find(name, asker).query
        _check_owner(asker, query)
        await self._in_file(self._registered.drop, query)
        if self._is_current(query):
            del self._standing[name]
        self._wake()

    async def retry(self, name: str, asker: Grant) -> Standing:
        """Bring results again that were parked, or wait for the next attempt."""
        standing = self.find(name, asker)
        _check_owner(asker, standing.query)
        await self._bringing.park(standing, None)
        standing.attempts, standing.bring_at = 0, 0.0
        return standing

    async def last(self, query: Query) -> Result:
        """Give the last result."""
        return await self._in_file(self._registered.last, query)

    async def waiting(self, query: Query) -> int:
        """Count the results that are still to be brought to somebody."""
        return await self._in_file(self._registered.waiting, query)

    def refusal(self, standing: Standing) -> HeadraceError | None:
        """Tell why a query is not answered, if it is not."""
        try:
            self._answering.grant(standing.query)
        except HeadraceError as error:
            return error
        return standing.error

    def begin(self, standing: Standing, after: list[int] | None) -> int:
        """Tell after which result somebody follows; refuse a position that cannot be one."""
        query = standing.query
        if after is None:
            return sum(query.reached) - 1  # a result is a whole state: the last one comes first
        if len(after) != len(query.places):
            raise HTTPException(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                f"the position has {len(after)} batches, and {query.name} reads "
                f"{', '.join(query.places)}: one for each, in that order",
            )
        if any(batch > last for batch, last in zip(after, standing.reached, strict=True)):
            raise NotYet(
                f"{query.name} is at {position(standing.reached)}, and not yet at "
                f"{position(after)}",
                hint="That position is of another data folder. Follow without one.",
            )
        return sum(after)

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Have one more who follows; refuse too many."""
        if self._followers >= FOLLOWERS_MAX:
            raise Busy(
                f"as many follow continuous queries as may ({FOLLOWERS_MAX})",
                hint="Ask again when one has gone.",
            )
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1

    async def events(
        self, query: Query, form: Form, after: int, limit: int | None, admitted: Admitted
    ) -> AsyncIterator[bytes]:
        """Give the results after one, as they come, until the query, the API or the key is gone."""
        told = 0
        try:
            while limit is None or told < limit:
                if self.is_ending():
                    raise NotRunning(
                        "the API ends", hint="Follow again when it is back, behind the last one."
                    )
                await admitted()
                changed = self._changed
                result = await self._in_file(self._registered.next, query, after)
                if result is not None:
                    text = dump(result.document()).decode()
                    yield f"{form.head(result.position)}{text}{form.tail}".encode()
                    after, told = result.number, told + 1
                    continue
                with move_on_after(HEARTBEAT_S) as quiet:
                    await changed.wait()
                if quiet.cancelled_caught:
                    yield form.beat
        except HeadraceError as error:
            yield form.ended(error)

    async def _look_on(self, group: TaskGroup) -> None:
        """Look at the cores, and have done what is due."""
        while True:
            await sleep(LOOK_S)
            if self.is_ending():
                self._wake()
            if not self._standing:
                continue
            await self._look()
            for standing in list(self._standing.values()):
                if not standing.is_answering and self._answering.is_due(standing):
                    standing.is_answering = True
                    group.start_soon(self._go_on, standing)
                if not standing.is_bringing and self._bringing.is_to_bring(standing):
                    standing.is_bringing = True
                    group.start_soon(self._bringing.bring_all, standing)

    async def _look(self) -> None:
        """Look at the cores; where one cannot be looked at, go on with what is known."""
        try:
            await self._answering.look()
        except Exception as error:
            found = error if isinstance(error, HeadraceError) else bug_of(error)
            if found.what != self._unseen:
                log.warning(
                    "the cores cannot be looked at: %s", found.what, exc_info=found is not error
                )
            self._unseen = found.what
        else:
            self._unseen = ""

    async def _go_on(self, standing: Standing) -> None:
        if await self._answering.go_on(standing):
            self._wake()

    def _check_result(self, definition: Definition, first: Result) -> None:
        on = {self._answering.places[place][0] for place in first.as_of}
        if not on:
            raise QueryRefused(
                "the query reads no table", hint="It is answered at the batches of one."
            )
        if definition.on and definition.on not in on:
            raise Refused(
                f"the query does not read {definition.on}",
                hint=f"It can be answered at the batches of {', '.join(sorted(on))}.",
            )
        self._bringing.check_columns(definition, [column["name"] for column in first.columns])

    def _is_current(self, query: Query) -> bool:
        standing = self._standing.get(query.name)
        return standing is not None and standing.query.id == query.id

    async def _in_file(self, work: Callable[..., T], *given: Any) -> T:
        return await to_thread.run_sync(work, *given, limiter=self._registered.turns)

    def _wake(self) -> None:
        woken, self._changed = self._changed, Event()
        woken.set()


def _may_see(asker: Grant, query: Query) -> bool:
    return asker.tables is None or asker.id == query.registrant


def _check_owner(asker: Grant, query: Query) -> None:
    if asker.id != query.registrant and (
        Scope.OPERATE not in asker.scopes or asker.tables is not None
    ):
        raise ScopeMissing(
            f"{query.name} was registered by another key",
            hint="Its own key may change it, and any key with the scope operate.",
            scope=Scope.OPERATE.value,
        )
