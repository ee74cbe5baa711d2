"""The API that moves what a shop's core has staged, over real HTTP."""

from collections.abc import Iterator
from contextlib import contextmanager

import shop
from serving import Client, serving
from shop import island_over

from api.migrations import Moved
from headrace import config
from headrace.clock import SystemClock
from migrations.job import Place
from migrations.jobs import Jobs
from migrations.places import Places
from migrations.registry import Registry
from migrations.warehouse import DEFAULT, Warehouse


def jobs_on(store: shop.Shop, *places: Warehouse, give_up_s: float = 30.0) -> Moved:
    """Make the jobs over a shop's core and some warehouses."""
    flows = {"shop": shop.flow}
    registry = Registry(store.home / "migrations.db", SystemClock())
    place = Place(config.Config(), flows, places, [store.path], SystemClock(), give_up_s=give_up_s)
    return Moved(Jobs(registry, place), registry, Places(places, flows, [store.path]))


@contextmanager
def api_over(store: shop.Shop, url: str, *more: Warehouse, **settings: float) -> Iterator[Client]:
    moved = jobs_on(store, Warehouse(DEFAULT, url), *more, **settings)
    moved.jobs.resume()
    try:
        with serving(island_over(url, store.reader), moved=moved) as client:
            yield client
    finally:
        moved.jobs.close()
