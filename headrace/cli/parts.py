"""The wiring of the local stack: which parts there are, how each is started and probed."""

import json
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

from headrace.cli import engine
from headrace.config import Broker, Config, child_environment, joined_paths, keys_in, value_of
from headrace.errors import Exit, NotRunning
from headrace.keys import hidden
from headrace.local import broker, jars, java, ports, postgres
from headrace.local.home import Home, ensure_secret
from headrace.local.part import PROBE_TIMEOUT_S, Part, Probe, reachable
from headrace.local.ports import Wanted
from headrace.local.state import PartState, StackState, State

BROKER, POSTGRES, ENGINE, API = NAMES = (broker.NAME, postgres.NAME, "engine", "api")

# A warehouse that nobody answers for takes the API 5 s to see.
READY_TIMEOUT_S = 10.0

# What comes of reading something else than what /readyz says.
NOT_SIDES = (ValueError, LookupError, TypeError, AttributeError)

# A program of ours that ends with one of these will end the same way again.
FINAL_EXITS = frozenset({Exit.CONFIG, Exit.MISSING, Exit.REFUSED})


@dataclass(frozen=True, slots=True)
class Wired:
    """The parts to start, in order, and those that are there already."""

    parts: tuple[Part, ...]
    external: dict[str, PartState]


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine was found to have."""

    java: Path
    broker_classpath: str


def check_machine(config: Config) -> Machine:
    """Look for all that the stack needs, before anything is made or started."""
    # Here, because every other command would pay for importing Arrow.
    from etl_procs import loader
    from ingest import security

    loader.load(config.flows)
    security.check(config.broker)
    found = java.find(child_environment({}))
    jars.spark_jars(config)
    return Machine(java=found.program, broker_classpath=jars.broker_classpath(config))


def wire(config: Config, machine: Machine) -> Wired:
    """Choose the ports and declare the parts."""
    chosen = ports.choose(_wanted(config), Home(config.home).ports)
    parts = []
    external = {}
    if config.broker.bootstrap:
        bootstrap = config.broker.bootstrap
        external[BROKER] = PartState(State.EXTERNAL, bootstrap)
    else:
        bootstrap = f"{config.broker.host}:{chosen['broker']}"
        parts.append(
            broker.part(
                config,
                port=chosen["broker"],
                controller_port=chosen["broker.controller"],
                java=machine.java,
                classpath=machine.broker_classpath,
                probe=partial(_broker_answers, Broker(bootstrap=bootstrap)),
            )
        )
    if config.warehouse.url:
        url = config.warehouse.url
        external[POSTGRES] = PartState(State.EXTERNAL, hidden(url))
    else:
        url = postgres.url(config, chosen["warehouse"])
        parts.append(postgres.part(config, chosen["warehouse"]))
    settings = _settings(config) | {"broker.bootstrap": bootstrap, "warehouse.url": url}
    parts.append(_engine(config, settings))
    parts.append(_api(config, settings, chosen["api"]))
    return Wired(tuple(parts), external)


def _wanted(config: Config) -> list[Wanted]:
    wanted = [Wanted("api", config.api.host, config.api.port)]
    if not config.broker.bootstrap:
        wanted.append(Wanted("broker", config.broker.host, config.broker.port))
        wanted.append(Wanted("broker.controller", "127.0.0.1"))
    if not config.warehouse.url:
        wanted.append(Wanted("warehouse", config.warehouse.host, config.warehouse.port))
    return wanted


def _settings(config: Config) -> dict[str, str]:
    """Write down every key: a child must not find another file or other flags than we did."""
    return {key.name: _text(value_of(config, key.name)) for key in keys_in(config)}


def _text(value: object) -> str:
    return joined_paths([str(v) for v in value]) if isinstance(value, tuple) else str(value)


def _engine(config: Config, settings: Mapping[str, str]) -> Part:
    return Part(
        name=ENGINE,
        argv=_command(ENGINE),
        environment=child_environment(settings),
        address="-",
        probe=partial(_engine_is_ready, Home(config.home)),
        after=(BROKER, POSTGRES),
        final_exits=FINAL_EXITS,
    )


def _api(config: Config, settings: Mapping[str, str], port: int) -> Part:
    key = config.api.key or ensure_secret(Home(config.home).api_key)
    own = {"api.port": str(port), "api.key": key}
    address = f"{reachable(config.api.host)}:{port}"
    return Part(
        name=API,
        argv=_command(API),
        environment=child_environment({**settings, **own}),
        address=address,
        probe=lambda _pid: _api_is_ready(address),
        after=(BROKER, POSTGRES),
        stop_timeout_s=10.0,
        final_exits=FINAL_EXITS,
    )


def _command(name: str) -> tuple[str, ...]:
    # -P: the folder that `up` is called in may hold an `api` or `ingest` of its own.
    return (sys.executable, "-P", "-m", "headrace.cli", name)


def _broker_answers(broker: Broker) -> None:
    # Here, because every other command would pay for importing Kafka's client.
    from ingest import topics

    host, _, port = broker.bootstrap.rpartition(":")
    # The Kafka client would try for long and log each refusal.
    socket.create_connection((host, int(port)), timeout=PROBE_TIMEOUT_S).close()
    topics.probe(broker)


def _engine_is_ready(home: Home, pid: int) -> None:
    if engine.ready_pid(home) != pid:
        raise NotRunning("the engine is not ready", hint="Wait for it.")


def _api_is_ready(address: str) -> None:
    connection = HTTPConnection(address, timeout=READY_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != 200 and not _is_partly_ready(said):
            raise NotRunning(_unready(said), hint="Wait for it.")
    finally:
        connection.close()


def _is_partly_ready(body: bytes) -> bool:
    """Tell whether some warehouse can be asked: one that is away does not stop the others."""
    try:
        core, warehouses = _sides(body)
    except NOT_SIDES:
        return False
    return core == "ok" and "ok" in warehouses.values()


def _unready(body: bytes) -> str:
    """Say in words why /readyz says no."""
    try:
        core, warehouses = _sides(body)
    except NOT_SIDES:
        return "the API is not ready"
    reasons = [core, *(f"{name} {said}" for name, said in warehouses.items() if said != "ok")]
    return f"the API is not ready: {'; '.join(r for r in reasons if r != 'ok')}"


def _sides(body: bytes) -> tuple[str, dict[str, str]]:
    """Read what /readyz says of the core, and of each warehouse."""
    said = json.loads(body)
    return str(said["core"]), {n: str(of) for n, of in said["warehouses"].items()}


def probes(config: Config, stack: StackState) -> dict[str, Probe]:
    """Give the probe of each part of a stack that runs."""
    address = {name: part.address for name, part in stack.parts.items()}
    found: dict[str, Probe] = {
        BROKER: lambda _pid: _broker_answers(Broker(bootstrap=address[BROKER])),
        POSTGRES: lambda _pid: postgres.probe(_local_url(config, address[POSTGRES])),
        ENGINE: partial(_engine_is_ready, Home(config.home)),
        API: lambda _pid: _api_is_ready(address[API]),
    }
    return {name: found[name] for name in stack.parts}


def _local_url(config: Config, address: str) -> str:
    return postgres.url(config, int(address.rpartition(":")[2]))


def lags(config: Config, stack: StackState, answers: Mapping[str, bool]) -> dict[str, int | None]:
    """Measure how far engine (tuples) and PostgreSQL (rows) are behind."""
    # Here, because every other command would pay for importing Arrow.
    from headrace.cli import lags as measured

    behind = {POSTGRES: measured.rows(config)}
    if answers.get(BROKER, stack.parts[BROKER].state is State.EXTERNAL):
        there = replace(config.broker, bootstrap=stack.parts[BROKER].address)
        behind[ENGINE] = measured.tuples(config, there)
    return behind
