"""The real broker and PostgreSQL, killed and started again; ports, secrets, the data folder."""

import os
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from alone import LOOPBACK, Alone, a_broker, a_postgres, data_folder
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from headrace.config import Broker, Config
from headrace.errors import ConfigError, HeadraceError, Missing, Refused
from headrace.local import home, leash, ports, postgres
from headrace.local.home import Home, ensure_secret
from headrace.local.ports import Wanted
from ingest import topics


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Config:
    path = tmp_path_factory.mktemp("spaces and é: a path like any") / "home"
    return data_folder(path, broker__host="127.0.0.2", broker__memory_mb="300")


@pytest.fixture(scope="module")
def server(settings: Config) -> Iterator[Alone]:
    with a_postgres(settings) as running:
        yield running


@pytest.fixture(scope="module")
def kafka(settings: Config) -> Iterator[Alone]:
    with a_broker(settings) as running:
        yield running


def test_postgres_keeps_what_was_committed_when_it_is_killed(server: Alone) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (n int)")
        connection.execute("INSERT INTO kept VALUES (42)")
    server.kill()
    server.start()
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(42,)]


def test_postgres_starts_over_a_pid_file_that_names_another_living_process(
    server: Alone, settings: Config
) -> None:
    server.kill()
    pid_file = Home(settings.home).postgres / "postmaster.pid"
    former, *rest = pid_file.read_text().splitlines(keepends=True)
    pid_file.write_text(f"{os.getpid()}\n" + "".join(rest))
    assert former.strip() != str(os.getpid())
    server.start()


def test_postgres_is_durable_and_listens_on_loopback_only(server: Alone) -> None:
    with psycopg.connect(server.url) as connection:
        shown = [
            connection.execute(f"SHOW {name}").fetchone()
            for name in ("fsync", "synchronous_commit", "server_encoding", "listen_addresses")
        ]
    assert shown == [("on",), ("on",), ("UTF8",), (LOOPBACK,)]


def test_postgres_asks_for_the_password(server: Alone, settings: Config) -> None:
    password = ensure_secret(Home(settings.home).postgres_password)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.url.replace(password, "guessed"))


def test_the_password_is_for_the_owner_only_and_in_no_argument_and_no_log(
    server: Alone, settings: Config
) -> None:
    own = Home(settings.home)
    secret = own.postgres_password.read_bytes()
    assert stat.S_IMODE(own.postgres_password.stat().st_mode) == 0o600
    assert stat.S_IMODE(own.secrets.stat().st_mode) == 0o700
    assert stat.S_IMODE(own.root.stat().st_mode) == 0o700
    assert secret not in Path(f"/proc/{server.pid}/cmdline").read_bytes()
    assert secret not in own.log("postgres").read_bytes()


def test_the_broker_keeps_what_it_confirmed_when_it_is_killed(kafka: Alone) -> None:
    with topics.admin(Broker(bootstrap=kafka.address)) as client:
        client.create_topics([NewTopic("kept", num_partitions=1)])
    producer = KafkaProducer(bootstrap_servers=kafka.address, acks="all")
    producer.send("kept", b"forty-two").get(30)
    producer.close()
    kafka.kill()
    kafka.start()
    consumer = KafkaConsumer(bootstrap_servers=kafka.address, consumer_timeout_ms=30_000)
    consumer.assign([TopicPartition("kept", 0)])
    consumer.seek_to_beginning()
    assert next(consumer).value == b"forty-two"
    consumer.close()


def test_the_broker_listens_where_it_is_told_and_has_the_memory_that_it_is_given(
    kafka: Alone,
) -> None:
    host, _, port = kafka.address.partition(":")
    assert host == "127.0.0.2"
    topics.probe(Broker(bootstrap=kafka.address))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, int(port)))
    assert b"-Xmx300m" in Path(f"/proc/{kafka.pid}/cmdline").read_bytes()


def test_the_broker_goes_back_to_the_address_it_had(kafka: Alone) -> None:
    address = kafka.address
    kafka.stop()
    kafka.start()
    topics.probe(Broker(bootstrap=address))


def test_root_without_user_namespaces_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusal:
        returncode = leash.NO_NAMESPACE

    monkeypatch.setattr("headrace.local.child.subprocess.run", lambda *_, **__: Refusal())
    fresh = data_folder(tmp_path / "home")
    with pytest.raises(Missing, match="does not run as root"):
        postgres.part(fresh, 5432).prepare()
    assert not Home(fresh.home).postgres.exists()


def test_an_interrupted_first_start_is_made_again(tmp_path: Path) -> None:
    fresh = data_folder(tmp_path / "home")
    own = Home(fresh.home)
    half_made = own.root / "postgres.new"
    half_made.mkdir()
    (half_made / "PG_VERSION").write_text("18")
    postgres.part(fresh, 5432).prepare()
    assert (own.postgres / "global").is_dir()
    assert not half_made.exists()


def test_a_port_is_chosen_once_and_kept(tmp_path: Path) -> None:
    memory = tmp_path / "ports.json"
    wanted = [Wanted("broker", LOOPBACK), Wanted("api", LOOPBACK)]
    first = ports.choose(wanted, memory)
    assert len(set(first.values())) == 2
    assert ports.choose(wanted, memory) == first


def test_a_remembered_port_that_is_taken_is_replaced(tmp_path: Path) -> None:
    memory = tmp_path / "ports.json"
    wanted = [Wanted("api", LOOPBACK)]
    first = ports.choose(wanted, memory)["api"]
    with socket.create_server((LOOPBACK, first)):
        assert ports.choose(wanted, memory)["api"] != first


def test_a_configured_port_that_is_taken_is_an_error_that_names_it(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(Refused, match=rf"api\.port is {port}"):
            ports.choose([Wanted("api", LOOPBACK, port)], tmp_path / "ports.json")


def test_two_parts_with_one_configured_port_are_an_error(tmp_path: Path) -> None:
    wanted = [Wanted("api", LOOPBACK, 20_001), Wanted("broker", LOOPBACK, 20_001)]
    with pytest.raises(ConfigError, match=r"api\.port and broker\.port are both 20001"):
        ports.choose(wanted, tmp_path / "ports.json")


def test_an_address_of_another_machine_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"api: .* 192\.0\.2\.1"):
        ports.choose([Wanted("api", "192.0.2.1")], tmp_path / "ports.json")


def test_a_folder_with_other_peoples_files_is_neither_used_nor_deleted(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("chapter one")
    for attempt in (Home(tmp_path).create, Home(tmp_path).delete):
        with pytest.raises(Refused, match="not a data folder of Headrace"):
            attempt()
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_full_disk_is_noticed_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "FREE_MB_LEAST", 2**40)
    with pytest.raises(Missing, match="MiB left"):
        Home(tmp_path / "new").create()
    assert not (tmp_path / "new").exists()


def test_a_path_that_the_parts_cannot_use_is_refused(tmp_path: Path) -> None:
    for name in ("deep/" * 200, "a,b"):
        with pytest.raises(ConfigError, match="path of the data folder"):
            Home(tmp_path / name).create()


def test_a_data_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        Home(tmp_path / "file" / "home").create()


def test_a_part_alone_that_fails_says_how(settings: Config) -> None:
    failing = postgres.part(settings, 1)
    part = type(failing)(
        name="failing",
        argv=("/bin/sh", "-c", "kill -TERM $$"),
        environment={},
        address="nowhere",
        probe=failing.probe,
    )
    with pytest.raises(HeadraceError, match=signal.SIGTERM.name):
        Alone(part, settings).start()
