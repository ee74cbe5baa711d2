"""A connection that is cut at every step of the protocol: done again, it is as if it never was."""

from collections.abc import Callable
from contextlib import closing, suppress
from itertools import count

import pytest
from library import FLOW, Library, connected, database
from waiting import until
from wire import Wire

from headrace import config
from headrace.clock import SystemClock
from migrations import job
from migrations.errors import Away
from migrations.job import Place
from migrations.jobs import Jobs
from migrations.registry import Asked, Kind, Registry, State
from migrations.warehouse import Warehouse

MOST = 2_000
"""More steps than anything has."""


@pytest.fixture
def library(library: Library) -> Library:
    """A book that two warehouses take; the cuts are what counts here, and not the disk."""
    for place in library.places:
        with connected(place) as connection:
            quick = f'ALTER DATABASE "{database(place.url)}" SET synchronous_commit = off'
            connection.execute(quick.encode())
    library.reopened(durability="weak")
    library.write(3)
    return library


Step = Callable[[Library, Warehouse, Warehouse], object]


def push(library: Library, first: Warehouse, _: Warehouse) -> None:
    library.push_to(first)


def merge(library: Library, first: Warehouse, _: Warehouse) -> None:
    library.merge_in(first)


def rebuild(library: Library, first: Warehouse, second: Warehouse) -> None:
    library.rebuild_in(first, second)


def rebuild_from(library: Library, first: Warehouse, second: Warehouse) -> None:
    library.rebuild_in(second, first)


def prepared(library: Library, what: Step) -> None:
    """Make what is to be done next."""
    first, second = library.places
    library.write()
    if what is merge:
        library.push_to(first)
    if what is rebuild:
        library.push_to(second)
    if what is rebuild_from:
        library.push_to(first)


def cut_everywhere(library: Library, what: Step, wire: Wire) -> int:
    """Cut what is done at each of its steps, and do it again; give how many there are."""
    first, second = library.places
    cut = Warehouse(first.name, wire.url)
    for step in count(1):
        prepared(library, what)
        wire.cut_at(step)
        with suppress(Away):
            what(library, cut, second)
        was_cut = wire.was_cut
        wire.cut_at(0)
        changed = second if what is rebuild_from else first
        library.check(changed)
        what(library, first, second)
        library.check(changed)
        if not was_cut:
            break
    library.check_all()
    return step - 1


SELDOM = (rebuild, rebuild_from)
"""Rare, and cut off at some hundred steps: `make prove` does it."""


@pytest.mark.parametrize(
    "what", [push, merge, *(pytest.param(what, marks=pytest.mark.slow) for what in SELDOM)]
)
def test_what_is_cut_off_at_any_step_is_done_by_the_next(library: Library, what: Step) -> None:
    with Wire(library.places[0].url).open() as wire:
        assert 20 < cut_everywhere(library, what, wire) < MOST


@pytest.mark.slow
@pytest.mark.parametrize("what", [push, merge])
def test_what_is_cut_off_amid_any_message_is_done_by_the_next(library: Library, what: Step) -> None:
    with Wire(library.places[0].url, each_message=True, half=True).open() as wire:
        assert 20 < cut_everywhere(library, what, wire) < MOST


# Asked for under an id: it goes on by itself, and whoever asks again is told how it ended


SAMPLED = 25
"""`make test` cuts at one step of so many, and `make prove` at each."""


def ask(at: Jobs, registry: Registry, id_: str, asked: Asked) -> bool:
    """Ask for a migration, and wait for its end; tell whether it was new."""
    _, is_new = at.put(id_, asked)
    until(
        lambda: registry.find(id_).ended_at is not None, 60, lambda: f"{id_}: {registry.find(id_)}"
    )
    assert registry.find(id_).state is State.SUCCEEDED, registry.find(id_)
    return is_new


@pytest.mark.parametrize("kind", [Kind.PULL, Kind.MERGE])
@pytest.mark.parametrize("every", [SAMPLED, pytest.param(1, marks=pytest.mark.slow)])
def test_a_migration_that_is_cut_off_at_any_step_goes_on_and_is_done_once(
    library: Library, kind: Kind, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "BACKOFF_S_MIN", 0.01)
    first, second = library.places
    registry = Registry(library.home / "migrations.db", SystemClock())
    with Wire(first.url).open() as wire:
        places = [Warehouse(first.name, wire.url), second]
        place = Place(config.Config(), {FLOW.name: FLOW}, places, [library.path], SystemClock())
        asked = Asked(kind, first.name)
        with closing(Jobs(registry, place)) as at:
            for step in count(1, every):
                library.write()
                if kind is Kind.MERGE:
                    library.push_to(first)
                wire.cut_at(step)
                assert ask(at, registry, f"m{step}", asked)
                was_cut, last = wire.was_cut, len(library.batches)
                assert registry.find(f"m{step}").reached == {FLOW.name: last}
                assert library.check(first) == (last, last if kind is Kind.MERGE else 0)
                assert not ask(at, registry, f"m{step}", asked)
                if not was_cut:
                    break
    assert 20 < step < MOST
    library.check_all()
