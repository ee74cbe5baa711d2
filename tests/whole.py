"""The whole API: every route that there is, over a core, a warehouse, and no broker."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI
from serving import calls_on, front, no_engine
from shop import island_over

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
from api.streams import Streams
from api.subscriptions import Subscriptions
from api.trace import Tracer
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
    path: Path, flows: Sequence[Dataflow], url: str = NOWHERE, before: Front | None = None
) -> Iterator[FastAPI]:
    """Make it over a core, which need not be there."""
    known, clock = {flow.name: flow for flow in flows}, SystemClock()
    calls = calls_on(path, *flows)
    registry = Registry(path.with_name("migrations.db"), clock)
    places = (Warehouse(DEFAULT, url),)
    posting = Posting(no_broker)
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
        yield create(
            queries,
            calls,
            Figures([path], no_engine),
            before or front(),
            Streams(known, posting),
            Moved(jobs, registry, Places(places, known, [path], dict)),
            subscriptions,
            Resources(known, places, [path], no_engine),
            Tracer(Finder(queries.setting, known, 10_000), no_broker),
            continuous,
        )
    finally:
        queries.close()
        jobs.close()
        posting.close()
        calls.close()
