"""The local Kafka broker: one node, broker and controller in one process (KRaft), a log on disk."""

import base64
import secrets
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from headrace.config import Config, child_environment
from headrace.errors import ConfigError
from headrace.local.child import run_to_end
from headrace.local.home import Home
from headrace.local.part import Part, reachable

NAME = "broker"
MESSAGE_BYTES_MAX = 16 * 2**20  # a frame holds many tuples

# A broker that was killed may register again when its session has run out: with Kafka's 9 s it was
# ready 12 s after the kill, with 2 s it is after 6.
SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=CLIENTS://{host}:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=CLIENTS://{host}:{port}
listener.security.protocol.map=CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=CLIENTS
log.dirs={log}
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
message.max.bytes={message_bytes_max}
replica.fetch.max.bytes={message_bytes_max}
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
"""

LOGGING = """\
status = warn
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC} %p broker %c{1}: %m%n
logger.settings.name = org.apache.kafka.common.config
logger.settings.level = warn
logger.server.name = kafka.server.KafkaConfig
logger.server.level = warn
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


def part(
    config: Config,
    *,
    port: int,
    controller_port: int,
    java: Path,
    classpath: str,
    probe: Callable[[], None],
) -> Part:
    """Declare the local broker; `probe` raises until a Kafka client gets an answer."""
    home = Home(config.home)
    environment = {**child_environment({}), "LC_ALL": "C.UTF-8"}  # or Java cannot read such paths
    program = (str(java), "-cp", classpath)
    settings = _settings(config, home, port, controller_port)
    return Part(
        name=NAME,
        argv=(
            str(java),
            f"-Xmx{config.broker.memory_mb}m",
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dlog4j2.configurationFile={home.broker / 'log4j2.properties'}",
            *("-cp", classpath),
            "kafka.Kafka",
            str(home.broker / "server.properties"),
        ),
        environment=environment,
        address=f"{reachable(config.broker.host)}:{port}",
        prepare=partial(_prepare, home, settings, program, environment),
        probe=lambda _pid: probe(),
        stop_timeout_s=30.0,
    )


def _settings(config: Config, home: Home, port: int, controller_port: int) -> str:
    if reachable(config.broker.host) != config.broker.host:
        raise ConfigError(
            f"broker.host is {config.broker.host!r}, and a broker tells its clients that address",
            hint="Give the address of one interface, by which clients reach this machine.",
        )
    return SETTINGS.format(
        host=config.broker.host,
        port=port,
        controller_port=controller_port,
        log=_escaped(str(home.broker / "log")),
        message_bytes_max=MESSAGE_BYTES_MAX,
    )


def _escaped(value: str) -> str:
    """Write text for a Java properties file, which is read as Latin-1 with escapes."""
    utf_16 = value.replace("\\", "\\\\").encode("utf-16-be")
    units = [int.from_bytes(utf_16[i : i + 2], "big") for i in range(0, len(utf_16), 2)]
    return "".join(chr(unit) if unit < 128 else f"\\u{unit:04x}" for unit in units)


def _prepare(
    home: Home, settings: str, program: tuple[str, ...], environment: dict[str, str]
) -> None:
    (home.broker / "server.properties").write_text(settings, encoding="ascii")
    (home.broker / "log4j2.properties").write_text(LOGGING, encoding="ascii")
    if not (home.broker / "log").exists():
        _format(home, settings, program, environment)


def _format(
    home: Home, settings: str, program: tuple[str, ...], environment: dict[str, str]
) -> None:
    """Make the log's folder beside its place, then move it there in one step."""
    draft = home.broker / "log.new"
    shutil.rmtree(draft, ignore_errors=True)
    temporary = home.broker / "format.properties"
    place, draft_place = _escaped(str(home.broker / "log")), _escaped(str(draft))
    temporary.write_text(
        settings.replace(f"log.dirs={place}\n", f"log.dirs={draft_place}\n"), encoding="ascii"
    )
    tool = ("kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(temporary))
    run_to_end("the broker's log could not be made", (*program, *tool), environment=environment)
    temporary.unlink()
    draft.rename(home.broker / "log")


def _cluster_id() -> str:
    """Make the id of a Kafka cluster: 16 bytes, of which the first keep it from being a flag."""
    return base64.urlsafe_b64encode(b"headrace" + secrets.token_bytes(8)).decode().rstrip("=")
