"""Any schedule of pushes, pulls, merges, rebuilds, cut off anywhere, ends as a dictionary says."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

import book
import psycopg
import pytest
from book import Book, Entry
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from etl_procs.origin import Origin
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints, Point
from migrations import audit, layout, ledger, warehouse
from migrations.job import Job, Place
from migrations.jobs import Jobs
from migrations.merge import Merging
from migrations.push import Push
from migrations.rebuild import Rebuild
from migrations.registry import Asked, Kind, Outcome, Registry, State
from migrations.warehouse import Connection, Warehouse


class Killed(BaseException):
    """The process would have ended here; nobody is to take it for a failure."""


class Killing(CrashPoints):
    """Ends what runs when so many points have been reached; 0: never."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self._left_to_go = nth

    def reached(self, point: Point) -> None:
        self._left_to_go -= 1
        if self._left_to_go == 0:
            raise Killed(point.value)


@dataclass(frozen=True)
class Do:
    """Something with a warehouse, ended when so many crash points have been reached."""

    what: str
    where: int
    nth: int
    batches_max: int


@dataclass(frozen=True)
class Ask:
    """A pull that is asked for by id, of an API that is ended as above. It may be known already."""

    number: int
    where: int
    nth: int
    batches_max: int

    @property
    def id(self) -> str:
        return f"pull {self.number} into {self.where}"


an_entry = st.builds(
    Entry,
    st.sampled_from(["", "a", "b"]),
    st.integers(0, 1),
    st.sampled_from([0.0, 1.5, 1e300]),
    st.none() | st.sampled_from(["x", "\\N"]),
    st.booleans(),
)
batches = st.lists(st.lists(an_entry, max_size=4), min_size=1, max_size=3)
does = st.builds(
    Do,
    st.sampled_from(["push", "push", "merge", "rebuild"]),
    st.integers(0, 1),
    st.integers(0, 9),
    st.integers(1, 3),
)
asks = st.builds(Ask, st.integers(0, 1), st.integers(0, 1), st.integers(0, 5), st.integers(1, 3))


def do(step: Do, made: Book, places: Sequence[Warehouse], connection: Connection) -> None:
    """Do it, with a core's file that is opened anew, as after a restart."""
    crash = Killing(step.nth)
    place, other = places[step.where], places[1 - step.where]
    with closing(Origin(made.path, config.Core(), crash)) as origin, suppress(Killed):
        if step.what == "push":
            Push(0, place, origin, crash, step.batches_max).run(connection, book.flow)
        elif step.what == "merge":
            Merging(place, crash).run(connection, book.flow)
        else:
            Rebuild(place, other, [origin], crash).run(connection, book.flow)


class Dying(Jobs):
    """Jobs of a process that may be killed: nobody lives on to say so."""

    def _end(self, job: Job, outcome: Outcome) -> None:
        if outcome.error is None or "Killed" not in outcome.error["what"]:
            super()._end(job, outcome)


class Api:
    """Runs what is asked for by id; each time it is begun anew, after it may have been ended."""

    def __init__(self, made: Book, places: Sequence[Warehouse]) -> None:
        self.made, self.places = made, places
        self.registry = Registry(made.home / "migrations.db", SystemClock())
        self.goals: dict[str, int] = {}
        """Of each pull, what was committed when it was asked for."""

    def ask(self, step: Ask, connection: Connection) -> None:
        """Ask for a pull: it moves what there was when it was asked for first, and that once."""
        crash = Killing(step.nth)
        self.run(crash, Jobs.resume, step.batches_max)
        if self.registry.open():
            return  # it was ended before anybody could ask
        asked = Asked(Kind.PULL, self.places[step.where].name)
        before = arrived(connection)
        goal = self.goals.setdefault(step.id, len(self.made.batches))
        is_new: list[bool] = []
        self.run(crash, lambda jobs: is_new.append(jobs.put(step.id, asked)[1]), step.batches_max)
        found = self.registry.find(step.id)
        if is_new == [False]:
            assert arrived(connection) == before
        elif found.ended_at is not None:
            assert arrived(connection) == max(before, goal)
        assert found.goal == {"book": goal}

    def run(self, crash: CrashPoints, begin: Callable[[Jobs], None], batches_max: int) -> None:
        """Begin something, and wait for the end of all that this runs."""
        settings = config.Config(push=config.Push(batches_max=batches_max))
        flows, clock = {"book": book.flow}, SystemClock()
        jobs = Dying(
            self.registry,
            Place(settings, flows, self.places, [self.made.path], clock, crash),
        )
        begin(jobs)
        jobs._threads.shutdown(wait=True)

    def end(self) -> None:
        """Go on with what was cut off: then all has succeeded."""
        self.run(CrashPoints(), Jobs.resume, 100)
        ended = self.registry.chosen(warehouse="", most=100)
        assert all(one.state is State.SUCCEEDED for one in ended), ended
        assert {one.id: one.goal.get("book") for one in ended} == self.goals


def arrived(connection: Connection) -> int:
    return ledger.read(connection, ["book"])["book", 0].batch


def check(made: Book, place: Warehouse, connection: Connection) -> None:
    made.check_main(connection)  # of live, by the plain names
    with made.reader.snapshot() as snapshot:
        assert audit.findings(connection, place, book.flow, [snapshot]) == []


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(batches | does | asks, min_size=3, max_size=14))
def test_any_schedule_that_is_cut_off_anywhere_ends_in_what_a_dictionary_holds(
    warehouse_url: str,
    tmp_path_factory: pytest.TempPathFactory,
    steps: Sequence[Sequence[Sequence[Entry]] | Do | Ask],
) -> None:
    made = Book(tmp_path_factory.mktemp("core"))
    with ExitStack() as opened:
        places = [Warehouse("first", warehouse_url), Warehouse("second", second(warehouse_url))]
        connections = [
            opened.enter_context(warehouse.connect(place.url, application="test"))
            for place in places
        ]
        made.origin.feed("book", [place.name for place in places])
        for place, connection in zip(places, connections, strict=True):
            connection.execute(
                "DROP SCHEMA IF EXISTS book, book_main, book_delta, headrace CASCADE"
            )
            layout.prepare(connection, place, book.flow)
        api = Api(made, places)
        for step in steps:
            if isinstance(step, Do | Ask):
                place, connection = places[step.where], connections[step.where]
                if isinstance(step, Do):
                    do(step, made, places, connection)
                else:
                    api.ask(step, connection)
                check(made, place, connection)
            else:
                made.commit(*step)
        api.end()
        for at, connection in enumerate(connections):
            while arrived(connection) < len(made.batches):
                do(Do("push", at, 0, 100), made, places, connection)
            do(Do("merge", at, 0, 0), made, places, connection)
            check(made, places[at], connection)
            assert ledger.merged(connection, ["book"]) == {("book", 0): len(made.batches)}
            do(Do("push", at, 0, 100), made, places, connection)
        with made.reader.snapshot() as snapshot:
            assert snapshot.waiting("book") == 0
    made.close()


def second(url: str) -> str:
    """Make a second database, if it is not there yet; it goes with the server."""
    name = url.rsplit("/", 1)[1] + "_2"
    with (
        psycopg.connect(url, autocommit=True) as connection,
        suppress(psycopg.errors.DuplicateDatabase),
    ):
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return url.rsplit("/", 1)[0] + "/" + name
