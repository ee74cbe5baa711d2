"""`headrace api`: the query island's REST API alone."""

import logging
import signal
import socket
import sys
from functools import partial

from headrace import telemetry
from headrace.cli import addresses
from headrace.cli.command import Command, Context
from headrace.client import key_of
from headrace.clock import SystemClock
from headrace.config import Config
from headrace.crash import CrashPoints
from headrace.errors import ConfigError, Exit
from headrace.local.home import Home
from headrace.local.part import reachable

# A query at hand may end in this time after SIGTERM; then its connection is closed.
SHUTDOWN_S_MAX = 5

log = logging.getLogger(__name__)


def run_api(context: Context) -> int:
    """Serve the API until told to stop."""
    config = context.config
    if not config.warehouse.url:
        raise ConfigError(
            "the API needs warehouse.url",
            hint="Give it (--set warehouse.url=postgresql://...), or let `headrace up` start all "
            "parts together.",
        )
    key = key_of(config)
    home = Home(config.home)
    home.create()
    from api import fork

    fork.begin()  # it has imported by the time that this process has
    # Here, because every other command would pay for importing FastAPI and sqlglot.
    import uvicorn

    from api import (
        calls,
        continuous,
        continuous_routes,
        costs,
        dead_letters,
        declared,
        lookups,
        status,
        streams,
        subscriptions,
        trace,
    )
    from api import migrations as moving
    from api.app import create
    from api.catalogue import Catalogue
    from api.front import front
    from api.guard import HEADERS_BYTES_READ
    from api.island import Setting
    from api.keyring import Keyring
    from api.metrics import Figures
    from api.past import Finder
    from api.queries import Queries
    from api.registered import Registered
    from api.resources import Resources
    from api.shims.files import folders
    from etl_procs import loader
    from etl_procs.calls import Callers
    from etl_procs.core import core_path
    from etl_procs.publisher import Publisher
    from headrace.cli import figures
    from ingest.posting import Posting
    from migrations import asking
    from migrations.job import Place
    from migrations.jobs import Jobs
    from migrations.places import Places
    from migrations.registry import Registry
    from migrations.warehouse import warehouses

    telemetry.start_logging("api")
    dataflows = loader.load(config.flows)
    partitions = range(max(flow.partitions for flow in dataflows.values()))
    cores = [core_path(config.home, partition) for partition in partitions]
    crash = CrashPoints(config.testing.crash_at)
    reached = asking.connects(config, dataflows.values())
    called = Callers(config.home, dataflows, config.core, crash, reached)
    living = partial(figures.living, config.home, len(cores))
    pushers = partial(figures.pushing, config.home)
    places = warehouses(config)
    rates = costs.load(home.rates)
    clock = SystemClock()
    held = folders(config)
    files = [outlet for of in held for outlet in of.outlets]
    catalogue = Catalogue.of(dataflows, files)
    setting = Setting(places, tuple(cores), catalogue, rates, held)
    queries = Queries(setting, config.api, home.pages, clock)
    broker = partial(addresses.broker, config)
    posting = Posting(broker)
    registry = Registry(home.migrations, clock)
    jobs = Jobs(registry, Place(config, dataflows, places, cores, clock, crash))
    moved = moving.Moved(jobs, registry, Places(places, dataflows, cores, pushers))
    subscribed = subscriptions.Subscriptions(dataflows, cores, Publisher(cores, config.core, crash))
    registered = Registered(home.continuous, clock, crash)
    keyring = Keyring(home.keyring, clock)
    standing = continuous.Continuous(setting, config.api, registered, keyring, called)
    measured = Figures(cores, living, pushers)
    resources = Resources(dataflows, places, cores, living, files, config.core, crash)
    tracer = trace.Tracer(Finder(setting, dataflows, config.api.query_timeout_ms), broker)
    parts = (
        calls.router(called),
        streams.router(streams.Streams(dataflows, posting)),
        moving.router(moved),
        status.router(status.Status(measured, moved, queries)),
        subscriptions.router(subscribed),
        *(of.router(resources) for of in (declared, lookups, dead_letters)),
        trace.router(tracer),
        continuous_routes.router(standing),
    )
    listener = listen(config)
    server = uvicorn.Server(
        uvicorn.Config(
            create(queries, measured, front(config.api, key, home.keyring, clock), parts),
            log_config=None,
            access_log=False,
            server_header=False,
            h11_max_incomplete_event_size=HEADERS_BYTES_READ,
            timeout_graceful_shutdown=SHUTDOWN_S_MAX,
        )
    )
    subscribed.is_ending = standing.is_ending = lambda: server.should_exit
    # uvicorn raises the signal again when it has shut down: being told to stop is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Exit.OK))
    jobs.resume()
    log.info("listening on http://%s:%d", reachable(config.api.host), listener.getsockname()[1])
    try:
        server.run(sockets=[listener])
    finally:
        jobs.close()
        queries.close()
        posting.close()
    return Exit.OK


def listen(config: Config) -> socket.socket:
    """Open the socket, of which each connection has its answers sent without delay: an answer's
    head and body are two packets, and the second would wait 40 ms for the first to be confirmed.
    """
    try:
        listener = socket.create_server((config.api.host, config.api.port), backlog=128)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ConfigError(
            f"the API cannot listen on {config.api.host}:{config.api.port}: {error.strerror}",
            hint="Set api.port to a free port, or to 0 to have one chosen.",
        ) from error
    return listener


COMMANDS = [
    Command(
        name="api",
        summary="run the REST API alone, against a given warehouse",
        description="Run the REST API in this process. `headrace up` starts it beside the other "
        "parts; alone it needs warehouse.url and api.key. What it answers is in docs/api.md, and "
        "in its own /openapi.json; GET / is a status page. SIGTERM ends it.",
        examples=(
            "HEADRACE_API_KEY=... headrace api --flow my_flow.py --set api.port=8080 "
            "--set warehouse.url=postgresql://me@warehouse/db",
            "curl -H 'Authorization: Bearer ...' -H 'Content-Type: application/json' "
            '-d \'{"sql": "SELECT 1"}\' http://127.0.0.1:8080/v1/query',
            "curl -H 'Authorization: Bearer ...' -H 'Content-Type: application/json' "
            "-H 'Idempotency-Key: order-4711' "
            '-d \'{"source": 7, "target": 9}\' http://127.0.0.1:8080/v1/calls/bank/transfer',
        ),
        run=run_api,
    )
]
