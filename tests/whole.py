"""The whole API: every route that there is, over a core, a warehouse, and a broker or none."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI
from serving import calls_on, front, no_engine
from shop import island_over

from api import calls as of_calls
from api import (
    continuous_routes,
    dead_letters,
    declared,
    lookups,
    migrations,
    status,
    streams,
    trace,
)
from api import subscriptions as of_subscriptions
from api.app import create
from api.continuous import Continuous
from api.front import Front
from api.keyring import Keyring
from api.metrics import Figures
from api.migrations import Moved
from api.past import Finder
from api.queries import Queries
from api.registered import Registered
from api.resources import Resources
from api.subscriptions import Subscriptions
from etl_procs.dataflow import Dataflow
from etl_procs.publisher import Publisher
from etl_procs.reader import Reader
from headrace.clock import SystemClock
from headrace.config import Api, Broker, Config, Core
from headrace.crash import CrashPoints
from headrace.errors import NotRunning
from ingest.posting import Posting
from migrations.job import Place
from migrations.jobs import Jobs
from migrations.places import Places
from migrations.registry import Registry
from migrations.warehouse import DEFAULT, Warehouse

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


def no_broker() -> Broker:
    raise NotRunning("no broker is known", hint="Run `headrace up`.")


@contextmanager
def whole(
    path: Path,
    flows: Sequence[Dataflow],
    url: str = NOWHERE,
    before: Front | None = None,
    broker: Callable[[], Broker] = no_broker,
) -> Iterator[FastAPI]:
    """Make it over a core, which need not be there."""
    known, clock = {flow.name: flow for flow in flows}, SystemClock()
    calls = calls_on(path, *flows)
    registry = Registry(path.with_name("migrations.db"), clock)
    places = (Warehouse(DEFAULT, url),)
    posting = Posting(broker)
    jobs = Jobs(registry, Place(Config(), known, places, [path], clock, CrashPoints()))
    subscriptions = Subscriptions(known, [path], Publisher([path], Core(), CrashPoints()))
    subscriptions.is_ending = lambda: True  # each ends as soon as it has told what there is
    setting = island_over(url, Reader(path), *flows).setting
    queries = Queries(setting, Api(query_workers=1), path.with_name("pages"), clock)
    registered = Registered(path.with_name("continuous.db"), clock, CrashPoints())
    keyring = Keyring(path.with_name("keys.db"), clock)
    continuous = Continuous(setting, Api(), registered, keyring, calls)
    continuous.is_ending = lambda: True
    try:
        figures, resources = Figures([path], no_engine), Resources(known, places, [path], no_engine)
        moved = Moved(jobs, registry, Places(places, known, [path], dict))
        parts = (
            of_calls.router(calls),
            streams.router(streams.Streams(known, posting)),
            migrations.router(moved),
            status.router(status.Status(figures, moved, queries)),
            of_subscriptions.router(subscriptions),
            *(of.router(resources) for of in (declared, lookups, dead_letters)),
            trace.router(trace.Tracer(Finder(queries.setting, known, 10_000), broker)),
            continuous_routes.router(continuous),
        )
        yield create(queries, figures, before or front(), parts)
    finally:
        queries.close()
        jobs.close()
        posting.close()
        calls.close()
