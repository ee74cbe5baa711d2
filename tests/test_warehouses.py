"""Several warehouses: what each takes, what the core keeps for them, and how one comes back."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import book
import pytest
from library import FLOW, Library, connected, database, drop, new_database
from meanwhile import repeating
from pushing import pushing
from shop import island_over
from waiting import until

from api.cut import Freshness
from etl_procs import staging
from etl_procs.errors import StagedFull
from headrace.crash import CrashPoints
from migrations.errors import Gap
from migrations.push import Push
from migrations.pusher import Pusher
from migrations.pushing import State
from migrations.warehouse import Warehouse

GONE = Warehouse("gone", "postgresql://postgres@127.0.0.1:1/postgres")
MB = 2**20


@contextmanager
def pushed_to(library: Library, place: Warehouse) -> Iterator[Pusher]:
    """Push to a warehouse as the engine does, until the block ends."""
    with (
        closing(library.an_origin()) as origin,
        pushing(FLOW, Push(0, place, origin, CrashPoints(), 3), place, library.places) as it,
    ):
        yield it


def until_arrived(library: Library, place: Warehouse) -> None:
    """Wait until all that is committed has arrived in a warehouse."""
    last = len(library.batches)
    until(lambda: library.arrived(place) == last, 60, lambda: f"{library.arrived(place)} of {last}")


# What the core keeps


@pytest.fixture
def core(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The two tables of a core, empty, and that of what is staged."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema = (Path(staging.__file__).parent / "schema.sql").read_text()
    connection.executescript(schema)
    yield connection
    connection.close()


def test_the_core_forgets_what_the_last_of_its_warehouses_has_confirmed(
    core: sqlite3.Connection,
) -> None:
    assert staging.feed(core, "f", ["a", "b"]) == []
    staging.confirm(core, "f", "a", 7)
    assert staging.forget(core, "f", at=0.0, keep_s=0) == 0
    staging.confirm(core, "f", "b", 5)
    assert staging.forget(core, "f", at=0.0, keep_s=0) == 5
    assert staging.confirmed(core, "f") == {"a": 7, "b": 5}
    assert staging.confirmed(core, "g") == {}


def test_a_warehouse_that_goes_back_takes_nothing_back_and_keeps_what_comes(
    core: sqlite3.Connection,
) -> None:
    staging.feed(core, "f", ["a", "b"])
    for name, batch in [("a", 5), ("b", 5), ("a", 2), ("b", 9)]:
        staging.confirm(core, "f", name, batch)
        staging.forget(core, "f", at=0.0, keep_s=0)
    assert staging.forgotten(core, "f") == 5
    staging.confirm(core, "f", "a", 8)
    assert staging.forget(core, "f", at=0.0, keep_s=0) == 8


def test_a_warehouse_that_is_fed_no_more_keeps_nothing_and_a_new_one_keeps_all_there_is(
    core: sqlite3.Connection,
) -> None:
    staging.feed(core, "f", ["a", "b"])
    staging.confirm(core, "f", "a", 4)
    assert staging.feed(core, "f", ["a"]) == ["b"]
    assert staging.forget(core, "f", at=0.0, keep_s=0) == 4
    assert staging.feed(core, "f", ["a", "c"]) == []
    staging.confirm(core, "f", "a", 9)
    assert staging.forget(core, "f", at=0.0, keep_s=0) == 4
    assert staging.confirmed(core, "f") == {"a": 9, "c": 0}


def test_what_is_confirmed_is_kept_for_a_time(core: sqlite3.Connection) -> None:
    staging.feed(core, "f", ["a"])
    for batch, at in [(3, 100.0), (5, 130.0)]:
        staging.confirm(core, "f", "a", batch)
        assert staging.forget(core, "f", at=at, keep_s=60) == 0
    assert staging.forget(core, "f", at=159.0, keep_s=60) == 0
    assert staging.forget(core, "f", at=160.0, keep_s=60) == 3
    assert staging.forget(core, "f", at=189.0, keep_s=60) == 3
    assert staging.forget(core, "f", at=190.0, keep_s=60) == 5


# One is away


def test_a_warehouse_that_is_away_stops_only_itself_and_the_core_keeps_what_it_lacks(
    library: Library,
) -> None:
    first, second = library.places
    library.feeds(first, GONE)
    with pushed_to(library, first) as pusher, pushed_to(library, GONE) as away:
        for _ in range(5):
            library.write()
            pusher.notify()
            away.notify()
        until_arrived(library, first)
        assert away.pushing.state is State.WAITS
    assert library.check(first)[0] == 5
    assert (library.forgotten(), library.confirmed()) == (0, {"first": 5, "gone": 0})
    back = Warehouse(GONE.name, second.url)
    library.feeds(first, back)
    with pushed_to(library, back):
        until_arrived(library, back)
    library.check_all()
    assert library.forgotten() == 5


def test_the_stream_stands_still_at_the_limit_of_what_is_staged_and_goes_on_when_it_is_confirmed(
    library: Library,
) -> None:
    first, second = library.places
    library.reopened(staged_mb_max=1)
    text = "x" * MB
    library.commit([book.Entry("a", 0, 1.0, text)])
    library.push_to(first)
    with pytest.raises(StagedFull, match="what is staged has reached 1 MB"):
        library.commit([book.Entry("a", 0, 2.0, "b")])
    with pytest.raises(StagedFull):
        library.core.drain()
    library.push_to(second)
    (committed,) = library.core.drain()
    assert committed.through == 2
    library.check_all()


def test_what_is_only_kept_makes_room_when_its_time_has_come(tmp_path: Path) -> None:
    """Else a stream that stands still is pushed no more, and what is kept is never forgotten."""
    library = Library(tmp_path, Warehouse("first", ""))
    library.reopened(staged_mb_max=1, keep_s=60)
    library.commit([book.Entry("a", 0, 1.0, "x" * MB)])
    library.wall.seconds = (library.clock.now() - library.wall.now()).total_seconds()
    library.origin.confirm(FLOW.name, "first", 1)
    with pytest.raises(StagedFull):
        library.commit([book.Entry("a", 0, 2.0, "b")])
    library.clock.seconds += 61
    (committed,) = library.core.drain()
    assert (committed.through, library.forgotten()) == (2, 1)
    library.close()


# One is new


def test_a_warehouse_that_is_added_later_is_filled_while_batches_and_pushes_go_on(
    library: Library, postgres_url: str
) -> None:
    first, second = library.places
    third = Warehouse("third", new_database(postgres_url))
    library.write(10)
    for place in (first, second):
        library.push_to(place)
    assert library.forgotten() == 10
    library.feeds(first, second, third)

    def write_and_push() -> None:
        library.write()
        library.push_to(first)

    with repeating(write_and_push), pushed_to(library, third) as pusher:
        until(lambda: library.has_tables(third), 60, lambda: "it gets no tables")
        until(lambda: library.arrived(third) > 10, 60, lambda: "nothing arrives")
        for _ in range(5):
            pusher.notify()
    library.check_all()
    assert library.forgotten() == len(library.batches)
    drop(postgres_url, database(third.url))


def test_two_warehouses_that_are_new_are_not_filled_from_each_other(
    library: Library, postgres_url: str
) -> None:
    first, second = library.places
    library.feeds(second)
    library.write(3)
    library.push_to(second)
    third = Warehouse("third", new_database(postgres_url))
    library.feeds(first, third, second)
    with pushed_to(library, third), pushed_to(library, first):
        for place in (first, third):
            until(lambda at=place: library.has_tables(at), 60, lambda: "it gets no tables")  # type: ignore[misc]
            until_arrived(library, place)
    library.check_all()
    drop(postgres_url, database(third.url))


# One goes back


def restored(library: Library, server: str, place: Warehouse, backup: str) -> None:
    """Put a backup in the place of a warehouse."""
    drop(server, database(place.url))
    with connected(Warehouse("", server)) as connection:
        rename = f'ALTER DATABASE "{database(backup)}" RENAME TO "{database(place.url)}"'
        connection.execute(rename.encode())


def test_a_warehouse_that_is_restored_to_what_is_kept_goes_on_without_a_gap(
    library: Library, postgres_url: str
) -> None:
    first, second = library.places
    library.reopened(keep_s=60)
    library.write(4)
    library.push_to(first)
    library.merge_in(first)
    library.push_to(second)
    backup = new_database(postgres_url, template=database(first.url))
    library.write(3)
    library.push_to(first)
    library.push_to(second)
    assert library.forgotten() == 0
    restored(library, postgres_url, first, backup)
    assert library.check(first) == (4, 4)
    library.write()
    library.wall.seconds = 59.0
    library.push_to(second)
    assert library.forgotten() == 0
    library.check_all()
    library.wall.seconds = 200.0
    assert library.origin.forget(FLOW.name) == 8


def test_a_warehouse_that_is_restored_in_time_keeps_what_it_lacks_from_its_first_push_on(
    library: Library, postgres_url: str
) -> None:
    first, second = library.places
    library.reopened(keep_s=60)
    library.write(4)
    library.push_to(first)
    library.push_to(second)
    backup = new_database(postgres_url, template=database(first.url))
    library.write(6)
    library.push_to(first)
    library.push_to(second)
    restored(library, postgres_url, first, backup)
    library.push_to(first, most=1)
    assert library.confirmed()["first"] == 5
    library.wall.seconds = 61.0
    library.push_to(second)
    library.origin.forget(FLOW.name)
    assert library.forgotten() <= 5
    library.check_all()
    library.wall.seconds = 200.0
    assert library.origin.forget(FLOW.name) == 10


def test_a_warehouse_that_is_restored_to_older_than_what_is_kept_is_refused_everywhere(
    library: Library, postgres_url: str
) -> None:
    first, second = library.places
    library.write(2)
    library.push_to(first)
    backup = new_database(postgres_url, template=database(first.url))
    library.write(2)
    library.push_to(first)
    library.push_to(second)
    restored(library, postgres_url, first, backup)
    with pushed_to(library, first) as pusher:
        until(lambda: pusher.pushing.state is State.STOPPED, 60, lambda: "it is not refused")
        assert "gone back to an older state" in pusher.pushing.what
    with pytest.raises(Gap, match=r"through batch 2, and the core has forgotten .* batch 4"):
        library.push_to(first)
    island = island_over(first.url, library.reader, FLOW)
    with pytest.raises(Gap, match="the rows in between are in neither"):
        island.query(book.CONTENTS, Freshness.STAGED)
    assert library.check(first) == (2, 0)
    library.rebuild_in(first, second)
    library.write()
    library.check_all()


def test_a_copied_table_has_of_each_row_the_batch_that_the_other_one_has(library: Library) -> None:
    first, second = library.places
    library.write(9)
    library.push_to(second)
    library.merge_in(second)
    library.write(3)
    library.push_to(second)  # so that some of it is in delta there
    library.rebuild_in(first, second)
    library.merge_in(second)
    brought = []
    for place in (first, second):
        with connected(place) as connection:
            brought += [connection.execute(f"{BROUGHT} ORDER BY 1, 2, 3".encode()).fetchall()]
    assert brought[0] == brought[1]
    assert {batch for _, _, batch in brought[0]} > {10, 12}
    assert all(batch is not None for *_, batch in brought[0])


BROUGHT = """\
SELECT account, day, _batch FROM book_main.balances
UNION ALL SELECT account, gone, _batch FROM book_main.history"""
