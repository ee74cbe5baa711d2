"""A broker that asks who comes in: every client of ours does, and says why when it may not."""

import logging
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from guarded import PASSWORD, Guarded, a_guarded_broker
from live import Board, Parts
from pyspark import SparkContext
from pyspark.sql import SparkSession

from etl_procs import Dataflow, by_count
from headrace import config
from headrace.cli import main
from headrace.config import Broker
from headrace.errors import ConfigError, Exit, NotRunning
from headrace.local import jars
from ingest import session, topics
from ingest.client import Producer
from ingest.security import check, client_options, spark_options

LIMIT_MS = 4_000
NO = "Authentication failed|disconnected"
"""What a wrong password is met with: kafka-python at times sees only that the broker hangs up."""
WAYS = ("plain", "scram_256", "scram_512", "mutual")
STREAM = Dataflow("guarded").stream("votes", "n INTEGER", batches=by_count(1))
NAMED = Broker(
    bootstrap="kafka:1",
    protocol="SASL_PLAINTEXT",
    sasl_mechanism="PLAIN",
    username="etl",
    password="s3cret",
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with a_guarded_broker(tmp_path_factory.mktemp("guarded")) as ways:
        yield ways


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    loaded = config.load({"engine.master": "local[1]"}, environment={}).config
    scratch = tmp_path_factory.mktemp("spark")
    started = session.start(loaded.engine, jars=jars.spark_jars(loaded), scratch=scratch)
    yield started
    gateway = SparkContext._gateway
    started.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    SparkContext._gateway = SparkContext._jvm = None


@pytest.mark.parametrize("way", WAYS)
def test_admin_producer_and_spark_come_in(
    guarded: Guarded, spark: SparkSession, way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    broker = attrgetter(way)(guarded)
    before = {p: held.stop for p, held in topics.ensure(broker, STREAM).partitions.items()}
    with closing(Producer(client_options(broker))) as producer:
        producer.send(STREAM.topic, way.encode()).get(30)
    assert sum(o.stop for o in topics.held(broker, STREAM.topic).values()) == 1 + sum(
        before.values()
    )
    reader = spark.read.format("kafka").options(**spark_options(broker))
    records = reader.option("subscribe", STREAM.topic).load()
    assert way.encode() in {bytes(row.value) for row in records.select("value").collect()}
    records.explain(extended=True)
    said = capfd.readouterr()
    assert PASSWORD not in said.out + said.err


def test_votes_flow_through_a_guarded_broker_and_nobody_tells_the_password(
    guarded: Guarded, postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    board = Board(Parts(guarded.open.bootstrap, postgres_url), tmp_path, "through_tls")
    names = ("bootstrap", "protocol", "ca_file", "sasl_mechanism", "username", "password")
    settings = {f"broker__{name}": getattr(guarded.scram_512, name) for name in names}
    board.vote([("1", 1), ("2", 2)])
    with board.engine(**settings) as engine:
        board.until_consumed(engine)
        shown = b"".join(_command_line(pid) for pid in (engine.pid, *_children(engine.pid)))
        assert b"headrace.cli" in shown
        assert PASSWORD.encode() not in shown
        assert "broker_password" not in board.log()
    assert [phone for phone, *_ in board.arrived()] == ["1", "2"]
    assert PASSWORD not in board.log()
    assert "jaas" not in board.log()


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize(
    ("way", "changed", "message"),
    [
        ("plain", {"password": "guessed"}, NO),
        pytest.param("scram_512", {"password": "guessed"}, NO, marks=pytest.mark.slow),
        pytest.param("scram_256", {"username": "nobody"}, NO, marks=pytest.mark.slow),
        ("plain", {"ca_file": "stranger"}, "certificate verify failed"),
        ("mutual", {"certificate_file": "", "key_file": ""}, "(?i)certificate|disconnected"),
        pytest.param(
            "plain",
            {"protocol": "SASL_PLAINTEXT", "ca_file": ""},
            "Invalid frame|disconnected",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_who_may_not_come_in_is_told_why(
    guarded: Guarded, way: str, changed: dict[str, Any], message: str
) -> None:
    if "stranger" in changed.values():
        changed = {"ca_file": str(guarded.stranger)}
    broker = replace(attrgetter(way)(guarded), **changed)
    with pytest.raises(NotRunning, match=message) as refused, topics.admin(broker, LIMIT_MS):
        pass
    assert "section broker" in refused.value.hint
    assert "guessed" not in str(refused.value)


def test_a_broker_under_another_name_than_its_certificates_is_refused(guarded: Guarded) -> None:
    port = guarded.mutual.bootstrap.rpartition(":")[2]
    with pytest.raises(NotRunning, match="mismatch"):
        topics.probe(replace(guarded.mutual, bootstrap=f"localhost:{port}"))


@pytest.mark.slow
def test_an_engine_that_may_not_come_in_ends_and_says_so(
    guarded: Guarded, postgres_url: str, tmp_path: Path
) -> None:
    board = Board(Parts(guarded.open.bootstrap, postgres_url), tmp_path, "refused_by_tls")
    names = ("bootstrap", "protocol", "ca_file", "sasl_mechanism", "username")
    settings = {f"broker__{name}": getattr(guarded.plain, name) for name in names}
    with board.engine(**settings, broker__password="guessed") as engine:
        assert board.until_dead(engine) == Exit.NOT_RUNNING
    assert re.search(NO, board.log())
    assert "guessed" not in board.log()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"username": ""}, "broker.username is not set"),
        ({"password": ""}, "broker.password is not set"),
        ({"sasl_mechanism": ""}, "broker.sasl_mechanism is not set"),
        ({"protocol": "PLAINTEXT"}, r"sasl_mechanism is set, and broker\.protocol is PLAINTEXT"),
        ({"ca_file": "/absent"}, r"ca_file is set, and broker\.protocol is SASL_PLAINTEXT"),
        ({"protocol": "SASL_SSL", "ca_file": "/absent"}, "/absent cannot be read"),
        ({"protocol": "SASL_SSL", "ca_file": "/etc/passwd"}, "holds no -----BEGIN CERTIFICATE"),
        ({"protocol": "SASL_SSL", "key_file": "/absent"}, "one is set and the other is not"),
        ({"bootstrap": ""}, "names no broker"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    changed: dict[str, Any], message: str
) -> None:
    check(NAMED)
    with pytest.raises(ConfigError, match=message) as refused:
        client_options(replace(NAMED, **changed))
    assert "s3cret" not in str(refused.value)


def test_a_key_that_is_not_that_of_the_certificate_is_refused(
    guarded: Guarded, tmp_path: Path
) -> None:
    both = Path(guarded.mutual.certificate_file).with_name("server.pem")
    with pytest.raises(ConfigError, match=r"cannot be used: .*mismatch"):
        check(replace(guarded.mutual, key_file=str(both)))
    old = tmp_path / "old.pem"
    old.write_text(Path(guarded.mutual.key_file).read_text().replace(" PRIVATE", " RSA PRIVATE"))
    with pytest.raises(ConfigError, match="holds no -----BEGIN PRIVATE KEY"):
        check(replace(guarded.mutual, key_file=str(old)))


def test_up_and_engine_refuse_them_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    up = ["--home", str(home), "--set", "broker.protocol=SSL"]
    assert main(["up", *up]) == Exit.CONFIG
    reasons = logging.getLogger("kafka.net.manager")
    assert reasons.isEnabledFor(logging.WARNING), "why a broker refuses somebody is heard there"
    assert "broker.bootstrap names no broker" in capsys.readouterr().err
    given = ["--set=broker.bootstrap=kafka:1", "--set=warehouse.url=postgresql://h/d"]
    assert main(["engine", *up, *given, "--set=broker.username=me"]) == Exit.CONFIG
    assert "broker.username is set, and" in capsys.readouterr().err
    assert not home.exists()


def test_spark_is_given_the_password_as_jaas_reads_it() -> None:
    line = spark_options(replace(NAMED, password='a"b\\c\nd'))["kafka.sasl.jaas.config"]
    assert line.endswith('username="etl" password="a\\"b\\\\c\\012d";')
