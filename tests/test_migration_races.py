"""Several who migrate at once, one who wakes too late, and those who read meanwhile."""

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing

import book
import psycopg
import pytest
from coordinating import REFUSED, ZOMBIE, Coordinator
from library import FLOW, Library, connected
from meanwhile import repeating
from psycopg import IsolationLevel
from transfers import IN_ALL, TOTALS, Bank
from waiting import until

from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints, Point
from migrations.errors import Away
from migrations.job import Place
from migrations.jobs import Jobs
from migrations.merge import Merging
from migrations.push import Push
from migrations.rebuild import Rebuild
from migrations.registry import Asked, Kind, Registry, State
from migrations.warehouse import Connection, Warehouse

BATCHES, TURNS = 60, 20


# Two at once


def pushing(library: Library, place: Warehouse, origins: ExitStack) -> Callable[[], object]:
    origin = origins.enter_context(closing(library.an_origin()))
    push = Push(0, place, origin, CrashPoints(), batches_max=3)
    return on_its_own(place, lambda connection: push.run(connection, FLOW))


def merging(place: Warehouse) -> Callable[[], object]:
    return on_its_own(place, lambda at: Merging(place, CrashPoints()).run(at, FLOW))


def rebuilding(
    library: Library, place: Warehouse, source: Warehouse, origins: ExitStack
) -> Callable[[], object]:
    origin = origins.enter_context(closing(library.an_origin()))
    rebuild = Rebuild(place, source, [origin], CrashPoints())
    return on_its_own(place, lambda at: rebuild.run(at, FLOW))


def on_its_own(place: Warehouse, step: Callable[[Connection], object]) -> Callable[[], object]:
    """Do something on a connection of its own, and leave what may pass to the next time."""

    def once() -> None:
        try:
            with connected(place) as connection:
                step(connection)
        except Away:
            pass  # another one was in between: nothing of it is there

    return once


def test_pushes_merges_and_rebuilds_at_once_leave_what_one_after_the_other_does(
    library: Library,
) -> None:
    first, second = library.places
    with ExitStack() as origins, ExitStack() as busy:
        for _ in range(2):
            busy.enter_context(repeating(pushing(library, first, origins)))
            busy.enter_context(repeating(merging(first)))
        busy.enter_context(repeating(pushing(library, second, origins)))
        busy.enter_context(repeating(rebuilding(library, first, second, origins)))
        for _ in range(BATCHES):
            library.write()
        for place in library.places:
            until(lambda at=place: library.arrived(at) > 0, 60, lambda: "nothing arrives")  # type: ignore[misc]
    library.check_all()
    assert library.forgotten() == BATCHES


# One who wakes too late

WITHIN = {
    "push": [Point.PUSH_COPY_AFTER, Point.PUSH_COMMIT_BEFORE, Point.PUSH_FORGET_AFTER],
    "merge": [Point.MERGE_TABLE_AFTER, Point.MERGE_COMMIT_BEFORE],
    "rebuild": [Point.REBUILD_TABLE_AFTER, Point.REBUILD_COMMIT_BEFORE],
}
BETWEEN = {
    "push": [Point.PUSH_COMMIT_AFTER],
    "merge": [Point.MERGE_COMMIT_AFTER],
    "rebuild": [Point.REBUILD_COMMIT_AFTER],
}


def stopped(library: Library, what: str, point: Point) -> Coordinator:
    """Let something begin in another process, and stop that at a point."""
    first, second = library.places
    library.write(3)
    library.push_to(second)
    if what != "push":
        library.push_to(first)
    if what == "rebuild":
        library.write()
        library.push_to(second)
    zombie = Coordinator(what, "book", library.home, first, second, at=point.value, stop=True)
    zombie.wait_until_stopped()
    return zombie


def take_over(library: Library) -> None:
    """Go on in the place of the one who is stopped, as if he were dead."""
    first, second = library.places
    library.write(2)
    for place in (first, second):
        library.push_to(place)
        library.merge_in(place)
    library.write()
    library.push_to(first)


@pytest.mark.parametrize(
    ("what", "point"), [(w, p) for w, points in WITHIN.items() for p in points]
)
def test_whoever_wakes_in_a_transaction_after_another_took_over_changes_nothing(
    library: Library, what: str, point: Point
) -> None:
    zombie = stopped(library, what, point)
    with connected(library.places[0]) as connection:  # as an operator does, or a time limit
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE application_name = %(zombie)s AND datname = current_database()",
            {"zombie": ZOMBIE},
        )
    take_over(library)
    before = library.check(library.places[0])
    assert zombie.go_on() == REFUSED
    assert library.check(library.places[0]) == before
    library.check_all()


@pytest.mark.parametrize(
    ("what", "point"), [(w, p) for w, points in BETWEEN.items() for p in points]
)
def test_whoever_wakes_between_two_transactions_after_another_went_on_does_no_harm(
    library: Library, what: str, point: Point
) -> None:
    zombie = stopped(library, what, point)
    take_over(library)
    before, forgotten = library.check(library.places[0]), library.forgotten()
    assert zombie.go_on() == 0
    assert library.check(library.places[0]) == before
    assert library.forgotten() == forgotten
    library.check_all()
    assert library.forgotten() == len(library.batches)


def test_who_tells_the_core_too_late_what_a_rebuild_has_taken_back_makes_it_forget_nothing(
    library: Library,
) -> None:
    first, second = library.places
    library.write(2)
    library.push_to(second)
    library.write(2)
    at = Point.PUSH_COMMIT_AFTER.value
    zombie = Coordinator("push", "book", library.home, first, at=at, stop=True)
    zombie.wait_until_stopped()
    assert library.check(first) == (4, 0)
    library.rebuild_in(first, second)
    assert library.check(first) == (2, 2)
    assert zombie.go_on() == 0
    library.push_to(second)
    assert library.forgotten() <= 2
    library.check_all()


# A stage that is cancelled

WAITING = """\
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_lock_shared(1);
    PERFORM pg_advisory_unlock_shared(1);
    RETURN NULL;
END $$"""


@pytest.mark.parametrize(
    ("kind", "table"),
    [
        (Kind.PULL, "book_delta.latest"),
        (Kind.MERGE, "book_main.latest"),
        (Kind.REBUILD, "book_main.latest"),
    ],
)
def test_a_migration_that_is_cancelled_amid_a_statement_leaves_nothing_of_it(
    library: Library, kind: Kind, table: str
) -> None:
    first, second = library.places
    library.write(3)
    library.push_to(second)
    if kind is Kind.MERGE:
        library.push_to(first)
    before = library.check(first)
    registry = Registry(library.home / "migrations.db", SystemClock())
    place = Place(config.Config(), {FLOW.name: FLOW}, library.places, [library.path], SystemClock())
    with closing(Jobs(registry, place)) as jobs, connected(first) as holding:
        holding.execute(WAITING)
        holding.execute(
            f"CREATE TRIGGER waits BEFORE INSERT ON {table} EXECUTE FUNCTION wait()".encode()
        )
        holding.execute("SELECT pg_advisory_lock(1)")
        jobs.put("m", Asked(kind, first.name, source=second.name if kind is Kind.REBUILD else ""))
        until(lambda: blocked(holding) == 1, 30, lambda: str(registry.find("m")))
        jobs.cancel("m")
        until(lambda: registry.find("m").ended_at is not None, 30, lambda: str(registry.find("m")))
        assert registry.find("m").state is State.CANCELLED
        assert library.check(first) == before
        holding.execute("SELECT pg_advisory_unlock(1)")
        holding.execute(f"DROP TRIGGER waits ON {table}".encode())
    library.check_all()


def blocked(connection: Connection) -> int:
    """Count the sessions that wait for a test."""
    ((count,),) = connection.execute(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    ).fetchall()
    assert isinstance(count, int)
    return count


# Those who read


def reading(place: Warehouse, before: Callable[[], None], looked: list[str]) -> Callable[[], None]:
    """Look at the totals: at once, and in a snapshot that is opened before something else is."""

    def once() -> None:
        with psycopg.connect(place.url, autocommit=True) as reader:
            assert reader.execute(TOTALS).fetchall() == [IN_ALL]
            reader.isolation_level = IsolationLevel.REPEATABLE_READ
            with reader.transaction():
                reader.execute("SELECT 1")  # the snapshot is opened here, and no table touched
                before()
                told = book.in_order(reader.execute(book.CONTENTS).fetchall())
                assert reader.execute(TOTALS).fetchall() == [IN_ALL]
                assert book.in_order(reader.execute(book.CONTENTS).fetchall()) == told
        looked.append(place.name)

    return once


def test_totals_over_live_are_the_same_at_all_times(library: Library) -> None:
    first, second = library.places
    bank = Bank(library)
    for place in library.places:
        library.push_to(place)
    often: list[str] = []
    seldom: list[str] = []
    turns, is_over = [0], threading.Event()

    def until_the_next_turn() -> None:
        then = turns[0]
        until(lambda: turns[0] > then or is_over.is_set(), 60, lambda: "no turn ends")

    def migrate() -> None:
        bank.pay(3)
        library.push_to(first, most=2)
        library.push_to(second, most=2)
        library.merge_in(first)
        library.rebuild_in(second, first)
        library.push_to(second)
        turns[0] += 1

    with ExitStack() as busy:
        for place in library.places:
            busy.enter_context(repeating(reading(place, lambda: None, often)))
            busy.enter_context(repeating(reading(place, until_the_next_turn, seldom)))
        busy.callback(is_over.set)
        for _ in range(TURNS):
            migrate()
    for place in library.places:
        assert often.count(place.name) >= TURNS / 2
        assert seldom.count(place.name) >= TURNS / 4
    library.check_all()


def test_a_reader_whose_snapshot_is_older_than_a_merge_sees_what_was_in_delta(
    library: Library,
) -> None:
    first, second = library.places
    bank = Bank(library)
    bank.pay(5)
    library.push_to(first)
    library.push_to(second)
    ways: list[Callable[[], None]] = [
        lambda: library.merge_in(first),
        lambda: library.rebuild_in(first, second),
    ]
    for migrate in ways:
        with connected(first) as reader:
            reader.isolation_level = IsolationLevel.REPEATABLE_READ
            with reader.transaction():
                reader.execute("SELECT 1")  # the snapshot is opened here, and no table touched
                then = book.contents(library.batches)
                bank.pay(5)
                library.push_to(second)
                migrate()
                assert book.in_order(reader.execute(book.CONTENTS).fetchall()) == then
        library.push_to(first)
    library.check_all()
