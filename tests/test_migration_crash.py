"""A coordinator that is killed anywhere, once or twice: the next one completes what it began."""

import signal
from collections.abc import Iterator
from itertools import count

import pytest
from coordinating import run
from library import FLOW, Library, connected, databases

from etl_procs.dataflow import Dataflow
from headrace.crash import Point
from migrations import tables
from migrations.warehouse import Warehouse

POINTS = {
    "push": ("push.", "core.forget."),
    "merge": ("merge.",),
    "rebuild": ("rebuild.", "core.forget."),
    "add": ("rebuild.", "push.", "core.forget."),
    "forget": ("core.forget.",),
    "pull": ("push.", "core.forget."),
}
SELDOM = {"add", "forget", "pull", "rebuild", "merge"}
"""What is made of the others: two restarts of it are tested by `make prove`."""
CASES = [
    pytest.param(
        what, point, restarts, marks=pytest.mark.slow if restarts == 2 and what in SELDOM else ()
    )
    for what, prefixes in POINTS.items()
    for point in Point
    if point.value.startswith(prefixes)
    for restarts in (1, 2)
]


@pytest.fixture(scope="module")
def library(postgres_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """A book that two warehouses take; both have a few batches of it."""
    with databases(postgres_url, "first", "second") as places:
        made = Library(tmp_path_factory.mktemp("library"), *places)
        made.write(3)
        for place in places:
            made.push_to(place)
            made.merge_in(place)
        yield made
        made.close()


def prepare(library: Library, what: str) -> tuple[Warehouse, ...]:
    """Make what is to be done next; give the warehouse that it is done to, before the other."""
    first, second = library.places
    library.write(3)
    if what == "merge":
        library.push_to(first)
        library.push_to(second)
    if what in ("rebuild", "add"):
        library.push_to(first)
        library.merge_in(first)
        library.write()
        library.push_to(first)
        if what == "add":
            drop_tables(second, FLOW)
            library.write()
        return second, first
    return first, second


def drop_tables(place: Warehouse, flow: Dataflow) -> None:
    """Take away all that a warehouse has."""
    with connected(place) as connection:
        connection.execute(f"DROP SCHEMA headrace, {', '.join(tables.schemas(flow.name))} CASCADE")


@pytest.mark.parametrize(("what", "point", "restarts"), CASES)
def test_whoever_is_killed_at_any_point_any_time_is_completed_by_the_next(
    library: Library, what: str, point: Point, restarts: int
) -> None:
    for nth in count(1):
        places = prepare(library, what)
        does = f"pull:{point.value}:{nth}:{restarts}" if what == "pull" else what
        code = run(does, "book", library.home, *places, at=f"{point.value}:{nth}")
        if code == 0:
            break
        assert code == -signal.SIGKILL
        for place in places:
            if what != "add":
                library.check(place)
        if restarts == 2:
            again = run(does, "book", library.home, *places, at=point.value)
            assert again in (0, -signal.SIGKILL)
        assert run(does, "book", library.home, *places) == 0
        library.check_all()
    assert nth > 1, f"{what} never reaches {point.value}: a crash there is not tested"
    library.check_all()
    assert library.forgotten() == len(library.batches)
