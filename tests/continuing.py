"""Continuous queries over real HTTP: served, registered, waited for."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from serving import KEY, LIMITS, Client, Reply, calls_on, front, serving
from shop import Answering
from waiting import until

from api.catalogue import Catalogue
from api.continuous import Continuous
from api.guard import Entrance
from api.island import Setting
from api.keyring import Keyring
from api.registered import Registered
from etl_procs.calls import Callers
from etl_procs.dataflow import Dataflow
from headrace import config
from headrace.clock import SystemClock
from headrace.crash import CrashPoints
from migrations.warehouse import DEFAULT, Warehouse

SOON_S = 30.0
AT = "/v1/continuous"


@contextmanager
def continuing(
    home: Path,
    url: str,
    cores: Sequence[Path],
    flow: Dataflow,
    calls: Callers | None = None,
    limits: config.Api = LIMITS,
) -> Iterator[Client]:
    """Serve the API with what is registered in a data folder."""
    setting = Setting((Warehouse(DEFAULT, url),), tuple(cores), Catalogue.of({flow.name: flow}))
    registered = Registered(home / "continuous.db", SystemClock(), CrashPoints())
    made = calls or calls_on(cores[0], flow)
    with closing(Keyring(home / "keys.db", SystemClock())) as keyring:
        continuous = Continuous(setting, limits, registered, keyring, made)
        before = front(Entrance(KEY, keyring))
        with serving(Answering(setting), made, before=before, continuous=continuous) as client:
            yield client


def put(client: Client, name: str, sql: str, query: str = "", key: str = KEY, **more: Any) -> Reply:
    """Register a query."""
    body = json.dumps({"sql": sql, **more})
    return client.send("PUT", f"{AT}/{name}{query}", body, key=f"Bearer {key}")


def told(client: Client, name: str) -> Any:
    """Give what is said of a query."""
    return client.send("GET", f"{AT}/{name}").document


def wait_for(client: Client, name: str, **wanted: Any) -> Any:
    """Wait until a query is said to be so; give what is said."""

    def fits() -> bool:
        said = told(client, name)
        return all(said[key] == value for key, value in wanted.items())

    until(fits, SOON_S, lambda: str(told(client, name)))
    return told(client, name)


def result(client: Client, name: str) -> Any:
    """Give the last result."""
    return client.send("GET", f"{AT}/{name}/result").document
