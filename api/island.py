"""The query island: one SELECT over what is staged and what has arrived, as if it were one table.

The query is parsed, checked against the lists of what is allowed, and written anew with a
subquery in the place of each table: see `sources`. It is answered at one cut, by the plan that
costs least.
"""

import logging
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from api import cut
from api.answer import Answer, Column
from api.catalogue import Catalogue, Shown
from api.costs import Rates
from api.cut import Cut, Moment, Part, There
from api.errors import QueryRefused, Unfinished
from api.few import Shelf
from api.finish import Finisher
from api.grant import Restriction
from api.joined import NotAlike
from api.parse import Parameter, compared, flat, is_any, placed, put, refuse, values
from api.plans import Plan, Weighed
from api.question import Question
from api.resolve import Resolved, Template, resolve
from api.shims import Shim, Whole
from api.shims.files import Folder
from api.shims.sessions import Sessions
from api.split import Split, split
from etl_procs.model import Kept, Outlet
from etl_procs.reader import Lasting, Reader
from headrace.clock import Clock, SystemClock
from headrace.errors import Refused
from migrations.warehouse import Warehouse

log = logging.getLogger(__name__)

JOINED_SHARE = 4
"""So small a part of its memory is for rows that it joins: what it makes of them needs the rest."""
KEPT = 256
"""Queries whose text was looked at, and that are kept for when they come again: also with other
values of what they compare with.
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, and at which cut it is to be answered."""

    sql: str
    parameters: tuple[Parameter, ...] = ()
    moment: Moment = field(default_factory=Moment)
    timeout_ms: int = 30_000
    plan: Plan | None = None
    """The plan that is to be taken, if it can be; None: the one that costs least."""
    tables: tuple[tuple[str, Restriction], ...] | None = None
    """What the caller may see, and nothing else; None: all tables."""


@dataclass(slots=True)
class Prepared:
    """What a query's text and the catalogue say of it, and what a warehouse has said of it."""

    template: Template
    tables: tuple[Shown, ...]
    """One for each place in the text."""
    split: Split | str
    """How it is divided, or why it is not."""
    columns: tuple[Column, ...] | None = None
    weighed: Weighed = field(default_factory=Weighed)

    def bound(self, values: Mapping[str, str]) -> "Prepared":
        """Put values of parameters in the places of their marks."""
        of = self.split
        divided = put(of, values) if isinstance(of, str) else of.bound(values)
        return replace(self, template=self.template.bound(values), split=divided)


@dataclass(frozen=True, slots=True)
class Setting:
    """What an island is over: values that can be told to another process."""

    warehouses: tuple[Warehouse, ...]
    """A table is asked of the first that has it."""
    cores: tuple[Path, ...]
    """The core of each partition."""
    catalogue: Catalogue
    rates: Rates = field(default_factory=Rates)
    files: tuple[Folder, ...] = ()
    memory_mb: int = 512
    """For what the island itself computes."""

    def has(self, outlet: Outlet) -> bool:
        """Whether an outlet's rows are anywhere."""
        return any(folder.takes(outlet) for folder in self.files) or any(
            self.feeds(place, outlet) for place in self.warehouses
        )

    def feeds(self, place: Warehouse, outlet: Outlet) -> bool:
        """Whether an outlet's rows go to a warehouse; or, of a stream, others of its dataflow, or
        nothing of it goes to any.
        """
        if not isinstance(outlet, Kept):
            return place.takes(outlet)
        others = [o for o in self.catalogue.outlets if o.dataflow == outlet.dataflow]
        return not self.catalogue.flows[outlet.dataflow].is_moved or any(map(place.takes, others))


class Island:
    """Answers queries over warehouses and the cores that feed them, one at a time."""

    def __init__(self, setting: Setting, clock: Clock | None = None) -> None:
        self.setting = setting
        self._clock = clock or SystemClock()
        self._sessions = Sessions(setting.memory_mb // 2)
        self._finisher = Finisher(setting.memory_mb)
        self._kept: OrderedDict[Hashable, Prepared] = OrderedDict()
        self._compared = lru_cache(KEPT)(compared)
        self._shelf = Shelf()
        self._cores = [*map(Lasting, setting.cores)]

    @contextmanager
    def answer(self, asked: Asked) -> Iterator[Answer]:
        """Open the answer to one SELECT at one cut; its rows are to be read within the block."""
        with ExitStack() as opened:
            question = opened.enter_context(self._opened(asked))
            try:
                answer = self._begun(question, asked.plan)
            except Unfinished as error:
                if asked.plan is not None:
                    raise
                log.warning("a divided query is asked as a whole: %s", error.what)
                opened.close()
                question = opened.enter_context(self._opened(asked))
                answer = self._begun(question, Plan.SHIP)
            yield answer

    def explain(self, asked: Asked) -> dict[str, Any]:
        """Tell how a query would be answered now, and why so; nothing of it is asked."""
        with self._opened(asked) as question:
            told = question.explained(question.weigh(asked.plan, in_full=True))
        if asked.tables is not None:  # neither what restricts the caller, nor what others' rows do
            told["because"] = "what plans cost, and why, is told to keys for all tables"
            for candidate in told["candidates"]:
                candidate["sql"] = {}
                candidate["cost_ms"] = candidate["cost_ms"] and 0.0  # rows of others are in it
            for table in told["tables"]:
                table["staged_rows"] = table["staged_bytes"] = 0
        return told

    def cancel(self) -> None:
        """Have the query at hand end soon. Another thread may ask for it."""
        self._finisher.interrupt()
        self._sessions.cancel()

    def close(self) -> None:
        """Close the sessions with the warehouses, and the cores."""
        self._sessions.close()
        for core in self._cores:
            core.close()

    def _begun(self, question: Question, wanted: Plan | None) -> Answer:
        """Begin to answer: what keeps a plan from being run is known with the first rows."""
        decision = question.decision(wanted)
        rows = question.run(decision, self._finisher)
        first = next(rows, None)
        return Answer(question.head(decision), rows if first is None else chain([first], rows))

    @contextmanager
    def _opened(self, asked: Asked) -> Iterator[Question]:
        with self._kept_if_well():
            kept, given = self._prepared(asked)
            prepared = kept.bound(given)
            homes, place = self._homes(prepared.tables)
            sessions: set[Shim] = {place, *homes.values()}
            for session in sessions:
                session.limit(asked.timeout_ms)
        with self._cut(asked.moment, homes, place, sessions) as at:
            if kept.columns is None:
                try:
                    kept.columns = _columns(prepared, place, at, is_alone=len(sessions) == 1)
                except QueryRefused as error:
                    raise placed(error, asked.sql) from error
            yield Question(
                prepared.template,
                prepared.tables,
                prepared.split,
                kept.columns,
                at,
                at.freshness.value,
                homes,
                place,
                self.setting.rates,
                self.setting.memory_mb * 2**20 // JOINED_SHARE,
                kept.weighed,
                self._shelf,
                self._clock.monotonic(),
            )

    @contextmanager
    def _kept_if_well(self) -> Iterator[None]:
        """Keep the sessions, unless something is wrong with one of them."""
        try:
            yield
        except Refused:
            raise
        except BaseException:
            self._sessions.close()
            raise

    @contextmanager
    def _cut(
        self,
        moment: Moment,
        homes: Mapping[Outlet, Shim],
        place: Whole,
        sessions: AbstractSet[Shim],
    ) -> Iterator[Cut]:
        are_kept = any(isinstance(outlet, Kept) for outlet in homes)
        lent = [outlet for outlet, home in homes.items() if home is not place]
        if lent or moment.asks_cores or are_kept:
            with self._kept_if_well():
                place.prepare([outlet for outlet in homes if outlet not in lent], lent)
        setting = self.setting
        with ExitStack() as ends:
            try:
                at = ends.enter_context(
                    cut.opened(moment, homes, setting.catalogue.flows, self._cores, self._clock)
                )
                for session in sessions - set(homes.values()):
                    session.snapshot([])  # a query of no table, too, is only to read
                yield at
            except Refused:
                self._end(sessions)
                raise
            except BaseException:
                self._sessions.close()  # in which state the sessions are is not known
                raise
            self._end(sessions)

    def _end(self, sessions: Iterable[Shim]) -> None:
        try:
            for session in sessions:
                session.end()
        except BaseException:
            self._sessions.close()  # the next query must not see the state that this one has seen
            raise

    @flat()
    def _prepared(self, asked: Asked) -> tuple[Prepared, Mapping[str, str]]:
        """Look at a query, or remember it; tell what stands in the places of marks: the values of
        parameters for which others of their types would be looked at the same.
        """
        given = asked.parameters
        marked = {number for number, value in enumerate(given, 1) if is_any(value)}
        try:
            if marked:
                marked &= self._compared(asked.sql)
            # To Python, 1 is True and 1.0.
            forms = tuple(type(v) if n in marked else repr(v) for n, v in enumerate(given, 1))
            of = (asked.sql, forms, asked.tables)
            if of not in self._kept:
                self._kept[of] = self._looked_at(asked, marked)
        except QueryRefused:
            return self._looked_at(asked, frozenset()), {}  # so that no mark is told
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        self._kept.move_to_end(of)
        return self._kept[of], values(given, marked)

    def _looked_at(self, asked: Asked, marked: AbstractSet[int]) -> Prepared:
        catalogue = self.setting.catalogue
        if asked.tables is not None:
            catalogue = catalogue.only(dict(asked.tables))
        resolved = resolve(asked.sql, catalogue, asked.parameters, marked)
        for table, shown in resolved.places:
            if not self.setting.has(shown.outlet):
                raise refuse(
                    table,
                    f"no warehouse has {shown.outlet.full_name}",
                    "Route it to one: see warehouse.tables.",
                )
        tables = tuple(shown for _, shown in resolved.places)
        homes, place = self._homes(tables)
        divided = _divided(resolved, {place, *homes.values()})
        return Prepared(resolved.template(), tables, divided)

    def _homes(self, tables: Sequence[Shown]) -> tuple[dict[Outlet, Shim], Whole]:
        """Find who holds each table, and the warehouse that answers alone if one does: the same
        warehouse for all of them, if there is one.
        """
        setting, sessions = self.setting, self._sessions
        homes: dict[Outlet, Shim] = {}
        rest = []
        for outlet in dict.fromkeys(shown.outlet for shown in tables):
            if folders := [folder for folder in setting.files if folder.takes(outlet)]:
                homes[outlet] = sessions.folder(folders[0])
            else:
                rest.append(outlet)
        takers = [p for p in setting.warehouses if all(setting.feeds(p, o) for o in rest)]
        for outlet in rest:
            found = takers or [p for p in setting.warehouses if setting.feeds(p, outlet)]
            homes[outlet] = sessions.warehouse(found[0])
        first = takers or [p for p in setting.warehouses if setting.feeds(p, rest[0])]
        return homes, sessions.warehouse(first[0])


def _columns(prepared: Prepared, place: Whole, at: Cut, *, is_alone: bool) -> tuple[Column, ...]:
    """Have PostgreSQL say what the columns are: of what is there, or of no rows of these types."""
    none = dict.fromkeys(at.parts, Part(There.NONE))
    parts = at.parts if is_alone else none
    texts = [place.there(shown, parts[shown.outlet]) for shown in prepared.tables]
    return place.columns(prepared.template.filled(texts))


def _divided(resolved: Resolved, sessions: Iterable[Shim]) -> Split | str:
    try:
        return split(resolved, orders_text=all(session.orders_text for session in sessions))
    except NotAlike as why:
        return str(why)


def check_core(setting: Setting) -> None:
    """Raise what keeps a core from being read."""
    for path in setting.cores:
        Reader(path).check()


def check_warehouse(place: Warehouse, setting: Setting) -> None:
    """Raise what keeps a warehouse from answering: it is away, or has no tables yet."""
    flows = setting.catalogue.flows.keys()
    taken = flows & {o.dataflow for o in setting.catalogue.outlets if place.takes(o)}
    sessions = Sessions(setting.memory_mb)
    try:
        sessions.warehouse(place).snapshot([setting.catalogue.flows[n] for n in sorted(taken)])
    finally:
        sessions.close()
