"""Configuration: `headrace.toml` < environment `HEADRACE_*` < flags.

The only module that reads the environment. Every key is a field below; its default, its help
and its check stand beside it, and `docs/configuration.md` is held against them by a test.
"""

import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from headrace.errors import ConfigError
from headrace.keys import PREFIX, Key, checked, from_text, from_toml, keys_of, option, shown

FILE_NAME = "headrace.toml"
FILE_VARIABLE = PREFIX + "CONFIG"


@dataclass(frozen=True, slots=True)
class Broker:
    """The Kafka broker that collects and routes tuples."""

    bootstrap: str = option(
        "", "host:port of a broker that is there already; empty: `up` starts one"
    )
    host: str = option("127.0.0.1", "the address that the local broker listens on")
    port: int = option(0, "the port of the local broker; 0: a free one", least=0)
    memory_mb: int = option(512, "heap of the local broker", least=128)
    topic_partitions: int = option(2, "partitions of a topic that the engine creates", least=1)
    protocol: str = option(
        "PLAINTEXT",
        "whether the broker speaks TLS, and asks for a name",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    ca_file: str = option(
        "", "PEM file: who has signed the broker's certificate; empty: those the system trusts"
    )
    certificate_file: str = option("", "PEM file: the certificate that clients show, and its chain")
    key_file: str = option("", "PEM file (PKCS #8, not encrypted): the key of that certificate")
    sasl_mechanism: str = option(
        "",
        "how clients prove their name: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512",
        choices=("", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    )
    username: str = option("", "the name of the clients")
    password: str = option("", "its password", secret=True)


@dataclass(frozen=True, slots=True)
class Another:
    """One more PostgreSQL, under a name of its own: [warehouses.NAME]."""

    url: str = option("", "postgresql://... of a server that is there", secret=True)
    tables: str = option(
        "*", "the outlets that it takes: DATAFLOW.OUTLET, with * for any part; spaces in between"
    )


@dataclass(frozen=True, slots=True)
class Warehouse(Another):
    """The PostgreSQL that results are moved into; its name among others is `default`."""

    url: str = option(
        "",
        "postgresql://... of a server that is there already; empty: `up` starts one",
        secret=True,
    )
    host: str = option("127.0.0.1", "the address that the local PostgreSQL listens on")
    port: int = option(0, "the port of the local PostgreSQL; 0: a free one", least=0)


@dataclass(frozen=True, slots=True)
class Collect:
    """How the collector sends."""

    wait_s: int = option(
        300, "how long the collector waits for a broker that is away before it gives up", least=1
    )


@dataclass(frozen=True, slots=True)
class Engine:
    """Spark's driver and the core's writer."""

    master: str = option("local[*]", "the Spark master")
    memory_mb: int = option(2048, "heap of Spark's driver", least=512)
    driver_host: str = option(
        "", "on a cluster, the address by which executors reach the engine; empty: its host's name"
    )
    executor_memory_mb: int = option(1024, "on a cluster, heap of each executor", least=512)
    executor_python: str = option(
        "", "on a cluster, the Python of the executors; empty: the engine's own path"
    )
    read_tuples_max: int = option(
        100_000, "tuples that Spark reads of one stream at once, about at most", least=1
    )
    read_mb_max: int = option(32, "size of what it reads at once, about at most", least=1)
    trigger_ms: int = option(200, "time between two looks at Kafka", least=0)


@dataclass(frozen=True, slots=True)
class Core:
    """The transactional core, and the limits on everything in it."""

    durability: str = option(
        "strong",
        "strong: a commit is on disk before it counts; weak: the system writes it when it likes, "
        "and after a power failure Kafka brings again what was lost",
        choices=("strong", "weak"),
    )
    group_batches_max: int = option(64, "batches that commit together, at most", least=1)
    group_mb_max: int = option(16, "size of the batches that commit together, at most", least=1)
    group_ms_max: int = option(
        10, "time after which a commit is due, whatever else waits to go with it", least=1
    )
    attempts_max: int = option(
        3, "how often a batch that fails is tried before it is a dead letter", least=1
    )
    batch_rows_max: int = option(1_000_000, "tuples in one atomic batch, at most", least=1)
    batch_mb_max: int = option(256, "size of one atomic batch, at most", least=1)
    pending_batches_max: int = option(
        10_000, "batches of a stream that wait for the core before Spark has to", least=1
    )
    pending_mb_max: int = option(
        128, "size of a stream's tuples that wait for the core before Spark has to", least=1
    )
    statement_ms_max: int = option(60_000, "how long one batch may take a procedure", least=1)
    dead_letters_mb_max: int = option(
        1024, "size of all dead letters, at which the dataflows stand still", least=1
    )
    staged_mb_max: int = option(
        4096, "size of what waits for warehouses, at which the dataflows stand still", least=1
    )
    keep_s: int = option(
        0, "how long batches are kept after every warehouse has confirmed them", least=0
    )
    lookups_mb_max: int = option(
        512,
        "memory for the indexes and copies of lookups, at most; SQL or the warehouse answers the "
        "others",
        least=1,
    )
    calls_kept_max: int = option(
        100_000, "results of calls with a key that are kept for a repetition", least=1
    )


@dataclass(frozen=True, slots=True)
class Push:
    """How the engine sends staged batches to the warehouse."""

    every_ms: int = option(100, "time between two pushes while there is something to send", least=1)
    rows: int = option(1_000_000, "so many rows that wait are sent before that time", least=1)
    mb: int = option(128, "so many megabytes that wait are sent before that time", least=1)
    batches_max: int = option(10_000, "batches in one push, at most", least=1)


@dataclass(frozen=True, slots=True)
class Merge:
    """How the engine merges what has arrived in a warehouse."""

    every_s: int = option(60, "time between two merges; 0: others merge, such as Airflow", least=0)


@dataclass(frozen=True, slots=True)
class Api:
    """The REST API."""

    host: str = option("127.0.0.1", "the address that the API listens on")
    port: int = option(0, "the port of the API; 0: a free one", least=0)
    key: str = option(
        "", "the key that callers show; empty: the one `up` made in the data folder", secret=True
    )
    query_timeout_ms: int = option(30_000, "how long one query may run", least=1)
    query_rows_max: int = option(100_000, "rows in one answer, at most", least=1)


@dataclass(frozen=True, slots=True)
class Supervisor:
    """How `up` looks after its children."""

    ready_timeout_s: int = option(120, "how long a part may take to become ready", least=1)
    restarts_max: int = option(
        5, "deaths in a row, without a minute of health between, that stop the stack", least=0
    )
    log_mb_max: int = option(32, "size of one part's log before it is turned over", least=1)


@dataclass(frozen=True, slots=True)
class Testing:
    """For tests only."""

    crash_at: str = option("", "the crash point at which the engine ends itself, POINT[:TIMES]")


@dataclass(frozen=True, slots=True)
class Config:
    """All that is in force."""

    home: Path = option(Path(".headrace"), "the data folder")
    jars: Path = option(Path("~/.cache/headrace/jars"), "where the jars are kept")
    flows: tuple[Path, ...] = option((), "the files that define dataflows")
    broker: Broker = dataclasses.field(default_factory=Broker)
    warehouse: Warehouse = dataclasses.field(default_factory=Warehouse)
    warehouses: Mapping[str, Another] = dataclasses.field(default_factory=dict)
    collect: Collect = dataclasses.field(default_factory=Collect)
    engine: Engine = dataclasses.field(default_factory=Engine)
    core: Core = dataclasses.field(default_factory=Core)
    push: Push = dataclasses.field(default_factory=Push)
    merge: Merge = dataclasses.field(default_factory=Merge)
    api: Api = dataclasses.field(default_factory=Api)
    supervisor: Supervisor = dataclasses.field(default_factory=Supervisor)
    testing: Testing = dataclasses.field(default_factory=Testing)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and where each of its keys came from."""

    config: Config
    origins: Mapping[str, str]

    def lines(self) -> list[tuple[str, str, str]]:
        """List (key, value, origin), secrets hidden."""
        return [
            (
                key.name,
                shown(key, value_of(self.config, key.name)),
                self.origins.get(key.name, "default"),
            )
            for key in keys_in(self.config)
        ]


KEYS: dict[str, Key] = {key.name: key for key in keys_of(Config)}
OF_ANOTHER: dict[str, Key] = {key.name: key for key in keys_of(Another)}
NAMED = re.compile(rf"warehouses\.([a-z][a-z0-9_]*)\.({'|'.join(OF_ANOTHER)})")
NAMED_VARIABLE = re.compile(rf"^warehouses_([a-z][a-z0-9_]*)_({'|'.join(OF_ANOTHER)})$")
VARIABLES = {key.variable: key.name for key in KEYS.values()}


def find_key(name: str) -> Key | None:
    """Give the key called `name`, that of one more warehouse included."""
    named = NAMED.fullmatch(name)
    return replace(OF_ANOTHER[named[2]], name=name) if named else KEYS.get(name)


def keys_in(config: Config) -> list[Key]:
    """List all keys that a configuration has."""
    more = (f"warehouses.{name}.{of}" for name in config.warehouses for of in OF_ANOTHER)
    return [*KEYS.values(), *(key for name in more if (key := find_key(name)))]


def value_of(config: Config, name: str) -> Any:
    """Give the value of the key called `name`."""
    value: Any = config
    for part in name.split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def load(
    flags: Mapping[str, str] | None = None,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Loaded:
    """Read file, environment and flags, each over the one before."""
    environment = os.environ if environment is None else environment
    values: dict[str, Any] = {key.name: key.default for key in KEYS.values()}
    origins = {key.name: "default" for key in KEYS.values()}

    def take(name: str, raw: Any, origin: str, parse: Callable[[Key, Any, str], Any]) -> None:
        key = find_key(name)
        if key is None:
            raise ConfigError(f"{origin}: there is no key {name}", hint=_nearest(name))
        values[name] = checked(key, parse(key, raw, origin), origin)
        origins[name] = origin

    path = _file(file, environment)
    if path is not None:
        for name, raw in _flattened(_toml(path)):
            take(name, raw, str(path), from_toml)
    for variable, raw in environment.items():
        if variable.startswith(PREFIX) and variable != FILE_VARIABLE:
            take(_named_by(variable), raw, f"environment {variable}", from_text)
    for name, raw in (flags or {}).items():
        take(name, raw, f"flag {name}", from_text)

    base = path.parent if path is not None else Path.cwd()
    bases = {name: base if origins[name] == str(path) else Path.cwd() for name in KEYS}
    for name in ("home", "jars"):
        values[name] = _absolute(values[name], bases[name])
    values["flows"] = tuple(_absolute(flow, bases["flows"]) for flow in values["flows"])
    for name in (n for n in KEYS if n.endswith("_file")):
        values[name] = values[name] and str(_absolute(Path(values[name]), bases[name]))
    values["warehouses"] = _others(values)
    return Loaded(config=_built(Config, values), origins=origins)


def _named_by(variable: str) -> str:
    """Give the name of the key that a variable of the environment sets."""
    own = NAMED_VARIABLE.sub(r"warehouses.\1.\2", variable.removeprefix(PREFIX).lower())
    return VARIABLES.get(variable, own)


def _others(values: Mapping[str, Any]) -> dict[str, Another]:
    """Make the warehouses that have names."""
    given: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        if named := NAMED.fullmatch(key):
            given.setdefault(named[1], {})[named[2]] = value
    for name, of in given.items():
        if not of.get("url") or name == "default":
            raise ConfigError(
                f"warehouses.{name} has no url, or a name that is taken",
                hint="Write [warehouses.NAME] with a url; `default` is the section warehouse.",
            )
    return {name: Another(**of) for name, of in sorted(given.items())}


def _file(file: Path | None, environment: Mapping[str, str]) -> Path | None:
    named = file or (Path(environment[FILE_VARIABLE]) if FILE_VARIABLE in environment else None)
    if named is None:
        here = Path.cwd() / FILE_NAME
        return here if here.is_file() else None
    if not named.is_file():
        raise ConfigError(
            f"the configuration file {named} is not there",
            hint=f"Create it, or leave out --config and {FILE_VARIABLE}.",
        )
    return named.absolute()


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="Mend that line.") from error


def _flattened(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            found += _flattened(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, value))
    return found


def _nearest(name: str) -> str:
    if name.startswith("warehouses."):
        return "Write [warehouses.NAME]: a letter, then letters, digits and _, all of them small."
    near = difflib.get_close_matches(name, KEYS, n=1)
    return f"{f'Did you mean {near[0]}? ' if near else ''}`headrace config` lists every key."


def _absolute(path: Path, base: Path) -> Path:
    return base / path.expanduser()  # which is that alone, if it is absolute


def _built(section: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    hints = get_type_hints(section)
    return section(
        **{
            field.name: (
                _built(hints[field.name], values, prefix + field.name + ".")
                if dataclasses.is_dataclass(hints[field.name])
                else values[prefix + field.name]
            )
            for field in dataclasses.fields(section)
        }
    )


def joined_paths(paths: Sequence[str]) -> str:
    """Write a list of paths as one value of a flag or a variable."""
    return os.pathsep.join(paths)


def child_environment(overrides: Mapping[str, Any]) -> dict[str, str]:
    """Make the environment of a child: this one's, with configuration keys set on top."""
    keys = {name: find_key(name) for name in overrides}
    assert all(keys.values()), keys
    given = {key.variable: str(overrides[name]) for name, key in keys.items() if key}
    return {**os.environ, **given}
