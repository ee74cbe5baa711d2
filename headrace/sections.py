"""Sections: every configuration key, with its default, its help and its check beside it."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.keys import option


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
class Files:
    """Tables that are files, and only read, under a name of their own: [files.NAME]."""

    folder: Path = option(
        Path(), "the folder of a folder for each table, which holds its Parquet files"
    )


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
    published_mb_max: int = option(
        1024, "size of what is kept of published streams; beyond it the oldest goes", least=1
    )
    published_keep_s: int = option(
        86_400, "how long the batches of published streams are kept", least=0
    )
    history_mb_max: int = option(256, "size of what is remembered of a dataflow's commits", least=1)
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
        "",
        "the owner's key, which may do everything; empty: the one `up` made in the data folder; a "
        "client shows it, or another one",
        secret=True,
    )
    rate_per_s: int = option(
        1000, "requests that one key may make in a second; 0: any number", least=0
    )
    at_once_max: int = option(100, "requests of one key that are answered at once", least=1)
    oidc_issuer: str = option(
        "", "https://... whose tokens (OIDC) are taken in place of keys; empty: nobody's"
    )
    oidc_audience: str = option("", "what such tokens have as their audience (aud)")
    oidc_jwks_url: str = option(
        "", "where the issuer's public keys are; empty: where its discovery document says"
    )
    oidc_scope_claim: str = option(
        "scope", "the claim whose words, those that are scopes of ours, a token's bearer has"
    )
    otel_endpoint: str = option(
        "", "http://... of an OpenTelemetry collector (OTLP) that takes traces; empty: none is made"
    )
    query_timeout_ms: int = option(30_000, "how long one query may run", least=1)
    query_rows_max: int = option(100_000, "rows in one answer as JSON, at most", least=1)
    pages_mb_max: int = option(
        1024, "what is kept of answers in pages, together; the oldest go first", least=1
    )
    pages_keep_s: int = option(600, "how long the pages of an answer are kept", least=1)
    stream_timeout_ms: int = option(
        3_600_000, "how long an answer as lines, CSV or Arrow may take", least=1
    )
    query_workers: int = option(4, "queries that are answered at once", least=1)
    queries_waiting_max: int = option(32, "queries that wait for that, at most", least=0)
    query_memory_mb_max: int = option(
        1024, "memory that answering one query may take; half of it is the island's", least=256
    )
    continuous_max: int = option(100, "continuous queries that are registered at once", least=0)
    continuous_workers: int = option(
        2, "continuous queries that are answered at once, beside the others", least=1
    )
    webhooks_private: bool = option(
        False, "whether webhooks may be on this machine and in private networks"
    )


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
    files: Mapping[str, Files] = dataclasses.field(default_factory=dict)
    collect: Collect = dataclasses.field(default_factory=Collect)
    engine: Engine = dataclasses.field(default_factory=Engine)
    core: Core = dataclasses.field(default_factory=Core)
    push: Push = dataclasses.field(default_factory=Push)
    merge: Merge = dataclasses.field(default_factory=Merge)
    api: Api = dataclasses.field(default_factory=Api)
    supervisor: Supervisor = dataclasses.field(default_factory=Supervisor)
    testing: Testing = dataclasses.field(default_factory=Testing)
